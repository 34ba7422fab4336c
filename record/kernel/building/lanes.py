"""Lanes: the open batch of each partition, to which ``send`` appends.

The compiled twin's appends run no Python code, so the GIL makes each an atomic step, also while another
thread holds the producer's guard. That is safe because of an order: *publish last, withdraw first*. A batch
is published in its lane as the last step of opening it, and withdrawn before anything reads it to close it.
So any buffer that is found in a lane may be appended to. In this twin an append takes many steps, and its
caller holds the guard.
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
"""Usual overhead of a record beside key, value and headers; an estimate of how full a batch is."""

HEADER_FRAMING_BYTES = 10
"""Maximum overhead of a header beside its key and value."""


class PartitionLane:
    """The open batch of one partition, as appends see it.

    Attributes:
        topic_partition: the partition.
        buffer: of the open batch; None while none is open.
        outcome: of the same batch.
    """

    __slots__ = ("buffer", "outcome", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.buffer: BatchBuffer | None = None
        self.outcome: BatchOutcome | None = None

    def open(self, buffer: BatchBuffer, outcome: BatchOutcome) -> None:
        """Publish an open batch, as the last step of opening it.

        Raises:
            IllegalStateError: another batch is open; withdraw it first.
        """
        if self.buffer is not None:
            raise IllegalStateError(f"the lane of {self.topic_partition} is open already")
        self.outcome = outcome
        self.buffer = buffer

    def withdraw(self) -> None:
        """Withdraw the open batch, as the first step of closing it."""
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
        """Append a record to the open batch; return None, and change nothing, if that is not possible.

        The future is made first: no record may be in a batch without a future to report it.

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
    """A topic's lanes, and the sticky partition for records with null keys.

    Attributes:
        lanes: one per partition, by number.
        sticky: lane of the sticky partition.
        sticky_bytes: bytes sent to the sticky partition since it was chosen.
        sticky_limit_bytes: from this number on records with null keys take the slow path, which switches to
            another sticky partition.
        missed: a key that the fast path has hashed and whose lane had no room, with that lane: so the
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
        """Make ``lane`` the sticky one, with ``sticky_bytes`` counted already."""
        self.sticky = lane
        self.sticky_bytes = sticky_bytes


def payload_size(headers: HeaderPairs) -> int:
    """Return the size of all keys (as UTF-8) and values."""
    return sum(len(str.encode(key)) + (0 if value is None else len(value)) for key, value in headers)
