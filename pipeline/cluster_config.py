"""Which cluster a source or sink talks to, and how: the ``kafka.*`` options as a value for workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from splashdam.client.local import PREFIX
from splashdam.client.running.wiring import authenticator, make_tcp_connect, secured
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.client.settings.rules import options_from_properties, producer_settings
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import MAX_INT
from splashdam.model.values import IsolationLevel
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.cluster.cluster_client import ClusterClientSettings
from splashdam.net.cluster.fetch_client import FetchSettings
from splashdam.net.connect import Connect
from splashdam.net.connection.connection import Authenticator
from splashdam.pipeline.options import KAFKA, integer, one_of

_logger = logging.getLogger("splashdam.pipeline")

BOOTSTRAP = "bootstrap.servers"
CLIENT_ID = "splashdam-pipeline"

CHUNK_BYTES = 8 * 1024 * 1024
"""What one Fetch asks of a partition unless told otherwise; a reader holds up to three of them."""

_LEVELS = {
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
    "read_committed": IsolationLevel.READ_COMMITTED,
}

_READING: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "isolation.level": ("isolation_level", one_of(*_LEVELS)),
    "fetch.min.bytes": ("min_bytes", integer(0, MAX_INT)),
    "fetch.max.bytes": ("max_bytes", integer(1, MAX_INT)),
    "fetch.max.wait.ms": ("max_wait_ms", integer(0, MAX_INT)),
    "max.partition.fetch.bytes": ("max_partition_bytes", integer(1, MAX_INT)),
    "default.api.timeout.ms": ("timeout_ms", integer(1, MAX_INT)),
}
"""The properties of consumers that mean something here, which producers do not have."""

_WITHOUT_MEANING = frozenset(
    (
        "check.crcs",
        "client.rack",
        "exclude.internal.topics",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
    )
)
"""Properties of consumers in a group. There is no group: offsets are Spark's."""

_REFUSED = {
    "auto.offset.reset": "set the option startingOffsets instead",
    "enable.auto.commit": "no offsets are committed; they are in Spark's checkpoint",
    "interceptor.classes": "interceptors are not called for what Spark reads or writes",
    "key.deserializer": "keys are read as bytes; cast the column",
    "value.deserializer": "values are read as bytes; cast the column",
    "key.serializer": "cast the column to string or binary instead",
    "value.serializer": "cast the column to string or binary instead",
}


@attrs.frozen
class ClusterConfig:
    """A cluster's address, and the properties of its client. It pickles, and is a key of dictionaries.

    Attributes:
        bootstrap_servers: where to begin, ``host:port`` with commas between several.
    """

    bootstrap_servers: str
    _properties: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)  # with passwords

    @classmethod
    def from_options(cls, kafka: Mapping[str, str]) -> ClusterConfig:
        """Of the ``kafka.*`` options, without that prefix: Kafka's names for consumers and producers.

        Raises:
            KafkaConfigurationError: ``bootstrap.servers`` is missing or is ``embedded:…``, or a property is
                unknown, refused, or has no sense.
        """
        given = {name: text.strip() for name, text in kafka.items()}
        servers = given.pop(BOOTSTRAP, "")
        if not servers:
            raise KafkaConfigurationError(
                f"option {KAFKA + BOOTSTRAP} is missing: it says where the cluster is"
            )
        if servers.startswith(PREFIX):
            raise KafkaConfigurationError(
                f"{KAFKA + BOOTSTRAP}={servers!r}: Spark's workers are processes of their own, and cannot"
                " reach a broker inside this one. Start `splashdam broker`, or EmbeddedBroker(directory,"
                " port=0) in the driver, and give its address"
            )
        for name in given.keys() & _REFUSED.keys():
            raise KafkaConfigurationError(f"{KAFKA + name} cannot be set: {_REFUSED[name]}")
        for name in sorted(given.keys() & _WITHOUT_MEANING):
            _logger.warning("%s has no effect: Spark keeps the offsets, and there is no group", KAFKA + name)
            del given[name]
        config = cls(servers, tuple(sorted(given.items())))
        parse_bootstrap_servers(servers)
        config.fetch_settings(config.isolation_level)
        return config

    @property
    def properties(self) -> dict[str, str]:
        """What a producer's ``from_properties`` takes: all but what concerns reading alone."""
        rest = {name: text for name, text in self._properties if name not in _READING}
        return {BOOTSTRAP: self.bootstrap_servers, **rest}

    @property
    def isolation_level(self) -> IsolationLevel:
        """``kafka.isolation.level``; like Kafka's consumers, read_uncommitted unless told otherwise."""
        level: IsolationLevel = self._reading().get("isolation_level", IsolationLevel.READ_UNCOMMITTED)
        return level

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each server."""
        return parse_bootstrap_servers(self.bootstrap_servers)

    def connect(self) -> Connect:
        """How to connect: TCP, inside TLS where that is asked for.

        Raises:
            KafkaConfigurationError: a file is missing here, or is not what it should be.
        """
        settings = self._settings()
        return secured(settings, make_tcp_connect(settings))

    def authenticator(self) -> Authenticator | None:
        """What shows brokers who we are, where they want to know."""
        return authenticator(self._settings())

    def fetch_settings(self, isolation_level: IsolationLevel) -> FetchSettings:
        """How to read.

        Raises:
            KafkaConfigurationError: a property is unknown or has no sense.
        """
        settings = self._settings()
        given = {"max_partition_bytes": CHUNK_BYTES, **self._reading(), "isolation_level": isolation_level}
        fetch = FetchSettings(
            client_id=self._client_id(),
            request_timeout_ms=settings.request_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            **given,
        )
        return attrs.evolve(fetch, max_bytes=max(fetch.max_bytes, fetch.max_partition_bytes))

    def client_settings(self) -> ClusterClientSettings:
        """How to ask about topics."""
        settings = self._settings()
        return ClusterClientSettings(
            client_id=self._client_id(),
            request_timeout_ms=settings.request_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
        )

    def _client_id(self) -> str:
        return dict(self._properties).get("client.id", CLIENT_ID)

    def _settings(self) -> ProducerSettings:
        return producer_settings(options_from_properties(self.properties))

    def _reading(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, text in self._properties:
            if name in _READING:
                field, parse = _READING[name]
                try:
                    found[field] = parse(text)
                except ValueError as error:
                    raise KafkaConfigurationError(f"{KAFKA + name}={text!r}: {error}") from error
        if "isolation_level" in found:
            found["isolation_level"] = _LEVELS[found["isolation_level"]]
        return found
