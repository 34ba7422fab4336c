"""Where a table is: a path or URI, and its filesystem, which each process opens for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import attrs
import pyarrow as pa
from pyarrow import fs

from splashdam.model.errors import KafkaConfigurationError

_S3_SCHEMES = ("s3", "s3a", "s3n")

S3_OPTIONS = {
    "s3.endpoint": "endpoint_override",
    "s3.access-key-id": "access_key",
    "s3.secret-access-key": "secret_key",
    "s3.session-token": "session_token",
    "s3.region": "region",
}
"""pyarrow's arguments by Iceberg's names of options, which are used for all formats."""

S3_TO_DELTA = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
}
"""``deltalake``'s options by Iceberg's names."""


class StoredFile(NamedTuple):
    """An existing file.

    Attributes:
        path: relative to the location.
        size_bytes: its length.
        modified_ms: when it was written, by the filesystem's clock.
    """

    path: str
    size_bytes: int
    modified_ms: int


def _sorted_pairs(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(options.items()))


@attrs.frozen(slots=False)
class Location:
    """A folder on disk or in object storage. It travels to the tasks, which open its filesystem themselves.

    Attributes:
        uri: a path, ``s3://bucket/key``, or a URI of any filesystem that fsspec knows (``memory://t``).
        options: ``s3.endpoint``, ``s3.access-key-id``, ``s3.secret-access-key``, ``s3.session-token`` and
            ``s3.region``; missing ones come from the environment, as for AWS's tools.
    """

    uri: str
    options: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)

    @classmethod
    def of(cls, place: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Location:
        """Return the location of a path or URI; a path becomes absolute, because tasks run in other folders.

        Raises:
            KafkaConfigurationError: it is empty, a URI without a path, or the root of a filesystem.
        """
        text = os.fspath(place)
        parts = urlsplit(text)
        if parts.scheme in ("", "file"):
            text = os.path.abspath(unquote(parts.path) if parts.scheme else text) if text else ""
        elif not (parts.netloc or parts.path.strip("/")):
            text = ""
        if not text:
            raise KafkaConfigurationError(f"{place!r} names no table: give a folder, or s3://bucket/folder")
        if not text.strip("/"):
            raise KafkaConfigurationError(f"{place!r} is the root of the filesystem: give a folder in it")
        return cls(text.rstrip("/"), _sorted_pairs(options or {}))

    def __getstate__(self) -> dict[str, Any]:
        # The opened filesystem is not pickled.
        return {"uri": self.uri, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)

    @property
    def is_local(self) -> bool:
        """Whether it is a local folder."""
        return not urlsplit(self.uri).scheme

    @property
    def is_s3(self) -> bool:
        """Whether it is in S3 storage."""
        return urlsplit(self.uri).scheme in _S3_SCHEMES

    @cached_property
    def filesystem(self) -> fs.FileSystem:
        """The filesystem, opened on first use.

        Raises:
            KafkaConfigurationError: no installed package supports the scheme.
        """
        if self.is_local:
            return fs.LocalFileSystem()
        if self.is_s3:
            return fs.S3FileSystem(**_s3_arguments(dict(self.options)))
        scheme = urlsplit(self.uri).scheme
        try:
            import fsspec

            return fs.PyFileSystem(fs.FSSpecHandler(fsspec.filesystem(scheme)))
        except (ImportError, ValueError) as error:
            raise KafkaConfigurationError(
                f"{self.uri}: {scheme}:// is not supported: {error}; install fsspec with a package for it"
            ) from error

    @property
    def root(self) -> str:
        """The folder's path in the filesystem."""
        if self.is_local:
            return self.uri
        parts = urlsplit(self.uri)
        return f"{parts.netloc}{parts.path}" if self.is_s3 else f"/{parts.netloc}{parts.path}"

    def overlaps(self, other: Location) -> bool:
        """Whether two folders are the same, or one is inside the other. Local links are followed."""
        return self.path_below(other) is not None or other.path_below(self) is not None

    def path_below(self, other: Location) -> str | None:
        """Return the path from another folder to this one, "" for the same folder; None outside of it."""
        mine, theirs = self._resolved, other._resolved
        if mine == theirs:
            return ""
        outer = f"{theirs.rstrip('/')}/"
        return mine[len(outer) :] if mine.startswith(outer) else None

    @property
    def _resolved(self) -> str:
        """The address in its only form, without links, dots and other names of a scheme."""
        if self.is_local:
            return os.path.realpath(self.uri)
        parts = urlsplit(self.uri)
        scheme = "s3" if self.is_s3 else parts.scheme
        # Spark's filesystems follow dots, in object storage as well.
        return f"{scheme}://{parts.netloc}/{os.path.normpath(f'/{parts.path}').lstrip('/')}"

    def full_path(self, path: str) -> str:
        """Return a file's path in the filesystem."""
        return f"{self.root}/{path}"

    def full_uri(self, path: str) -> str:
        """Return a file's URI, as table logs have it."""
        return f"{self.uri}/{path}"

    def below(self, path_or_uri: str) -> str:
        """Return the relative path of a file that a table's log names in full."""
        for prefix in (self.uri, self.root, f"file://{self.uri}"):
            if path_or_uri.startswith(f"{prefix}/"):
                return path_or_uri[len(prefix) + 1 :]
        return path_or_uri

    def open_output(self, path: str) -> pa.NativeFile:
        """Open a new file for writing. An existing file is replaced when it is closed, on disk at once."""
        full = self.full_path(path)
        if not self.is_s3:  # object storage has no folders
            self.filesystem.create_dir(str(PurePosixPath(full).parent), recursive=True)
        return self.filesystem.open_output_stream(full)

    def read_bytes(self, path: str) -> bytes:
        """Return a whole file.

        Raises:
            FileNotFoundError: it does not exist.
        """
        with self.filesystem.open_input_stream(self.full_path(path)) as file:
            return bytes(file.read())

    def exists(self, path: str) -> bool:
        return bool(self.filesystem.get_file_info(self.full_path(path)).type == fs.FileType.File)

    def move(self, path: str, new_path: str) -> None:
        """Rename a file; in object storage that is a copy and a deletion."""
        target = self.full_path(new_path)
        if not self.is_s3:
            self.filesystem.create_dir(str(PurePosixPath(target).parent), recursive=True)
        self.filesystem.move(self.full_path(path), target)

    def remove(self, path: str) -> None:
        """Delete a file.

        Raises:
            FileNotFoundError: it does not exist.
        """
        self.filesystem.delete_file(self.full_path(path))

    def entries(self) -> list[str]:
        """Return the names of the folder's entries, sorted; none if it does not exist."""
        selector = fs.FileSelector(self.root, allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem.get_file_info(selector))

    def files(self, folder: str = "") -> Iterator[StoredFile]:
        """Yield all files below a folder, in no particular order; none if it does not exist."""
        base = self.full_path(folder) if folder else self.root
        selector = fs.FileSelector(base, recursive=True, allow_not_found=True)
        for info in self.filesystem.get_file_info(selector):
            if info.type == fs.FileType.File:
                # Some filesystems return paths without the leading slash of the request.
                path = info.path.lstrip("/").removeprefix(self.root.lstrip("/") + "/")
                yield StoredFile(path, info.size or 0, (info.mtime_ns or 0) // 1_000_000)


def _s3_arguments(options: Mapping[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {ours: options[name] for name, ours in S3_OPTIONS.items() if name in options}
    endpoint = arguments.get("endpoint_override", "")
    if endpoint.startswith("http://"):
        arguments["scheme"] = "http"
    return arguments
