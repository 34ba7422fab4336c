"""What of a log is not on stable storage yet, and how it gets there: at once, or many behind one sync.

A flush is a round: ``begin`` lists the files, the disk works on them, ``end`` takes note. Meanwhile the log
goes on: it grows, closes segments and begins new ones. So a round proves what was there when it began, and
nothing more.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs
import trio

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.storage.append_result import LogState
from splashdam.storage.files.disk import Files, LogFile
from splashdam.storage.leader_epochs import LeaderEpochs
from splashdam.storage.log_reading import ReadableLog
from splashdam.storage.recovery.loader import LoadedLog
from splashdam.storage.segment import LogSegment
from splashdam.storage.settings import LogSettings

MAX_WAITING_SEGMENTS = 16
"""Closed segments that may wait for a flush, each with up to three open files."""


@attrs.frozen
class FlushRound:
    """One flush: files to sync, and the directory if it has new names; then all below ``target`` is safe.

    Attributes:
        target: where the log ended when the round began.
        closed: the segments that were closed by then, so that nothing is written to them while it runs. The
            active one is synced, too, but it may grow and be closed meanwhile; then it waits for the next.
    """

    target: int
    closed: tuple[LogSegment, ...]
    unsynced: tuple[LogFile, ...]
    files: Files
    new_names_in: str | None
    names_made: int
    truncations: int
    epochs: LeaderEpochs

    def run(self) -> None:
        """Syncs, blocking.

        Raises:
            KafkaStorageError: what is on the disk is unknown.
        """
        for file in self.unsynced:
            file.sync_now()
        self._sync_names()

    async def run_async(self) -> None:
        """Syncs without holding up the event loop.

        Raises:
            KafkaStorageError: as ``run``.
        """
        for file in self.unsynced:
            if not file.is_synced:  # a flush meanwhile may have synced and even closed it
                await file.sync()
        self._sync_names()

    def _sync_names(self) -> None:
        if self.new_names_in is not None:
            self.files.sync_directory(self.new_names_in)
        self.epochs.sync()


class LogFlusher:
    """Closed segments that wait for a flush, and how far earlier ones went.

    Args:
        files: the file system.
        directory: of the log.
        recovery_point: see below.
        epochs: the leader epochs of the log.
        names_are_safe: what the directory lists is on stable storage.

    Attributes:
        recovery_point: everything below is on stable storage.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        recovery_point: int,
        epochs: LeaderEpochs,
        *,
        names_are_safe: bool = False,
    ) -> None:
        self._epochs = epochs
        self.recovery_point = recovery_point
        self._files = files
        self._directory = directory
        self._closed: list[LogSegment] = []
        self._names_made = 0 if names_are_safe else 1
        self._names_synced = 0
        self._truncations = 0

    @property
    def needs_flush(self) -> bool:
        return bool(self._closed)

    @property
    def is_overdue(self) -> bool:
        """Whether so many segments wait that their open files are a burden."""
        return len(self._closed) > MAX_WAITING_SEGMENTS

    def add_closed(self, segment: LogSegment) -> None:
        """Notes that a segment was closed, and its successor made."""
        self._closed.append(segment)
        self.add_name()

    def add_name(self) -> None:
        """Notes that a file was made: the next flush syncs the directory, too."""
        self._names_made += 1

    def forget(self, removed: Collection[LogSegment]) -> None:
        """Waits no longer for segments that are on their way out."""
        self._closed = [segment for segment in self._closed if segment not in removed]

    def truncate(self, offset: int, active: LogSegment) -> None:
        """Takes note that the log ends at an offset now, in a segment that may have been closed."""
        self._truncations += 1
        self.recovery_point = min(self.recovery_point, offset)
        self._closed = [segment for segment in self._closed if segment.base_offset < active.base_offset]

    def begin(self, active: LogSegment, log_end_offset: int) -> FlushRound:
        """Lists what to sync so that everything below ``log_end_offset`` is safe.

        Raises:
            KafkaStorageError: index entries kept back earlier still cannot be written.
        """
        closed = tuple(self._closed)
        unsynced = tuple(file for segment in (*closed, active) for file in segment.unsynced_files())
        new_names_in = self._directory if self._names_made > self._names_synced else None
        return FlushRound(
            log_end_offset,
            closed,
            unsynced,
            self._files,
            new_names_in,
            self._names_made,
            self._truncations,
            self._epochs,
        )

    def end(self, done: FlushRound) -> list[LogSegment]:
        """Takes note of a round that went through; returns the closed segments that wait no longer."""
        if done.truncations != self._truncations:
            return []  # what it synced is gone
        self.recovery_point = max(self.recovery_point, done.target)
        self._names_synced = max(self._names_synced, done.names_made)
        flushed = [segment for segment in self._closed if segment in done.closed]
        self._closed = [segment for segment in self._closed if segment not in flushed]
        return flushed


