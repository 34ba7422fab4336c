"""Records of many batches as columns: buffers in Arrow's layout, and no object for any record.

What a column holds goes to ``pyarrow`` without a copy (``docs/decisions/columns.md`` says how), and nothing
here needs it.
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
    """Byte strings: keys, values, or those of headers. ``column[i]`` makes one of them, None for null.

    Attributes:
        null_count: how many are null.
        validity: a bit for each, lowest first, set where it is not null; None when none is null.
        offsets: 32-bit numbers in the machine's order: string ``i`` is ``data[offsets[i]:offsets[i + 1]]``.
        data: all bytes, one string behind the other.
    """

    null_count: int
    validity: memoryview | None
    offsets: memoryview
    data: memoryview

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> bytes | None:
        """The string at ``index``, from 0.

        Raises:
            IndexError: there is none.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"{index} of a column of {len(self)}")
        if self.validity is not None and not self.validity[index >> 3] >> (index & 7) & 1:
            return None
        return bytes(self.data[self.offsets[index] : self.offsets[index + 1]])


@attrs.frozen
class HeaderColumns:
    """The headers of all records, one behind the other.

    Attributes:
        ends: 32-bit numbers: record ``i`` has the headers from ``ends[i]`` up to ``ends[i + 1]``, so their
            difference is its number of headers.
        keys: UTF-8, never null.
        values: bytes or null.
    """

    ends: memoryview
    keys: BytesColumn
    values: BytesColumn

    def of_record(self, index: int) -> tuple[tuple[str, bytes | None], ...]:
        """The headers of the record at ``index``, as ``Record.headers`` has them.

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
    """Records by column. All buffers are read-only and stay as they are.

    Attributes:
        record_count: how many there are.
        next_offset: where to read on: behind what was looked at, or the first record that had no room.
        offsets: of each record in its partition, 64-bit numbers in the machine's order.
        timestamps_ms: milliseconds since the epoch, 64-bit numbers: the producer's, or the broker's with
            LogAppendTime.
        keys: None when they were not asked for; likewise ``values`` and ``headers``.
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
        """One record as an object; a column that is not here counts as null, or as no headers.

        Raises:
            IndexError: there is none at ``index``.
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
    """Gathers the records of batches, in the order they are added, into one ``RecordColumns``.

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
        """Nothing is in it yet.

        Args:
            first_offset: records before it are left out.
            last_offset: records behind it are left out.
            max_records: how many records to take.
            max_bytes: how large the columns may become, 100,000,000 unless told otherwise and 2,147,483,647
                at most. A record counts with its encoded size, 32 bytes, and 8 for each header. The first is
                taken whatever its size, so that reading on always gets further.
            max_batch_bytes: what one batch may decompress to.
            keys: whether keys are wanted; likewise ``values`` and ``headers``. They are checked all the same.

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
        """Records taken so far."""
        return self._buffers.record_count

    def add(self, data: Buffer, position: int = 0, header: BatchHeader | None = None) -> bool:
        """Takes the wanted records of the batch that begins at ``position``, a control batch's marker too.

        Formats 0 and 1 are read as well, slowly. The checksum is not looked at (``stored_crc_ok``).

        Args:
            data: holds the whole batch.
            position: where the batch begins.
            header: the batch's, where the caller has parsed it already.

        Returns:
            Whether the batch is read to its end; False once there is no room for its next record, and
            ``next_offset`` is that record's.

        Raises:
            CorruptMessageError: the batch is cut off or damaged; nothing of it was taken.
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
            pass  # all of them are sound, or none is taken
        for record in iter_entry_records(data, position, max_bytes=self._max_batch_bytes):
            again = memoryview(build_batch([(0, record.key, record.value, None)]))[HEADER_BYTES:]
            stopped = self._buffers.add(again, 1, record.offset, record.timestamp_ms, None)
            if stopped is not None:
                return stopped
        return None

    def pass_over(self, next_offset: int) -> None:
        """Says that what is before ``next_offset`` needs no look: a marker, or nothing at all."""
        self.next_offset = max(self.next_offset, min(next_offset, self._last_offset + 1))

    def finish(self) -> RecordColumns:
        """The columns; nothing can be added any more.

        Raises:
            IllegalStateError: they were finished before.
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
    """The records of all whole batches from ``position`` on, up to the limits; markers are left out.

    The arguments are those of ``ColumnsBuilder``. What had no room is read by calling again with the
    result's ``next_offset`` as ``first_offset``.

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
    """False where the header cannot say so: an older one names its last record alone."""
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
