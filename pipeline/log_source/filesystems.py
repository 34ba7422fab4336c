"""Read-only filesystems with logs: the local one, object storage, and those of fsspec."""

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
from splashdam.storage.files.log_file import LARGEST_SMALL_FILE_BYTES

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_SAME_AS = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""Hadoop's names of schemes."""

_WITH_SETTINGS = {"s3": "S3FileSystem", "gs": "GcsFileSystem"}
_OF_ARROW = frozenset({"file", "hdfs", "viewfs", "abfs", "abfss", *_WITH_SETTINGS})
_ADVICE = ". What to do: check its name, the network, and region and keys in the environment or the settings"
_SECONDS = frozenset({"connect_timeout", "request_timeout"})
_USER = re.compile(r"//[^/@]*@")
_COPIED_BYTES = 64 * 1024
_MISSING = (FileNotFoundError, NotADirectoryError)


def _without_secrets(uri: str) -> str:
    """Return a URI without user info and query, which may contain keys."""
    return _USER.sub("//", uri.partition("?")[0])


@attrs.frozen
class Location:
    """Where logs are. It travels to Spark's workers; each process opens the filesystem once.

    Attributes:
        uri: a local path, or ``scheme://…``: Arrow opens s3, gs, hdfs and abfs, fsspec the others.
        settings: arguments of Arrow's or fsspec's filesystem by name: ``endpoint_override``, …
    """

    uri: str = attrs.field(repr=_without_secrets)
    settings: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)  # keys may be among them

    def open(self) -> tuple[LogFiles, str]:
        """Return the filesystem, and the location's path in it.

        Raises:
            KafkaConfigurationError: the scheme is unknown, or does not have these settings.
        """
        # A forked child must not use its parent's connections.
        filesystem, path = _opened(os.getpid(), self.uri, self.settings)
        return LogFiles(filesystem, self.uri, path), path


def location_of(given: str, settings: tuple[tuple[str, str], ...] = ()) -> Location:
    """Return the location that a user named; a relative path becomes absolute, for other processes."""
    return Location(given if "://" in given else os.path.abspath(given), settings)


class Entry(NamedTuple):
    """An entry of a directory; a subdirectory's size is 0."""

    name: str
    size_bytes: int
    is_directory: bool


class LogFiles:
    """The files of one filesystem, by path.

    Args:
        filesystem: Arrow's.
        uri: that was opened, for messages.
        root: its path in the filesystem.
    """

    def __init__(self, filesystem: pafs.FileSystem, uri: str, root: str) -> None:
        self._filesystem = filesystem
        self._uri = uri
        self._root = root

    @property
    def is_local(self) -> bool:
        """Whether it is the local filesystem, where small reads are cheap."""
        name: str = self._filesystem.type_name
        return name == "local"

    def shown(self, path: str) -> str:
        """Return a path as the user would write it, without secrets."""
        below = path.removeprefix(self._root)
        return _without_secrets(self._uri).rstrip("/") + below if below != path else path

    def list(self, path: str) -> list[Entry]:
        """Return the entries of a directory, by name.

        Raises:
            KafkaStorageError: it does not exist, or cannot be listed.
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
        """Return a whole file of a kind that is always small; None if it does not exist.

        Raises:
            KafkaStorageError: it cannot be read, or is too large for a file of this kind.
        """
        data = self.read_start(path, LARGEST_SMALL_FILE_BYTES + 1)
        if data is not None and len(data) > LARGEST_SMALL_FILE_BYTES:
            raise KafkaStorageError(
                f"{self.shown(path)} has more than {LARGEST_SMALL_FILE_BYTES:,} bytes, too many for a "
                "file of this kind. What to do: move it away"
            )
        return data

    def read_start(self, path: str, count: int) -> bytes | None:
        """Return up to ``count`` bytes from the start of a file; None if it does not exist.

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
        """Open a file for random reads in the block.

        Raises:
            KafkaStorageError: it does not exist, or cannot be opened.
        """
        with self._errors("open", path):
            file = self._opened(path)
        try:
            yield LogFile(self, file, path)
        finally:
            file.close()

    def _opened(self, path: str) -> Any:
        if self.is_local and os.path.exists(path) and not os.path.isfile(path):
            raise OSError("it is not a regular file")  # opening a pipe would wait for its writer
        return self._filesystem.open_input_file(path)

    @contextmanager
    def _errors(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except _MISSING as error:
            raise KafkaStorageError(
                f"{self.shown(path)} does not exist; was it removed by retention or compaction?"
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
        return self._files.shown(self._path)

    def read(self, position: int, count: int) -> memoryview:
        """Return up to ``count`` bytes from ``position``; fewer only at the end of the file.

        Raises:
            KafkaStorageError: they cannot be read, or the file was truncated meanwhile.
        """
        wanted = max(0, min(count, self.end - position))
        try:
            if wanted <= _COPIED_BYTES:  # one call and a copy are cheaper than an Arrow buffer
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
        advice = _ADVICE if isinstance(error, OSError) and "://" in uri else ""
        raise KafkaConfigurationError(f"cannot open {_without_secrets(uri)}: {error}{advice}") from error
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
