"""Files in memory that lose what was not synced, tear writes and fail on demand.

``MemoryFiles`` replaces the disk below a log. ``kill`` ends the process: nothing that was written is lost.
``crash`` cuts the power: what was synced stays, and of the rest a random part, namely a prefix of the bytes,
some of them zeros, and a prefix of the new names.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from random import Random
from typing import NamedTuple, TypeVar

import attrs
import trio

from splashdam.model.errors import IllegalStateError
from splashdam.model.values import Buffer
from splashdam.storage.files.disk import TEMPORARY, DirectoryEntry
from splashdam.storage.files.log_file import (
    LARGEST_SMALL_FILE_BYTES,
    BytesSlice,
    FileSlice,
    LogFile,
    check_size,
    storage_errors,
)

T = TypeVar("T")


class PowerCutError(Exception):
    """The power was cut at this operation; all later ones fail, too, until ``crash`` or ``kill``."""


@attrs.define
class Fault:
    """A failure of operations that change something.

    Attributes:
        error_number: the ``errno`` of the failure; None cuts the power.
        after: the number of operations that still succeed.
        times: the number of operations that then fail; None for all.
        landed_bytes: the number of bytes of a failing write that reach the file.
    """

    error_number: int | None
    after: int = 0
    times: int | None = 1
    landed_bytes: int = 0


class _Inode:
    """The bytes of a file: as written, and as synced."""

    def __init__(self, data: bytes = b"", *, is_synced: bool = False, modified_ms: int = 0) -> None:
        self.data = bytearray(data)
        self.modified_ms = modified_ms
        self.synced = data if is_synced else b""
        self._syncs_begun = self._synced_as_of = 0

    def begin_sync(self) -> tuple[int, bytes]:
        """Begin a sync; return its number and the bytes that it will make durable."""
        self._syncs_begun += 1
        return self._syncs_begun, bytes(self.data)

    def end_sync(self, number: int, data: bytes) -> None:
        """End the sync of that number, unless one that began later has ended already."""
        if number > self._synced_as_of:
            self._synced_as_of, self.synced = number, data

    def copy(self) -> _Inode:
        twin = _Inode(bytes(self.data), modified_ms=self.modified_ms)
        twin.synced = self.synced
        return twin

    def after_crash(self, random: Random | None) -> _Inode:
        return _Inode(self._survivor(random), is_synced=True, modified_ms=self.modified_ms)

    def _survivor(self, random: Random | None) -> bytes:
        if random is None or self.data == self.synced:
            return self.synced
        if not self.data.startswith(self.synced) and random.random() < 0.5:
            return self.synced  # the truncation is lost
        kept = min(len(self.synced), len(self.data))
        survived = random.randint(kept, len(self.data))
        sound = random.randint(kept, survived)  # the length may be on disk before the bytes are
        return bytes(self.data[:sound]) + bytes(survived - sound)


class _Names:
    """A tree of names: the file or directory of each path.

    Args:
        files: files by path, in the order of their creation.
        directories: paths of the directories.
    """

    def __init__(self, files: Iterable[tuple[str, _Inode]] = (), directories: Iterable[str] = ("/",)) -> None:
        self.files: dict[str, _Inode] = {}
        self.directories: set[str] = set()
        self._within: defaultdict[str, set[str]] = defaultdict(set)
        for path, inode in files:
            self._link(path, inode)
        for path in directories:
            self._make_directory(path)

    def apply(self, change: _Change) -> None:
        kind, path, target = change.kind, change.path, change.target
        if kind == "link" and isinstance(target, _Inode):
            self._link(path, target)
        elif kind == "make_directory":
            self._make_directory(path)
        elif kind == "rename" and isinstance(target, str):
            files, directories = self._take(path)
            for name, inode in files:
                self._link(target + name[len(path) :], inode)
            for name in directories:
                self._make_directory(target + name[len(path) :])
        elif kind == "remove":
            self._take(path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        return sorted(
            DirectoryEntry(os.path.basename(name), name in self.directories)
            for name in self._within.get(path, ())
            if name != path  # the root is within itself
        )

    def _link(self, path: str, inode: _Inode) -> None:
        self.files[path] = inode
        self._within[_directory_of(path)].add(path)

    def _make_directory(self, path: str) -> None:
        self.directories.add(path)
        self._within[_directory_of(path)].add(path)

    def _take(self, path: str) -> tuple[list[tuple[str, _Inode]], list[str]]:
        """Remove a file, or a directory with all its content; return what was removed."""
        is_file = path in self.files
        files = [path] if is_file else [name for name in self.files if _is_within(name, path)]
        directories = [] if is_file else [name for name in self.directories if _is_within(name, path)]
        for name in (*files, *directories):
            self._within[_directory_of(name)].discard(name)
        self.directories.difference_update(directories)
        return [(name, self.files.pop(name)) for name in files], directories


class _Change(NamedTuple):
    """One change of names; durable once its directory is synced."""

    kind: str
    path: str
    target: _Inode | str | None = None


class _Pending:
    """Changes of names that a power cut would undo: in order, and by the directory to sync."""

    def __init__(self) -> None:
        self._numbers = count()
        self._changes: dict[int, _Change] = {}
        self._of_directory: defaultdict[str, list[int]] = defaultdict(list)

    @property
    def changes(self) -> list[_Change]:
        return list(self._changes.values())

    def add(self, change: _Change) -> None:
        number = next(self._numbers)
        self._changes[number] = change
        self._of_directory[_directory_of(change.path)].append(number)

    def take(self, directory: str) -> list[_Change]:
        """Remove and return the changes in one directory."""
        return [self._changes.pop(number) for number in self._of_directory.pop(directory, ())]


def _directory_of(path: str) -> str:
    """Return what ``os.path.dirname`` returns, in a third of its time: every operation asks."""
    return path.rpartition("/")[0] or "/"


def _is_within(name: str, path: str) -> bool:
    return name == path or name.startswith(path + "/")


class MemoryFiles:
    """A ``Files`` in memory.

    Args:
        capacity_bytes: size of the disk; a write beyond it is cut short and fails with ENOSPC.

    Attributes:
        operations: the number of operations that have changed something; a test can fail each in turn.
        sync_s: returns the duration of the next ``LogFile.sync`` in seconds. The sync makes durable what was
            written when it began.
        now_ms: the modification time of files that are written now.
    """

    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.operations = 0
        self.sync_s: Callable[[], float] = lambda: 0.0
        self.now_ms = 0
        self.capacity_bytes = capacity_bytes
        self._names = _Names()
        self._durable = _Names()
        self._pending = _Pending()
        self._fault: Fault | None = None
        self._locked: set[str] = set()

    # --- what tests do --------------------------------------------------------------------------------------

    def inject(self, fault: Fault) -> None:
        """Make operations fail from now on as ``fault`` says."""
        self._fault = attrs.evolve(fault)

    def heal(self) -> None:
        """End the injected fault."""
        self._fault = None

    @property
    def is_faulty(self) -> bool:
        """Whether a fault is active, or the capacity is limited."""
        return self._fault is not None or self.capacity_bytes is not None

    def kill(self) -> None:
        """End the process: locks and open files are gone; written bytes stay, unsynced ones too."""
        twins: dict[_Inode, _Inode] = {}  # the next process must not share the dead one's open files

        def twin(inode: _Inode) -> _Inode:
            if inode not in twins:
                twins[inode] = inode.copy()
            return twins[inode]

        for names in (self._names, self._durable):
            names.files = {path: twin(inode) for path, inode in names.files.items()}
        changes, self._pending = self._pending.changes, _Pending()
        for change in changes:
            target = change.target
            self._pending.add(change._replace(target=twin(target)) if isinstance(target, _Inode) else change)
        self._forget_process()

    def crash(self, random: Random | None = None) -> None:
        """Cut the power: keep what was synced; of the rest what ``random`` decides, by default nothing."""
        names = self._durable
        changes = self._pending.changes
        for change in changes[: random.randint(0, len(changes)) if random else 0]:
            names.apply(change)
        names.files = {
            path: inode for path, inode in names.files.items() if _directory_of(path) in names.directories
        }
        self._restart(names, lambda inode: inode.after_crash(random))

    def _restart(self, names: _Names, survivor: Callable[[_Inode], _Inode]) -> None:
        self._names = _Names(
            ((path, survivor(inode)) for path, inode in names.files.items()), names.directories
        )
        self._durable = _Names(self._names.files.items(), self._names.directories)
        self._pending = _Pending()
        self._forget_process()

    def _forget_process(self) -> None:
        self._locked = set()
        self._fault = None

    # --- Files ----------------------------------------------------------------------------------------------

    def open_log(self, path: str, *, create: bool = False) -> LogFile:
        with storage_errors("open", path):
            inode = self._names.files.get(path)
            if inode is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                inode = _Inode()
                self._change(_Change("link", path, inode))
        return MemoryLogFile(self, inode, path)

    def read_bytes(self, path: str, limit_bytes: int = LARGEST_SMALL_FILE_BYTES) -> bytes | None:
        inode = self._names.files.get(path)
        if inode is None:
            return None
        check_size(path, len(inode.data), limit_bytes)
        return bytes(inode.data)

    def size_bytes(self, path: str) -> int | None:
        inode = self._names.files.get(path)
        return None if inode is None else len(inode.data)

    def modified_ms(self, path: str) -> int | None:
        inode = self._names.files.get(path)
        return None if inode is None else inode.modified_ms

    def is_link(self, path: str) -> bool:
        return False  # there are no links here

    def space(self, path: str) -> tuple[int, int]:
        total = self.capacity_bytes or 1 << 40
        return total, max(0, total - self.used_bytes)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, private: bool = False) -> None:
        with storage_errors("write", path):
            temporary = _Inode()
            self._change(_Change("link", path + TEMPORARY, temporary))
            written = 0
            while written < len(data):  # a disk that gets full takes a part first, and then refuses
                written += self.write(temporary, (data[written:],), written)
            if sync:
                self.sync(temporary)
            self._change(_Change("rename", path + TEMPORARY, path))
        if sync:
            self.sync_directory(_directory_of(path))

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        return self._names.list_directory(path)

    def make_directory(self, path: str) -> list[str]:
        if path in self._names.directories:
            return []
        missing = self.make_directory(_directory_of(path))
        with storage_errors("make directory", path):
            self._change(_Change("make_directory", path))
        return [path, *missing]

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        with storage_errors("set the time of", path):
            self._operate()
        self._names.files[path].modified_ms = modified_ms

    async def run(self, work: Callable[[], T]) -> T:
        """Run the work inline, so that virtual time stays deterministic."""
        await trio.lowlevel.checkpoint()
        return work()

    def rename(self, old: str, new: str) -> None:
        with storage_errors("rename", old):
            if old not in self._names.files and old not in self._names.directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            self._change(_Change("rename", old, new))

    def unlink(self, path: str) -> None:
        with storage_errors("remove", path):
            if path in self._names.files:
                self._change(_Change("remove", path))

    def remove_tree(self, path: str) -> None:
        with storage_errors("remove", path):
            if path in self._names.directories:
                self._change(_Change("remove", path))

    def sync_directory(self, path: str) -> None:
        with storage_errors("sync", path):
            self._operate()
        for change in self._pending.take(path):
            self._durable.apply(change)

    def lock(self, path: str) -> MemoryLock:
        if path in self._locked:
            raise IllegalStateError(f"{path} is in use by another broker of this process")
        self._locked.add(path)
        return MemoryLock(self._locked, path)

    # --- what open files do ---------------------------------------------------------------------------------

    def write(self, inode: _Inode, buffers: Sequence[Buffer], position: int) -> int:
        """Write at a position as far as faults and capacity allow; return the number of bytes written."""
        data = b"".join(buffers)
        try:
            self._operate()
        except (OSError, PowerCutError):
            if self._fault is not None and self._fault.landed_bytes:
                landed = data[: self._fault.landed_bytes]
                inode.data[position : position + len(landed)] = landed
                if self._fault.error_number is None:
                    self._fault.landed_bytes = 0  # without power nothing else is written
            raise
        taken = len(data)
        if self.capacity_bytes is not None:
            room = max(0, self.capacity_bytes - self.used_bytes) + len(inode.data) - position
            taken = min(taken, max(0, room))
        inode.data[position : position + taken] = data[:taken]
        inode.modified_ms = self.now_ms
        if data and not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return taken

    def truncate(self, inode: _Inode, end: int) -> None:
        """Cut a file, or fail."""
        self._operate()
        del inode.data[end:]

    def sync(self, inode: _Inode) -> None:
        """Make a file's bytes durable, or fail."""
        self._operate()
        inode.end_sync(*inode.begin_sync())

    async def sync_meanwhile(self, inode: _Inode) -> None:
        """Sync in the course of ``sync_s``: what was written when it began becomes durable."""
        begun = inode.begin_sync()
        await trio.sleep(self.sync_s())
        self._operate()
        inode.end_sync(*begun)

    def _change(self, change: _Change) -> None:
        self._operate()
        self._names.apply(change)
        self._pending.add(change)

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self._names.files.values())

    def _operate(self) -> None:
        """Count an operation; fail it if a fault says so."""
        self.operations += 1
        fault = self._fault
        if fault is None:
            return
        if fault.after > 0:
            fault.after -= 1
            return
        if fault.error_number is None:
            raise PowerCutError
        if fault.times is not None:
            if fault.times == 0:
                return
            fault.times -= 1
        raise OSError(fault.error_number, os.strerror(fault.error_number))


class MemoryLock:
    """The lock of a directory of a ``MemoryFiles``."""

    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        self._locked.discard(self._path)


class MemoryLogFile(LogFile):
    """A ``LogFile`` in memory, without threads, so that virtual time stays deterministic."""

    def __init__(self, files: MemoryFiles, inode: _Inode, path: str) -> None:
        super().__init__(path, len(inode.data))
        self._files = files
        self._inode = inode

    async def sync(self) -> None:
        async with self._sync_under_way():
            await self._files.sync_meanwhile(self._inode)

    def slice(self, position: int, count: int) -> FileSlice:
        return BytesSlice(self.read(position, count))

    def close(self) -> None:
        """Do nothing: there is no descriptor."""

    def _write_at(self, buffers: Sequence[Buffer], position: int) -> int:
        return self._files.write(self._inode, buffers, position)

    def _read_at(self, position: int, count: int) -> bytes:
        return bytes(self._inode.data[position : position + count])

    def _truncate_to(self, end: int) -> None:
        self._files.truncate(self._inode, end)

    def _sync(self) -> None:
        self._files.sync(self._inode)
