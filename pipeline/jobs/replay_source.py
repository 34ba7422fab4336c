"""A table as a stream of Kafka's columns: one step of the plan is a micro-batch, one slice of it a task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from splashdam.pipeline.decoding import MAX_BATCH_BYTES
from splashdam.pipeline.jobs.replay_plan import OFFSET, PARTITION, TOPIC, Slice, plan_from_json
from splashdam.pipeline.option_values import from_text
from splashdam.pipeline.schema import Columns, ddl
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.table import TablePart

FORMAT = "splashdam-replay"
"""Internal: `splashdam.pipeline.jobs.replay` is how it is used."""
READING = "secret.reading"
"""Keys of object storage may be in it, and Spark hides options whose names say so."""
PLAN = "plan"
COLUMNS = "columns"


@attrs.frozen
class Reading:
    """How a task reads.

    Attributes:
        location: of the table.
        columns: those that are sent.
    """

    location: Location
    columns: Columns


def slice_batches(reading: Reading, piece: Slice) -> Iterator[pa.RecordBatch]:
    """The records of a slice, by offset."""
    tables = [_part(reading, part, piece) for part in piece.parts]
    found = pa.concat_tables(tables).sort_by(OFFSET).select(reading.columns.names).combine_chunks()
    if not found.num_rows:
        return
    rows = max(1, found.num_rows * MAX_BATCH_BYTES // max(found.nbytes, 1))
    for start in range(0, found.num_rows, rows):
        yield from found.slice(start, rows).combine_chunks().to_batches()


def _part(reading: Reading, part: TablePart, piece: Slice) -> pa.Table:
    """Row groups that cannot hold the slice are passed over."""
    values = {name: value for name, value in part.partition if value is not None}
    wanted = Columns(tuple(dict.fromkeys([*reading.columns.names, PARTITION, OFFSET, TOPIC]))).arrow
    offset = ds.field(OFFSET)
    condition = (offset >= piece.first_offset) & (offset < piece.end_offset)
    if PARTITION not in values:
        condition &= ds.field(PARTITION) == piece.partition
    if TOPIC not in values and piece.topic:
        condition &= ds.field(TOPIC) == piece.topic
    found = pq.read_table(
        reading.location.full_path(part.path),
        filesystem=reading.location.filesystem,
        schema=pa.schema([field for field in wanted if field.name not in values]),
        filters=condition,
        partitioning=None,
    )
    for field in wanted:
        if field.name in values:
            constant = pa.repeat(pa.scalar(values[field.name], pa.string()), found.num_rows).cast(field.type)
            found = found.append_column(field, constant)
    return found


class ReplaySource(DataSource):
    """The source."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ddl(Columns(tuple(self.options[COLUMNS].split(","))))

    def streamReader(self, schema: StructType) -> ReplayReader:
        plan = Location.of(self.options[PLAN])
        folder, _, name = plan.uri.rpartition("/")
        kept = Location(folder).read_bytes(name).decode()
        return ReplayReader(from_text(self.options[READING]), kept)


class ReplayReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Goes through the steps of a plan.

    Args:
        reading: how tasks read.
        plan: JSON.
    """

    def __init__(self, reading: Reading, plan: str) -> None:
        self._reading = reading
        self._plan = plan
        self._count: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """The first step."""
        return {"step": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """A step at a time, whatever the limit."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """One step further, up to the last."""
        if self._count is None:
            self._count = len(plan_from_json(self._plan))
        return {"step": min(int(start["step"]) + 1, self._count)}

    def prepareForTriggerAvailableNow(self) -> None:
        """The plan does not grow."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """A task for each slice."""
        chosen = plan_from_json(self._plan)[int(start["step"]) : int(end["step"])]
        return [InputPartition(piece) for step in chosen for piece in step]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a slice, in the order of their offsets."""
        return iter(()) if partition.value is None else slice_batches(self._reading, partition.value)
