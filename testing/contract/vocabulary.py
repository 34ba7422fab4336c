"""The operations that the contract needs from a client, with their arguments and results.

A client in another language is a process that reads lines of JSON, ``{"op": …, "args": {…}}``, and answers
with ``{"ok": …}`` or ``{"error": Kafka's name, "text": …}``; bytes are in base64. Python clients run in this
process, with the same operations and values.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

NOT_IN_CLIENT = "NOT_IN_CLIENT"
"""The error of an operation that the client lacks."""

PROTOCOL = "speak"
"""The operation of behaviours that use a `RawConnection` instead of a client."""

TIMEOUT_MS = 15_000
"""How long a client tries to read the wanted records."""


class Refused(Exception):
    """An operation ended with an error.

    Attributes:
        name: Kafka's name of the error; a name that the client chooses if no broker reported it.
        text: the rest of the error message.
    """

    def __init__(self, name: str, text: str = "") -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text


class Record(NamedTuple):
    """A record to send."""

    value: bytes | None = b""
    key: bytes | None = None
    partition: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


class Read(NamedTuple):
    """A record that was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


class Outcome(NamedTuple):
    """The result for one record; ``error`` is Kafka's name, or None."""

    partition: int = -1
    offset: int = -1
    error: str | None = None
    text: str = ""


class Listener(NamedTuple):
    """A listener of a cluster, and what lets a client in.

    Attributes:
        bootstrap_servers: addresses.
        security: options for TLS and SASL by the names of `KafkaProducer`, which are kafka-python's; empty:
            neither.
    """

    bootstrap_servers: str
    security: Mapping[str, Any] = MappingProxyType({})

    @property
    def protocol(self) -> str:
        """Kafka's security protocol, ``SASL_SSL`` for example."""
        return str(self.security.get("security_protocol", "PLAINTEXT")).upper()

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def mechanism(self) -> str | None:
        """The SASL mechanism; None without SASL."""
        return self.security.get("sasl_mechanism") if self.protocol.startswith("SASL") else None

    def but(self, **security: Any) -> Listener:
        """Return the listener with other options."""
        return self._replace(security={**self.security, **security})

    def without_login(self) -> Listener:
        """Return the listener without SASL, for connections that authenticate in their own way, or not."""
        rest = {name: value for name, value in self.security.items() if not name.startswith("sasl_")}
        return self._replace(security={**rest, "security_protocol": "SSL" if self.uses_tls else "PLAINTEXT"})


