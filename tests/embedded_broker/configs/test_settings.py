"""Settings of the broker and of topics."""

from __future__ import annotations

import attrs
import pytest

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
from splashdam.embedded_broker.configs.described import BrokerLayers, topic_entries
from splashdam.embedded_broker.configs.topics import topic_settings
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.storage.settings import LogSettings


def test_defaults_are_kafkas() -> None:
    """A sample of what Kafka's documentation says."""
    settings = BrokerSettings()
    assert settings.topic_defaults.max_message_bytes == 1_048_588
    assert settings.limits.socket_request_max_bytes == 100 * 1024 * 1024
    assert settings.num_partitions == 1
    assert settings.auto_create_topics_enable


def test_kafkas_dotted_names() -> None:
    """A server.properties can be read: every name is Kafka's, every value text."""
    settings = BrokerSettings.from_properties(
        {"num.partitions": "6", "auto.create.topics.enable": "false", "log.segment.bytes": "1000"}
    )
    assert (settings.num_partitions, settings.auto_create_topics_enable) == (6, False)
    assert settings.topic_defaults.segment_bytes == 1000


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_partition": 3}, "num_partitions"),
        ({"num_partitions": 0}, "at least 1"),
        ({"num_partitions": "3"}, "number"),
        ({"log_message_timestamp_type": "Never"}, "LogAppendTime"),
        ({"compression_type": "brotli"}, "zstd"),
    ],
)
def test_mistakes_are_reported(options: dict[str, object], text: str) -> None:
    """The right name or the legal values are in the text."""
    with pytest.raises(KafkaConfigurationError, match=text):
        BrokerSettings.from_options(options)


def test_topic_takes_the_brokers_settings() -> None:
    """log.* and message.max.bytes are the defaults of topics; a topic's own values win."""
    broker = BrokerSettings.from_options(
        {"log_segment_bytes": 5000, "message_max_bytes": 700, "compression_type": "lz4"}
    )
    settings = topic_settings(broker.topic_defaults, {"segment.bytes": "6000"})
    assert (settings.segment_bytes, settings.max_message_bytes) == (6000, 700)
    assert settings.compression_type == "lz4"


def test_untouched_topic_is_kafkas() -> None:
    """The defaults of broker and topic say the same."""
    assert topic_settings(LogSettings(), {}) == LogSettings()


def test_every_option_is_described() -> None:
    """CreateTopics can answer all of them as text, with where they come from."""
    broker = BrokerSettings.from_options({"log_roll_ms": 1})
    entries = topic_entries(BrokerLayers(broker, {}, {}), {"retention.ms": "-1", "preallocate": "true"})
    assert len(entries) == len(attrs.fields(LogSettings))
    found = {entry.name: (entry.value, entry.source) for entry in entries}
    assert found["retention.ms"] == ("-1", 1)
    assert found["segment.ms"] == ("1", 4)
    assert found["preallocate"] == ("true", 1)
    assert found["min.cleanable.dirty.ratio"] == ("0.5", 5)


@pytest.mark.parametrize(
    "configs",
    [
        {"segment.byte": "1"},
        {"min.cleanable.dirty.ratio": "1.5"},
        {"preallocate": "yes"},
        {"remote.storage.enable": "true"},
        {"cleanup.policy": "delete,"},
        {"compression.gzip.level": "0"},
        {"compression.gzip.level": "10"},
        {"compression.lz4.level": "99"},
        {"compression.zstd.level": "23"},
    ],
)
def test_illegal_topic_options(configs: dict[str, str]) -> None:
    """40, as CreateTopics answers it."""
    with pytest.raises(BrokerResponseError) as caught:
        topic_settings(LogSettings(), configs)
    assert caught.value.code == 40
