"""Record batches of one partition, as a broker or a segment file stores them, to Arrow record batches.

The kernel's buffers become Arrow buffers without a copy; constant columns share one array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import UnsupportedCodecError, message_of
from splashdam.model.values import Buffer, TopicPartition
from splashdam.pipeline.schema import Columns
from splashdam.record.aborted_transactions import ABORT, Aborted, AbortedTransactions, control_type
from splashdam.record.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    INT16,
    INT32,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    Codec,
    parse_header,
)
from splashdam.record.columns import BytesColumn, ColumnsBuilder, HeaderColumns, RecordColumns
from splashdam.record.reader import unpack_records
from splashdam.record.stored import iter_stored_headers, stored_crc_ok

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Limit of an Arrow record batch, unless one record is larger. Spark's JVM copies each batch as a whole."""

_LENGTH_AT = LENGTH_END - INT32.size


class RecordDecoder:
    """Decodes one range of offsets, only the requested columns.

    Feed it the range's batches in order. It yields an Arrow batch whenever one is full, and the last with
    `finish`.

    Args:
        where: the partition.
        columns: the columns to decode.
        first_offset: records before it are dropped.
        end_offset: records from it on are dropped.
        read_committed: whether records of aborted transactions are dropped.
        max_batch_bytes: limit of an Arrow batch; a larger record gets a batch of its own.

    Attributes:
        position: the next offset to read, ``end_offset`` once the range is done. It also advances over
            offsets without records: control batches, aborted transactions, gaps left by compaction.
    """

    def __init__(
        self,
        where: TopicPartition,
        columns: Columns,
        *,
        first_offset: int,
        end_offset: int,
        read_committed: bool,
        max_batch_bytes: int = MAX_BATCH_BYTES,
    ) -> None:
        self.position = first_offset
        self._where, self._columns = where, columns
        self._end_offset = end_offset
        self._read_committed = read_committed
        self._make = BatchMaker(where, columns)
        # The kernel counts all bytes of a row but the topic's name, for which a quarter of the limit is
        # reserved.
        named = len(where.topic.encode()) + INT32.size
        self._max_records = max(1, max_batch_bytes // 4 // named) if columns.wants("topic") else None
        self._max_bytes = max_batch_bytes - (0 if self._max_records is None else max_batch_bytes // 4)
        self._builder: ColumnsBuilder | None = None
        self._types: list[tuple[int, int]] = []

    def feed(self, batches: Buffer, aborted: Iterable[Aborted] = ()) -> Iterator[pa.RecordBatch]:
        """Decode whole batches; exhaust the returned iterator before the next call.

        Args:
            batches: contiguous; a batch that is cut off at the end is ignored.
            aborted: the aborted transactions with records in these batches, as in a Fetch response.

        Raises:
            CorruptMessageError: a batch has a wrong checksum or is damaged; the message has partition and
                offset.
            UnsupportedCodecError: a codec is unknown, or its library is not installed.
        """
        transactions = AbortedTransactions(aborted if self._read_committed else ())
        try:
            for start, header in iter_stored_headers(batches):
                if self.position >= self._end_offset:
                    return
                if self._is_wanted(batches, start, header, transactions) and not self._add(
                    batches, start, header
                ):
                    yield from self._go_on(batches, start, header)
                self._pass_over(header)
        except CorruptMessageError as error:
            raise CorruptMessageError(f"{self._where}: {error.message}") from error.__cause__
        except UnsupportedCodecError as error:
            raise UnsupportedCodecError(f"{self._where}: {message_of(error)}") from error.__cause__

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows."""
        if self._builder is not None and self._builder.record_count:
            yield self._emit(self._builder)

    def _is_wanted(
        self,
        batches: Buffer,
        start: int,
        header: BatchHeader,
        transactions: AbortedTransactions[Aborted],
    ) -> bool:
        # Before the checksum: damage behind the range is not this range's. A compressed batch of format 0 or
        # 1 has the offset of its last record in the header, so it may begin within the range.
        if header.magic == MAGIC and header.base_offset >= self._end_offset:
            return False
        if not stored_crc_ok(batches, start, header):
            raise CorruptMessageError(f"the batch at offset {header.base_offset} fails its checksum")
        if header.is_control:
            if control_type(batches, start) == ABORT:
                transactions.ended_by(header)
            return False
        return transactions.of_data(header) is None and header.next_offset > self.position

    def _add(self, batches: Buffer, start: int, header: BatchHeader) -> bool:
        """Add a batch; return False if only a part was added because the Arrow batch is full."""
        builder = self._builder = self._builder or self._new_builder()
        before = builder.record_count
        is_whole = builder.add(batches, start, header)
        self._note_type(header, builder.record_count - before)
        self.position = max(self.position, builder.next_offset)
        return is_whole

    def _go_on(self, batches: Buffer, start: int, header: BatchHeader) -> Iterator[pa.RecordBatch]:
        """Yield the Arrow batches that the rest of a batch fills after it has completed one."""
        # Otherwise each further call of `_add` would decompress the whole batch again.
        if header.magic == MAGIC and header.codec is not Codec.NONE:
            batches, start = _unpacked(batches, start, header), 0
            header = parse_header(batches)
        yield from self.finish()
        while not self._add(batches, start, header):
            yield from self.finish()

    def _pass_over(self, header: BatchHeader) -> None:
        self.position = max(self.position, min(header.next_offset, self._end_offset))

    def _new_builder(self) -> ColumnsBuilder:
        limit = {} if self._max_records is None else {"max_records": self._max_records}
        return ColumnsBuilder(
            first_offset=self.position,
            last_offset=self._end_offset - 1,
            max_bytes=self._max_bytes,
            keys=self._columns.wants("key"),
            values=self._columns.wants("value"),
            headers=self._columns.wants("headers"),
            **limit,
        )

    def _note_type(self, header: BatchHeader, rows: int) -> None:
        """Note a run of rows by timestamp type: -1 NoTimestampType, 0 CreateTime, 1 LogAppendTime."""
        kind = -1 if header.magic == 0 else int(header.is_log_append_time)
        if self._types and self._types[-1][1] == kind:
            self._types[-1] = (self._types[-1][0] + rows, kind)
        elif rows:
            self._types.append((rows, kind))

    def _emit(self, builder: ColumnsBuilder) -> pa.RecordBatch:
        types, self._types, self._builder = self._types, [], None
        return self._make.batch(builder.finish(), types)


def _unpacked(batches: Buffer, start: int, header: BatchHeader) -> bytearray:
    """Decompress a batch that fills several Arrow batches, once; its checksum is invalid from here on."""
    records = unpack_records(batches, start, header)
    batch = bytearray(memoryview(batches)[start : start + HEADER_BYTES])
    INT32.pack_into(batch, _LENGTH_AT, HEADER_BYTES - LENGTH_END + len(records))
    INT16.pack_into(batch, ATTRIBUTES_AT, header.attributes & ~CODEC_MASK)
    batch += records
    return batch


_MS, _US = pa.timestamp("ms", tz="UTC"), pa.timestamp("us", tz="UTC")
_LATEST_MS = ((1 << 63) - 1) // 1000
_HEADER = (("key", pa.string()), ("value", pa.binary()))
_HEADER_FIELDS = [pa.field(*each) for each in _HEADER]
_HEADERS = pa.list_(pa.field("element", pa.struct(_HEADER_FIELDS)))

TypeRuns = Sequence[tuple[int, int]]
"""Counts of consecutive records with the same timestamp type, in order: (records, type)."""


class Constant:
    """A column of any length with one value. Its slices share memory, which grows to the longest.

    Args:
        value: of every row.
        kind: its type.
    """

    def __init__(self, value: object, kind: pa.DataType) -> None:
        self._scalar = pa.scalar(value, kind)
        self._array = pa.repeat(self._scalar, 1024)

    def column(self, rows: int) -> pa.Array:
        if rows > len(self._array):
            self._array = pa.repeat(self._scalar, max(rows, 2 * len(self._array)))
        return self._array.slice(0, rows)


class BatchMaker:
    """Makes Arrow record batches of one partition's records.

    Args:
        where: the partition.
        columns: the columns, in order.
    """

    def __init__(self, where: TopicPartition, columns: Columns) -> None:
        self._schema, self._names = columns.arrow, columns.names
        self._topic = Constant(where.topic, pa.string())
        self._partition = Constant(where.partition, pa.int32())
        self._types = {kind: Constant(kind, pa.int32()) for kind in (-1, 0, 1)}

    def batch(self, records: RecordColumns, types: TypeRuns) -> pa.RecordBatch:
        """Return an Arrow batch that shares the records' memory.

        Args:
            records: with the requested columns.
            types: the timestamp types; their counts add up to the number of records.
        """
        rows = len(records)
        make = {
            "key": partial(_binary, pa.binary(), records.keys),
            "value": partial(_binary, pa.binary(), records.values),
            "topic": partial(self._topic.column, rows),
            "partition": partial(self._partition.column, rows),
            "offset": partial(_numbers, pa.int64(), records.offsets),
            "timestamp": partial(_timestamps, records.timestamps_ms),
            "timestampType": partial(self._timestamp_types, types),
            "headers": partial(_headers, records.headers),
        }
        return pa.RecordBatch.from_arrays([make[name]() for name in self._names], schema=self._schema)

    def _timestamp_types(self, runs: TypeRuns) -> pa.Array:
        arrays = [self._types[kind].column(rows) for rows, kind in runs]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _numbers(kind: pa.DataType, numbers: memoryview) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _binary(kind: pa.DataType, column: BytesColumn | None) -> pa.Array:
    assert column is not None  # the builder was told to decode it
    buffers = [column.validity, column.offsets, column.data]
    wrapped = [None if each is None else pa.py_buffer(each) for each in buffers]
    return pa.Array.from_buffers(kind, len(column), wrapped, column.null_count)


def _timestamps(timestamps_ms: memoryview) -> pa.Array:
    """Convert to microseconds. Timestamps beyond their range, 292,277 years from 1970, are clamped."""
    found = _numbers(_MS, timestamps_ms)
    try:
        return found.cast(_US)
    except pa.ArrowInvalid:
        bounded = pc.max_element_wise(pc.min_element_wise(found.view(pa.int64()), _LATEST_MS), -_LATEST_MS)
        return bounded.view(_MS).cast(_US)


def _headers(headers: HeaderColumns | None) -> pa.Array:
    """Return a list for each record, null for one without headers, as Spark's own source does."""
    assert headers is not None  # the builder was told to decode them
    ends = _numbers(pa.int32(), headers.ends)
    rows = len(ends) - 1
    has_some: Any = pc.greater(ends.slice(1), ends.slice(0, rows))
    pairs = pa.StructArray.from_arrays(
        [
            _binary(kind, column)
            for (_, kind), column in zip(_HEADER, (headers.keys, headers.values), strict=True)
        ],
        fields=_HEADER_FIELDS,
    )
    buffers = [has_some.buffers()[1], pa.py_buffer(headers.ends)]
    return pa.Array.from_buffers(_HEADERS, rows, buffers, rows - has_some.true_count, children=[pairs])
