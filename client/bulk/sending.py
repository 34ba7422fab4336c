"""``send_many`` and ``send_arrow``: append runs of records to open batches.

``BulkSend`` never waits, like a ``PendingSend``. It returns a ``PendingSend`` for each record that cannot be
appended directly, for example the first of every batch; its caller completes that as for ``send``.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any, NamedTuple

from splashdam.client.bulk.arguments import is_arrow, is_many, is_one_for_all, listed
from splashdam.client.partitioning.placing import TopicRoute, fill_slots, lane_of_slot, place
from splashdam.client.reports import BulkDelivery
from splashdam.client.sending.arguments import (
    check_partition,
    check_timestamp_ms,
    check_topic_name,
    header_pairs,
    sendable_headers,
)
from splashdam.client.sending.intake import PendingSend, RecordIntake
from splashdam.model.errors import BulkSendError, KafkaError, message_of
from splashdam.model.values import HeaderPairs
from splashdam.record.bulk_locations import MAX_SLOTS, BulkLocations
from splashdam.record.kernel import BlobColumn, BulkRecords, HeaderLists, PartitionLane, header_block
from splashdam.record.kernel.building.headers import encode_headers
from splashdam.record.kernel.building.lanes import HEADER_FRAMING_BYTES, RECORD_FRAMING_BYTES, payload_size
from splashdam.record.kernel.bulk.bulk import NULL_KEY_SLOT, ODD_KEY_SLOT
from splashdam.record.kernel.outcomes.outcome import FutureCell

ROWS_PER_CALL = 16 * 1024
"""Records per kernel call, which holds the GIL: about 0.3 ms at 100 bytes each."""


class BulkSend:
    """One call of ``send_many``, or one of ``send_arrow`` over all its chunks.

    Args:
        intake: of the producer.
        topic, partition, timestamp_ms, headers: as for ``send``, the same for all records.
        keyed: whether the records have keys.
        placed: whether each record has its own partition.
        may_be_empty: whether records with neither key nor value are accepted.

    Raises:
        TypeError, ValueError: as ``send``.
        IllegalStateError: the producer is closed, or this is a forked child.
    """

    def __init__(
        self,
        intake: RecordIntake[Any],
        topic: str,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Any,
        *,
        keyed: bool,
        placed: bool = False,
        may_be_empty: bool = False,
    ) -> None:
        refuse = intake.refuse
        if refuse is not None:
            raise refuse()
        self._intake = intake
        self._topic = check_topic_name(topic)
        self._partition = None if partition is None else check_partition(partition)
        self._timestamp_ms = None if timestamp_ms is None else check_timestamp_ms(timestamp_ms)
        self._headers: HeaderPairs | None = sendable_headers(header_pairs(headers)) or None
        self._max_bytes = intake.fits_bytes - (_headers_limit(self._headers) if self._headers else 0)
        spread = self._partition is None and (keyed or placed or intake.partition is not None)
        self._locations = BulkLocations(spread=spread)
        self._may_be_empty = may_be_empty
        self._rows = RowParts()
        self._records: BulkRecords | None = None
        self._first = 0
        self._hashed_stop = self._hashed_count = 0
        self._stamp()

    def finish(self) -> BulkDelivery:
        """Return the delivery of the queued records; no more follow."""
        self._locations.trim()
        return BulkDelivery(self._locations)

    def add(self, values: BlobColumn, keys: BlobColumn | None, rows: RowParts) -> None:
        """Add records with their own parts; all earlier ones must be queued."""
        blocks = None if rows.blocks is None else BlobColumn.of_objects(rows.blocks)
        timestamps = None if rows.timestamps is None else rows.timestamps.tobytes()
        self._records = BulkRecords(
            values, keys, self._headers, self._max_bytes, timestamps, blocks, rows.lists
        )
        self._rows = rows
        if rows.timestamps is not None:
            self._locations.stamp_each(rows.timestamps)
        self._first = self._locations.count
        self._hashed_stop = 0

    def next_pending(self) -> PendingSend[Any] | None:
        """Queue records up to one that needs a ``PendingSend``; None when all are queued.

        Raises:
            Exception: as ``send`` for the next record.
        """
        records = self._records
        assert records is not None
        while (row := self._locations.count - self._first) < len(records):
            if not self._append_some(records, row):
                pending = self._submit(records, self._locations.count - self._first)
                if pending is not None:
                    return pending
        return None

    def settled(self, future: FutureCell) -> None:
        """Record the future of the last ``next_pending``."""
        records = self._records
        assert records is not None
        if future.done() and future.outcome.topic_partition.partition < 0:
            # The cluster refuses the topic, so all other records fail, too.
            self._locations.add_all(future.outcome, self._first + len(records) - self._locations.count)
            return
        self._locations.add(future.outcome, future.index)

    @contextmanager
    def naming_the_record(self) -> Iterator[None]:
        """Wrap an error of the block in a ``BulkSendError`` that names the failed record.

        Raises:
            BulkSendError: the block raised an ``Exception``.
        """
        try:
            yield
        except Exception as error:
            number = self._locations.count
            what = message_of(error) if isinstance(error, KafkaError) else error
            raise BulkSendError(
                f"record {number}: {what}; the {number} before are queued (`delivery`), the others are not",
                number,
                self.finish(),
            ) from error

    def _append_some(self, records: BulkRecords, row: int) -> bool:
        """Append records from ``row`` on to open batches; False if that one needs a ``PendingSend``."""
        intake = self._intake
        path = intake.path
        if path.closed or path.detour or not path.plain:
            return False
        route = intake.route(self._topic)
        if route is None:
            return False
        if self._locations.slots is not None:
            return self._spread(records, route, row)
        if self._partition is not None and self._partition >= route.count:
            return False
        lane = place(route, self._partition, None)
        if lane is not None:
            return self._append(records, lane, None, row)
        return route.sticky_bytes < route.sticky_limit_bytes and self._append(
            records, route.sticky, route, row
        )

    def _append(
        self, records: BulkRecords, lane: PartitionLane, sticky_of: TopicRoute | None, row: int
    ) -> bool:
        locations = self._locations
        guard = self._intake.guard
        if guard.interrupted():
            return False

        # In one hold of the guard, so that nobody closes the batch in between. A record that the fast path of
        # another thread puts in between ends the run, and this row takes the slow path.
        def append() -> int:
            locations.begin(0, lane)
            return records.append(
                lane, sticky_of, locations.tails, self._stamped_ms, row, row + ROWS_PER_CALL
            )

        return guard.run(append) > row

    def _spread(self, records: BulkRecords, route: TopicRoute, row: int) -> bool:
        locations = self._locations
        if route.count > MAX_SLOTS:
            return False
        slots = self._hash(records, route.count, row)
        guard = self._intake.guard
        if guard.interrupted():
            return False
        end = guard.run(
            records.spread,
            route,
            locations.tails,
            slots,
            locations.count,
            self._stamped_ms,
            row,
            self._hashed_stop,
        )
        if end > row:
            return True
        slot = memoryview(slots).cast("H")[locations.count]
        lane = lane_of_slot(route, slot)
        return lane is not None and locations.begin(lane.topic_partition.partition, lane)

    def _hash(self, records: BulkRecords, partition_count: int, row: int) -> bytearray:
        """Return the slots, filled from ``row`` to ``_hashed_stop``."""
        locations = self._locations
        assert locations.slots is not None
        if row >= self._hashed_stop or partition_count != self._hashed_count:
            self._hashed_stop = min(row + ROWS_PER_CALL, len(records))
            self._hashed_count = partition_count
            # Room for all rows now: the kernel must not allocate between two of them.
            locations.tails.reserve(partition_count)
            locations.reserve(self._hashed_stop - row)
            fill_slots(
                records,
                self._rows.slots,
                partition_count,
                locations.slots,
                locations.count,
                row,
                self._hashed_stop,
            )
        return locations.slots

    def _submit(self, records: BulkRecords, row: int) -> PendingSend[Any] | None:
        """Submit one record as ``send`` does."""
        self._stamp()
        key = None if records.keys is None else records.keys[row]
        own = self._rows
        result = self._intake.submit(
            self._topic,
            records.values[row],
            key,
            self._headers if own.headers is None else own.headers[row],
            self._partition if own.partitions is None else own.partitions[row],
            self._stamped_ms if own.timestamps is None else own.timestamps[row],
            more_follow=True,
            may_be_empty=self._may_be_empty,
        )
        if not isinstance(result, PendingSend):
            self.settled(result)
            return None
        if not self._intake.path.detour:
            result.expected_bytes = self._expected_bytes(len(records) - row - 1, result.size_bytes())
        return result

    def _expected_bytes(self, rows: int, row_bytes: int) -> int:
        """Estimated size of the remaining records for one partition, if they are similar and spread evenly.

        All partitions together may reserve at most half of the memory in advance; otherwise they would wait
        for each other with nearly empty batches.
        """
        partitions = self._hashed_count if self._hashed_stop else 1
        ahead_bytes = self._intake.accumulator.buffer_memory // 2
        return min(rows * (row_bytes + RECORD_FRAMING_BYTES), ahead_bytes) // partitions

    def _stamp(self) -> None:
        """Read the clock for the records that follow.

        This happens where a record goes off the fast path, which is at least once per batch: to read it for
        every record would cost as much as to append a small one.
        """
        now_ms = self._intake.clock.wall_ms() if self._timestamp_ms is None else self._timestamp_ms
        self._stamped_ms = now_ms
        self._locations.stamp(now_ms)


def drive_bulk_in_thread(bulk: BulkSend, settle: Callable[[PendingSend[Any]], FutureCell]) -> None:
    """Queue all records; blocks where ``settle`` blocks.

    Raises:
        BulkSendError: it ended before the last record.
    """
    with bulk.naming_the_record():
        while (pending := bulk.next_pending()) is not None:
            bulk.settled(settle(pending))


async def drive_bulk_in_task(
    bulk: BulkSend, settle: Callable[[PendingSend[Any]], Awaitable[FutureCell]]
) -> None:
    """As ``drive_bulk_in_thread``, in a task of trio or asyncio."""
    with bulk.naming_the_record():
        while (pending := bulk.next_pending()) is not None:
            bulk.settled(await settle(pending))


def bulk_of(  # noqa: PLR0917 (the arguments of send_many)
    intake: RecordIntake[Any],
    topic: str,
    values: Any,
    keys: Any,
    headers: Any,
    partition: Any,
    timestamp_ms: Any,
) -> BulkSend:
    """Make the ``BulkSend`` of a ``send_many`` call.

    Raises:
        TypeError, ValueError, OverflowError: an argument is invalid.
        IllegalStateError: the producer is closed, or this is a forked child.
    """
    columns = columns_of(values, keys)
    common, rows = sort_out(len(columns[0]), headers, partition, timestamp_ms, intake.clock.wall_ms())
    bulk = BulkSend(
        intake,
        topic,
        common.partition,
        common.timestamp_ms,
        common.headers,
        keyed=keys is not None,
        placed=rows.partitions is not None,
    )
    bulk.add(*columns, rows)
    return bulk


def columns_of(values: Any, keys: Any) -> tuple[BlobColumn, BlobColumn | None]:
    """Values and keys as columns for the kernels; ``repeat(key)`` is one key for all.

    Raises:
        TypeError: one of them is not an iterable of bytes.
        ValueError: their lengths differ.
    """
    of_values = _column(values, "values")
    if keys is None:
        return of_values, None
    same = [next(keys)] * len(of_values) if type(keys) is repeat else keys
    of_keys = _column(same, "keys")
    if len(of_keys) != len(of_values):
        raise ValueError(f"{len(of_values)} values, but {len(of_keys)} keys")
    return of_values, of_keys


def _column(data: Any, what: str) -> BlobColumn:
    if type(data) is list or type(data) is tuple:
        return BlobColumn.of_objects(data)
    if is_arrow(data):
        raise TypeError(
            f"{what} are Arrow data ({type(data).__name__}): send them with send_arrow(), or as a list"
        )
    if not is_many(data):
        one = "; one for all records is key=…" if what == "keys" else ""
        raise TypeError(f"{what} must be a list of bytes or other iterable, not {type(data).__name__}{one}")
    items = listed(data)
    return BlobColumn.of_objects(items if isinstance(items, list | tuple) else list(items))


def _headers_limit(headers: HeaderPairs) -> int:
    """Upper bound of the size of headers in a record."""
    return payload_size(headers) + HEADER_FRAMING_BYTES * len(headers)


_HIGH_BYTE = 7 if sys.byteorder == "little" else 0
"""Index of the sign byte of a 64-bit number in an array."""


class RowParts(NamedTuple):
    """The parts that differ by record; None for parts that all records share.

    Attributes:
        partitions: as given; None: by key, or the partitioner decides.
        slots: the same for the kernels.
        timestamps: milliseconds since the epoch.
        headers: as given.
        blocks: the same, encoded; None also where they are ``lists``.
        lists: the same, if they are a column of Arrow.
    """

    partitions: Sequence[Any] | None = None
    slots: array[int] | None = None
    timestamps: array[int] | None = None
    headers: Sequence[Any] | HeaderLists | None = None
    blocks: list[bytes] | None = None
    lists: HeaderLists | None = None


class Common(NamedTuple):
    """The parts that all records share."""

    headers: Any
    partition: Any
    timestamp_ms: Any


def sort_out(
    count: int, headers: Any, partition: Any, timestamp_ms: Any, now_ms: int
) -> tuple[Common, RowParts]:
    """Separate the arguments for all ``count`` records from those for each record.

    Raises:
        TypeError, ValueError, OverflowError: an argument is invalid; the message names the record.
    """
    each_headers = None if is_one_for_all(headers) else listed(headers)
    each_partition = listed(partition) if is_many(partition) else None
    each_timestamp = listed(timestamp_ms) if is_many(timestamp_ms) else None
    for what, given in (
        ("headers", each_headers),
        ("partitions", each_partition),
        ("timestamps", each_timestamp),
    ):
        if given is not None and len(given) != count:
            raise ValueError(f"{count} values, but {len(given)} {what}")
    common = Common(
        headers if each_headers is None else None,
        partition if each_partition is None else None,
        timestamp_ms if each_timestamp is None else None,
    )
    return common, row_parts(each_headers, each_partition, each_timestamp, now_ms)


def row_parts(
    headers: Sequence[Any] | HeaderLists | None,
    partitions: Sequence[Any] | None,
    timestamps: Sequence[Any] | None,
    now_ms: int,
    what: str = "record",
) -> RowParts:
    """Check the arguments that each record has for itself.

    Args:
        headers, partitions, timestamps: one entry per record, or None if no record has its own.
        now_ms: replaces null timestamps.
        what: what a record is called in messages.

    Raises:
        TypeError, ValueError, OverflowError: an entry is invalid; the message names the record.
    """
    lists = headers if isinstance(headers, HeaderLists) else None
    return RowParts(
        partitions,
        None if partitions is None else _slots(partitions, what),
        None if timestamps is None else _timestamps(timestamps, now_ms, what),
        headers,
        None if headers is None or isinstance(headers, HeaderLists) else _encoded(headers, what),
        lists,
    )


def _has_flags(column: Sequence[Any]) -> bool:
    """Whether a bool is among the numbers. ``array`` would take it as 0 or 1."""
    return not isinstance(column, array) and bool in set(map(type, column))


def _slots(partitions: Sequence[Any], what: str) -> array[int]:
    if _has_flags(partitions):
        return array("H", _each(partitions, _slot, what))
    nulls = 0 if isinstance(partitions, array) else partitions.count(None)
    try:
        slots = array(
            "H", [NULL_KEY_SLOT if each is None else each for each in partitions] if nulls else partitions
        )
    except (TypeError, OverflowError):  # an entry is invalid, or too large for a slot: look at each
        return array("H", _each(partitions, _slot, what))
    plain = ODD_KEY_SLOT not in slots and slots.count(NULL_KEY_SLOT) == nulls
    return slots if plain else array("H", _each(partitions, _slot, what))


def _slot(partition: Any) -> int:
    return NULL_KEY_SLOT if partition is None else min(check_partition(partition), ODD_KEY_SLOT)


def _timestamps(timestamps: Sequence[Any], now_ms: int, what: str) -> array[int]:
    def checked() -> array[int]:
        return array(
            "q", _each(timestamps, lambda each: now_ms if each is None else check_timestamp_ms(each), what)
        )

    if _has_flags(timestamps):
        return checked()
    try:
        nulls = not isinstance(timestamps, array) and None in timestamps
        taken = array("q", [now_ms if each is None else each for each in timestamps] if nulls else timestamps)
    except (TypeError, OverflowError):  # an entry is invalid, or of another type: look at each
        return checked()
    # One C call finds a negative timestamp among thousands: a byte with the sign bit set is not ASCII.
    return taken if taken.tobytes()[_HIGH_BYTE::8].isascii() else checked()


def _encoded(headers: Sequence[Any], what: str) -> list[bytes]:
    blocks = [block for block in map(header_block, headers) if block is not None]
    if len(blocks) == len(headers):
        return blocks
    # The kernel encodes pairs only: there is a dict among them, for example, or a mistake.
    return list(_each(headers, lambda each: encode_headers(sendable_headers(header_pairs(each))), what))


def _each(given: Iterable[Any], convert: Callable[[Any], Any], what: str) -> Iterable[Any]:
    for number, each in enumerate(given):
        try:
            yield convert(each)
        except (TypeError, ValueError, OverflowError) as error:
            raise type(error)(f"{what} {number}: {error}") from error
