"""Options: names, defaults, refusals that help, and contradictions."""

from __future__ import annotations

import logging
import math
import pickle
import runpy
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.running.house_tree import ROOT

from splashdam.client.partitioning.partitioners import RoundRobinPartitioner
from splashdam.client.serializers import DefaultSerializer
from splashdam.client.settings.keywords import ProducerOptions
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.rules import (
    compression,
    options_from_properties,
    producer_settings,
    topic_compression,
)
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_INT, MAX_LONG, unit_of
from splashdam.record.batch import Codec


def test_the_default_is_safe() -> None:
    """Everyone in sync has the record, retries are recognised, memory is bounded."""
    settings = producer_settings({})
    assert settings.acks == -1
    assert settings.enable_idempotence
    assert settings.linger_ms == 5
    assert settings.buffer_memory == 32 * 1024 * 1024
    assert settings.max_in_flight_requests_per_connection == 5
    assert settings.bootstrap_servers == "localhost:9092"


def test_each_client_has_a_name_of_its_own() -> None:
    """So that the broker's logs tell two producers apart."""
    first, second = producer_settings({}), producer_settings({})
    assert first.client_id != second.client_id
    assert str(first.client_id).startswith("splashdam-producer-")
    assert producer_settings({"client_id": "billing"}).client_id == "billing"


def test_the_typed_options_are_the_options() -> None:
    """The type that editors see has the names of the table."""
    assert ProducerOptions.__annotations__.keys() == {field.name for field in attrs.fields(ProducerSettings)}


def test_every_option_is_documented() -> None:
    """Each has a text that ends without a full stop, since messages add one."""
    for field in attrs.fields(ProducerSettings):
        assert field.metadata["doc"], field.name
        assert not field.metadata["doc"].endswith("."), field.name


def test_kafka_pythons_options_are_known() -> None:
    """Each of its names is either an option here or refused with a reason."""
    theirs = pytest.importorskip("kafka").KafkaProducer.DEFAULT_CONFIG
    ours = {field.name for field in attrs.fields(ProducerSettings)}
    for name in theirs.keys() - ours - {"socks5_proxy"}:
        with pytest.raises(KafkaConfigurationError, match=f"{name} cannot be set: "):
            producer_settings({name: object()})


def test_kafka_pythons_defaults_pass() -> None:
    """A configuration that spells out defaults of options without effect is no mistake."""
    producer_settings(
        {"api_version": None, "sasl_mechanism": None, "metrics_enabled": True, "ssl_check_hostname": True}
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"linger": 5}, r"unknown producer option 'linger'. Did you mean 'linger_ms'\?"),
        ({"bootstrap_server": "x"}, r"Did you mean 'bootstrap_servers'\?"),
        ({"acks": 2}, "acks=2: must be one of -1, 0, 1, 'all'"),
        ({"acks": True}, "acks=True: must be one of -1, 0, 1, 'all'"),
        ({"acks": False}, "acks=False: must be one of -1, 0, 1, 'all'"),
        ({"acks": 1.0}, "acks=1.0: must be one of -1, 0, 1, 'all'"),
        ({"linger_ms": -1}, "linger_ms=-1: must be at least 0"),
        ({"batch_size": "16k"}, "batch_size='16k': must be a number, not str"),
        ({"batch_size": 1.5}, "batch_size=1.5: must be a whole number"),
        ({"compression_type": "brotli"}, "compression_type='brotli': must be one of"),
        ({"security_protocol": "TLS"}, "security_protocol='TLS': must be one of 'PLAINTEXT', 'SSL'"),
        ({"security_protocol": "bogus"}, "security_protocol='bogus': must be one of 'PLAINTEXT', 'SSL'"),
        ({"ssl_cafile": "ca.pem"}, "ssl_cafile has no effect with security_protocol='PLAINTEXT'"),
        ({"transactional_id": ""}, "transactional_id='': must not be empty"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms=0: must be at least 1"),
        ({"key_serializer": "json"}, "neither a Serializer nor callable"),
        ({"partitioner": RoundRobinPartitioner}, "is not a partitioner; give an instance"),
        ({"client_id": 7}, "client_id=7: must be str, not int"),
        ({"client_id": "\ud800"}, "client_id=.*cannot be sent: .*surrogates"),
        ({"client_id": "é" * 16_384}, "client_id=.*takes 32768 bytes; the protocol has room for 32767"),
        ({"socket_options": [(1, 2)]}, r"socket_options=.*must be a list of \(level, option, value\)"),
    ],
)
def test_refusals_say_what_is_wrong(options: dict[str, Any], words: str) -> None:
    """The option, the value, the rule, and the nearest right name."""
    with pytest.raises(KafkaConfigurationError, match=words) as caught:
        producer_settings(options)
    ((name, _),) = options.items()
    assert str(caught.value).count(f"{name}=") <= 1  # that of a plug-in was once named twice


