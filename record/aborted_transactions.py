"""Decide which batches of a log belong to aborted transactions, for readers and for compaction.

The log has two sources: a list of aborted transactions with their first offsets
(docs/format/aborted-transactions.md), and the abort markers among the batches.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count
from struct import Struct
from typing import Generic, Protocol, TypeVar

from splashdam.model.values import Buffer
from splashdam.record.batch import BatchHeader
from splashdam.record.reader import Record, read_records

CONTROL_KEY = Struct(">hh")
"""Key of a control record: version, type (docs/format/control-batches.md)."""

ABORT, COMMIT = 0, 1
"""The types of control records that end a transaction."""


class Aborted(Protocol):
    """An entry of a list of aborted transactions."""

    @property
    def producer_id(self) -> int:
        """Producer id of the transaction."""
        ...

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        ...


T = TypeVar("T", bound=Aborted)


class AbortedTransactions(Generic[T]):
    """Tracks the aborted transactions of a sequence of batches, which must be passed in order.

    As in Kafka's consumer (``CompletedFetch``), a producer's batches belong to an aborted transaction from
    its first offset on up to the producer's next abort marker.

    Args:
        listed: the aborted transactions with records in these batches, in any order.
    """

    def __init__(self, listed: Iterable[T]) -> None:
        numbers = count()  # a tie-breaker: entries with equal offsets are never compared
        self._to_come = [(each.first_offset, next(numbers), each) for each in listed]
        heapq.heapify(self._to_come)
        self._open: dict[int, T] = {}

    def of_data(self, header: BatchHeader) -> T | None:
        """Return the aborted transaction that a data batch belongs to, or None."""
        self._begin_up_to(header.last_offset)
        return self._open.get(header.producer_id) if header.is_transactional else None

    def ended_by(self, header: BatchHeader) -> T | None:
        """Process an abort marker; return the listed transaction that it ends, or None."""
        self._begin_up_to(header.last_offset)
        return self._open.pop(header.producer_id, None)

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[0][0] <= offset:
            aborted = heapq.heappop(self._to_come)[2]
            self._open.setdefault(aborted.producer_id, aborted)


def control_type(batch: Buffer, position: int = 0) -> int | None:
    """Return the type of the control batch at ``position``; None if it is empty or unknown.

    Raises:
        CorruptMessageError: its record cannot be decoded.
    """
    record = next(iter(read_records(batch, position)), None)
    return None if record is None else type_of_control_record(record)


def type_of_control_record(record: Record) -> int | None:
    """Return the type of a control batch's only record, or None."""
    if record.key is None or len(record.key) < CONTROL_KEY.size:
        return None
    kind: int = CONTROL_KEY.unpack_from(record.key)[1]
    return kind
