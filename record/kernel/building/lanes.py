"""Where records go that fit as they are: the open batch of each partition.

``lanes.pxi`` has the same classes. Its appends run no Python code, so the interpreter lock makes
each one step, also beside the holder of the producer's guard. What keeps that safe is an order: *publish
last, withdraw first*. Who opens a batch publishes it in its lane when all else is done; who closes one
withdraws it before he reads what it holds. So whoever finds a buffer in a lane may append to it. In this twin
an append is many steps, and its caller holds the guard.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from splashdam.model.errors import IllegalStateError
from splashdam.model.values import Buffer, HeaderPairs, TopicPartition
from splashdam.record.kernel.building.headers import as_bytes

if TYPE_CHECKING:
    from splashdam.record.kernel.building.buffer import BatchBuffer
    from splashdam.record.kernel.outcomes.outcome import BatchOutcome, FutureCell

FutureT = TypeVar("FutureT", bound="FutureCell")

RECORD_FRAMING_BYTES = 13
"""What a record usually takes beside key, value and headers: enough to see a batch fill up."""

HEADER_FRAMING_BYTES = 10
"""What a header takes at most beside its key and value."""


class PartitionLane:
    """The open batch of one partition, as far as an append has to know it.

    Attributes:
        topic_partition: the partition.
        buffer: of the batch that takes records; None while none does.
        outcome: of the same batch.
    """

    __slots__ = ("buffer", "outcome", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.buffer: BatchBuffer | None = None
        self.outcome: BatchOutcome | None = None

    def open(self, buffer: BatchBuffer, outcome: BatchOutcome) -> None:
        """A batch takes records from now on. Called last of all that its opening consists of.

        Raises:
            IllegalStateError: another batch does; withdraw that first.
        """
        if self.buffer is not None:
            raise IllegalStateError(f"the lane of {self.topic_partition} is open already")
        self.outcome = outcome
        self.buffer = buffer

    def withdraw(self) -> None:
        """No batch takes records any more. Called before all else that closing a batch consists of."""
        self.buffer = None
        self.outcome = None

    def try_append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeaderPairs | None,
        future_type: type[FutureT],
    ) -> FutureT | None:
        """Into the open batch if there is one and the record fits as it is; else None, and nothing changed.

        The future is made before: no record is in a batch that nobody can be told of.

        Raises:
            TypeError, OverflowError, UnicodeEncodeError: as ``BatchBuffer.try_append``; nothing has changed.
        """
        buffer, outcome = self.buffer, self.outcome
        if buffer is None or outcome is None:
            return None
        if key is not None and type(key) is not bytes:
            key = as_bytes(key, "key")
        if value is not None and type(value) is not bytes:
            value = as_bytes(value, "value")
        future = future_type(
            outcome,
            buffer.record_count,
            timestamp_ms,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            payload_size(headers) if headers else -1,
        )
        return future if buffer.try_append(timestamp_ms, key, value, headers) else None


class TopicLanes:
    """What ``send`` has to know of a topic.

    Attributes:
        lanes: one per partition, by number.
        sticky: where records with null keys go now.
        sticky_bytes: how much went there since it was chosen.
        sticky_limit_bytes: from here on the straight path leaves null keys to the slow one, which switches.
        missed: a key that the straight path has hashed and whose lane had no room, with that lane: so the
            slow path does not hash it again.
    """

    __slots__ = ("lanes", "missed", "sticky", "sticky_bytes", "sticky_limit_bytes")

    def __init__(
        self,
        lanes: Iterable[PartitionLane],
        sticky: PartitionLane,
        sticky_bytes: int,
        sticky_limit_bytes: int,
    ) -> None:
        self.lanes = tuple(lanes)
        self.sticky = sticky
        self.sticky_bytes = sticky_bytes
        self.sticky_limit_bytes = sticky_limit_bytes
        self.missed: tuple[bytes, PartitionLane] | None = None

    def stick_to(self, lane: PartitionLane, sticky_bytes: int) -> None:
        """Null keys go to ``lane`` from now on, where ``sticky_bytes`` are counted already."""
        self.sticky = lane
        self.sticky_bytes = sticky_bytes


def payload_size(headers: HeaderPairs) -> int:
    """Bytes of all keys (as UTF-8) and values."""
    return sum(len(str.encode(key)) + (0 if value is None else len(value)) for key, value in headers)
