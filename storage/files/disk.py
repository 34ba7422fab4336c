"""The seam to the file system (``Files``), and its implementation on disk.

No file is opened through a symbolic link: anybody who can create names in a data directory could otherwise
make the broker write anywhere. The data directory itself may be one. Nothing is memory-mapped: on a full disk
a write through a map is a SIGBUS, not an error. A slice on disk owns a descriptor, so that the file can be
deleted while the slice is being sent.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeVar

import trio

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import Buffer
from splashdam.storage.files.lock import DirectoryLock, lock_directory
from splashdam.storage.files.log_file import (
    LARGEST_SMALL_FILE_BYTES,
    BytesSlice,
    FileSlice,
    LogFile,
    check_size,
    storage_errors,
    symbolic_link_error,
)

T = TypeVar("T")

TEMPORARY = ".tmp"
"""Suffix of the file that ``write_atomic`` writes before it takes the final name."""

SENDFILE_MIN_BYTES = 256 * 1024
"""Slices of at least this size own a descriptor and are sent by ``sendfile``; below, copying costs less."""

_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags of every open: without the last, a named pipe would block the broker until somebody writes to it."""


class StorageLock(Protocol):
    """The lock of a data directory; ``release`` may be called more than once."""

    def release(self) -> None: ...


class DirectoryEntry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool


