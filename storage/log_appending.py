"""How a log grows: batches of producers and of the broker, markers; how segments follow each other."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError, KafkaStorageError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.record.batch import LOG_APPEND_TIME_BIT, BatchHeader, parse_header, stamp_log_append_time
from splashdam.record.stored import iter_stored_headers, stored_crc_ok
from splashdam.storage.append_checks import check_batch, check_size
from splashdam.storage.append_result import AppendResult, LogState
from splashdam.storage.files.disk import Files
from splashdam.storage.index.txn_index import AbortedTransaction
from splashdam.storage.log_flush import FlushableLog
from splashdam.storage.log_reading import NO_TIMESTAMP
from splashdam.storage.producers.replay import replay_batch
from splashdam.storage.producers.snapshots import SnapshotFiles
from splashdam.storage.producers.state import (
    MAX_SEQUENCE,
    CompletedTransaction,
    RememberedBatch,
)
from splashdam.storage.recovery.loader import LoadedLog
from splashdam.storage.segment import LogSegment
from splashdam.storage.settings import LogSettings
from splashdam.storage.transaction_marker import TransactionMarker

_ASSIGNED = struct.Struct(">qii")  # baseOffset, batchLength, partitionLeaderEpoch: all that a leader changes

_MAX_REFUSED = 1_000
_RETRY_MS = 120_000
"""Kafka's delivery.timeout.ms: after that the producer of a refused batch has given it up."""