class Replicas(NamedTuple):
    """One partition in a topic description."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def encoded(value: bytes | None) -> str | None:
    """Encode bytes for the pipe."""
    return None if value is None else base64.b64encode(value).decode()


def decoded(text: str | None) -> bytes | None:
    """Decode bytes from the pipe."""
    return None if text is None else base64.b64decode(text)


def record_args(record: Record) -> dict[str, Any]:
    """Encode a record for the pipe."""
    return {
        "key": encoded(record.key),
        "value": encoded(record.value),
        "partition": record.partition,
        "timestamp_ms": record.timestamp_ms,
        "headers": [[name, encoded(value)] for name, value in record.headers],
    }


def read_args(read: Read) -> dict[str, Any]:
    """Encode a record that was read for the pipe."""
    return {
        **read._asdict(),
        "key": encoded(read.key),
        "value": encoded(read.value),
        "headers": [[name, encoded(value)] for name, value in read.headers],
    }


def read_of(args: Mapping[str, Any]) -> Read:
    """Decode a record that was read from the pipe."""
    return Read(
        args["partition"],
        args["offset"],
        decoded(args["key"]),
        decoded(args["value"]),
        args["timestamp_ms"],
        tuple((name, decoded(value)) for name, value in args["headers"]),
    )


class Client:
    """A client that the contract runs through. A subclass implements `call`; other methods are operations.

    Every method raises `Refused` if broker or client refuse.

    Attributes:
        name: of the client.
        version: of the client.
        ops: names of its operations.
    """

    name: str
    version: str
    ops: frozenset[str]

    def call(self, op: str, /, **args: Any) -> Any:
        """Run one operation.

        Raises:
            Refused: it ended with an error.
        """
        raise Refused(NOT_IN_CLIENT, op)

    def twin(self, listener: Listener | None = None) -> Client:
        """Return another client of this kind, which works while this one does.

        Args:
            listener: what it connects to; None: what this one does.

        Raises:
            Refused: there is none.
        """
        raise Refused(NOT_IN_CLIENT, "twin")

    @contextmanager
    def at(self, listener: Listener) -> Iterator[Client]:
        """Lend a client of this kind that connects to another listener; this one is not used meanwhile."""
        with self.twin(listener) as client:
            yield client

    def close(self) -> None:
        """Close connections and processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        acks: str = "all",
        idempotent: bool = False,
        compression: str = "none",
        transactional_id: str | None = None,
        commit: bool = True,
        create: bool = False,
    ) -> list[Outcome]:
        """Send records and wait for one outcome each; with a transactional id, in a transaction."""
        answers = self.call(
            "produce",
            topic=topic,
            records=[record_args(each) for each in records],
            acks=acks,
            idempotent=idempotent,
            compression=compression,
            transactional_id=transactional_id,
            commit=commit,
            create=create,
        )
        return [
            Outcome(
                each.get("partition", -1), each.get("offset", -1), each.get("error"), each.get("text", "")
            )
            for each in answers
        ]

    def fetch(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        count: int,
        isolation: str = "read_uncommitted",
        timeout_ms: int = TIMEOUT_MS,
    ) -> list[Read]:
        """Read from an offset without a group, until ``count`` records or ``timeout_ms`` are reached."""
        found = self.call(
            "fetch",
            topic=topic,
            partition=partition,
            offset=offset,
            count=count,
            isolation=isolation,
            timeout_ms=timeout_ms,
        )
        return [read_of(each) for each in found]

    def consume(
        self,
        topic: str,
        group: str,
        *,
        count: int,
        isolation: str = "read_uncommitted",
        timeout_ms: int = TIMEOUT_MS,
        **options: str,
    ) -> list[Read]:
        """Join a group, read ``count`` records, commit their offsets, leave."""
        found = self.call(
            "consume",
            topic=topic,
            group=group,
            count=count,
            isolation=isolation,
            timeout_ms=timeout_ms,
            **options,
        )
        return [read_of(each) for each in found]

    def consume_by_coordinator(
        self, topic: str, group: str, *, count: int, timeout_ms: int = TIMEOUT_MS
    ) -> list[Read]:
        """Like `consume`, with the group protocol of KIP-848."""
        found = self.call(
            "consume_by_coordinator",
            topic=topic,
            group=group,
            count=count,
            isolation="read_uncommitted",
            timeout_ms=timeout_ms,
        )
        return [read_of(each) for each in found]

    def commit(self, group: str, topic: str, offsets: Mapping[int, tuple[int, str]]) -> None:
        """Commit offsets with metadata, without joining the group."""
        self.call(
            "commit",
            group=group,
            topic=topic,
            offsets={str(key): list(value) for key, value in offsets.items()},
        )

    def committed(self, group: str, topic: str) -> dict[int, tuple[int, str]]:
        """Return a group's committed offsets and metadata by partition."""
        found = self.call("committed", group=group, topic=topic)
        return {int(partition): (offset, metadata or "") for partition, (offset, metadata) in found.items()}

    def offsets(self, topic: str, at: str | int, partition: int = 0) -> int:
        """Return the offset at "earliest", "latest", "max_timestamp" or a time in ms; -1 for none."""
        found: int = self.call("offsets", topic=topic, partition=partition, at=at)
        return found

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        self.call(
            "create_topic",
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=dict(configs or {}),
            validate_only=validate_only,
        )

    def describe_topic(self, topic: str) -> list[Replicas]:
        """Return the partitions of a topic, in order."""
        found = self.call("describe_topic", topic=topic)
        return [
            Replicas(each["partition"], each["leader"], tuple(each["replicas"]), tuple(each["isr"]))
            for each in found
        ]
