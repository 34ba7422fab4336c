"""A file that only grows at its end, and slices of it.

``append`` moves ``end`` after all bytes are in; a write that falls short is an error, and what it left behind
is cut off again. Every failure of the file system is a ``KafkaStorageError`` that names path and cause.
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
"""What to do, for failures that are the disk's and not the broker's."""


def storage_error(action: str, path: str, error: OSError) -> KafkaStorageError:
    """The one form in which failures of the file system are told."""
    if error.errno == errno.ELOOP:
        return symbolic_link_error(path)
    remedy = _REMEDIES.get(error.errno or 0)
    text = f"could not {action} {path}: {error.strerror or error}"
    return KafkaStorageError(f"{text}; {remedy}" if remedy else text)


def as_fatal(error: KafkaStorageError) -> KafkaStorageError:
    """The same failure as it is told where no broker is left that could go on, or none has begun."""
    if not error.message.endswith(_GOES_ON):
        return error
    told = KafkaStorageError(f"{error.message.removesuffix(_GOES_ON)}, and start the broker again")
    told.__cause__ = error.__cause__
    return told


@contextmanager
def raised_as_fatal() -> Iterator[None]:
    """Tell a failure of the block by ``as_fatal``."""
    try:
        yield
    except KafkaStorageError as error:
        told = as_fatal(error)
        raise told from told.__cause__


def is_disk_full(error: KafkaStorageError) -> bool:
    """Whether the disk is full, or a quota reached: what is deleted helps."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def symbolic_link_error(path: str) -> KafkaStorageError:
    """What is told of a symbolic link where the broker keeps files: it would write to whatever is behind."""
    return KafkaStorageError(
        f"{path} is a symbolic link, and none is followed inside a data directory; move what it points to "
        "there, or name another directory in log.dirs"
    )


def unusable_file_error(path: str, reason: str) -> KafkaStorageError:
    """A small file that makes no sense, keeps the broker from starting, and would be made anew if missing."""
    return KafkaStorageError(f"{path} {reason}; move this file away to have it made anew")


@contextmanager
def storage_errors(action: str, path: str) -> Iterator[None]:
    """Turn an OSError of the block into a KafkaStorageError that names action and path."""
    try:
        yield
    except OSError as error:
        raise storage_error(action, path, error) from error


class FileSlice(Protocol):
    """Part of a file, readable until ``close`` whatever happens to the file's name meanwhile."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def position(self) -> int:
        """Where the slice starts in the file behind ``fileno``."""
        ...

    def fileno(self) -> int | None:
        """A descriptor for sendfile, or None where the bytes are in memory already."""
        ...

    def read(self) -> bytes:
        """All bytes of the slice.

        Raises:
            KafkaStorageError: they can no longer be read.
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
        """Nothing to give back."""


class LogFile(ABC):
    """A file that grows at its end; ``end`` is the number of its valid bytes.

    Attributes:
        path: where it is, or was when it was opened.
        end: the number of its valid bytes.
        on_failure: is told of every failure of the file system before it is raised.
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
        """Say that the bytes may be nowhere but in memory: an earlier process wrote them and was killed."""
        self._synced_end = -1

    def discard(self) -> None:
        """Say that the file is on its way out: a sync of it that is still to come is left out."""
        self._synced_end = self.end

    def append(self, buffers: Sequence[Buffer]) -> None:
        """Write all bytes of ``buffers`` at the end, or none.

        Raises:
            KafkaStorageError: the file system took less than everything; the file is as long as before.
        """
        size = 0
        for buffer in buffers:
            size += len(buffer)
        if self._has_torn_tail:
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
        """A disk that gets full takes a part first, and says why only when it is asked for the rest."""
        rest = memoryview(b"".join(buffers))[written:]
        while rest:
            taken = self._write_at((rest,), self.end + written)
            if not taken:
                raise OSError(f"{written} bytes were taken, {len(rest)} were not")
            written, rest = written + taken, rest[taken:]

    def cut_torn_tail(self) -> None:
        """Cut off what a failed append left and could not cut; nothing may follow it, and it must not last.

        Raises:
            KafkaStorageError: it still cannot be cut.
        """
        if self._has_torn_tail:
            self.truncate(self.end)

    def truncate(self, end: int) -> None:
        """Cut the file to ``end`` bytes.

        Raises:
            KafkaStorageError: it could not be cut; ``end`` is as before.
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
        """Up to ``count`` bytes from ``position``; fewer only where the file ends.

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
            KafkaStorageError: the bytes may be lost. Trying again proves nothing: the system may have dropped
                the pages it could not write.
        """
        self.cut_torn_tail()
        end = self.end
        try:
            self._sync()
        except OSError as error:
            raise self._storage_error("sync", error) from error
        self._synced_end = end

    @abstractmethod
    async def sync(self) -> None:
        """As ``sync_now``, without holding up the event loop."""

    @asynccontextmanager
    async def _sync_under_way(self) -> AsyncIterator[None]:
        """Around the disk's work in ``sync``: what is written or cut meanwhile waits for the next one."""
        self.cut_torn_tail()
        end, cuts = self.end, self._cuts
        try:
            yield
        except OSError as error:
            raise self._storage_error("sync", error) from error
        if cuts == self._cuts:
            self._synced_end = max(self._synced_end, end)  # another call may have come further

    @abstractmethod
    def slice(self, position: int, count: int) -> FileSlice:
        """``count`` bytes from ``position``, or as many as there are, independent of this object's life."""

    @abstractmethod
    def close(self) -> None:
        """Give the file back, without syncing it."""

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
        self._synced_end = -1
        self._cuts += 1
        try:
            self._truncate_to(self.end)
        except OSError:
            # It is cut before anything else is written; a crash before that leaves it to recovery.
            self._has_torn_tail = True
