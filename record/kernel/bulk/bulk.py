"""Append many records in one call.

In the compiled twin a call is one atomic step under the GIL; here the caller holds the producer's guard. A
call stops at the first unusual row, raises nothing, and leaves that row to the slow path, which reports what
is wrong with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import HeaderPairs
from splashdam.record.kernel.building.headers import NO_HEADERS, HeaderBlock
from splashdam.record.kernel.building.lanes import PartitionLane, TopicLanes
from splashdam.record.kernel.building.murmur2 import murmur2
from splashdam.record.kernel.bulk.blob_column import BlobColumn, Odd
from splashdam.record.kernel.bulk.header_lists import HeaderLists

if TYPE_CHECKING:
    from splashdam.record.kernel.building.buffer import BatchBuffer
    from splashdam.record.kernel.outcomes.outcome import BatchOutcome

NULL_KEY_SLOT = 0xFFFF
ODD_KEY_SLOT = 0xFFFE
"""In place of a partition number: the key is null, or cannot be hashed here."""


class RunTails:
    """The end of each slot's last run.

    A run is a sequence of records in one batch without a gap, stored once, not per record. A slot is a
    partition, or 0 if all records go to one.

    Attributes:
        record_count: number of records in batches. The kernels count in the same step in which they append: a
            signal handler may raise as soon as they return.
    """

    __slots__ = ("_lengths", "_next", "_outcomes", "record_count")

    def __init__(self) -> None:
        self.record_count = 0
        self._outcomes: list[BatchOutcome | None] = []
        self._next: list[int] = []
        self._lengths: list[int] = []

    def reserve(self, slots: int) -> None:
        """Make room for this many slots; never removes any."""
        more = slots - len(self._next)
        self._outcomes += [None] * more
        self._next += [0] * more
        self._lengths += [0] * more

    def begin(self, slot: int, lane: PartitionLane) -> tuple[BatchOutcome, int] | None:
        """Begin a run in the lane's open batch; return its outcome and the index of the run's first record.

        Return None if there is no open batch, or if the slot's last run continues in it.
        """
        self._check(slot)
        if lane.buffer is None or lane.outcome is None or self.goes_on(slot, lane):
            return None
        run = (lane.outcome, lane.buffer.record_count)
        self._outcomes[slot], self._next[slot] = run
        return run

    def next_index(self, slot: int) -> int:
        """Return the index after the slot's last run."""
        self._check(slot)
        return self._next[slot]

    def length(self, slot: int) -> int:
        """Return the number of the slot's records."""
        self._check(slot)
        return self._lengths[slot]

    def went(self, slot: int, outcome: BatchOutcome, index: int, count: int = 1) -> None:
        """Record ``count`` records that took the slow path, the first at ``index``."""
        self._check(slot)
        self._outcomes[slot] = outcome
        self._next[slot] = index
        self.advance(slot, count)

    def goes_on(self, slot: int, lane: PartitionLane) -> bool:
        """Return whether the next record of the lane's open batch continues the slot's last run."""
        buffer = lane.buffer
        return (
            buffer is not None
            and self._outcomes[slot] is lane.outcome
            and self._next[slot] == buffer.record_count
        )

    def advance(self, slot: int, count: int = 1) -> None:
        """Extend the slot's last run."""
        self._next[slot] += count
        self._lengths[slot] += count
        self.record_count += count

    def __len__(self) -> int:
        return len(self._next)

    def _check(self, slot: int) -> None:
        if not 0 <= slot < len(self._next):
            raise IndexError(f"slot {slot} of {len(self._next)}")


