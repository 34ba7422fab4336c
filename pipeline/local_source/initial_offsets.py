"""Where a stream began, kept outside Spark, so that every answer about it is the same.

Spark asks a source for its first offsets twice before the first trigger, takes the second answer, and asks
again when a query is restarted before that trigger was committed. It tells no Python source where the
checkpoint is, so the place is an option of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.local_source.positions import Offsets, from_json, to_json

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_FILE = "initial-offsets.json"
_VERSION = 1


@attrs.frozen
class InitialOffsets:
    """A file with the first offsets of one query.

    Attributes:
        location: a directory, by path or URI (``s3://…``); one per query, as its checkpoint.
        reads: what the query reads, in words; another query's file is refused.
    """

    location: str
    reads: str

    def kept(self, find: Callable[[], Offsets]) -> Offsets:
        """The offsets that are kept, found and kept now if there are none.

        Args:
            find: asks the cluster.

        Raises:
            KafkaConfigurationError: the file is another query's, or none of these.
            OSError: the file can be neither read nor written.
        """
        files, directory = _opened(self.location)
        path = f"{directory}/{_FILE}"
        if _is_there(files, path):
            return self._read(files, path)
        offsets = find()
        files.create_dir(directory, recursive=True)
        text = json.dumps({"version": _VERSION, "reads": self.reads, "offsets": to_json(offsets)})
        new = f"{path}.{os.getpid()}.new"
        with files.open_output_stream(new) as stream:
            stream.write(text.encode())
        files.move(new, path)  # whole or not at all
        return offsets

    def _read(self, files: FileSystem, path: str) -> Offsets:
        with files.open_input_stream(path) as stream:
            text = stream.read()
        try:
            kept: dict[str, Any] = json.loads(text)
            version, reads, offsets = kept["version"], kept["reads"], kept["offsets"]
        except (ValueError, KeyError, TypeError):
            raise KafkaConfigurationError(
                f"{path} holds no initial offsets of a stream: delete it if the query has no checkpoint yet"
            ) from None
        if version != _VERSION:
            raise KafkaConfigurationError(f"{path} is of version {version}; this splashdam reads {_VERSION}")
        if reads != self.reads:
            raise KafkaConfigurationError(
                f"{path} is of a query that reads {reads}, this one reads {self.reads}:"
                " give each query an initialOffsetsLocation of its own"
            )
        return from_json(offsets)


def _opened(location: str) -> tuple[FileSystem, str]:
    from pyarrow.fs import FileSystem, FSSpecHandler, LocalFileSystem, PyFileSystem

    if "://" not in location:
        return LocalFileSystem(), os.path.abspath(location)
    try:
        files, path = FileSystem.from_uri(location)
    except (ValueError, OSError):  # not one of Arrow's own
        try:
            from fsspec.core import url_to_fs

            other, path = url_to_fs(location)
        except (ImportError, ValueError) as error:
            raise KafkaConfigurationError(f"initialOffsetsLocation={location!r}: {error}") from error
        files = PyFileSystem(FSSpecHandler(other))
    return files, path.rstrip("/")


def _is_there(files: FileSystem, path: str) -> bool:
    from pyarrow.fs import FileType

    return files.get_file_info(path).type is FileType.File
