"""The cluster that options name: a value, checked where the query is planned."""

from __future__ import annotations

import logging
import pickle

import pytest

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import IsolationLevel
from splashdam.pipeline.clusters import CHUNK_BYTES, ClusterConfig

SERVERS = {"bootstrap.servers": "a:1, b"}
LOGIN = {
    **SERVERS,
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' username="u" password="hidden";',
}


def test_a_value_for_workers() -> None:
    """Trap 15: it pickles, is equal to its copy, is a key, and does not show passwords."""
    config = ClusterConfig.from_options(LOGIN)
    copy = pickle.loads(pickle.dumps(config))
    assert copy == config
    assert {config: 1}[copy] == 1
    assert "hidden" not in repr(config)
    assert config.authenticator() is not None
    assert config.addresses == [("a", 1), ("b", 9092)]


def test_properties_of_reading() -> None:
    """Consumers' properties shape the requests; a producer of the same options does not see them."""
    config = ClusterConfig.from_options(
        {
            **SERVERS,
            "isolation.level": "read_committed",
            "fetch.max.wait.ms": "7",
            "max.partition.fetch.bytes": "100000000",
            "client.id": "me",
            "request.timeout.ms": "1234",
            "linger.ms": "1",
        }
    )
    assert config.isolation_level is IsolationLevel.READ_COMMITTED
    settings = config.fetch_settings(config.isolation_level)
    assert (settings.max_wait_ms, settings.client_id, settings.request_timeout_ms) == (7, "me", 1234)
    assert settings.max_bytes == settings.max_partition_bytes == 100_000_000
    assert config.client_settings().client_id == "me"
    assert config.properties == {
        "bootstrap.servers": "a:1, b",
        "client.id": "me",
        "linger.ms": "1",
        "request.timeout.ms": "1234",
    }


def test_defaults() -> None:
    """As Kafka's, but for the size of a chunk."""
    config = ClusterConfig.from_options(SERVERS)
    assert config.isolation_level is IsolationLevel.READ_UNCOMMITTED
    assert config.fetch_settings(config.isolation_level).max_partition_bytes == CHUNK_BYTES
    assert config.authenticator() is None


def test_groups_have_no_meaning(caplog: pytest.LogCaptureFixture) -> None:
    """Spark's own source takes such options with a warning, and so does this one."""
    with caplog.at_level(logging.WARNING):
        config = ClusterConfig.from_options({**SERVERS, "group.id": "g"})
    assert config == ClusterConfig.from_options(SERVERS)
    assert "kafka.group.id has no effect" in caplog.text


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, r"option kafka\.bootstrap\.servers is missing"),
        ({"bootstrap.servers": "a:b"}, "'a:b' has port 'b'"),
        ({"bootstrap.servers": "embedded:./data"}, "cannot reach a broker inside this one. Start `splashdam"),
        ({**SERVERS, "auto.offset.reset": "latest"}, "set the option startingOffsets instead"),
        ({**SERVERS, "key.serializer": "x"}, "cast the column"),
        ({**SERVERS, "isolation.level": "dirty"}, r"kafka\.isolation\.level='dirty': must be one of"),
        ({**SERVERS, "fetch.max.wait.ms": "-1"}, r"kafka\.fetch\.max\.wait\.ms='-1': must be at least 0"),
        ({**SERVERS, "security.protocoll": "SSL"}, "Did you mean 'security.protocol'"),
    ],
)
def test_refused(given: dict[str, str], complaint: str) -> None:
    """Each message says what is wrong, and what to do."""
    with pytest.raises(KafkaConfigurationError, match=complaint):
        ClusterConfig.from_options(given)


@pytest.mark.parametrize(
    "name", ["fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes"]
)
def test_numbers_that_no_request_can_hold(name: str) -> None:
    """Said when the option is read, not when the first request is written."""
    with pytest.raises(KafkaConfigurationError, match="must be at most 2147483647"):
        ClusterConfig.from_options({"bootstrap.servers": "localhost:9092", name: "2147483648"})
