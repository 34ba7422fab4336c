"""What of a log is not on stable storage yet, and how it gets there."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from splashdam.embedded_broker.storage.files import Files, LogFile
from splashdam.embedded_broker.storage.leader_epochs import LeaderEpochs
from splashdam.embedded_broker.storage.segment import LogSegment

MAX_WAITING_SEGMENTS = 16
"""Closed segments that may wait for a flush, each with up to three open files."""


@attrs.frozen
class FlushRound:
    """One flush: files to sync, and the directory if it has new names; then all below ``target`` is safe."""

    target: int
    segments: tuple[LogSegment, ...]
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
        segments = (*self._closed, active)
        unsynced = tuple(file for segment in segments for file in segment.unsynced_files())
        new_names_in = self._directory if self._names_made > self._names_synced else None
        return FlushRound(
            log_end_offset,
            segments,
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
        flushed = [segment for segment in self._closed if segment in done.segments]
        self._closed = [segment for segment in self._closed if segment not in flushed]
        return flushed