class _Refused(NamedTuple):
    """A producer's first batch that the disk refused."""

    epoch: int
    sequence: int
    at_ms: int
    error: KafkaStorageError

    def is_before(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether a batch was sent behind this one, while this one may be sent again."""
        distance = (header.base_sequence - self.sequence) & MAX_SEQUENCE
        is_later = header.producer_epoch == self.epoch and 0 < distance <= MAX_SEQUENCE // 2
        return is_later and 0 <= now_ms - self.at_ms < _RETRY_MS


class AppendableLog(FlushableLog):
    """The appending part of ``Log``.

    Args:
        on_work: called when a segment waits for its flush. Others are those of ``FlushableLog``.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        loaded: LoadedLog,
        *,
        topic_id: bytes,
        recovery_point: int,
        now_ms: int,
        on_work: Callable[[], None],
    ) -> None:
        super().__init__(
            files,
            directory,
            topic_partition,
            settings,
            loaded,
            topic_id=topic_id,
            recovery_point=recovery_point,
            now_ms=now_ms,
        )
        self._files = files
        self._snapshots = SnapshotFiles(files, directory)
        self._snapshot_offset = loaded.snapshot_offset
        self._kept_start = loaded.log_start_offset
        self._on_work = on_work
        self._refused: dict[int, _Refused] = {}
        self._half_made: LogSegment | None = None  # one that could not be made; a file of it may be left

    def append_as_leader(
        self,
        batch: Buffer,
        *,
        now_ms: int,
        leader_epoch: int | None = None,
        header: BatchHeader | None = None,
    ) -> AppendResult:
        """Appends one batch as a producer sent it: all of it, or on any error nothing.

        What is changed of it (base offset, leader epoch) is changed on the way to the disk; ``batch`` itself
        is neither written to nor copied, unless its checksum changes: with LogAppendTime, and where its
        header tells a wrong maximum timestamp.

        Args:
            batch: exactly one batch of format 2.
            now_ms: wall clock, milliseconds since the epoch.
            leader_epoch: the leader's; by default the newest epoch of this log.
            header: what ``check_batch`` returned with the batch: it is not checked again.

        Raises:
            BrokerResponseError: what ``check_batch`` refuses, ``ProducerStates.check`` refuses, or
                KafkaStorageError where the disk does not take it.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("append")
        if header is None:
            batch, header = check_batch(batch, self.settings, now_ms)
        if header.producer_id >= 0:
            if self._refused:
                self._check_nothing_refused_before(header, now_ms)
            earlier = self.producers.check(header)
            if earlier is not None:
                return self._duplicate(earlier)
        if self.settings.uses_log_append_time:
            batch, header = _stamp(batch, header, now_ms)
        try:
            appended = self._write(batch, header, now_ms, leader_epoch)
        except KafkaStorageError as error:
            self._note_refused(header, error, now_ms)
            raise
        if header.producer_id >= 0:
            self.producers.record(header, appended.base_offset, now_ms)
            if self._refused:
                self._refused.pop(header.producer_id, None)
        return appended

    def _note_refused(self, header: BatchHeader, error: KafkaStorageError, now_ms: int) -> None:
        """The disk has refused a batch: those that its producer has sent behind it must not go first."""
        if header.producer_id < 0:
            return
        earlier = self._refused.get(header.producer_id)
        if earlier is None or not earlier.is_before(header, now_ms):
            self._refused.pop(header.producer_id, None)
            self._refused[header.producer_id] = _Refused(
                header.producer_epoch, header.base_sequence, now_ms, error
            )
            if len(self._refused) > _MAX_REFUSED:
                del self._refused[next(iter(self._refused))]

    def _check_nothing_refused_before(self, header: BatchHeader, now_ms: int) -> None:
        """Refuses what comes behind a refused batch for the same reason, and not for a gap in its sequences.

        Raises:
            KafkaStorageError: the disk has refused an earlier batch of this producer, whose retry may come.
        """
        earlier = self._refused.get(header.producer_id)
        if earlier is not None and earlier.is_before(header, now_ms):
            raise KafkaStorageError(
                f"the batch of producer {header.producer_id} with sequence {earlier.sequence} comes first: "
                f"{earlier.error.message}"
            ) from earlier.error

    def append_as_coordinator(self, batch: Buffer, *, now_ms: int) -> AppendResult:
        """Appends a batch that the broker made for itself: without sequence numbers, so none are compared.

        Raises:
            BrokerResponseError: what ``check_size`` or ``ProducerStates.check_epoch`` refuses, or
                KafkaStorageError.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("append")
        header = parse_header(batch)
        check_size(header.size_bytes, self.settings)
        self.producers.check_epoch(header.producer_id, header.producer_epoch)
        appended = self._write(batch, header, now_ms, None)
        if header.producer_id >= 0:
            self.producers.record(header, appended.base_offset, now_ms)
        return appended

    def append_marker(
        self, marker: TransactionMarker, *, now_ms: int, leader_epoch: int | None = None
    ) -> AppendResult:
        """Ends a producer's transaction in this partition; a marker that ends nothing takes an offset, too.

        Args:
            marker: what the transaction's coordinator decided.
            now_ms: wall clock, milliseconds since the epoch; the marker's timestamp.
            leader_epoch: as for ``append_as_leader``.

        Raises:
            BrokerResponseError: what ``ProducerStates.check_marker`` refuses, or KafkaStorageError.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("append")
        self.producers.check_marker(marker)
        batch: Buffer = marker.encoded(now_ms)
        header = parse_header(batch)
        if self.settings.uses_log_append_time:
            batch, header = _stamp(batch, header, now_ms)
        appended = self._write(batch, header, now_ms, leader_epoch)
        ended = self.producers.end_transaction(marker, appended.base_offset, now_ms, now_ms)
        if ended is not None:
            self._note_end(ended)
        return appended

    def append_as_follower(self, batches: memoryview, *, now_ms: int) -> int:
        """Appends batches as the leader of the partition has them, with their offsets and leader epochs.

        Nothing of a producer is checked: the leader has done so. Each batch is appended whole or not at all;
        an error leaves those before it in the log.

        Args:
            batches: one after the other; one that is cut short ends them.
            now_ms: wall clock, milliseconds since the epoch.

        Returns:
            How many bytes were appended.

        Raises:
            CorruptMessageError: a batch is damaged, or its offsets are not behind those of the log.
            KafkaStorageError: the disk does not take one.
            IllegalStateError: the log is closed.
        """
        if self.state is not LogState.OPEN:
            self._refuse("append")
        size_bytes = 0
        for position, header in iter_stored_headers(batches):
            if not stored_crc_ok(batches, position, header) or header.base_offset < self.log_end_offset:
                raise CorruptMessageError(
                    f"{self.topic_partition} ends at {self.log_end_offset}, its leader sent a batch for "
                    f"{header.base_offset} that is damaged or out of order"
                )
            batch = batches[position : position + header.size_bytes]
            self._write_as_is(batch, header, now_ms)
            size_bytes += header.size_bytes
        return size_bytes

    def _write_as_is(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        self._epochs.assign(header.partition_leader_epoch, header.base_offset)
        if self._active.must_roll(header.size_bytes, header.last_offset, header.max_timestamp, now_ms):
            self.roll(now_ms)
        self._active.append((batch,), header.last_offset, header.max_timestamp)
        self.log_end_offset = header.next_offset
        ended = replay_batch(self.producers, header, lambda: batch, now_ms)
        if ended is not None:
            self._note_end(ended)

    def _note_end(self, ended: CompletedTransaction) -> None:
        """Remembers a transaction whose marker was appended just now."""
        if self.replication is not None and ended.last_offset >= self.high_watermark:
            self._undecided.append((ended.first_offset, ended.last_offset))
        if ended.is_aborted:
            if self._active.txn_index.file.size_bytes is None:
                self._flusher.add_name()
            self._active.txn_index.append(AbortedTransaction(*ended[:4]))

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """What is appended from now on is of this leader epoch; one that is not newer changes nothing."""
        self._epochs.begin(leader_epoch, self.log_end_offset)

    def _write(
        self, batch: Buffer, header: BatchHeader, now_ms: int, leader_epoch: int | None
    ) -> AppendResult:
        epoch = max(self._epochs.latest, 0) if leader_epoch is None else leader_epoch
        base_offset = self.log_end_offset
        if epoch > self._epochs.written:
            self._epochs.assign(epoch, base_offset)
        last_offset = base_offset + header.last_offset_delta
        if self._active.must_roll(header.size_bytes, last_offset, header.max_timestamp, now_ms):
            self.roll(now_ms)
        assigned = _ASSIGNED.pack(base_offset, header.batch_length, epoch)
        unchanged = memoryview(batch)[_ASSIGNED.size :]
        self._active.append((assigned, unchanged), last_offset, header.max_timestamp)
        self.log_end_offset = last_offset + 1
        if self.replication is None:
            self.high_watermark = self.log_end_offset
            if self.moved is not None:
                self.moved[self] = None
        else:
            self.replication.advance()
        appended_ms = now_ms if self.settings.uses_log_append_time else NO_TIMESTAMP
        return AppendResult(base_offset, last_offset, appended_ms, self.log_start_offset, False)

    def _duplicate(self, earlier: RememberedBatch) -> AppendResult:
        return AppendResult(
            earlier.first_offset, earlier.last_offset, earlier.timestamp_ms, self.log_start_offset, True
        )

    def roll(self, now_ms: int) -> None:
        """Closes the active segment and begins one at the end of the log; an empty one stays.

        The closed segment gets its final time entry, the producers a snapshot; ``sync`` flushes it, or this
        call, where segments fill faster than the housekeeping comes round.

        Raises:
            KafkaStorageError: the new segment could not be made; the log goes on with the old one. Or the
                flush failed, as in ``flush``.
        """
        if self.state is not LogState.OPEN:
            self._refuse("roll")
        if not self._active.size_bytes:
            return
        if self._half_made is not None:
            self._half_made.delete()
        self._active.log.cut_torn_tail()  # or recovery would end the log there
        self._snapshots.write(self.log_end_offset, self.producers)
        self._snapshot_offset = self.log_end_offset
        segment = LogSegment(self._files, self.directory, self.log_end_offset, self.settings, now_ms)
        self._half_made = segment
        segment.create()
        self._half_made = None
        self._active.finish()
        self._flusher.add_closed(self._active)
        self._segments.add(segment)
        self._active = segment
        self._on_work()
        if self._flusher.is_overdue:
            self.flush()


def _stamp(batch: Buffer, header: BatchHeader, now_ms: int) -> tuple[Buffer, BatchHeader]:
    """A copy whose records all read as of ``now_ms``."""
    stamped = bytearray(batch)
    stamp_log_append_time(stamped, 0, now_ms)
    return stamped, header._replace(attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=now_ms)
