"""The file system without waiting for the disk: for brokers that need not outlive a power cut, as in tests.

What was written is there for every program, and after ``kill -9``; only a machine that goes down loses it.
"""

from __future__ import annotations

from splashdam.storage.files.disk import DiskFiles, DiskLogFile


class UnsyncedLogFile(DiskLogFile):
    """A log file that says at once that it is safe."""

    async def sync(self) -> None:
        """Takes note of what the disk would have been waited for."""
        self.cut_torn_tail()
        self._synced_end = max(self._synced_end, self.end)

    def _sync(self) -> None:
        """Nothing is waited for."""


class UnsyncedFiles(DiskFiles):
    """The real file system, with no call of fsync."""

    _LOG_FILE = UnsyncedLogFile

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, private: bool = False) -> None:
        """As ``DiskFiles``: whole or not at all for whoever reads it."""
        super().write_atomic(path, data, sync=False, private=private)

    def sync_directory(self, path: str) -> None:
        """Nothing is waited for."""
