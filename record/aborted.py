"""Which batches of a log belong to aborted transactions: one decision, for readers and for compaction.

A log tells it in two places: a list of aborted transactions with the offset at which each began
(docs/format/aborted-transactions.md), and the abort markers in the log itself.
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
    """What a list of aborted transactions says of one."""

    @property
    def producer_id(self) -> int:
        """Whose it was."""
        ...

    @property
    def first_offset(self) -> int:
        """Where its first record is."""
        ...


T = TypeVar("T", bound=Aborted)


class AbortedTransactions(Generic[T]):
    """The aborted transactions of a walk along a log, whose batches are told in their order.

    As Kafka's consumer has it: a producer's batches are of an aborted transaction from its first offset on,
    up to the producer's next abort marker.

    Args:
        listed: those with records in the part that is walked along, in any order.
    """

    def __init__(self, listed: Iterable[T]) -> None:
        numbers = count()  # so that two that begin at one offset are never compared themselves
        self._to_come = [(each.first_offset, next(numbers), each) for each in listed]
        heapq.heapify(self._to_come)
        self._open: dict[int, T] = {}

    def of_data(self, header: BatchHeader) -> T | None:
        """The aborted transaction that a batch of data belongs to, None for one to be read."""
        self._begin_up_to(header.last_offset)
        return self._open.get(header.producer_id) if header.is_transactional else None

    def ended_by(self, header: BatchHeader) -> T | None:
        """Takes in an abort marker; the transaction that it ends, if that was listed."""
        self._begin_up_to(header.last_offset)
        return self._open.pop(header.producer_id, None)

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[0][0] <= offset:
            aborted = heapq.heappop(self._to_come)[2]
            self._open.setdefault(aborted.producer_id, aborted)


def control_type(batch: Buffer, position: int = 0) -> int | None:
    """What kind of control batch begins at ``position``; None where it is empty or of no known form.

    Raises:
        CorruptMessageError: its record cannot be read.
    """
    record = next(iter(read_records(batch, position)), None)
    return None if record is None else type_of_control_record(record)


def type_of_control_record(record: Record) -> int | None:
    """The same, of the batch's only record."""
    if record.key is None or len(record.key) < CONTROL_KEY.size:
        return None
    kind: int = CONTROL_KEY.unpack_from(record.key)[1]
    return kind
