"""Batches of one partition, as a broker or a segment file has them, into Arrow's record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import UnsupportedCodecError, message_of
from splashdam.model.values import Buffer, TopicPartition
from splashdam.pipeline.arrow_batches import BatchMaker
from splashdam.pipeline.schema import Columns
from splashdam.record.aborted import ABORT, Aborted, AbortedTransactions, control_type
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
from splashdam.record.columns import ColumnsBuilder
from splashdam.record.reader import unpack_records
from splashdam.record.stored import iter_stored_headers, stored_crc_ok

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Record batches are no larger, but for one record that is. Spark's JVM copies each as a whole."""

_LENGTH_AT = LENGTH_END - INT32.size


class RecordDecoder:
    """Decodes one range of offsets. Only the columns that are asked for are decoded.

    Feed it the range's batches in their order; rows come out as record batches fill up, the last with
    `finish`.

    Args:
        where: the partition.
        columns: which columns to make.
        first_offset: records before it are left out.
        end_offset: records from it on are left out.
        read_committed: whether records of aborted transactions are left out.
        max_batch_bytes: how large a record batch may become; a larger record is alone in its own.

    Attributes:
        position: the offset to read on at, ``end_offset`` once the range is done. It moves over whatever
            yields no records: control batches, aborted transactions, holes that compaction left.
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
        # The kernel counts all of a row but the topic's name, so that gets a part of its own.
        named = len(where.topic.encode()) + INT32.size
        self._max_records = max(1, max_batch_bytes // 4 // named) if columns.wants("topic") else None
        self._max_bytes = max_batch_bytes - (0 if self._max_records is None else max_batch_bytes // 4)
        self._builder: ColumnsBuilder | None = None
        self._types: list[tuple[int, int]] = []

    def feed(self, batches: Buffer, aborted: Iterable[Aborted] = ()) -> Iterator[pa.RecordBatch]:
        """Takes whole batches; exhaust what it returns before the next call.

        Args:
            batches: one behind the other; what is cut off at the end is left out.
            aborted: the aborted transactions with records in just these batches, as a Fetch answer has them.

        Raises:
            CorruptMessageError: a batch fails its checksum or is damaged; partition and offset are named.
            UnsupportedCodecError: its codec is unknown, or the library for it is not installed.
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
        """The rows that are left."""
        if self._builder is not None and self._builder.record_count:
            yield self._emit(self._builder)

    def _is_wanted(
        self,
        batches: Buffer,
        start: int,
        header: BatchHeader,
        transactions: AbortedTransactions[Aborted],
    ) -> bool:
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
        """Takes a batch in; False where it is not in as a whole, since the record batch is full."""
        builder = self._builder = self._builder or self._new_builder()
        before = builder.record_count
        is_whole = builder.add(batches, start, header)
        self._note_type(header, builder.record_count - before)
        self.position = max(self.position, builder.next_offset)
        return is_whole

    def _go_on(self, batches: Buffer, start: int, header: BatchHeader) -> Iterator[pa.RecordBatch]:
        """What a batch fills beyond the record batch that it has completed."""
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
        """As Kafka numbers them: NoTimestampType, CreateTime, LogAppendTime."""
        kind = -1 if header.magic == 0 else int(header.is_log_append_time)
        if self._types and self._types[-1][1] == kind:
            self._types[-1] = (self._types[-1][0] + rows, kind)
        elif rows:
            self._types.append((rows, kind))

    def _emit(self, builder: ColumnsBuilder) -> pa.RecordBatch:
        types, self._types, self._builder = self._types, [], None
        return self._make.batch(builder.finish(), types)


def _unpacked(batches: Buffer, start: int, header: BatchHeader) -> bytearray:
    """The batch without compression, for one that takes several turns; its checksum is of no use any more."""
    records = unpack_records(batches, start, header)
    batch = bytearray(memoryview(batches)[start : start + HEADER_BYTES])
    INT32.pack_into(batch, _LENGTH_AT, HEADER_BYTES - LENGTH_END + len(records))
    INT16.pack_into(batch, ATTRIBUTES_AT, header.attributes & ~CODEC_MASK)
    batch += records
    return batch
