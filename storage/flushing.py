"""What of a log is not on stable storage yet, and how it gets there: at once, or many behind one sync.

A flush is a round: ``begin`` lists the files, the disk works on them, ``end`` takes note. Meanwhile the log
goes on: it grows, closes segments and begins new ones. So a round proves what was there when it began, and
nothing more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import attrs
import trio

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.options import MAX_LONG
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import LogFile
from splashdam.storage.leader_epochs import LeaderEpochs
from splashdam.storage.segments.segment import LogSegment
from splashdam.storage.segments.segment_list import SegmentList
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


class FlushedLog(Protocol):
    """What a flusher asks of its log."""

    @property
    def settings(self) -> LogSettings: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def is_closed(self) -> bool: ...

    def check_open(self, call: str) -> None:
        """Raises what fits a call that the log's state does not allow."""
        ...

    def fail(self) -> None:
        """A sync failed: what the disk has is unknown."""
        ...


class LogFlusher:
    """Brings a log to stable storage: what waits for that, the sync under way, and how far it has come.

    Args:
        log: whose flusher it is.
        files: the file system.
        directory: of the log.
        segments: of the log.
        epochs: the leader epochs of the log.
        recovery_point: see below.
        flushed_ms: wall clock, milliseconds since the epoch, from which ``flush.ms`` counts.
        names_are_synced: what the directory lists is on stable storage.

    Attributes:
        recovery_point: everything below is on stable storage.
        flushed_ms: as given, or of the last sync that was told the time.
    """

    def __init__(
        self,
        log: FlushedLog,
        files: Files,
        directory: str,
        segments: SegmentList,
        epochs: LeaderEpochs,
        *,
        recovery_point: int,
        flushed_ms: int,
        names_are_synced: bool = False,
    ) -> None:
        self.recovery_point = recovery_point
        self.flushed_ms = flushed_ms
        self._log = log
        self._files = files
        self._directory = directory
        self._segments = segments
        self._epochs = epochs
        self._closed: list[LogSegment] = []
        self._names_made = 0 if names_are_synced else 1
        self._names_synced = 0
        self._truncations = 0
        self._sync_under_way: trio.Event | None = None

    @property
    def needs_flush(self) -> bool:
        """Whether a closed segment waits to be brought to stable storage."""
        return bool(self._closed)

    def is_due(self, wall_ms: int) -> bool:
        """Whether ``flush.ms`` has passed since the last flush, and something was written.

        A clock that was put back says nothing of how long that was, so it counts as passed.
        """
        flush_ms = self._log.settings.flush_ms
        return (
            self._log.log_end_offset > self.recovery_point
            and not 0 <= wall_ms - self.flushed_ms < flush_ms
            and flush_ms < MAX_LONG
            and self._log.is_open
        )

    # --- what the log tells ---------------------------------------------------------------------------------

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

    def truncate(self, offset: int) -> None:
        """Takes note that the log ends at an offset now, in a segment that may have been closed."""
        self._truncations += 1
        self.recovery_point = min(self.recovery_point, offset)
        active = self._segments.active
        self._closed = [segment for segment in self._closed if segment.base_offset < active.base_offset]

    # --- flushes --------------------------------------------------------------------------------------------

    def flush_if_overdue(self) -> None:
        """Flushes where so many segments wait that their open files are a burden.

        Raises:
            KafkaStorageError: as ``flush``.
        """
        if len(self._closed) > MAX_WAITING_SEGMENTS:
            self.flush()

    def flush(self) -> None:
        """Brings the log to stable storage and moves the recovery point; blocks.

        Raises:
            KafkaStorageError: it could not. After a failed sync the log takes no more appends: what the disk
                has is unknown, and a second try would prove nothing.
        """
        round_ = self.begin()
        try:
            round_.run()
        except KafkaStorageError:
            self._log.fail()
            raise
        self._end(round_)

    async def sync(self, wall_ms: int | None = None) -> None:
        """As ``flush``, while others go on using the log; a closed one has nothing left to flush.

        Whoever comes while a sync is under way waits for its end; the first of those then syncs for all of
        them.

        Args:
            wall_ms: wall clock, milliseconds since the epoch, from which ``flush.ms`` counts anew.

        Raises:
            KafkaStorageError: as ``flush``.
        """
        wanted = self._log.log_end_offset
        while self._sync_under_way is not None:
            await self._sync_under_way.wait()
            if self.recovery_point >= wanted:  # whoever led that one may lead the next already
                return
        if self._log.is_closed or (self.recovery_point >= wanted and not self._closed):
            return
        round_ = self.begin()
        done = self._sync_under_way = trio.Event()
        try:
            await round_.run_async()
        except KafkaStorageError:
            if self._log.is_closed:  # meanwhile: closing flushed it, or it is deleted
                return
            self._log.fail()
            raise
        finally:
            self._sync_under_way = None
            done.set()
        self._end(round_)
        self.flushed_ms = self.flushed_ms if wall_ms is None else wall_ms

    async def wait_for_sync(self) -> None:
        """Returns when no sync is under way; nothing may be cut while the disk works on it."""
        while self._sync_under_way is not None:
            await self._sync_under_way.wait()

    def begin(self) -> FlushRound:
        """Lists what to sync so that everything below the end of the log is safe.

        Raises:
            KafkaStorageError: index entries kept back earlier still cannot be written.
            IllegalStateError: the log is closed.
        """
        self._log.check_open("flush")
        closed = tuple(self._closed)
        unsynced = tuple(
            file for segment in (*closed, self._segments.active) for file in segment.unsynced_files()
        )
        new_names_in = self._directory if self._names_made > self._names_synced else None
        return FlushRound(
            self._log.log_end_offset,
            closed,
            unsynced,
            self._files,
            new_names_in,
            self._names_made,
            self._truncations,
            self._epochs,
        )

    def _end(self, done: FlushRound) -> None:
        """Takes note of a round that went through; the closed segments in it wait no longer."""
        if not self._log.is_open:  # closed meanwhile, or another flush failed: nothing is proven
            return
        if done.truncations != self._truncations:
            return  # what it synced is gone
        self.recovery_point = max(self.recovery_point, done.target)
        self._names_synced = max(self._names_synced, done.names_made)
        flushed = [segment for segment in self._closed if segment in done.closed]
        self._closed = [segment for segment in self._closed if segment not in flushed]
        for closed in flushed:
            self._segments.touch(closed)
