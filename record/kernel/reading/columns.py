"""Collect records in buffers of Arrow's layout, for ``record/columns.py``."""

from __future__ import annotations

from array import array
from typing import NamedTuple, TypeAlias

from splashdam.model.errors import IllegalStateError
from splashdam.model.values import Buffer
from splashdam.record.damage import Damage, Field, damaged
from splashdam.record.kernel.reading.walk import Walk, wrapped

MAX_COLUMN_BYTES = 0x7FFFFFFF
_RECORD_COST = 32  # two numbers of 8 bytes, up to three of 4, and bits
_HEADER_COST = 8

ColumnParts: TypeAlias = tuple[int, bytearray | None, bytearray, bytearray]
"""Number of nulls, validity bitmap (None without nulls), 0 and then the ends as 32-bit integers, bytes."""

HeaderParts: TypeAlias = tuple[bytearray, ColumnParts, ColumnParts]
"""0 and then the end of each record's headers; keys; values."""


class BufferParts(NamedTuple):
    """The result of ``finish`` (a plain tuple in the compiled twin)."""

    record_count: int
    offsets: bytearray
    timestamps: bytearray
    keys: ColumnParts | None
    values: ColumnParts | None
    headers: HeaderParts | None


class ColumnBuffers:
    """Adds the records of batches, one batch after the other, without making record objects.

    Attributes:
        record_count: number of records.
        size_bytes: what they count of ``max_bytes``: their encoded size, 32 bytes for each record, and 8 for
            each header. The buffers are never larger.
    """

    __slots__ = (
        "_finished",
        "_first_offset",
        "_header_keys",
        "_header_offsets",
        "_header_values",
        "_keys",
        "_last_offset",
        "_last_taken",
        "_max_bytes",
        "_max_records",
        "_offsets",
        "_timestamps",
        "_values",
        "_wants_headers",
        "_wants_keys",
        "_wants_values",
        "record_count",
        "size_bytes",
    )

    def __init__(
        self,
        *,
        first_offset: int,
        last_offset: int,
        max_records: int,
        max_bytes: int,
        keys: bool,
        values: bool,
        headers: bool,
    ) -> None:
        """Create empty columns.

        Args:
            first_offset: skip records before it.
            last_offset: skip records after it.
            max_records: maximum number of records.
            max_bytes: maximum size, at most 2,147,483,647, so that ends fit 32 bits. The first record is
                taken whatever its size.
            keys: whether to keep keys; likewise ``values`` and ``headers``.
        """
        self._first_offset, self._last_offset = first_offset, last_offset
        self._max_records, self._max_bytes = max_records, min(max_bytes, MAX_COLUMN_BYTES)
        self._wants_keys, self._wants_values, self._wants_headers = keys, values, headers
        self._offsets, self._timestamps, self._header_offsets = array("q"), array("q"), array("i", [0])
        self._keys, self._values = _ByteColumn(), _ByteColumn()
        self._header_keys, self._header_values = _ByteColumn(), _ByteColumn()
        self._last_taken = -1
        self._finished = False
        self.record_count = 0
        self.size_bytes = 0

    def add(
        self,
        records: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
    ) -> int | None:
        """Add the wanted records of one batch for which there is room.

        Args:
            records: decompressed records of the batch.
            record_count: from the header.
            base_offset: from the header.
            base_timestamp: from the header.
            append_time: timestamp of all records with LogAppendTime, else None.

        Returns:
            None if the whole batch was read; else the first offset that was not added.

        Raises:
            DamagedError: a record is damaged; nothing was added.
            IllegalStateError: the columns are finished.
        """
        if self._finished:
            raise IllegalStateError("these columns are finished")
        mark = self._mark()
        done = False
        try:
            walk = Walk(records, record_count)
            while walk.number < record_count:
                stopped = self._take(walk, base_offset, base_timestamp, append_time)
                if stopped is not None:
                    done = True
                    return stopped
            walk.check_end()
            done = True
        finally:
            if not done:
                self._go_back(mark)
        return None

    def _take(self, walk: Walk, base_offset: int, base_timestamp: int, append_time: int | None) -> int | None:
        walk.begin()
        offset = walk.offset(base_offset)
        key, value = walk.blob(Field.KEY), walk.blob(Field.VALUE)
        header_count = walk.header_count()
        if not self._first_offset <= offset <= self._last_offset:
            for _ in range(header_count):
                walk.header()
            walk.finish()
            return None
        cost = _RECORD_COST + walk.record_bytes + _HEADER_COST * header_count
        if self.record_count and (
            self.record_count >= self._max_records or self.size_bytes + cost > self._max_bytes
        ):
            return max(offset, self._last_taken + 1)
        if self._wants_keys:
            self._keys.put(walk.body, *key)
        if self._wants_values:
            self._values.put(walk.body, *value)
        for _ in range(header_count):
            header_key, header_value = walk.header()
            if self._wants_headers:
                text = header_key.decode(errors="replace").encode()  # readers of the columns rely on UTF-8
                if text != header_key:
                    self._header_keys.check_room(walk, len(header_key))
                    cost += len(text) - len(header_key)
                self._header_keys.put(text, len(text), 0)
                self._header_values.put(walk.body, *header_value)
        walk.finish()
        self._offsets.append(offset)
        self._timestamps.append(
            wrapped(base_timestamp + walk.timestamp_delta) if append_time is None else append_time
        )
        self._header_offsets.append(self._header_keys.count)
        self.record_count += 1
        self.size_bytes += cost
        self._last_taken = offset
        return None

    def finish(self) -> BufferParts:
        """Return the buffers; nothing can be added afterwards.

        Raises:
            IllegalStateError: it was called before.
        """
        if self._finished:
            raise IllegalStateError("these columns are finished")
        self._finished = True
        headers = _bytes_of(self._header_offsets), self._header_keys.finish(), self._header_values.finish()
        return BufferParts(
            self.record_count,
            _bytes_of(self._offsets),
            _bytes_of(self._timestamps),
            self._keys.finish() if self._wants_keys else None,
            self._values.finish() if self._wants_values else None,
            headers if self._wants_headers else None,
        )

    def _mark(self) -> tuple[int, int, int, list[int]]:
        return self.record_count, self.size_bytes, self._last_taken, [each.count for each in self._columns()]

    def _go_back(self, mark: tuple[int, int, int, list[int]]) -> None:
        self.record_count, self.size_bytes, self._last_taken, counts = mark
        for column, count in zip(self._columns(), counts, strict=True):
            column.cut(count)
        del self._offsets[self.record_count :], self._timestamps[self.record_count :]
        del self._header_offsets[self.record_count + 1 :]

    def _columns(self) -> tuple[_ByteColumn, ...]:
        return self._keys, self._values, self._header_keys, self._header_values


