"""Files in memory, of which one directory can fail as a disk does."""

from __future__ import annotations

import errno
import os
from typing import Any

from splashdam.storage.files.log_file import LogFile, storage_error
from splashdam.storage.files.memory import MemoryFiles, MemoryLogFile

_CALLS = (
    "read_bytes",
    "size_bytes",
    "modified_ms",
    "write_atomic",
    "list_directory",
    "make_directory",
    "set_modified_ms",
    "rename",
    "unlink",
    "remove_tree",
    "sync_directory",
    "space",
    "lock",
)
_FILE_CALLS = ("_write_at", "_read_at", "_truncate_to", "_sync")


class FailingDirectory(MemoryFiles):
    """As ``MemoryFiles``.

    Attributes:
        broken: all below this path fails with EIO, what is open already, too.
        breaks_after: so many operations that change something still go before ``breaking`` breaks; None:
            all.
        breaking: the path that breaks then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broken = self.breaking = ""
        self.breaks_after: int | None = None
        for name in _CALLS:
            setattr(self, name, self._failing(getattr(self, name)))

    def _operate(self) -> None:
        if self.breaks_after is not None:
            self.breaks_after -= 1
            if self.breaks_after < 0:
                self.broken = self.breaking
        super()._operate()

    def _fails(self, path: str) -> bool:
        return bool(self.broken) and (path + "/").startswith(self.broken + "/")

    def _failing(self, call: Any) -> Any:
        def checked(path: str, *rest: Any, **named: Any) -> Any:
            if self._fails(path):
                error = OSError(errno.EIO, os.strerror(errno.EIO))
                raise storage_error("use", path, error) from error
            return call(path, *rest, **named)

        return checked

    def open_log(self, path: str, *, create: bool = False) -> LogFile:
        """A file that fails once its directory does."""
        if self._fails(path):
            error = OSError(errno.EIO, os.strerror(errno.EIO))
            raise storage_error("open", path, error) from error
        file = super().open_log(path, create=create)
        assert isinstance(file, MemoryLogFile)
        for name in _FILE_CALLS:
            setattr(file, name, self._failing_file(path, getattr(file, name)))
        return file

    def _failing_file(self, path: str, call: Any) -> Any:
        def checked(*arguments: Any) -> Any:
            if self._fails(path):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(*arguments)

        return checked