@pytest.mark.parametrize(
    "options",
    [{"acks": 1}, {"acks": 0}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}],
)
def test_idempotence_by_default_gives_way(options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """With a warning; asked for, it is an error. Both as in kafka-python."""
    with caplog.at_level(logging.WARNING, "splashdam.client"):
        assert not producer_settings(options).enable_idempotence
    assert "idempotence is off" in caplog.text
    with pytest.raises(KafkaConfigurationError, match="enable_idempotence=True needs"):
        producer_settings({**options, "enable_idempotence": True})
    assert not producer_settings({**options, "enable_idempotence": False}).enable_idempotence


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 1},
        {"retries": 0},
        {"max_in_flight_requests_per_connection": 6},
        {"enable_idempotence": False},
    ],
)
def test_transactions_need_idempotence(options: dict[str, Any]) -> None:
    """As in kafka-python: what speaks against it is an error, not a warning."""
    assert producer_settings({"transactional_id": "t"}).enable_idempotence
    with pytest.raises(KafkaConfigurationError, match="transactional_id needs"):
        producer_settings({"transactional_id": "t", **options})


def test_the_delivery_timeout_follows_a_long_linger() -> None:
    """Left at its default it never blocks a legal linger; set too low it is an error."""
    assert producer_settings({"linger_ms": 100_000}).delivery_timeout_ms == 130_000
    with pytest.raises(KafkaConfigurationError, match="must be at least linger_ms"):
        producer_settings({"linger_ms": 100, "delivery_timeout_ms": 30_000})


def test_backoffs_agree() -> None:
    """The maximum follows the first wait, unless both were set."""
    assert producer_settings({"retry_backoff_ms": 3_000}).retry_backoff_max_ms == 3_000
    with pytest.raises(KafkaConfigurationError, match="reconnect_backoff_ms=90 must not be above"):
        producer_settings({"reconnect_backoff_ms": 90, "reconnect_backoff_max_ms": 50})


def test_compression_levels() -> None:
    """A level counts for its own codec only."""
    settings = producer_settings({"compression_type": "gzip", "compression_gzip_level": 9})
    assert compression(settings).codec is Codec.GZIP
    assert compression(settings).level == 9
    assert producer_settings({"compression_type": "none"}).compression_type is None
    with pytest.raises(KafkaConfigurationError, match="level"):
        producer_settings({"compression_type": "gzip", "compression_gzip_level": 12})


def test_properties_become_options() -> None:
    """Kafka's dotted names and text values, Java's class names included."""
    options = options_from_properties(
        {
            "bootstrap.servers": "a:1,b:2",
            "acks": "all",
            "linger.ms": "20",
            "enable.idempotence": "true",
            "compression.type": "none",
            "compression.zstd.level": "5",
            "max.in.flight.requests.per.connection": "3",
            "metadata.max.age.ms": "1000",
            "receive.buffer.bytes": "65536",
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
            "partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
        }
    )
    settings = producer_settings(options)
    assert settings.bootstrap_servers == "a:1,b:2"
    assert settings.linger_ms == 20
    assert settings.acks == -1
    assert settings.enable_idempotence is True
    assert settings.receive_buffer_bytes == 65536
    assert isinstance(settings.key_serializer, DefaultSerializer)
    assert settings.value_serializer is None
    assert isinstance(settings.partitioner, RoundRobinPartitioner)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("linger", "5", r"unknown producer property 'linger'. Did you mean 'linger.ms'\?"),
        ("linger.ms", "soon", "linger.ms='soon'"),
        ("enable.idempotence", "yes", "must be true or false"),
        ("ssl.truststore.type", "JKS", "only PEM is read"),
        ("sasl.jaas.config", "x", "must be one of PlainLoginModule"),
        ("key.serializer", "com.example.AvroSerializer", "has no counterpart here"),
    ],
)
def test_properties_that_are_refused(name: str, value: str, words: str) -> None:
    """By their own name, not by that of an option."""
    with pytest.raises(KafkaConfigurationError, match=words):
        producer_settings(options_from_properties({name: value}))


