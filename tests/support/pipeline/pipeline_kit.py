"""A partition's log in memory, written batch by batch, and the rows that Spark should see of it."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import attrs
import trio

from splashdam.model.values import TopicPartition
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, open_cluster_client
from splashdam.net.connect import TcpConnect
from splashdam.record.batch import Codec, stamp_log_append_time
from splashdam.record.compression import Compression
from splashdam.record.reader import read_records
from splashdam.record.sealing import build_batch
from splashdam.storage.transaction_marker import TransactionMarker
from splashdam.wire.messages.fetch import AbortedTransaction

WHERE = TopicPartition("flights", 3)
Row = dict[str, Any]
T = TypeVar("T")


@attrs.define
class PartitionLog:
    """Batches one behind the other, as a broker stores them.

    Attributes:
        data: the batches.
        next_offset: of the next record.
        rows: all records that are no markers, in the columns of Spark, timestamps in microseconds.
        aborted: the transactions that were aborted.
        aborted_at: the offset of each one's marker.
        dropped: offsets of their records.
    """

    data: bytearray = attrs.field(factory=bytearray)
    next_offset: int = 0
    rows: list[Row] = attrs.field(factory=list)
    aborted: list[AbortedTransaction] = attrs.field(factory=list)
    aborted_at: list[int] = attrs.field(factory=list)
    dropped: set[int] = attrs.field(factory=set)
    _open: dict[int, list[int]] = attrs.field(factory=dict)

    def append(
        self,
        records: Sequence[tuple[int, bytes | None, bytes | None, Any]],
        *,
        codec: Codec = Codec.NONE,
        append_time_ms: int | None = None,
        producer_id: int = -1,
    ) -> None:
        """One batch; with a producer, of its transaction."""
        batch = bytearray(
            build_batch(
                list(records), Compression(codec), producer_id=producer_id, transactional=producer_id >= 0
            )
        )
        if append_time_ms is not None:
            stamp_log_append_time(batch, 0, append_time_ms)
        start = self._store(batch)
        found = read_records(self.data, start)
        self.rows += [self._row(each, int(append_time_ms is not None)) for each in found]
        if producer_id >= 0:
            self._open.setdefault(producer_id, []).extend(each.offset for each in found)
        self.next_offset += len(records)

    def append_message(self, message: bytes, count: int = 1) -> None:
        """One entry of format 0 or 1; a wrapper holds several messages and has the last one's offset."""
        self.next_offset += count - 1
        start = self._store(bytearray(message))
        magic, attributes = self.data[start + 16], self.data[start + 17]
        kind = -1 if magic == 0 else attributes >> 3 & 1
        self.rows += [self._row(each, kind) for each in read_records(self.data, start)]
        self.next_offset += 1

    def end(self, producer_id: int, *, commit: bool) -> None:
        """A marker for what the producer has written since its last."""
        offsets = self._open.pop(producer_id, [])
        if offsets and not commit:
            self.aborted.append(AbortedTransaction(producer_id=producer_id, first_offset=offsets[0]))
            self.aborted_at.append(self.next_offset)
            self.dropped.update(offsets)
        self._store(bytearray(TransactionMarker(producer_id, 0, commit, 0).encoded(0)))
        self.next_offset += 1

    def skip(self, offsets: int) -> None:
        """A hole, as compaction leaves it."""
        self.next_offset += offsets

    def expected(self, first_offset: int, end_offset: int, *, read_committed: bool) -> list[Row]:
        """The rows of a range."""
        dropped = self.dropped if read_committed else set()
        return [
            row
            for row in self.rows
            if first_offset <= row["offset"] < end_offset and row["offset"] not in dropped
        ]

    def aborted_within(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those that a broker lists with batches from there to there."""
        return [
            each
            for each, marker in zip(self.aborted, self.aborted_at, strict=True)
            if each.first_offset < end_offset and marker >= first_offset
        ]

    def _store(self, batch: bytearray) -> int:
        start = len(self.data)
        struct.pack_into(">q", batch, 0, self.next_offset)
        self.data += batch
        return start

    def _row(self, record: Any, timestamp_type: int) -> Row:
        headers = [{"key": key, "value": value} for key, value in record.headers]
        return {
            "key": record.key,
            "value": record.value,
            "topic": WHERE.topic,
            "partition": WHERE.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms * 1000,
            "timestampType": timestamp_type,
            "headers": headers or None,
        }


def rows_of(batches: Iterable[Any]) -> list[Row]:
    """The rows of Arrow's batches, timestamps as microseconds, which may be beyond what Python can say."""
    import pyarrow as pa

    rows: list[Row] = []
    for batch in batches:
        columns = []
        for column in batch.columns:
            is_time = pa.types.is_timestamp(column.type)
            columns.append((column.cast(pa.int64()) if is_time else column).to_pylist())
        rows += [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def administer(servers: str, task: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """What a cluster's administrator makes of it."""

    async def run() -> T:
        addresses = parse_bootstrap_servers(servers)
        async with open_cluster_client(addresses, connect=TcpConnect(), clock=SystemClock()) as client:
            return await task(client)

    return trio.run(run)
