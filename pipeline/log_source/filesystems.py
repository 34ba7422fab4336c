"""Filesystems on which logs lie: this machine's, object storage, whatever fsspec knows. Only reading."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import attrs

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.storage.inspect.read_only import LARGEST_SMALL_FILE_BYTES

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_SAME_AS = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""Hadoop's names of schemes."""

_WITH_SETTINGS = {"s3": "S3FileSystem", "gs": "GcsFileSystem"}
_OF_ARROW = frozenset({"file", "hdfs", "viewfs", "abfs", "abfss", *_WITH_SETTINGS})
_SECONDS = frozenset({"connect_timeout", "request_timeout"})
_USER = re.compile(r"//[^/@]*@")
_COPIED_BYTES = 64 * 1024
_MISSING = (FileNotFoundError, NotADirectoryError)


def _without_secrets(uri: str) -> str:
    """Keys stand before an ``@``, or behind the question mark."""
    return _USER.sub("//", uri.partition("?")[0])


@attrs.frozen
class Location:
    """Where a log lies. It travels to Spark's workers; each process opens the filesystem for itself, once.

    Attributes:
        uri: a local path, or ``scheme://…``: s3, gs, hdfs, abfs as Arrow has them, others as fsspec does.
        settings: what Arrow's or fsspec's filesystem is made with, by names: ``endpoint_override``, …
    """

    uri: str = attrs.field(repr=_without_secrets)
    settings: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)  # keys may be among them

    def open(self) -> tuple[LogFiles, str]:
        """The filesystem, and the location's path in it.

        Raises:
            KafkaConfigurationError: there is no such scheme, or the settings are not its own.
        """
        # A forked child must not use its parent's connections.
        filesystem, path = _opened(os.getpid(), self.uri, self.settings)
        return LogFiles(filesystem, self.uri, path), path


def location_of(given: str, settings: tuple[tuple[str, str], ...] = ()) -> Location:
    """The location of what a user wrote: a relative path means the same in every process."""
    return Location(given if "://" in given else os.path.abspath(given), settings)


class Entry(NamedTuple):
    """What lies in a directory; a directory's size is 0."""

    name: str
    size_bytes: int
    is_directory: bool


class LogFiles:
    """The files of one filesystem, by their paths in it.

    Args:
        filesystem: Arrow's.
        uri: what was opened, for messages.
        root: its path.
    """

    def __init__(self, filesystem: pafs.FileSystem, uri: str, root: str) -> None:
        self._filesystem = filesystem
        self._uri = uri
        self._root = root

    @property
    def is_local(self) -> bool:
        """Whether a small read costs little."""
        name: str = self._filesystem.type_name
        return name == "local"

    def shown(self, path: str) -> str:
        """A path as the user would write it."""
        below = path.removeprefix(self._root)
        return _without_secrets(self._uri).rstrip("/") + below if below != path else path

    def list(self, path: str) -> list[Entry]:
        """What is in a directory, by name.

        Raises:
            KafkaStorageError: it is not there, or cannot be listed.
        """
        from pyarrow.fs import FileSelector, FileType

        with self._errors("list", path):
            found = self._filesystem.get_file_info(FileSelector(path))
        return sorted(
            Entry(info.base_name, info.size or 0, info.type == FileType.Directory)
            for info in found
            if info.base_name
        )

    def read(self, path: str) -> bytes | None:
        """A whole file of the kind that is always small; None where there is none.

        Raises:
            KafkaStorageError: it cannot be read, or is too large to be what its name says.
        """
        data = self.read_start(path, LARGEST_SMALL_FILE_BYTES + 1)
        if data is not None and len(data) > LARGEST_SMALL_FILE_BYTES:
            raise KafkaStorageError(
                f"{self.shown(path)} has more than {LARGEST_SMALL_FILE_BYTES:,} bytes, too many for a "
                "file of this kind. What to do: move it away"
            )
        return data

    def read_start(self, path: str, count: int) -> bytes | None:
        """Up to ``count`` bytes from a file's beginning; None where there is none.

        Raises:
            KafkaStorageError: it cannot be read.
        """
        with self._errors("read", path):
            try:
                with self._opened(path) as file:
                    data: bytes = file.read(count)
                    return data
            except _MISSING:
                return None

    @contextmanager
    def open(self, path: str) -> Iterator[LogFile]:
        """A file to be read at any place, for the time of the block.

        Raises:
            KafkaStorageError: it is not there, or cannot be opened.
        """
        with self._errors("open", path):
            file = self._opened(path)
        try:
            yield LogFile(self, file, path)
        finally:
            file.close()

    def _opened(self, path: str) -> Any:
        if self.is_local and os.path.exists(path) and not os.path.isfile(path):
            raise OSError("it is no regular file")  # opening a pipe would wait for its writer
        return self._filesystem.open_input_file(path)

    @contextmanager
    def _errors(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except _MISSING as error:
            raise KafkaStorageError(
                f"{self.shown(path)} is not there; was it removed by retention or compaction?"
            ) from error
        except (OSError, ValueError) as error:
            raise KafkaStorageError(f"cannot {verb} {self.shown(path)}: {error}") from error


class LogFile:
    """An open file; ``end`` is its length when it was opened."""

    def __init__(self, files: LogFiles, file: Any, path: str) -> None:
        self._files = files
        self._file = file
        self._path = path
        self.end: int = file.size()

    @property
    def name(self) -> str:
        """As the user would write it."""
        return self._files.shown(self._path)

    def read(self, position: int, count: int) -> memoryview:
        """Up to ``count`` bytes from ``position``; fewer only where the file ends.

        Raises:
            KafkaStorageError: they cannot be read, or the file has become shorter meanwhile.
        """
        wanted = max(0, min(count, self.end - position))
        try:
            if wanted <= _COPIED_BYTES:  # one call and a copy cost less than a buffer of Arrow's
                data = memoryview(self._file.read_at(wanted, position))
            else:
                self._file.seek(position)
                data = memoryview(self._file.read_buffer(wanted)).cast("B")  # Arrow's bytes are signed
        except (OSError, ValueError) as error:
            raise KafkaStorageError(f"cannot read {self.name}: {error}") from error
        if len(data) < wanted:
            raise KafkaStorageError(f"{self.name} became shorter while it was read; is a broker using it?")
        return data


@cache
def _opened(_: int, uri: str, settings: tuple[tuple[str, str], ...]) -> tuple[pafs.FileSystem, str]:
    try:
        filesystem, path = _open(uri, {name: _value(name, text) for name, text in settings})
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise KafkaConfigurationError(f"cannot open {_without_secrets(uri)}: {error}") from error
    return filesystem, path.rstrip("/") or path


def _open(uri: str, settings: dict[str, Any]) -> tuple[pafs.FileSystem, str]:
    import pyarrow.fs as pafs

    scheme, separator, rest = uri.partition("://")
    if not separator:
        return pafs.LocalFileSystem(), uri
    scheme = _SAME_AS.get(scheme, scheme)
    if scheme in _WITH_SETTINGS and settings:
        parts = urlsplit(f"{scheme}://{rest}")
        return getattr(pafs, _WITH_SETTINGS[scheme])(**settings), parts.netloc.rpartition("@")[2] + parts.path
    if scheme in _OF_ARROW:
        if settings:
            raise ValueError(f"{scheme} takes its settings in the URI, as ?name=value")
        opened: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(f"{scheme}://{rest}")
        return opened
    from fsspec.core import url_to_fs

    filesystem, path = url_to_fs(uri, **settings)
    return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), path


def _value(name: str, text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return float(text) if name in _SECONDS else text
