"""What ``window`` knows between two batches: the watermark, and the windows that are still open.

Beside the checkpoint stand, for each batch N, ``state-N/`` (Parquet: the parts of open windows), and
``N.json``, which says that the batch was finished and how. The state of the batch before is kept, so that a
batch can be repeated; older ones are deleted.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import IllegalStateError
from splashdam.pipeline.jobs.hadoop_files import HadoopFolder, numbered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