class Files(Protocol):
    """A file system as logs use it.

    Paths are absolute; methods raise no other error than KafkaStorageError.
    """

    def open_log(self, path: str, *, create: bool = False) -> LogFile:
        """Open a file to read and append; with ``create``, create it if it is missing."""
        ...

    def read_bytes(self, path: str, limit_bytes: int = LARGEST_SMALL_FILE_BYTES) -> bytes | None:
        """Return the whole file, None if it does not exist; raise OversizedFileError beyond the limit."""
        ...

    def size_bytes(self, path: str) -> int | None:
        """Return the file's length, None if it does not exist; raise if it is a link or no regular file."""
        ...

    def modified_ms(self, path: str) -> int | None:
        """Return the modification time in milliseconds since the epoch, or None if there is no file."""
        ...

    def is_link(self, path: str) -> bool:
        """Whether a path is a symbolic link, dangling ones included."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Return the bytes of a directory's file system: all of them, and those still free."""
        ...

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, private: bool = False) -> None:
        """Replace a file as a whole: temporary file, fsync, rename, fsync of the directory.

        Only its owner can read a ``private`` file.
        """
        ...

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Return the entries of a directory by name; an empty list if there is no such directory."""
        ...

    def make_directory(self, path: str) -> list[str]:
        """Create a directory and its parents; return those that were missing, the outermost last."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the modification time of a file."""
        ...

    async def run(self, work: Callable[[], T]) -> T:
        """Run work on files beside the event loop; return what it returns, raise what it raises."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory; an existing file ``new`` is replaced."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all its content; a missing one is fine."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def lock(self, path: str) -> StorageLock:
        """Lock the data directory ``path``; raise IllegalStateError, with its process, if a broker has it."""
        ...


class DiskSlice:
    """A ``FileSlice`` with a descriptor of its own."""

    __slots__ = ("_descriptor", "_path", "position", "size_bytes")

    def __init__(self, descriptor: int, path: str, position: int, size_bytes: int) -> None:
        self._descriptor = descriptor
        self._path = path
        self.position = position
        self.size_bytes = size_bytes

    def fileno(self) -> int | None:
        return self._descriptor

    def read(self) -> bytes:
        with storage_errors("read", self._path):
            return _read_fully(self._descriptor, self.position, self.size_bytes)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        # A slice that was never sent, because its connection died first, must not keep a descriptor.
        with suppress(OSError, AttributeError):
            self.close()


class DiskLogFile(LogFile):
    """A ``LogFile`` on disk; without ``fsync`` a sync does nothing."""

    def __init__(self, descriptor: int, path: str, *, fsync: bool = True) -> None:
        super().__init__(path, _size_bytes(descriptor, path))
        self._descriptor = descriptor
        self._fsync = fsync

    async def sync(self) -> None:
        if not self._fsync:
            self.sync_now()
            return
        async with self._sync_under_way():
            # The thread gets a descriptor of its own: this one may be closed meanwhile and its number reused.
            descriptor = os.dup(self._descriptor)
            try:
                await trio.to_thread.run_sync(os.fdatasync, descriptor)
            finally:
                os.close(descriptor)

    def slice(self, position: int, count: int) -> FileSlice:
        count = max(0, min(count, self.end - position))
        if count < SENDFILE_MIN_BYTES:
            return BytesSlice(self.read(position, count))
        with storage_errors("read", self.path):
            return DiskSlice(os.dup(self._descriptor), self.path, position, count)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with storage_errors("close", self.path):
                os.close(descriptor)

    def _write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(self._descriptor, buffers, position)

    def _read_at(self, position: int, count: int) -> bytes:
        return _read_fully(self._descriptor, position, count)

    def _truncate_to(self, end: int) -> None:
        os.ftruncate(self._descriptor, end)

    def _sync(self) -> None:
        if self._fsync:
            os.fdatasync(self._descriptor)


class DiskFiles:
    """The real file system.

    Args:
        fsync: whether to wait for the disk. Without it, written bytes survive ``kill -9``, but not a power
            cut; for brokers that need not survive that, as in tests.
    """

    def __init__(self, *, fsync: bool = True) -> None:
        self._fsync = fsync

    def open_log(self, path: str, *, create: bool = False) -> LogFile:
        flags = os.O_RDWR | _SAFELY | (os.O_CREAT if create else 0)
        with storage_errors("open", path):
            descriptor = os.open(path, flags, 0o644)
            try:
                return DiskLogFile(descriptor, path, fsync=self._fsync)
            except BaseException:
                os.close(descriptor)
                raise

    def read_bytes(self, path: str, limit_bytes: int = LARGEST_SMALL_FILE_BYTES) -> bytes | None:
        with storage_errors("read", path):
            try:
                descriptor = os.open(path, os.O_RDONLY | _SAFELY)
            except FileNotFoundError:
                return None
            try:
                size_bytes = _size_bytes(descriptor, path)
                check_size(path, size_bytes, limit_bytes)
                return _read_fully(descriptor, 0, size_bytes)
            finally:
                os.close(descriptor)

    def size_bytes(self, path: str) -> int | None:
        found = _stat(path)
        return None if found is None else _checked_size(found, path)

    def modified_ms(self, path: str) -> int | None:
        found = _stat(path)
        return None if found is None else found.st_mtime_ns // 1_000_000

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, private: bool = False) -> None:
        sync = sync and self._fsync
        temporary = path + TEMPORARY
        with storage_errors("write", temporary):
            with open(temporary, "wb", opener=_open_private if private else _open_unlinked) as file:
                file.write(data)
                # Before the rename: a power cut could otherwise leave an empty file of the final name.
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        with storage_errors("list", path):
            try:
                with os.scandir(path) as found:
                    return sorted(DirectoryEntry(entry.name, entry.is_dir()) for entry in found)
            except FileNotFoundError:
                return []

    def make_directory(self, path: str) -> list[str]:
        with storage_errors("make directory", path):
            missing, candidate = [], path
            while not os.path.exists(candidate):
                missing.append(candidate)
                candidate = os.path.dirname(candidate)
            os.makedirs(path, exist_ok=True)
        return missing

    def space(self, path: str) -> tuple[int, int]:
        with storage_errors("look at", path):
            found = os.statvfs(path)
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with storage_errors("set the time of", path):
            times_ns = (modified_ms * 1_000_000, modified_ms * 1_000_000)
            os.utime(path, ns=times_ns, follow_symlinks=False)

    async def run(self, work: Callable[[], T]) -> T:
        try:
            return await trio.to_thread.run_sync(work)
        except Exception as error:
            _clear_frames(error)
            raise

    def rename(self, old: str, new: str) -> None:
        with storage_errors("rename", old):
            os.replace(old, new)

    def unlink(self, path: str) -> None:
        with storage_errors("remove", path), suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with storage_errors("remove", path), suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        if not self._fsync:
            return
        with storage_errors("sync", path):
            # The one open that follows links: the data directory itself may be one.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def lock(self, path: str) -> DirectoryLock:
        return lock_directory(path)


def _clear_frames(error: BaseException) -> None:
    """Forget what the frames of an error that comes from a thread hold, perhaps megabytes.

    The error and the frames of the thread keep each other until the garbage collector finds them.
    """
    each: BaseException | None = error
    while each is not None:
        traceback.clear_frames(each.__traceback__)
        each = each.__context__


def _open_unlinked(path: str, flags: int) -> int:
    return os.open(path, flags | _SAFELY, 0o666)


def _open_private(path: str, flags: int) -> int:
    """Create a file with mode 600 from the start: who opened it before a chmod could go on reading."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # a crash may have left a file that others have open
    return os.open(path, flags | os.O_EXCL, 0o600)


def _stat(path: str) -> os.stat_result | None:
    with storage_errors("look at", path):
        try:
            return os.lstat(path)
        except FileNotFoundError:
            return None


def _size_bytes(descriptor: int, path: str) -> int:
    return _checked_size(os.fstat(descriptor), path)


def _checked_size(found: os.stat_result, path: str) -> int:
    """Return the length of a file; raise KafkaStorageError if it is a link, a directory or a device."""
    if stat.S_ISLNK(found.st_mode):
        raise symbolic_link_error(path)
    if not stat.S_ISREG(found.st_mode):
        raise KafkaStorageError(f"{path} is not a regular file")
    return found.st_size


def _read_fully(descriptor: int, position: int, count: int) -> bytes:
    data = os.pread(descriptor, count, position)
    if len(data) == count:
        return data
    # One call may return less (Linux stops at 2 GiB); only an empty result means the end of the file.
    parts = [data]
    missing = count - len(data)
    while missing:
        data = os.pread(descriptor, missing, position + count - missing)
        if not data:
            # No EIO, with which the data directory would go offline: the file was cut, the disk is sound.
            raise OSError(errno.ENODATA, f"{missing} of {count} bytes at {position} are missing")
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)
