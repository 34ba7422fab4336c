"""Small files beside a checkpoint, on whatever filesystem Spark keeps it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFolder:
    """A folder, through Spark's own filesystems.

    Args:
        spark: the session.
        place: path or address, as Spark takes them.
    """

    def __init__(self, spark: SparkSession, place: str) -> None:
        jvm: Any = spark._jvm
        self._paths = jvm.org.apache.hadoop.fs.Path
        self._root = self._paths(place)
        java_context: Any = spark.sparkContext._jsc
        self._files = self._root.getFileSystem(java_context.hadoopConfiguration())

    def address(self, name: str) -> str:
        """Of what lies in the folder, as Spark takes it."""
        return str(self._paths(self._root, name).toString())

    def names(self) -> list[str]:
        """Of all that lies in the folder; none where it is not there."""
        if not self._files.exists(self._root):
            return []
        return [status.getPath().getName() for status in self._files.listStatus(self._root)]

    def read(self, name: str) -> str:
        """A file's text."""
        stream = self._files.open(self._paths(self._root, name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """A new file, whole or not at all; where it is there already, it stays.

        Raises:
            OSError: the filesystem refused it.
        """
        beside = self._paths(self._root, f".{name}.tmp")
        stream = self._files.create(beside, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        place = self._paths(self._root, name)
        # Hadoop's filesystems say so, and raise nothing
        if not self._files.rename(beside, place) and not self._files.exists(place):
            raise OSError(f"{place.toString()} could not be written: renaming it into its place was refused")

    def remove(self, name: str) -> None:
        """A file, or a folder and what is in it."""
        self._files.delete(self._paths(self._root, name), True)


def numbered(names: list[str], pattern: str) -> list[int]:
    """The numbers in those names that fit: ``numbered(names, r"(\\d+)\\.json")``; ascending."""
    return sorted(int(found[1]) for name in names if (found := re.fullmatch(pattern, name)) is not None)