def test_kafkas_names_are_kafkas() -> None:
    """Each dotted name that Java's producer knows means the option of that name."""
    for field in attrs.fields(ProducerSettings):
        dotted = field.metadata["kafka"] or field.name.replace("_", ".")
        assert "_" not in dotted, Path(dotted)


def test_settings_pickle() -> None:
    """A configuration travels to a worker, where the producer is made."""
    settings = producer_settings({"key_serializer": DefaultSerializer(), "linger_ms": 7})
    again = pickle.loads(pickle.dumps(settings))
    assert again.linger_ms == 7
    assert again.client_id == settings.client_id


@pytest.mark.parametrize("name", ["request_timeout_ms", "max_request_size", "batch_size"])
def test_what_the_protocol_has_in_32_bits_is_limited(name: str) -> None:
    """A larger number would be found out only when the first request is encoded, and then for ever."""
    assert getattr(producer_settings({name: 2**31 - 1}), name) == 2**31 - 1
    for value in (2**31, 10**10):
        with pytest.raises(KafkaConfigurationError, match=rf"{name}={value}: must be at most 2147483647"):
            producer_settings({name: value})


@pytest.mark.parametrize(
    "name", [field.name for field in attrs.fields(ProducerSettings) if unit_of(field) == "ms"]
)
def test_a_time_without_end_was_taken(name: str) -> None:
    """Kafka has INT or LONG for each; infinity has no place in either."""
    ints = {"linger_ms", "request_timeout_ms", "delivery_timeout_ms", "transaction_timeout_ms"}
    longest = MAX_INT if name in ints else MAX_LONG
    assert getattr(producer_settings({name: longest}), name) == longest
    for value in (math.inf, longest * 10):
        with pytest.raises(KafkaConfigurationError, match=f"{name}={value}: must be at most {longest}"):
            producer_settings({name: value})


def test_the_longest_times_of_java_are_taken() -> None:
    """Connect sets ``max.block.ms`` to the largest LONG; as a float it is larger by one."""
    options = options_from_properties({"max.block.ms": str(MAX_LONG), "delivery.timeout.ms": str(MAX_INT)})
    settings = producer_settings({**options, "linger_ms": MAX_INT})
    assert settings.max_block_ms == 2.0**63
    assert settings.delivery_timeout_ms == producer_settings({"linger_ms": MAX_INT}).delivery_timeout_ms


def test_codecs_of_single_topics() -> None:
    """As a dict or in properties, with a level or that of the codec's own option."""
    written = {"orders": "zstd:3", "images": "none", "logs": "gzip", "old": None}
    settings = producer_settings({"topic_compression": written, "compression_gzip_level": 9})
    expected = {
        "orders": (Codec.ZSTD, 3),
        "images": (Codec.NONE, None),
        "logs": (Codec.GZIP, 9),
        "old": (Codec.NONE, None),
    }
    assert topic_compression(settings) == expected
    text = "orders = zstd:3, images=none,logs=gzip,"
    options = options_from_properties({"topic.compression": text})
    assert options == {"topic_compression": {"orders": "zstd:3", "images": "none", "logs": "gzip"}}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"orders": "zst"}, "topic_compression of 'orders'.*Did you mean 'zstd'"),
        ({"orders": "zstd:many"}, "topic_compression of 'orders'"),
        ({"orders": "snappy:3"}, "snappy has no levels"),
        ("zstd", "must be a dict of topic to 'codec'"),
        ({"orders": 3}, "must be a dict of topic to 'codec'"),
    ],
)
def test_bad_codecs_of_single_topics(value: Any, message: str) -> None:
    """The topic is named."""
    with pytest.raises(KafkaConfigurationError, match=message):
        producer_settings({"topic_compression": value})


@pytest.mark.parametrize("text", ["orders", "orders=", "=zstd", "a=zstd,a=gzip"])
def test_properties_that_name_no_codec(text: str) -> None:
    """A property that is not topic=codec is refused."""
    with pytest.raises(KafkaConfigurationError, match=r"topic\.compression"):
        options_from_properties({"topic.compression": text})


def test_the_page_of_options_shows_the_table() -> None:
    """``python tools/options_page.py`` writes it anew."""
    as_markdown = runpy.run_path(str(ROOT / "tools/options_page.py"))["as_markdown"]
    assert (ROOT / "docs/reference/options.md").read_text().endswith(as_markdown())


def test_the_page_of_options_has_all_of_them() -> None:
    """It also has the options of a class that was newly added to the settings."""
    page = (ROOT / "docs/reference/options.md").read_text()
    for field in attrs.fields(ProducerSettings):
        assert page.count(f"\n| `{field.name}` | ") == 1
