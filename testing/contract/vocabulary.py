"""What the contract asks of a client, in words that every client has: a record, an outcome, an operation.

A client of another language is a process (``drivers/``) that reads one JSON object a line,
``{"op": …, "args": {…}}``, and answers ``{"ok": …}`` or ``{"error": Kafka's name, "text": …}``; bytes are
base64.
Python clients answer the same operations with the same values, in this process.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

NOT_IN_CLIENT = "NOT_IN_CLIENT"
"""The error of an operation that a client does not have."""

PROTOCOL = "speak"
"""The operation of behaviours that use a `RawConnection` instead of a client."""

TIMEOUT_MS = 15_000
"""For how long a client looks for the records it is asked for."""


class Refused(Exception):
    """An operation that ended with an error.

    Attributes:
        name: as Kafka calls the error; a client's own name where no broker said it.
        text: the rest of what the client says.
    """

    def __init__(self, name: str, text: str = "") -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text


class Record(NamedTuple):
    """A record to be sent."""

    value: bytes | None = b""
    key: bytes | None = None
    partition: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None


class Read(NamedTuple):
    """A record that a consumer got."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


class Outcome(NamedTuple):
    """What became of a record; ``error`` is Kafka's name, None if there is none."""

    partition: int = -1
    offset: int = -1
    error: str | None = None
    text: str = ""


class Replicas(NamedTuple):
    """One partition as metadata show it."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def encoded(value: bytes | None) -> str | None:
    """As it goes over the pipe."""
    return None if value is None else base64.b64encode(value).decode()


def decoded(text: str | None) -> bytes | None:
    """As it came over the pipe."""
    return None if text is None else base64.b64decode(text)


def record_args(record: Record) -> dict[str, Any]:
    """A record as it goes over the pipe."""
    return {
        "key": encoded(record.key),
        "value": encoded(record.value),
        "partition": record.partition,
        "timestamp_ms": record.timestamp_ms,
        "headers": [[name, encoded(value)] for name, value in record.headers],
    }


def read_args(read: Read) -> dict[str, Any]:
    """A record that was got, as it comes over the pipe."""
    return {
        **read._asdict(),
        "key": encoded(read.key),
        "value": encoded(read.value),
        "headers": [[name, encoded(value)] for name, value in read.headers],
    }


def read_of(args: Mapping[str, Any]) -> Read:
    """A record that was got, as it came over the pipe."""
    return Read(
        args["partition"],
        args["offset"],
        decoded(args["key"]),
        decoded(args["value"]),
        args["timestamp_ms"],
        tuple((name, decoded(value)) for name, value in args["headers"]),
    )


class Client:
    """A client under contract. A subclass answers ``call``; each method here is one operation.

    Every method raises `Refused` where broker or client refuse.

    Attributes:
        name: of the client.
        version: of the client.
        ops: the operations it has.
    """

    name: str
    version: str
    ops: frozenset[str]

    def call(self, op: str, /, **args: Any) -> Any:
        """One operation.

        Raises:
            Refused: it ended with an error.
        """
        raise Refused(NOT_IN_CLIENT, op)

    def close(self) -> None:
        """Lets go of connections and processes."""

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
        """Sends records and waits for them; one outcome each. With a transactional id: in a transaction."""
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
        """Reads from an offset on, without a group, until it has ``count`` records or the time is up."""
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
        """Joins a group, reads ``count`` records, commits what it read, leaves."""
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
        """As `consume`, with the group protocol of KIP-848."""
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
        """Commits offsets with their metadata from outside of the group."""
        self.call(
            "commit",
            group=group,
            topic=topic,
            offsets={str(key): list(value) for key, value in offsets.items()},
        )

    def committed(self, group: str, topic: str) -> dict[int, tuple[int, str]]:
        """What a group has committed: offset and metadata by partition."""
        found = self.call("committed", group=group, topic=topic)
        return {int(partition): (offset, metadata or "") for partition, (offset, metadata) in found.items()}

    def offsets(self, topic: str, at: str | int, partition: int = 0) -> int:
        """The offset at ``"earliest"``, ``"latest"``, ``"max_timestamp"`` or a time in ms; -1 for none."""
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
        """Creates a topic."""
        self.call(
            "create_topic",
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=dict(configs or {}),
            validate_only=validate_only,
        )

    def describe_topic(self, topic: str) -> list[Replicas]:
        """Its partitions, in order."""
        found = self.call("describe_topic", topic=topic)
        return [
            Replicas(each["partition"], each["leader"], tuple(each["replicas"]), tuple(each["isr"]))
            for each in found
        ]
