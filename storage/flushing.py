"""Which part of a log is not on stable storage yet, and the flushes that bring it there.

A flush is a round: ``begin`` lists the files, the disk works on them, ``_end`` moves the recovery point.
Meanwhile the log goes on: it grows, closes segments and begins new ones. So a round makes durable what was
there when it began, and nothing more.
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
"""Closed segments that may wait for a flush; each keeps up to three files open."""


@attrs.frozen
class FlushRound:
    """One flush: the files to sync, and the directory if it has new names. Then all below ``target`` is safe.

    Attributes:
        target: the log end offset when the round began.
        closed: the segments that were closed by then, so nothing is written to them during the round. The
            active segment is synced too, but it may grow and be closed meanwhile; then it waits for the next
            round.
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
        """Sync, blocking.

        Raises:
            KafkaStorageError: a sync failed, so what is on the disk is unknown.
        """
        for file in self.unsynced:
            file.sync_now()
        self._sync_names()

    async def run_async(self) -> None:
        """Sync without holding up the event loop.

        Raises:
            KafkaStorageError: as ``run``.
        """
        for file in self.unsynced:
            if not file.is_synced:  # a flush meanwhile may have synced and even closed it
                await file.sync()
        self._sync_names()

    def _sync_names(self) -> None:
        # After the bytes: the recovery point moves once this returns, and without the names a power cut would
        # leave neither the new segments nor the epochs that began in them.
        if self.new_names_in is not None:
            self.files.sync_directory(self.new_names_in)
        self.epochs.sync()


class FlushedLog(Protocol):
    """What a flusher needs of its log."""

    @property
    def settings(self) -> LogSettings: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def is_closed(self) -> bool: ...

    def check_open(self, call: str) -> None:
        """Raise if the log's state does not allow the call."""
        ...

    def fail(self) -> None:
        """Make the log read-only after a failed sync."""
        ...


