"""Where each record of a bulk send went: its batch, and its index there. Stored per run, not per record.

A run is a sequence of records of one partition in one batch. If all records go to one partition at a time, a
record's number finds its run. If keys spread them over partitions, each record has two bytes with its slot
(its partition), and the number of earlier records of the same slot finds the run.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from splashdam.record.kernel import BatchOutcome, PartitionLane, RunTails, count_slot

MAX_SLOTS = 0xFFFE
"""Larger slot numbers have a special meaning in the kernels."""


class RecordLocation(NamedTuple):
    """The location of a record.

    Attributes:
        outcome: of the batch.
        position: index of the record in the batch.
    """

    outcome: BatchOutcome
    position: int


class Run(NamedTuple):
    """Adjacent records of one slot in one batch.

    Attributes:
        outcome: of the batch.
        position: index of the first record in the batch.
        first: number of earlier records of the slot.
        length: number of records.
    """

    outcome: BatchOutcome
    position: int
    first: int
    length: int


class SlotRuns:
    """The runs of one slot, in order."""

    __slots__ = ("_firsts", "_indexes", "_outcomes")

    def __init__(self) -> None:
        self._firsts = array("q")
        self._indexes = array("q")
        self._outcomes: list[BatchOutcome] = []

    def add(self, first: int, outcome: BatchOutcome, index: int) -> None:
        """Add a run, unless it continues the previous one."""
        if self._firsts:
            same = self._outcomes[-1] is outcome and index - self._indexes[-1] == first - self._firsts[-1]
            if same:
                return
            if self._firsts[-1] == first:  # the previous run is empty
                self._firsts.pop()
                self._indexes.pop()
                self._outcomes.pop()
        self._firsts.append(first)
        self._indexes.append(index)
        self._outcomes.append(outcome)

    def find(self, ordinal: int) -> RecordLocation:
        """Return the location of the slot's record number ``ordinal``, from 0."""
        at = bisect_right(self._firsts, ordinal) - 1
        return RecordLocation(self._outcomes[at], self._indexes[at] + ordinal - self._firsts[at])

    def runs(self, length: int) -> Iterator[Run]:
        """Yield the runs of a slot of ``length`` records; none is empty."""
        ends = [*self._firsts[1:], length]
        for outcome, index, first, end in zip(
            self._outcomes, self._indexes, self._firsts, ends, strict=False
        ):
            if end > first:
                yield Run(outcome, index, first, end - first)


class BulkLocations:
    """The locations of all records of one bulk send.

    Args:
        spread: whether keys spread the records over partitions.

    Attributes:
        tails: the ends of the runs, for the kernels.
        slots: with ``spread`` two bytes per record, for the kernels, else None; may be longer than needed.
    """

    __slots__ = ("_each_ms", "_slot_runs", "_stamp_firsts", "_stamps_ms", "slots", "tails")

    def __init__(self, *, spread: bool) -> None:
        self.tails = RunTails()
        self.slots = bytearray() if spread else None
        self._slot_runs: dict[int, SlotRuns] = {}
        self._stamp_firsts = array("q")
        self._stamps_ms = array("q")
        self._each_ms: array[int] | None = None
        self.tails.reserve(1)

    @property
    def count(self) -> int:
        """Number of records in batches."""
        return self.tails.record_count

    def stamp(self, timestamp_ms: int) -> None:
        """Set the timestamp of the records that follow."""
        if self._stamps_ms and self._stamps_ms[-1] == timestamp_ms:
            return
        if self._stamp_firsts and self._stamp_firsts[-1] == self.count:
            self._stamps_ms[-1] = timestamp_ms
            return
        self._stamp_firsts.append(self.count)
        self._stamps_ms.append(timestamp_ms)

    def stamp_each(self, timestamps: array[int]) -> None:
        """Set a timestamp for each of the records that follow."""
        if self._each_ms is None:
            self._each_ms = array("q")
        self._each_ms += timestamps

    def begin(self, slot: int, lane: PartitionLane) -> bool:
        """Begin a run in the lane's open batch; return False if there is no batch or the run continues."""
        length = self._length(slot)
        run = self.tails.begin(slot, lane)
        if run is None:
            return False
        self._slot_runs.setdefault(slot, SlotRuns()).add(length, *run)
        return True

    def add(self, outcome: BatchOutcome, index: int) -> None:
        """Add a record that took the slow path."""
        slot = 0
        if self.slots is not None:
            slot = max(outcome.topic_partition.partition, 0)
            # Partitions beyond the slots share slot 0: its runs name their
            # batches, so none is taken for another.
            slot = slot if slot < MAX_SLOTS else 0
            self.tails.reserve(slot + 1)
            self.reserve(1)
            memoryview(self.slots).cast("H")[self.count] = slot
        self._slot_runs.setdefault(slot, SlotRuns()).add(self._length(slot), outcome, index)
        self.tails.went(slot, outcome, index)

    def add_all(self, outcome: BatchOutcome, count: int) -> None:
        """Add ``count`` records that are in no batch and share one outcome."""
        if self.slots is not None:
            self.reserve(count)
            self.slots[2 * self.count : 2 * (self.count + count)] = bytes(2 * count)
        self._slot_runs.setdefault(0, SlotRuns()).add(self._length(0), outcome, 0)
        self.tails.went(0, outcome, 0, count)

    def reserve(self, rows: int) -> None:
        """Make room for the slots of more records."""
        if self.slots is not None:
            more = self.count + rows - len(self.slots) // 2
            if more > 0:
                self.slots += bytes(2 * more)

    def trim(self) -> None:
        """Free reserved room: no more records follow."""
        if self.slots is not None:
            del self.slots[2 * self.count :]

    def find(self, number: int) -> RecordLocation:
        """Return the location of record ``number``."""
        if self.slots is None:
            return self._slot_runs[0].find(number)
        slot = memoryview(self.slots).cast("H")[number]
        return self._slot_runs[slot].find(count_slot(self.slots, slot, number))

    def timestamp_ms(self, number: int) -> int:
        """Return the timestamp of record ``number``."""
        if self._each_ms is not None:
            return self._each_ms[number]
        return self._stamps_ms[bisect_right(self._stamp_firsts, number) - 1]

    def __iter__(self) -> Iterator[RecordLocation]:
        """Yield the locations of all records, in order."""
        if self.slots is None:
            runs = self._slot_runs.get(0)
            for run in () if runs is None else runs.runs(self.count):
                for number in range(run.length):
                    yield RecordLocation(run.outcome, run.position + number)
            return
        seen: Counter[int] = Counter()
        for slot in memoryview(self.slots).cast("H")[: self.count]:
            yield self._slot_runs[slot].find(seen[slot])
            seen[slot] += 1

    def runs(self) -> Iterator[Run]:
        """Yield all runs, those of each slot in order."""
        for slot, runs in self._slot_runs.items():
            yield from runs.runs(self._length(slot))

    def _length(self, slot: int) -> int:
        return self.tails.length(slot) if slot in self._slot_runs else 0
