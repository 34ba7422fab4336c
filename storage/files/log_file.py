"""Append-only files, slices of them, and the errors of the file system.

``append`` moves ``end`` after all bytes are written. A short write is an error, and what it left behind is
cut off. Every failure of the file system becomes a ``KafkaStorageError`` that names path, cause and remedy.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import Buffer

_GOES_ON = ", and the broker goes on"
_REMEDIES = {
    errno.ENOSPC: "make room on this disk" + _GOES_ON,
    errno.EDQUOT: "raise the quota or make room within it" + _GOES_ON,
    errno.EROFS: "find out why it is mounted read-only, mount it for writing and start the broker again",
    errno.EIO: "the disk fails: look into the system's log, and start the broker again on one that works",
}
"""Remedies for failures of the disk."""


def storage_error(action: str, path: str, error: OSError) -> KafkaStorageError:
    """Return the error for a failure of the file system."""
    if error.errno == errno.ELOOP:
        return symbolic_link_error(path)
    remedy = _REMEDIES.get(error.errno or 0)
    text = f"could not {action} {path}: {error.strerror or error}"
    return KafkaStorageError(f"{text}; {remedy}" if remedy else text)


def as_fatal(error: KafkaStorageError) -> KafkaStorageError:
    """Return the error with the remedy for a broker that ends or could not start."""
    if not error.message.endswith(_GOES_ON):
        return error
    fatal = KafkaStorageError(f"{error.message.removesuffix(_GOES_ON)}, and start the broker again")
    fatal.__cause__ = error.__cause__
    return fatal


@contextmanager
def raised_as_fatal() -> Iterator[None]:
    """Raise a KafkaStorageError of the block ``as_fatal``."""
    try:
        yield
    except KafkaStorageError as error:
        fatal = as_fatal(error)
        raise fatal from fatal.__cause__


def is_disk_full(error: KafkaStorageError) -> bool:
    """Whether the disk is full or a quota is reached, so that deleting files helps."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def symbolic_link_error(path: str) -> KafkaStorageError:
    """Return the error for a symbolic link inside a data directory."""
    return KafkaStorageError(
        f"{path} is a symbolic link, and none is followed inside a data directory; move what it points to "
        "there, or name another directory in log.dirs"
    )


def unusable_file_error(path: str, reason: str) -> KafkaStorageError:
    """Return the error for a damaged small file that the broker would create again if it were missing."""
    return KafkaStorageError(f"{path} {reason}; move this file away, and the broker creates it again")


LARGEST_SMALL_FILE_BYTES = 256 * 1024 * 1024
"""Largest checkpoint, snapshot or other small file that is read: enough for five million producers."""


class OversizedFileError(KafkaStorageError):
    """A file is too large to be what its name says. It was not read: it could fill the memory."""


def check_size(path: str, size_bytes: int, limit_bytes: int = LARGEST_SMALL_FILE_BYTES) -> None:
    """Raise OversizedFileError for a file that is larger than the limit."""
    if size_bytes > limit_bytes:
        raise OversizedFileError(
            f"{path} has {size_bytes:,} bytes, too many for a file of this kind; move it away"
        )


class storage_errors:
    """Turn an OSError of the block into a KafkaStorageError that names action and path.

    A class like ``contextlib.suppress``: a generator would cost twice as much, for each file of a partition.
    """

    __slots__ = ("_action", "_path")

    def __init__(self, action: str, path: str) -> None:
        self._action = action
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            raise storage_error(self._action, self._path, error) from error