class LogFlusher:
    """Brings a log to stable storage; knows what waits for that, and the recovery point.

    Args:
        log: the log.
        files: the file system.
        directory: the log's directory.
        segments: the log's segments.
        epochs: the log's leader epochs.
        recovery_point: see below.
        flushed_ms: see below.
        names_are_synced: the names in the directory are on stable storage.

    Attributes:
        recovery_point: every offset below it is on stable storage.
        flushed_ms: wall clock of the last sync, milliseconds since the epoch; ``flush.ms`` counts from it.
        truncations: how often the log was truncated.
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
        self.truncations = 0
        self._sync_under_way: trio.Event | None = None

    @property
    def needs_flush(self) -> bool:
        """Whether a closed segment waits for its flush."""
        return bool(self._closed)

    def is_due(self, wall_ms: int) -> bool:
        """Whether something was written, and ``flush.ms`` has passed since the last flush.

        If the clock was set back, the time since the last flush is unknown, so the flush is due.
        """
        flush_ms = self._log.settings.flush_ms
        return (
            self._log.log_end_offset > self.recovery_point
            and not 0 <= wall_ms - self.flushed_ms < flush_ms
            and flush_ms < MAX_LONG
            and self._log.is_open
        )

    # --- what the log reports -------------------------------------------------------------------------------

    def add_closed(self, segment: LogSegment) -> None:
        """Note that a segment was closed and its successor created."""
        self._closed.append(segment)
        self.add_name()

    def add_name(self) -> None:
        """Note that a file was created: the next flush syncs the directory, too."""
        self._names_made += 1

    def forget(self, removed: Collection[LogSegment]) -> None:
        """Forget segments that are being removed; they need no flush."""
        self._closed = [segment for segment in self._closed if segment not in removed]

    def expect_cut(self, offset: int) -> None:
        """Promise no longer that the segment of ``offset`` is on stable storage."""
        # A cut ends at the base offset of a batch, which may be below ``offset``.
        held_by = next(self._segments.walk_from(offset))
        self._lower_recovery_point(min(offset, held_by.base_offset))

    def _lower_recovery_point(self, offset: int) -> None:
        self.recovery_point = min(self.recovery_point, offset)

    def truncate(self, offset: int) -> None:
        """Note that the log was cut at ``offset``, perhaps in a segment that had been closed."""
        self.truncations += 1
        self._lower_recovery_point(offset)
        active = self._segments.active
        # The active segment needs no place in the list: each flush syncs it anyway.
        self._closed = [segment for segment in self._closed if segment.base_offset < active.base_offset]

    # --- flushes --------------------------------------------------------------------------------------------

    def flush_if_overdue(self) -> None:
        """Flush if more than ``MAX_WAITING_SEGMENTS`` wait, because each keeps files open.

        Raises:
            KafkaStorageError: as ``flush``.
        """
        if len(self._closed) > MAX_WAITING_SEGMENTS:
            self.flush()

    def flush(self) -> None:
        """Bring the log to stable storage and move the recovery point; blocks.

        Raises:
            KafkaStorageError: the sync failed, and the log is read-only from now on. After a failed fsync the
                system may have dropped the pages, so a second one that succeeds proves nothing.
        """
        round_ = self.begin()
        try:
            round_.run()
        except KafkaStorageError:
            self._log.fail()
            raise
        self._end(round_)

    async def sync(self, wall_ms: int | None = None) -> None:
        """Flush as ``flush`` does, while the log stays in use; a closed log has nothing left to flush.

        Callers share syncs: those that come during a sync wait for its end, and one of them then syncs for
        all. With ``flush.messages=1`` and many clients one sync per request would be the limit.

        Args:
            wall_ms: wall clock, milliseconds since the epoch; ``flush.ms`` counts from it again.

        Raises:
            KafkaStorageError: as ``flush``.
        """
        wanted = self._log.log_end_offset
        while self._sync_under_way is not None:
            await self._sync_under_way.wait()
            # Asked here too: the caller that ran that sync may be running the next one already.
            if self.recovery_point >= wanted:
                return
        if self._log.is_closed or (self.recovery_point >= wanted and not self._closed):
            return
        round_, began_at = self.begin(), self.recovery_point
        done = self._sync_under_way = trio.Event()
        try:
            await round_.run_async()
        except KafkaStorageError:
            if self._log.is_closed:  # closed meanwhile: `close` has flushed it, or it is being deleted
                return
            # A flush that succeeded meanwhile proves nothing: the system reports a lost page only once.
            self.recovery_point = min(self.recovery_point, began_at)
            self._log.fail()
            raise
        finally:
            self._sync_under_way = None
            done.set()
        # No await since ``done.set()``: the callers that waited run later, and see the new recovery point.
        self._end(round_)
        self.flushed_ms = self.flushed_ms if wall_ms is None else wall_ms

    async def wait_for_sync(self) -> None:
        """Wait until no sync is under way; no file may be cut while the disk works on it."""
        while self._sync_under_way is not None:
            await self._sync_under_way.wait()

    def begin(self) -> FlushRound:
        """List what to sync so that everything below the log end offset is safe.

        Raises:
            KafkaStorageError: pending index entries still cannot be written.
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
            self.truncations,
            self._epochs,
        )

    def _end(self, done: FlushRound) -> None:
        """Move the recovery point after a successful round, whose closed segments need no other flush."""
        if not self._log.is_open:  # closed meanwhile, or another flush failed: this round proves nothing
            return
        if done.truncations != self.truncations:
            return  # cut meanwhile: what was synced is gone, and the offsets may hold other records now
        self.recovery_point = max(self.recovery_point, done.target)
        self._names_synced = max(self._names_synced, done.names_made)
        flushed = [segment for segment in self._closed if segment in done.closed]
        self._closed = [segment for segment in self._closed if segment not in flushed]
        # They kept their files open for the flush; now the list of segments may close them.
        for closed in flushed:
            self._segments.touch(closed)