class FlushableLog(ReadableLog):
    """The flushing part of ``Log``."""

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
    ) -> None:
        super().__init__(directory, topic_partition, settings, loaded, topic_id=topic_id)
        self._active = loaded.segments.active
        self._flusher = LogFlusher(
            files, directory, recovery_point, loaded.epochs, names_are_safe=loaded.is_as_left
        )
        self._flushed_ms = now_ms
        self._sync_under_way: trio.Event | None = None

    @property
    def recovery_point(self) -> int:
        """Everything below is on stable storage."""
        return self._flusher.recovery_point

    @property
    def needs_flush(self) -> bool:
        """Whether a closed segment waits to be brought to stable storage."""
        return self._flusher.needs_flush

    @property
    def is_synced(self) -> bool:
        """Whether everything in the log is on stable storage."""
        return self.recovery_point >= self.log_end_offset

    @property
    def must_flush(self) -> bool:
        """Whether ``flush.messages`` says that the last append is not to be answered before a flush."""
        return self.log_end_offset - self._flusher.recovery_point >= self.settings.flush_messages

    def is_due(self, wall_ms: int) -> bool:
        """Whether ``flush.ms`` has passed since the last flush, and something was written.

        A clock that was put back says nothing of how long that was, so it counts as passed.
        """
        return (
            self.log_end_offset > self.recovery_point
            and not 0 <= wall_ms - self._flushed_ms < self.settings.flush_ms
            and self.settings.flush_ms < MAX_LONG
            and self.state is LogState.OPEN
        )

    def flush(self) -> None:
        """Brings the log to stable storage and moves the recovery point; blocks.

        Raises:
            KafkaStorageError: it could not. After a failed sync the log takes no more appends: what the disk
                has is unknown, and a second try would prove nothing.
        """
        round_ = self._begin_flush()
        try:
            round_.run()
        except KafkaStorageError:
            self._fail()
            raise
        self._end_flush(round_)

    async def sync(self, wall_ms: int | None = None) -> None:
        """As ``flush``, while others go on using the log; a closed one has nothing left to flush.

        Whoever comes while a sync is under way waits for its end; the first of those then syncs for all of
        them.

        Args:
            wall_ms: wall clock, milliseconds since the epoch, from which ``flush.ms`` counts anew.

        Raises:
            KafkaStorageError: as ``flush``.
        """
        wanted = self.log_end_offset
        while self._sync_under_way is not None:
            await self._sync_under_way.wait()
            if self.recovery_point >= wanted:  # whoever led that one may lead the next already
                return
        if self._is_closed() or (self.recovery_point >= wanted and not self.needs_flush):
            return
        round_ = self._begin_flush()
        done = self._sync_under_way = trio.Event()
        try:
            await round_.run_async()
        except KafkaStorageError:
            if self._is_closed():  # meanwhile: closing flushed it, or it is deleted
                return
            self._fail()
            raise
        finally:
            self._sync_under_way = None
            done.set()
        self._end_flush(round_)
        self._flushed_ms = self._flushed_ms if wall_ms is None else wall_ms

    def _fail(self) -> None:
        self.state = LogState.FAILED
        if self.replication is not None:
            self.replication.log_failed()

    def _begin_flush(self) -> FlushRound:
        if self.state is not LogState.OPEN:
            self._refuse("flush")
        return self._flusher.begin(self._active, self.log_end_offset)

    def _end_flush(self, done: FlushRound) -> None:
        if self.state is not LogState.OPEN:  # closed meanwhile, or another flush failed: nothing is proven
            return
        for closed in self._flusher.end(done):
            self._segments.touch(closed)