class FileSlice(Protocol):
    """Part of a file, readable until ``close`` even if the file is renamed or deleted meanwhile."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def position(self) -> int:
        """Where the slice starts in the file of ``fileno``."""
        ...

    def fileno(self) -> int | None:
        """Return a descriptor for sendfile, or None if the bytes are in memory."""
        ...

    def read(self) -> bytes:
        """Return all bytes of the slice.

        Raises:
            KafkaStorageError: the file cannot be read.
        """
        ...

    def close(self) -> None: ...


class BytesSlice:
    """A ``FileSlice`` whose bytes are in memory."""

    __slots__ = ("_data", "size_bytes")
    position = 0

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def fileno(self) -> int | None:
        return None

    def read(self) -> bytes:
        return self._data

    def close(self) -> None:
        """Do nothing: there is no descriptor."""


class LogFile(ABC):
    """An append-only file.

    Attributes:
        path: its path when it was opened.
        end: the number of its valid bytes.
        on_failure: called with every failure of the file system before it is raised.
    """

    def __init__(self, path: str, end: int) -> None:
        self.path = path
        self.end = end
        self.on_failure: Callable[[KafkaStorageError], None] | None = None
        self._synced_end = end
        self._cuts = 0
        self._has_torn_tail = False

    @property
    def is_synced(self) -> bool:
        """Whether everything up to ``end`` is known to be on stable storage."""
        return self._synced_end == self.end

    def mark_unsynced(self) -> None:
        """Note that the bytes may not be on stable storage: an earlier process may have written them."""
        self._synced_end = -1

    def discard(self) -> None:
        """Note that the file is being removed, so that syncs skip it."""
        self._synced_end = self.end

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all bytes of ``buffers`` at the end, or none.

        Raises:
            KafkaStorageError: not everything could be written; ``end`` is as before.
        """
        size = 0
        for buffer in buffers:
            size += len(buffer)
        if self._has_torn_tail:  # recovery would cut what follows a torn tail, acknowledged or not
            self.cut_torn_tail()
        try:
            written = self._write_at(buffers, self.end)
            if written != size:
                self._write_rest(buffers, written)
        except OSError as error:
            self._undo_append()
            raise self._storage_error("append to", error) from error
        self.end += size

    def _write_rest(self, buffers: Sequence[Buffer], written: int) -> None:
        """Write the rest after a short write: a disk that gets full raises ENOSPC only then."""
        rest = memoryview(b"".join(buffers))[written:]
        while rest:
            taken = self._write_at((rest,), self.end + written)
            if not taken:
                raise OSError(f"{written} bytes were taken, {len(rest)} were not")
            written, rest = written + taken, rest[taken:]

    def cut_torn_tail(self) -> None:
        """Cut off what a failed append has left and could not cut itself.

        Raises:
            KafkaStorageError: the disk still refuses.
        """
        if self._has_torn_tail:
            self.truncate(self.end)

    def truncate(self, end: int) -> None:
        """Cut the file to ``end`` bytes.

        Raises:
            KafkaStorageError: the file could not be cut; ``end`` is as before.
        """
        try:
            self._truncate_to(end)
        except OSError as error:
            raise self._storage_error("truncate", error) from error
        self._has_torn_tail = False
        self._cuts += 1
        if end != self.end:
            self.end = end
            self._synced_end = -1

    def read(self, position: int, count: int) -> bytes:
        """Return up to ``count`` bytes from ``position``; fewer only at the end of the file.

        Raises:
            KafkaStorageError: the bytes cannot be read.
        """
        try:
            return self._read_at(position, max(0, min(count, self.end - position)))
        except OSError as error:
            raise self._storage_error("read", error) from error

    def sync_now(self) -> None:
        """Bring all bytes up to ``end`` to stable storage; blocks.

        Raises:
            KafkaStorageError: the bytes may be lost. A second try proves nothing: the system may have dropped
                the pages that it could not write.
        """
        self.cut_torn_tail()  # a sync would make it last
        end = self.end
        try:
            self._sync()
        except OSError as error:
            raise self._storage_error("sync", error) from error
        self._synced_end = end

    @abstractmethod
    async def sync(self) -> None:
        """Do what ``sync_now`` does, beside the event loop."""

    @asynccontextmanager
    async def _sync_under_way(self) -> AsyncIterator[None]:
        """Surround the disk's work in ``sync``.

        The loop goes on meanwhile, so the log may grow or be cut: only what was there at the beginning counts
        as synced, and nothing does after a cut.
        """
        self.cut_torn_tail()
        end, cuts = self.end, self._cuts
        try:
            yield
        except OSError as error:
            raise self._storage_error("sync", error) from error
        if cuts == self._cuts:
            self._synced_end = max(self._synced_end, end)  # another call may have synced more

    @abstractmethod
    def slice(self, position: int, count: int) -> FileSlice:
        """Return up to ``count`` bytes from ``position`` as a slice that outlives this object."""

    @abstractmethod
    def close(self) -> None:
        """Close the file without a sync."""

    @abstractmethod
    def _write_at(self, buffers: Sequence[Buffer], position: int) -> int: ...

    @abstractmethod
    def _read_at(self, position: int, count: int) -> bytes: ...

    @abstractmethod
    def _truncate_to(self, end: int) -> None: ...

    @abstractmethod
    def _sync(self) -> None: ...

    def _storage_error(self, action: str, error: OSError) -> KafkaStorageError:
        failure = storage_error(action, self.path, error)
        failure.__cause__ = error
        if self.on_failure is not None:
            self.on_failure(failure)
        return failure

    def _undo_append(self) -> None:
        # A sync that is under way may have made the torn tail durable and not its cut, so it must not count.
        self._synced_end = -1
        self._cuts += 1
        try:
            self._truncate_to(self.end)
        except OSError:
            # It is cut before anything else is written; after a crash recovery cuts it.
            self._has_torn_tail = True
