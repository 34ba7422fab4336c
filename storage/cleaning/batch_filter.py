"""What compaction keeps of a batch: all of it, some records at their offsets, an empty header, or nothing.

Which records stay, of their keys and offsets, ``OffsetMap.keep_records`` decides: record/kernel/compacting/.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import attrs

from splashdam.model.values import Buffer
from splashdam.record.aborted_transactions import AbortedTransactions
from splashdam.record.batch import (
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    BatchHeader,
)
from splashdam.record.compression import NO_COMPRESSION, Compression
from splashdam.record.kernel import OffsetMap
from splashdam.record.kernel.building.varint import encode_varint
from splashdam.record.reader import Record, iter_records, unpack_records
from splashdam.record.sealing import seal_records
from splashdam.storage.producers.state import ProducerStates
from splashdam.storage.segments.indexes import AbortedTransaction
from splashdam.storage.transaction_marker import parse_marker

_NO_TIMESTAMP = -1


class LastOfProducer(NamedTuple):
    """The last batch of a producer, which must stay so that its sequences survive a rebuild of its state.

    Attributes:
        data_offset: last offset of its last data batch; -1 if a marker came after it.
        epoch: the producer epoch.
    """

    data_offset: int
    epoch: int


def last_of_producers(states: ProducerStates) -> dict[int, LastOfProducer]:
    """Return the last batch of each producer, by producer id."""
    return {
        entry.producer_id: LastOfProducer(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
        for entry in states
    }


@attrs.define
class BatchFilter:
    """Filters the batches of a log, in their order.

    Attributes:
        offset_map: the newest offset of each key.
        map_end: the last offset that the map covers.
        transactions: the transactions of the batches so far.
        producers: the last batch of each producer.
        end_offset: a batch that ends right before it stays, if need be empty: only it shows that offsets got
            this far.
        now_ms: wall clock, milliseconds since the epoch.
        horizon_ms: delete horizon for tombstones and markers that a cleaning meets for the first time.
        keeps_legacy_tombstones: whether tombstones of formats 0 and 1 stay, which have no delete horizon; set
            for each segment.
    """

    offset_map: OffsetMap
    map_end: int
    transactions: CleanedTransactions
    producers: Mapping[int, LastOfProducer]
    end_offset: int
    now_ms: int
    horizon_ms: int
    keeps_legacy_tombstones: bool = True

    def kept(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """Return what is left of a batch with a right checksum: ``batch`` itself, a new batch, or None.

        Raises:
            CorruptMessageError: the records are damaged.
            UnsupportedCodecError: the codec's library is not installed.
        """
        if header.magic != MAGIC:
            return self._kept_legacy(header, batch)
        if header.is_control:
            left = self._kept_marker(header, batch)
        elif self.transactions.on_data(header):
            left = None
        else:
            left = self._kept_data(header, batch)
        return _emptied(header) if left is None and self._must_stay(header) else left

    def _must_stay(self, header: BatchHeader) -> bool:
        last = self.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is not None:
            # Kafka's rule: without a data batch the marker has to tell a rebuild the producer's epoch.
            is_marker_of_epoch = header.is_control and header.producer_epoch == last.epoch
            if header.last_offset == last.data_offset or (last.data_offset < 0 and is_marker_of_epoch):
                return True
        return header.next_offset == self.end_offset

    def _kept_marker(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        is_idle = self.transactions.on_marker(header, batch)
        horizon_ms = header.delete_horizon_ms
        if not header.record_count or (is_idle and horizon_ms is not None and horizon_ms <= self.now_ms):
            return None
        # It gets its horizon now: readers in the middle of the transaction have ``delete.retention.ms`` to
        # see its end.
        if is_idle and horizon_ms is None:
            return self._kept_records(header, batch, is_marker=True)
        return batch

    def _kept_data(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        return self._kept_records(header, batch) if header.record_count else None

    def _kept_records(
        self, header: BatchHeader, batch: memoryview, *, is_marker: bool = False
    ) -> Buffer | None:
        horizon_ms = header.delete_horizon_ms
        left = self.offset_map.keep_records(
            unpack_records(batch, 0, header),
            header.record_count,
            base_offset=header.base_offset,
            base_timestamp=header.base_timestamp,
            append_time=header.max_timestamp if header.is_log_append_time else None,
            last_offset=self.map_end,
            drops_tombstones=horizon_ms is not None and self.now_ms >= horizon_ms,
            has_horizon=horizon_ms is not None,
            horizon_ms=self.horizon_ms,
            is_marker=is_marker,
        )
        if not left.record_count:
            return None
        if left.records is None:
            return batch
        changed = header._replace(
            attributes=header.attributes | (DELETE_HORIZON_BIT if left.gets_horizon else 0),
            base_timestamp=left.base_timestamp,
            max_timestamp=header.max_timestamp if header.is_log_append_time else left.max_timestamp_ms,
            record_count=left.record_count,
        )
        return seal_records(left.records, changed, Compression(header.codec))

    # --- formats 0 and 1 ------------------------------------------------------------------------------------

    def _kept_legacy(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """Filter a message of format 0 or 1.

        What is left of a wrapper in part becomes a batch of format 2.
        """
        self.transactions.on_data(header)
        records = list(iter_records(batch))
        kept = [record for record in records if self._keeps(record)]
        if len(kept) == len(records):
            return batch
        if not kept:
            return None
        base_offset, base_timestamp = kept[0].offset, kept[0].timestamp_ms
        changed = header._replace(
            base_offset=base_offset,
            magic=MAGIC,
            attributes=header.attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT),
            last_offset_delta=header.last_offset - base_offset,
            base_timestamp=base_timestamp,
            max_timestamp=max(record.timestamp_ms for record in kept),
            record_count=len(kept),
        )
        encoded = _encoded(kept, base_offset, base_timestamp)
        return seal_records(encoded, changed, Compression(header.codec))

    def _keeps(self, record: Record) -> bool:
        if record.offset > self.map_end:
            return True
        if record.key is None or (record.value is None and not self.keeps_legacy_tombstones):
            return False
        return record.offset >= self.offset_map.get(record.key)


def _emptied(header: BatchHeader) -> bytes:
    """Return the batch without its records; offsets, producer id and sequences stay."""
    emptied = header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
        base_timestamp=_NO_TIMESTAMP,
        record_count=0,
    )
    return seal_records(b"", emptied, NO_COMPRESSION)


def _encoded(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    """Encode records of formats 0 and 1, which have no headers, in format 2."""
    parts = []
    for record in records:
        body = b"".join(
            (
                b"\0",
                encode_varint(record.timestamp_ms - base_timestamp),
                encode_varint(record.offset - base_offset),
                _blob(record.key),
                _blob(record.value),
                b"\0",
            )
        )
        parts += [encode_varint(len(body)), body]
    return b"".join(parts)


def _blob(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data


class CleanedTransactions:
    """The transactions of one pass over the log (Kafka's CleanedTransactionMetadata).

    A marker may go only when nothing of its transaction is left in the log, that is if the pass has met no
    batch of it.

    Args:
        aborted: the aborted transactions with records in the part that is read.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = AbortedTransactions(aborted)
        self._with_batches: set[int] = set()  # producers with a batch since their last marker
        self._with_data: list[AbortedTransaction] = []

    def on_data(self, header: BatchHeader) -> bool:
        """Note a data batch; return whether its transaction was aborted."""
        if header.is_transactional:
            self._with_batches.add(header.producer_id)
        return self._aborted.of_data(header) is not None

    def on_marker(self, header: BatchHeader, batch: Buffer) -> bool:
        """Note a control batch; return whether it ends a transaction of which nothing is left.

        Raises:
            CorruptMessageError: the record cannot be read.
        """
        if not header.record_count:
            return True  # emptied by an earlier cleaning
        marker = parse_marker(batch, header.producer_id, header.producer_epoch)
        if marker is None:
            return False  # not a transaction marker
        had_batches = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        if marker.is_commit:
            return not had_batches
        aborted = self._aborted.ended_by(header)
        if aborted is None or not had_batches:
            return True
        self._with_data.append(aborted)
        return False

    def take_aborted(self) -> list[AbortedTransaction]:
        """Return aborted transactions with batches left, whose markers came since the last call."""
        taken, self._with_data = self._with_data, []
        return taken
