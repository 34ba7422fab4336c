"""What is around a place, and in it: tables and brokers' data directories share their folders with nobody.

Readers of a folder of Parquet files take every file below it for rows, and tools of Delta and Iceberg delete
files that the table's log does not name. Kafka does not start on a data directory with other folders in it.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from pyarrow import fs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.tables.locations import Location
from splashdam.storage.directories.identity import data_directory_of

_MARKS = {
    "_common_metadata": "a Parquet table",
    "_delta_log": "a Delta table",
    "_spark_metadata": "files of a stream of Spark's",
}
"""A folder with such a file or folder holds this."""
_METADATA, _METADATA_SUFFIX = "metadata", ".metadata.json"
"""An Iceberg table has files with this suffix in this folder. Its catalog may be anywhere."""
_OWN = (*_MARKS, "_commits", "_staging")


def is_hidden(inside: str) -> bool:
    """Whether readers of a table skip a path in its folder: its first name begins with ``_`` or ``.``, and is
    none of the table's own."""
    return inside.startswith(("_", ".")) and inside.split("/", maxsplit=1)[0] not in _OWN


def check_around(location: Location, what: str, *, may_be_table: bool = False) -> None:
    """Check that a place is neither in a table, unless readers skip it there, nor in a broker's directory.

    Args:
        location: the place.
        what: kind and name of the place, for the message.
        may_be_table: whether a table at the place itself is left to other checks.

    Raises:
        KafkaConfigurationError: it is in one of them.
    """
    if location.is_local and (directory := data_directory_of(Path(location.uri))) is not None:
        raise KafkaConfigurationError(
            f"{what} is in {directory}, the data directory of a broker: give a folder elsewhere"
        )
    root = PurePosixPath(os.path.realpath(location.uri) if location.is_local else location.root)
    for folder in (*(() if may_be_table else (root,)), *root.parents):
        inside = "/".join(root.parts[len(folder.parts) :])
        if not is_hidden(inside) and (found := held_by(location.filesystem, str(folder))):
            outer = folder if location.is_local else location.uri.removesuffix(f"/{inside}")
            raise KafkaConfigurationError(
                f"{what} is in {outer}, which holds {found}: its readers would see these files, too, and "
                "its tools would delete them. Give a folder elsewhere"
            )


def check_inside(location: Location) -> None:
    """Check that no other table is in a table's folder, which may have any number of files.

    Only a local folder is looked through: in object storage that takes a request for each thousand files.

    Raises:
        KafkaConfigurationError: there is one.
    """
    if not location.is_local:
        return
    for path, folders, _ in os.walk(location.uri):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        for folder in folders:
            if found := held_by(location.filesystem, f"{path}/{folder}"):
                raise KafkaConfigurationError(
                    f"table {location.uri} has {found} in it, at {path}/{folder}: move that elsewhere, "
                    "because readers of one see files of the other"
                )


def held_by(filesystem: fs.FileSystem, folder: str) -> str:
    """Return what a folder holds as a table, in words; "" if it holds none, or cannot be looked into.

    Args:
        filesystem: of the folder.
        folder: its path there.
    """
    base = folder.rstrip("/")
    try:
        for info in filesystem.get_file_info([f"{base}/{name}" for name in (*_MARKS, _METADATA)]):
            if info.type == fs.FileType.NotFound:
                continue
            if info.base_name in _MARKS:
                return _MARKS[info.base_name]
            if info.type == fs.FileType.Directory:
                entries = filesystem.get_file_info(fs.FileSelector(f"{base}/{_METADATA}"))
                if any(entry.base_name.endswith(_METADATA_SUFFIX) for entry in entries):
                    return "an Iceberg table"
    except Exception:  # who may use a folder may not always look around it; each store has errors of its own
        return ""
    return ""
