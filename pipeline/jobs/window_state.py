"""What ``window`` knows between two batches: the watermark, and the windows that are still open.

Beside the checkpoint stand, for each batch N, ``state-N/`` (Parquet: the parts of open windows), and
``N.json``, which says that the batch was finished and how. The state of the batch before is kept, so that a
batch can be repeated; older ones are deleted.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.model.errors import IllegalStateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


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


FOLDER = "splashdam-window"
_DONE = r"(\d+)\.json"


@attrs.frozen
class Finished:
    """How a batch ended.

    Attributes:
        watermark_us: microseconds since the epoch; windows that end at or before it are closed. None before
            the first row with an event time.
        query: whose batch it was.
        shape: of the query: sizes, keys and aggregates. Another query cannot go on with the state.
    """

    watermark_us: int | None
    query: str
    shape: str


class WindowState:
    """The states of one query.

    Args:
        spark: the session.
        checkpoint: of the query.
        shape: see ``Finished``.
    """

    def __init__(self, spark: SparkSession, checkpoint: str, shape: str) -> None:
        self._folder = HadoopFolder(spark, f"{checkpoint}/{FOLDER}")
        self._shape = shape

    def last(self) -> int:
        """The last batch that was finished, -1 before the first."""
        return max(numbered(self._folder.names(), _DONE), default=-1)

    def finished(self, batch: int) -> Finished | None:
        """How a batch ended; None if it did not, and for the batch before the first.

        Raises:
            IllegalStateError: it was of another query.
        """
        if f"{batch}.json" not in self._folder.names():
            return None
        found = Finished(**json.loads(self._folder.read(f"{batch}.json")))
        if found.shape != self._shape:
            raise IllegalStateError(
                "the checkpoint is of other windows, keys or aggregates: take a new one. It has"
                f" {found.shape}, and this query {self._shape}"
            )
        closed = self._closed_until_us(batch)
        if closed is None or (found.watermark_us is not None and found.watermark_us >= closed):
            return found
        return attrs.evolve(found, watermark_us=closed)

    def watermark_before_us(self, batch: int) -> int | None:
        """The watermark that the batch before left.

        Raises:
            IllegalStateError: nobody knows.
        """
        if batch == 0:
            return None
        found = self.finished(batch - 1)
        if found is None:
            raise IllegalStateError(
                f"the state of batch {batch - 1} is missing beside the checkpoint, in"
                f" {self._folder.address('')}: start with a new checkpoint"
            )
        return found.watermark_us

    def open_windows(self, batch: int, schema: StructType, spark: SparkSession) -> DataFrame:
        """What was open behind a batch; nothing behind -1, nor where all windows were closed.

        Args:
            batch: its number.
            schema: of the parts.
            spark: the session to read with: a micro-batch has one of its own.
        """
        names = self._folder.names()
        if f"state-{batch}" not in names or f"{batch}.closed" in names:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(self._folder.address(f"state-{batch}"))

    def keep(self, batch: int, windows: DataFrame) -> None:
        """Writes the open windows behind a batch, over what an attempt may have left."""
        windows.write.mode("overwrite").parquet(self._folder.address(f"state-{batch}"))

    def finish(self, batch: int, watermark_us: int | None, query: str) -> None:
        """Says that a batch is finished, and forgets what stood before the batch before it."""
        done = Finished(watermark_us, query, self._shape)
        self._folder.write(f"{batch}.json", json.dumps(attrs.asdict(done)))
        names = self._folder.names()
        for number in numbered(names, _DONE):
            if number < batch - 1:
                for name in (f"{number}.json", f"{number}.closing", f"{number}.closed", f"state-{number}"):
                    if name in names:
                        self._folder.remove(name)

    def begin_closing(self, batch: int) -> None:
        """Says that the windows behind a batch are being closed, before any of them is written."""
        self._folder.write(f"{batch}.closing", "")

    def is_closing(self, batch: int) -> bool:
        """Whether that was begun, and not done."""
        names = self._folder.names()
        return f"{batch}.closing" in names and f"{batch}.closed" not in names

    def end_closing(self, batch: int, until_us: int) -> None:
        """Says that it was done: the watermark is now at the end of the last of these windows."""
        self._folder.write(f"{batch}.closed", str(until_us))

    def _closed_until_us(self, batch: int) -> int | None:
        name = f"{batch}.closed"
        return int(self._folder.read(name)) if name in self._folder.names() else None