class BulkRecords:
    """Rows of values and keys to append to batches.

    Args:
        values: one per record.
        keys: one per record; None for no keys.
        headers: of every record.
        max_bytes: larger rows (key, value, own headers) are left to the slow path.
        timestamps: one per record, native 64-bit integers; None: those passed to the calls.
        header_blocks: encoded headers of each record, instead of ``headers``.
        header_lists: Arrow headers of each record, instead of both.

    Attributes:
        values, keys: as given.

    Raises:
        IllegalArgumentError: there are fewer timestamps or header blocks than values.
    """

    __slots__ = ("_blocks", "_headers", "_lists", "_max_bytes", "_timestamps", "keys", "values")

    def __init__(  # noqa: PLR0917 (a kernel's arguments are positional)
        self,
        values: BlobColumn,
        keys: BlobColumn | None,
        headers: HeaderPairs | None,
        max_bytes: int,
        timestamps: bytes | None = None,
        header_blocks: BlobColumn | None = None,
        header_lists: HeaderLists | None = None,
    ) -> None:
        if timestamps is not None and len(timestamps) < 8 * len(values):
            raise IllegalArgumentError(f"{len(values)} values, but {len(timestamps) // 8} timestamps")
        self._timestamps = None if timestamps is None else memoryview(timestamps).cast("q")
        self._blocks = header_blocks
        self._lists = header_lists
        self.values = values
        self.keys = keys
        self._headers = headers
        self._max_bytes = max_bytes

    def __len__(self) -> int:
        return len(self.values)

    def append(  # noqa: PLR0917 (a kernel's arguments are positional)
        self,
        lane: PartitionLane,
        topic: TopicLanes | None,
        tails: RunTails,
        timestamp_ms: int,
        start: int,
        stop: int,
    ) -> int:
        """Append rows from ``start`` on to the lane's open batch, as long as they continue slot 0's run.

        Args:
            lane: the lane.
            topic: counts the bytes, if this is its sticky lane; else None.
            tails: ends of the runs.
            timestamp_ms: of all rows.
            start, stop: the rows.

        Returns:
            The first row that was not appended; ``stop`` (or the number of rows) if all were.
        """
        tails.next_index(0)
        stop = self._begin(start, stop)
        buffer = lane.buffer
        row = start
        if buffer is None or not tails.goes_on(0, lane):
            return start
        while row < stop and (taken := self._put(buffer, timestamp_ms, row)):
            if topic is not None:
                topic.sticky_bytes += taken
            tails.advance(0)
            row += 1
        return row

    def hash_keys(self, partition_count: int, slots: bytearray, at: int, start: int, stop: int) -> None:
        """Write the partitions of some rows' keys, by Kafka's rule, to ``slots`` from entry ``at`` on.

        Entries are native 16-bit integers: the partition, ``NULL_KEY_SLOT`` or ``ODD_KEY_SLOT``.

        Raises:
            IllegalArgumentError: there is no room for these rows, too many partitions, or no keys.
        """
        out = self._checked_slots(slots, at, start, stop)
        if not 0 < partition_count <= ODD_KEY_SLOT:
            raise IllegalArgumentError(f"{partition_count} partitions")
        if self.keys is None:
            raise IllegalArgumentError("there are no keys")
        for row in range(start, self._begin(start, stop)):
            key = self.keys.at(row)
            if key is None:
                slot = NULL_KEY_SLOT
            else:
                slot = ODD_KEY_SLOT if isinstance(key, Odd) else (murmur2(key) & 0x7FFFFFFF) % partition_count
            out[row - start] = slot

    def spread(  # noqa: PLR0917 (a kernel's arguments are positional)
        self,
        topic: TopicLanes,
        tails: RunTails,
        slots: bytearray,
        at: int,
        timestamp_ms: int,
        start: int,
        stop: int,
    ) -> int:
        """Append rows from ``start`` on, each to the open batch of the partition that ``hash_keys`` wrote.

        Null keys go to the sticky partition, whose number replaces their entry.

        Returns:
            The first row that was not appended; ``stop`` (or the number of rows) if all were.

        Raises:
            IllegalArgumentError: there are no slots for these rows.
        """
        sticky_slot = topic.sticky.topic_partition.partition
        out = self._checked_slots(slots, at, start, stop)
        stop = self._begin(start, stop)
        count = min(len(topic.lanes), len(tails))
        row = start
        while row < stop:
            slot = out[row - start]
            null_key = slot == NULL_KEY_SLOT
            if null_key and topic.sticky_bytes < topic.sticky_limit_bytes:
                slot = sticky_slot
            if slot >= count:
                break
            lane = topic.lanes[slot]
            buffer = lane.buffer
            if buffer is None or not tails.goes_on(slot, lane):
                break
            taken = self._put(buffer, timestamp_ms, row)
            if not taken:
                break
            tails.advance(slot)
            if null_key:
                out[row - start] = slot
                topic.sticky_bytes += taken
            row += 1
        return row

    def _checked_slots(self, slots: bytearray, at: int, start: int, stop: int) -> memoryview:
        if not 0 <= start <= stop or not 0 <= at <= len(slots) // 2 - (stop - start):
            raise IllegalArgumentError(f"rows {start} to {stop} from slot {at}")
        return memoryview(slots)[2 * at : 2 * (at + stop - start)].cast("H")

    def _begin(self, start: int, stop: int) -> int:
        if start < 0:
            raise IllegalArgumentError(f"row {start}")
        stop = min(stop, len(self.values))
        if self._timestamps is not None:
            stop = min(stop, len(self._timestamps))
        if self._blocks is not None:
            stop = min(stop, len(self._blocks))
        if self._lists is not None:
            stop = min(stop, len(self._lists))
        return stop if self.keys is None else min(stop, len(self.keys))

    def _put(self, buffer: BatchBuffer, timestamp_ms: int, row: int) -> int:
        """Append a row; return its size, 0 if it is unusual, too large or does not fit."""
        value = self.values.at(row)
        key = None if self.keys is None else self.keys.at(row)
        if isinstance(value, Odd) or isinstance(key, Odd) or (value is None and key is None):
            return 0
        headers: Any = self._headers
        max_bytes = self._max_bytes
        if self._blocks is not None or self._lists is not None:
            block = self._block(row)
            if isinstance(block, Odd):
                return 0
            headers = HeaderBlock(NO_HEADERS if block is None else block)
            max_bytes -= len(headers)
        if self._timestamps is not None:
            timestamp_ms = self._timestamps[row]
        if len(value or b"") + len(key or b"") > max_bytes:
            return 0
        before_bytes = buffer.size_bytes
        buffer.try_append(timestamp_ms, key, value, headers)
        return buffer.size_bytes - before_bytes

    def _block(self, row: int) -> bytes | Odd | None:
        """Return the row's own headers, or None."""
        if self._blocks is not None:
            return self._blocks.at(row)
        return None if self._lists is None else self._lists.block(row)


def count_slot(slots: bytearray, slot: int, stop: int) -> int:
    """Return how many of the first ``stop`` entries are ``slot``."""
    return memoryview(slots).cast("H")[: max(stop, 0)].tolist().count(slot)
