"""One broker per data directory: ``.lock``, an operating system's lock on a descriptor that stays open.

The lock ends with the process, however the process ends. So a file left behind means nothing; the pid in it
is for people. ``flock`` keeps brokers of this project apart. Kafka takes a POSIX record lock on the same
file, which ``flock`` does not see, so the broker takes that one as well.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import IllegalStateError
from splashdam.storage.files.log_file import storage_error

LOCK_NAME = ".lock"

_taking = threading.RLock()
"""Held from the look into ``_held`` to the entry in it; a signal handler may open a broker meanwhile."""

_held: dict[str, DirectoryLock] = {}
"""Locks of this process by real path. POSIX drops a record lock when the process closes any descriptor of the
file, so a lock file that is held must not be opened a second time."""


class DirectoryLock:
    """The lock of one data directory, held until ``release``."""

    def __init__(self, real_path: str, descriptor: int) -> None:
        self._real_path = real_path
        self._descriptor = descriptor
        _held[real_path] = self

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if _held.get(self._real_path) is self:
            del _held[self._real_path]
            os.close(self._descriptor)


def lock_directory(path: str) -> DirectoryLock:
    """Take the lock of the data directory ``path``, which exists.

    Raises:
        IllegalStateError: a broker has the lock; the text names path and process.
        KafkaStorageError: the lock file cannot be opened or locked.
    """
    real_path = os.path.realpath(path)
    try:  # no ``with``: Ctrl-C between its ``__enter__`` and its body would leave the lock taken for ever
        _taking.acquire()
        return _lock(real_path, path)
    finally:
        try:  # noqa: SIM105 (``suppress`` is Python: Ctrl-C inside it would leave the lock taken for ever)
            _taking.release()
        except RuntimeError:  # Ctrl-C came while this thread waited: it does not hold the lock
            pass


def _lock(real_path: str, path: str) -> DirectoryLock:
    if real_path in _held:
        raise IllegalStateError(
            f"{path} is in use by another broker of this process (pid {os.getpid()}); close that one first"
        )
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(os.path.join(real_path, LOCK_NAME), flags, 0o644)
    except OSError as error:
        raise storage_error("open", f"{path}/{LOCK_NAME}", error) from error
    try:
        _take(descriptor, path)
        return DirectoryLock(real_path, descriptor)
    except BaseException:  # Ctrl-C too: nobody would ever release this lock
        _held.pop(real_path, None)
        os.close(descriptor)
        raise


def _take(descriptor: int, path: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 20, 0).decode(errors="replace").strip()
        raise IllegalStateError(
            f"{path} is in use by another broker, process {holder or 'unknown (a real Kafka?)'}; "
            "stop that one or use another directory"
        ) from error
    except OSError as error:
        raise KafkaStorageError(f"could not lock {path}: {error.strerror}") from error


def _forget_in_child() -> None:
    # A forked child has copies of the descriptors. While one is open, the directory stays locked after the
    # parent's end. Closing a copy does not unlock.
    for lock in _held.values():
        with suppress(OSError):
            os.close(lock._descriptor)
    _held.clear()
    _taking.release()


# Held across a fork, or a child could start with a lock that only a thread of its parent would release.
os.register_at_fork(before=_taking.acquire, after_in_parent=_taking.release, after_in_child=_forget_in_child)
