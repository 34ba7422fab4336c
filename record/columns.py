"""Decode records of many batches to columns: buffers in Arrow's layout, without an object per record.

The buffers can be passed to ``pyarrow`` without a copy (``docs/decisions/columns.md``); nothing here needs
it.
"""

from __future__ import annotations

import attrs

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import Buffer
from splashdam.record.batch import HEADER_BYTES, MAGIC, BatchHeader
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES
from splashdam.record.damage import DamagedError
from splashdam.record.kernel import ColumnBuffers
from splashdam.record.kernel.reading.columns import MAX_COLUMN_BYTES, ColumnParts
from splashdam.record.legacy import iter_entry_records
from splashdam.record.reader import unpack_records
from splashdam.record.record import Record
from splashdam.record.sealing import build_batch
from splashdam.record.stored import iter_stored_headers, parse_stored_header

_LAST_OFFSET = (1 << 63) - 1
_MANY_RECORDS = 0x7FFFFFFF


@attrs.frozen
class BytesColumn:
    """A column of byte strings: keys, values, or those of headers. ``column[i]`` returns one, None for null.

    Attributes:
        null_count: number of nulls.
        validity: a bit per string, lowest first, set if it is not null; None without nulls.
        offsets: native 32-bit integers: string ``i`` is ``data[offsets[i]:offsets[i + 1]]``.
        data: all strings, concatenated.
    """

    null_count: int
    validity: memoryview | None
    offsets: memoryview
    data: memoryview

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes | None:
        """Return the string at ``index``, from 0.

        Raises:
            IndexError: the index is out of range.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"{index} of a column of {len(self)}")
        if self.validity is not None and not self.validity[index >> 3] >> (index & 7) & 1:
            return None
        return bytes(self.data[self.offsets[index] : self.offsets[index + 1]])


@attrs.frozen
class HeaderColumns:
    """The headers of all records, concatenated.

    Attributes:
        ends: native 32-bit integers: record ``i`` has the headers from ``ends[i]`` up to ``ends[i + 1]``.
        keys: UTF-8, never null.
        values: bytes or null.
    """

    ends: memoryview
    keys: BytesColumn
    values: BytesColumn

    def of_record(self, index: int) -> tuple[tuple[str, bytes | None], ...]:
        """Return the headers of the record at ``index``, in the form of ``Record.headers``.

        Raises:
            IndexError: there is no such record.
        """
        if not 0 <= index < len(self.ends) - 1:
            raise IndexError(f"{index} of {len(self.ends) - 1} records")
        return tuple(
            [
                ((self.keys[at] or b"").decode(), self.values[at])
                for at in range(*self.ends[index : index + 2])
            ]
        )


@attrs.frozen
class RecordColumns:
    """Records by column; all buffers are read-only.

    Attributes:
        record_count: number of records.
        next_offset: offset to continue at: after the last batch, or the first record without room.
        offsets: offset of each record, native 64-bit integers.
        timestamps_ms: milliseconds since the epoch, native 64-bit integers: the producer's, or the broker's
            with LogAppendTime.
        keys: None if not requested; likewise ``values`` and ``headers``.
    """

    record_count: int
    next_offset: int
    offsets: memoryview
    timestamps_ms: memoryview
    keys: BytesColumn | None
    values: BytesColumn | None
    headers: HeaderColumns | None

    def __len__(self) -> int:
        return self.record_count

    def record(self, index: int) -> Record:
        """Return one record as an object; a missing column counts as null, or as no headers.

        Raises:
            IndexError: ``index`` is not that of a record.
        """
        if not 0 <= index < self.record_count:
            raise IndexError(f"{index} of {self.record_count} records")
        return Record(
            self.offsets[index],
            self.timestamps_ms[index],
            None if self.keys is None else self.keys[index],
            None if self.values is None else self.values[index],
            () if self.headers is None else self.headers.of_record(index),
        )


class ColumnsBuilder:
    """Collects the records of batches, in the order of the calls, in one ``RecordColumns``.

    Attributes:
        next_offset: as that of ``RecordColumns``.
    """

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = _LAST_OFFSET,
        max_records: int = _MANY_RECORDS,
        max_bytes: int = MAX_DECOMPRESSED_BYTES,
        max_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
        keys: bool = True,
        values: bool = True,
        headers: bool = True,
    ) -> None:
        """Create empty columns.

        Args:
            first_offset: skip records before it.
            last_offset: skip records after it.
            max_records: maximum number of records.
            max_bytes: maximum size of the columns, at most 2,147,483,647. A record counts with its encoded
                size, 32 bytes, and 8 for each header. The first is taken whatever its size, so that each call
                advances.
            max_batch_bytes: maximum decompressed size of one batch.
            keys: whether to keep keys; likewise ``values`` and ``headers``. They are always checked.

        Raises:
            IllegalArgumentError: a limit is below 1, or an offset is negative.
        """
        if min(max_records, max_bytes, max_batch_bytes) < 1:
            raise IllegalArgumentError(
                f"max_records={max_records}, max_bytes={max_bytes}, max_batch_bytes={max_batch_bytes}: "
                "each is at least 1"
            )
        if not (0 <= first_offset <= _LAST_OFFSET and 0 <= last_offset <= _LAST_OFFSET):
            raise IllegalArgumentError(f"offsets {first_offset} to {last_offset}: they have 63 bits")
        self._first_offset, self._last_offset = first_offset, last_offset
        self._max_batch_bytes = max_batch_bytes
        self._buffers = ColumnBuffers(
            first_offset=first_offset,
            last_offset=last_offset,
            max_records=min(max_records, _MANY_RECORDS),
            max_bytes=min(max_bytes, MAX_COLUMN_BYTES),
            keys=keys,
            values=values,
            headers=headers,
        )
        self.next_offset = first_offset

    @property
    def record_count(self) -> int:
        """Number of records so far."""
        return self._buffers.record_count

    def add(self, data: Buffer, position: int = 0, header: BatchHeader | None = None) -> bool:
        """Add the wanted records of the batch at ``position``, also the marker of a control batch.

        Formats 0 and 1 are supported, but slow. The checksum is not checked (``stored_crc_ok`` does).

        Args:
            data: holds the whole batch.
            position: where the batch begins.
            header: the batch's header, if the caller has parsed it.

        Returns:
            Whether the whole batch was read; False if there was no room for a record: ``next_offset`` is its
            offset.

        Raises:
            CorruptMessageError: the batch is truncated or damaged; none of its records were added.
            UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
            IllegalStateError: the columns are finished.
        """
        header = header or parse_stored_header(data, position)
        if header.last_offset < self._first_offset or _begins_behind(header, self._last_offset):
            return True
        if header.magic == MAGIC:
            stopped = self._add_batch(data, position, header)
        else:
            stopped = self._add_message_set(data, position)
        self.pass_over(header.next_offset if stopped is None else stopped)
        return stopped is None

    def _add_batch(self, data: Buffer, position: int, header: BatchHeader) -> int | None:
        records = unpack_records(data, position, header, self._max_batch_bytes)
        append_time = header.max_timestamp if header.is_log_append_time else None
        try:
            return self._buffers.add(
                records, header.record_count, header.base_offset, header.base_timestamp, append_time
            )
        except DamagedError as error:
            raise CorruptMessageError(f"batch at offset {header.base_offset}: {error}") from None

    def _add_message_set(self, data: Buffer, position: int) -> int | None:
        for _ in iter_entry_records(data, position, max_bytes=self._max_batch_bytes):
            pass  # check all before any is added
        for record in iter_entry_records(data, position, max_bytes=self._max_batch_bytes):
            # The kernel reads format 2 only; older ones have no headers.
            again = memoryview(build_batch([(0, record.key, record.value, None)]))[HEADER_BYTES:]
            stopped = self._buffers.add(again, 1, record.offset, record.timestamp_ms, None)
            if stopped is not None:
                return stopped
        return None

    def pass_over(self, next_offset: int) -> None:
        """Skip to ``next_offset``: there is a marker, or nothing."""
        self.next_offset = max(self.next_offset, min(next_offset, self._last_offset + 1))

    def finish(self) -> RecordColumns:
        """Return the columns; nothing can be added afterwards.

        Raises:
            IllegalStateError: it was called before.
        """
        count, offsets, timestamps, keys, values, headers = self._buffers.finish()
        return RecordColumns(
            count,
            self.next_offset,
            memoryview(offsets).toreadonly().cast("q"),
            memoryview(timestamps).toreadonly().cast("q"),
            None if keys is None else _column(keys),
            None if values is None else _column(values),
            None if headers is None else HeaderColumns(_ends(headers[0]), *map(_column, headers[1:])),
        )


def decode_columns(
    data: Buffer,
    position: int = 0,
    *,
    first_offset: int = 0,
    last_offset: int = _LAST_OFFSET,
    max_records: int = _MANY_RECORDS,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    max_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
    keys: bool = True,
    values: bool = True,
    headers: bool = True,
) -> RecordColumns:
    """Decode the records of all whole batches from ``position`` on, up to the limits, without markers.

    The arguments are those of ``ColumnsBuilder``. Read the rest by a call with the result's ``next_offset``
    as ``first_offset``.

    Raises:
        CorruptMessageError: a batch is damaged.
        UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
        IllegalArgumentError: as ``ColumnsBuilder``.
    """
    builder = ColumnsBuilder(
        first_offset=first_offset,
        last_offset=last_offset,
        max_records=max_records,
        max_bytes=max_bytes,
        max_batch_bytes=max_batch_bytes,
        keys=keys,
        values=values,
        headers=headers,
    )
    for start, header in iter_stored_headers(data, position):
        if _begins_behind(header, last_offset):
            break
        if header.is_control:
            builder.pass_over(header.next_offset)
        elif not builder.add(data, start):
            break
    return builder.finish()


def _begins_behind(header: BatchHeader, offset: int) -> bool:
    """Return whether the batch begins after ``offset``; False for older formats, which do not say."""
    return header.magic == MAGIC and header.base_offset > offset


def _column(parts: ColumnParts) -> BytesColumn:
    null_count, validity, offsets, data = parts
    return BytesColumn(
        null_count,
        None if validity is None else memoryview(validity).toreadonly(),
        _ends(offsets),
        memoryview(data).toreadonly(),
    )


def _ends(numbers: bytearray) -> memoryview:
    return memoryview(numbers).toreadonly().cast("i")
