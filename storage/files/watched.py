"""A file system that reports failures of the disk, so that its directory can go offline."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.files.disk import DirectoryEntry, Files, StorageLock
from splashdam.storage.files.log_file import LARGEST_SMALL_FILE_BYTES, LogFile

T = TypeVar("T")

DISK_FAILURES = frozenset({errno.EIO, errno.ENXIO, errno.ENODEV, errno.EROFS, errno.ESTALE})
"""Errors after which a data directory goes offline. A full disk is not one: it works again with more room."""


def is_disk_failure(error: KafkaStorageError) -> bool:
    """Whether the error is a failure of the disk."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in DISK_FAILURES


class WatchedFiles:
    """A ``Files`` that reports failures of the disk, with the path, before it raises them.

    Args:
        files: the file system.
        on_failure: called in the thread of the operation, with path and error.
    """

    def __init__(self, files: Files, on_failure: Callable[[str, KafkaStorageError], None]) -> None:
        self._files = files
        self._on_failure = on_failure

    @contextmanager
    def _watched(self, path: str) -> Iterator[None]:
        try:
            yield
        except KafkaStorageError as error:
            self._note(path, error)
            raise

    def _note(self, path: str, error: KafkaStorageError) -> None:
        if is_disk_failure(error):
            self._on_failure(path, error)

    def open_log(self, path: str, *, create: bool = False) -> LogFile:
        """Open a file, and report its later failures, too."""
        with self._watched(path):
            file = self._files.open_log(path, create=create)
        file.on_failure = lambda error: self._note(path, error)
        return file

    def read_bytes(self, path: str, limit_bytes: int = LARGEST_SMALL_FILE_BYTES) -> bytes | None:
        with self._watched(path):
            return self._files.read_bytes(path, limit_bytes)

    def size_bytes(self, path: str) -> int | None:
        with self._watched(path):
            return self._files.size_bytes(path)

    def modified_ms(self, path: str) -> int | None:
        with self._watched(path):
            return self._files.modified_ms(path)

    def is_link(self, path: str) -> bool:
        return self._files.is_link(path)

    def space(self, path: str) -> tuple[int, int]:
        with self._watched(path):
            return self._files.space(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, private: bool = False) -> None:
        with self._watched(path):
            self._files.write_atomic(path, data, sync=sync, private=private)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        with self._watched(path):
            return self._files.list_directory(path)

    def make_directory(self, path: str) -> list[str]:
        with self._watched(path):
            return self._files.make_directory(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with self._watched(path):
            self._files.set_modified_ms(path, modified_ms)

    async def run(self, work: Callable[[], T]) -> T:
        return await self._files.run(work)

    def rename(self, old: str, new: str) -> None:
        with self._watched(old):
            self._files.rename(old, new)

    def unlink(self, path: str) -> None:
        with self._watched(path):
            self._files.unlink(path)

    def remove_tree(self, path: str) -> None:
        with self._watched(path):
            self._files.remove_tree(path)

    def sync_directory(self, path: str) -> None:
        with self._watched(path):
            self._files.sync_directory(path)

    def lock(self, path: str) -> StorageLock:
        with self._watched(path):
            return self._files.lock(path)
