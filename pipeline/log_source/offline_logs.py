"""Log directories in the role of a cluster: topics, partitions, offsets by edge and timestamp."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from splashdam.model.broker_errors import CorruptMessageError, UnknownTopicOrPartitionError
from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.log_source.directories import PartitionLog, find_logs
from splashdam.pipeline.log_source.filesystems import Location, LogFiles
from splashdam.pipeline.log_source.index_hints import (
    OffsetHints,
    TimeHints,
    load_offset_hints,
    load_time_hints,
)
from splashdam.pipeline.log_source.slices import LogSlice, slices_of
from splashdam.pipeline.log_source.transactions import Transactions, transactions_of
from splashdam.pipeline.log_source.walking import Chunk, Walk
from splashdam.record.batch import BatchHeader
from splashdam.record.columns import decode_columns
from splashdam.storage.topic_names import INTERNAL_TOPICS

NO_MATCH = -1
"""The answer for a timestamp that no record reaches, as brokers give it."""

_AT_A_TIME = 16
_LOOK_UP_BYTES = 256 * 1024


class OfflineLogs:
    """The logs in some directories, listed on first use.

    Args:
        locations: data directories, or directories of partitions.
        read_committed: a log ends where its first open transaction begins.
        fails: damage that may hide the end of a transaction is an error.
        torn_ends: a torn end counts as one more offset, so that reading up to the end includes it.
    """

    def __init__(
        self,
        locations: Iterable[Location],
        *,
        read_committed: bool,
        fails: bool = True,
        torn_ends: bool = False,
    ) -> None:
        self._locations = tuple(locations)
        self._fails = fails
        self._torn_ends = torn_ends
        self._read_committed = read_committed
        self._listed: dict[TopicPartition, PartitionLog] | None = None
        self._transactions: dict[TopicPartition, Transactions] = {}

    @property
    def _logs(self) -> dict[TopicPartition, PartitionLog]:
        if self._listed is None:
            self._listed = {log.where: log for log in find_logs(self._locations, lambda _: True)}
        return self._listed

    def topics(self) -> list[str]:
        """Return all topics but Kafka's internal ones, which are read only if a query names them."""
        return sorted({where.topic for where in self._logs} - INTERNAL_TOPICS)

    def partitions(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions.

        Raises:
            UnknownTopicOrPartitionError: the topic has no partition here.
        """
        found = [where.partition for where in self._logs if where.topic == topic]
        if not found:
            raise UnknownTopicOrPartitionError(f"no partition of topic {topic!r} is in the directories")
        return found

    def offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        """Return for each partition the offset of its first record at or after a timestamp, else `NO_MATCH`.

        Args:
            topic: its name.
            partitions: their numbers.
            timestamp: milliseconds since the epoch, ``EARLIEST`` or ``LATEST``.

        Raises:
            KafkaStorageError: a file cannot be read.
        """
        logs = [self._logs[TopicPartition(topic, number)] for number in partitions]
        answers: dict[int, Callable[[PartitionLog], int]] = {EARLIEST: _start, LATEST: self._end}
        answer = answers.get(timestamp, lambda log: self._at(log, timestamp))
        with ThreadPoolExecutor(_AT_A_TIME) as threads:
            return dict(zip(partitions, threads.map(answer, logs), strict=True))

    def slices(self, where: TopicPartition, first: int, end: int, *, max_bytes: int) -> list[LogSlice]:
        """Return the slices of a range of offsets; see `slices_of`.

        Raises:
            KafkaStorageError: a file cannot be read.
        """
        log = self._logs[where]
        transactions = self.transactions(log) if self._read_committed else None
        return list(slices_of(log, _files(log), first, end, max_bytes=max_bytes, transactions=transactions))

    def transactions(self, log: PartitionLog) -> Transactions:
        """Return the transactions of a log, found once.

        Raises:
            KafkaStorageError: a file cannot be read.
        """
        found = self._transactions.get(log.where)
        if found is None:
            found = self._transactions[log.where] = transactions_of(log, _files(log), fails=self._fails)
        return found

    def _end(self, log: PartitionLog) -> int:
        stable = self.transactions(log).last_stable_offset if self._read_committed else MAX_LONG
        return max(_start(log), min(stable, end_of(log, torn_end=self._torn_ends)))

    def _at(self, log: PartitionLog, timestamp_ms: int) -> int:
        found = first_at(log, timestamp_ms)
        return found if NO_MATCH < found < self._end(log) else NO_MATCH


def _start(log: PartitionLog) -> int:
    return log.log_start_offset


def _files(log: PartitionLog) -> LogFiles:
    return log.location.open()[0]


def end_of(log: PartitionLog, *, torn_end: bool = False) -> int:
    """Return the offset after the last whole batch; with ``torn_end`` one more if other bytes follow it.

    Raises:
        KafkaStorageError: a file cannot be read.
    """
    if not log.segments:
        return log.log_start_offset
    segment, files = log.segments[-1], _files(log)
    end = max(segment.base_offset, log.log_start_offset)
    if not segment.size_bytes:
        return end
    with files.open(segment.log_path) as file:
        hints = load_offset_hints(files, segment, file)
        # An index may be behind its log, so the rest is walked.
        last = hints.at_or_before(MAX_LONG)
        for chunk in Walk(file, hints).chunks(0 if last is None else last.position, segment.size_bytes):
            if isinstance(chunk, Chunk):
                end = max(end, chunk.batches[-1][1].next_offset)
            elif torn_end and chunk.is_tail and not chunk.is_zeros:
                end += 1
    return end


def first_at(log: PartitionLog, timestamp_ms: int) -> int:
    """Return the offset of the first record at or after a timestamp, `NO_MATCH` without such a record.

    A time index is used if its last entry names a batch that is there.

    Raises:
        KafkaStorageError: a file cannot be read.
    """
    files = _files(log)
    for segment in log.segments:
        if not segment.size_bytes:
            continue
        times = load_time_hints(files, segment)
        with files.open(segment.log_path) as file:
            hints = load_offset_hints(files, segment, file)
            walk = Walk(file, hints, read_bytes=_LOOK_UP_BYTES)
            if not _is_true(times, walk, hints):
                times = TimeHints(())
            is_older = times.latest is not None and times.latest.timestamp_ms < timestamp_ms
            # The index of the active segment may lag behind the log, so it only says where to begin.
            if is_older and not log.is_active(segment):
                continue
            before = times.offset_before(timestamp_ms)
            start = None if before is None else hints.at_or_before(before)
            position = 0 if start is None else start.position
            found = _first_in(walk, position, segment.size_bytes, timestamp_ms, log.log_start_offset)
        if found is not None:
            return found
    return NO_MATCH


def _is_true(times: TimeHints, walk: Walk, hints: OffsetHints) -> bool:
    """Whether the batch that the last entry names is there and has its timestamp."""
    latest = times.latest
    if latest is None:
        return False
    start = hints.at_or_before(latest.last_offset)
    for chunk in walk.chunks(0 if start is None else start.position, walk.file.end):
        if isinstance(chunk, Chunk):
            for _, header in chunk.batches:
                if header.last_offset >= latest.last_offset:
                    return (header.last_offset, header.max_timestamp) == (
                        latest.last_offset,
                        latest.timestamp_ms,
                    )
    return False


def _first_in(walk: Walk, position: int, end: int, timestamp_ms: int, from_offset: int) -> int | None:
    for chunk in walk.chunks(position, end):
        if not isinstance(chunk, Chunk):
            continue  # reported when the records are read
        for at, header in chunk.batches:
            if header.max_timestamp < timestamp_ms or header.last_offset < from_offset:
                continue
            batch = chunk.data[at : at + header.size_bytes]
            found: int | None = max(header.base_offset, from_offset)
            # Brokers, too, return the offset of a control batch.
            if not header.is_control:
                found = _first_in_batch(batch, timestamp_ms, from_offset, header)
            if found is not None:
                return found
    return None


def _first_in_batch(
    batch: memoryview, timestamp_ms: int, from_offset: int, header: BatchHeader
) -> int | None:
    """Return the first matching offset. A batch that cannot be decoded counts as one record, as in a
    broker."""
    try:
        columns = decode_columns(batch, first_offset=from_offset, keys=False, values=False, headers=False)
    except CorruptMessageError:
        return max(header.base_offset, from_offset)
    for offset, each in zip(columns.offsets, columns.timestamps_ms, strict=True):
        if each >= timestamp_ms:
            return offset
    return None