class _ByteColumn:
    """Concatenated byte strings, their ends, and which of them are null."""

    __slots__ = ("data", "ends", "nulls")

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends = array("i", [0])
        self.nulls: list[int] = []

    @property
    def count(self) -> int:
        return len(self.ends) - 1

    def put(self, source: bytes, size: int, start: int) -> None:
        if size < 0:
            self.nulls.append(self.count)
        else:
            self.data += source[start : start + size]
        self.ends.append(len(self.data))

    def check_room(self, walk: Walk, size: int) -> None:
        """Raise if a text grows by its conversion to UTF-8 and the rest of the record might have no room."""
        if len(self.data) + 3 * size + walk.bytes_left > MAX_COLUMN_BYTES:
            raise damaged(
                Damage.HEADER_KEY_TEXT, Field.HEADER_KEY, walk.number, walk.position, said=0, left=0
            )

    def cut(self, count: int) -> None:
        del self.ends[count + 1 :]
        del self.data[self.ends[-1] :]
        self.nulls = [each for each in self.nulls if each < count]

    def finish(self) -> ColumnParts:
        return len(self.nulls), self._validity() if self.nulls else None, _bytes_of(self.ends), self.data

    def _validity(self) -> bytearray:
        bits = bytearray(b"\xff" * (self.count // 8))
        if self.count % 8:
            bits.append((1 << self.count % 8) - 1)
        for null in self.nulls:
            bits[null // 8] &= ~(1 << null % 8)
        return bits


def _bytes_of(numbers: array[int]) -> bytearray:
    return bytearray(numbers.tobytes())
