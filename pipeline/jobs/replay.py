"""``replay``: a table back into topics, with the original keys, values, timestamps, headers and partitions.

The plan, by partition and offset from the footers of the table's files, is kept beside the checkpoint. An
internal streaming source reads the table by that plan: a step is a micro-batch, a slice of it a task.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from splashdam.model.errors import KafkaConfigurationError, SettingText
from splashdam.net.admin.topics import describe_topic, list_topics
from splashdam.pipeline.clusters import Clients
from splashdam.pipeline.decoding import MAX_BATCH_BYTES
from splashdam.pipeline.jobs.micro_batches import OnProgress, follow
from splashdam.pipeline.options import from_text, to_text
from splashdam.pipeline.schema import Columns, ddl
from splashdam.pipeline.sink.options import need_writable, sink_options
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.opening import existing_table
from splashdam.pipeline.tables.table import Table, TablePart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SENT = ("key", "value", "topic", "partition", "timestamp", "headers")
"""The sink's columns."""
PLAN = "replay-plan.json"
"""The plan's file, in the checkpoint's folder."""


@attrs.frozen
class ReplayReport:
    """Totals of a replay since it was started.

    Attributes:
        steps: number of steps of the plan.
        batches: micro-batches of this run, one for each step.
        records: records that were sent.
    """

    steps: int
    batches: int
    records: int


def replay(
    spark: SparkSession,
    table_format: str,
    place: str | os.PathLike[str],
    sink: Mapping[str, str],
    *,
    checkpoint: str | os.PathLike[str],
    table_options: Mapping[str, str] | None = None,
    on_progress: OnProgress = lambda _: None,
) -> ReplayReport:
    """Send the records of a table to the partitions that they came from, each partition in its order.

    The first run makes a plan of the table's files and keeps it beside the checkpoint: later additions to the
    table are not sent. Started again with the same checkpoint, it continues after the last step that was
    sent. An interrupted step is sent again, unless ``delivery`` is ``exactly_once``; with ``dedup`` readers
    can drop the duplicates.

    Args:
        spark: the session.
        table_format: ``parquet``, ``delta`` or ``iceberg``.
        place: of the table.
        sink: options of the sink ``kafka-local``; ``topic`` sends all records to one topic.
        checkpoint: where Spark keeps the query's progress, and the plan is kept.
        table_options: see `splashdam.pipeline.tables.existing_table`.
        on_progress: called after each micro-batch.

    Raises:
        TableMissingError: the table does not exist.
        KafkaConfigurationError: it does not have Kafka's columns, a topic has too few partitions, or see
            `need_writable`.
        StreamingQueryException: a step failed; start again to repeat it.
    """
    table = existing_table(table_format, place, table_options)
    kept = f"{os.fspath(checkpoint)}/{PLAN}"
    plan = _kept_plan(Location.of(checkpoint, table_options)) or measured_plan(table).steps
    # Before the plan is kept: what is refused leaves nothing behind.
    _check_partitions(plan, sink)
    # Spark's checkpoint numbers the steps of this plan, so later runs must have the same.
    _keep(Location.of(checkpoint, table_options), plan)
    columns = Columns(tuple(name for name in SENT if name in table.schema.names))
    options = {
        READING: to_text(Reading(table.location, columns)),
        PLAN_OPTION: kept,
        COLUMNS: ",".join(columns.names),
    }
    table.close()
    spark.dataSource.register(ReplaySource)
    rows = spark.readStream.format(FORMAT).options(**options).load()
    writer = rows.writeStream.format("kafka-local").options(**sink)
    query = writer.option("checkpointLocation", os.fspath(checkpoint)).trigger(availableNow=True).start()
    done = follow(query, on_progress)
    return ReplayReport(len(plan), done.batches, done.rows)


def _kept_plan(checkpoint: Location) -> list[Step] | None:
    return plan_from_json(checkpoint.read_bytes(PLAN).decode()) if checkpoint.exists(PLAN) else None


def _keep(checkpoint: Location, plan: Sequence[Step]) -> None:
    if checkpoint.exists(PLAN):
        return
    aside = f"{PLAN}.new"
    with checkpoint.open_output(aside) as file:
        file.write(plan_to_json(plan).encode())
    checkpoint.move(aside, PLAN)


@attrs.frozen
class ReplayPlan:
    """What a replay sends.

    Attributes:
        steps: the micro-batches.
        files: number of files that it reads.
        records: in these files.
        size_bytes: of their columns, uncompressed.
        partitions: for each topic the number of partitions that get records.
        is_new: whether it was made now; otherwise an earlier run kept it.
    """

    steps: list[Step]
    files: int
    records: int
    size_bytes: int
    partitions: Mapping[str, int] = attrs.field(factory=dict)
    is_new: bool = True


def planned_replay(
    table_format: str,
    place: str | os.PathLike[str],
    sink: Mapping[str, str],
    checkpoint: str | os.PathLike[str],
    table_options: Mapping[str, str] | None = None,
) -> ReplayPlan:
    """Return what `replay` would send, after its checks; nothing is written.

    Raises:
        TableMissingError: the table does not exist.
        KafkaConfigurationError: it does not have Kafka's columns, a topic has too few partitions, or see
            `need_writable`.
    """
    table = existing_table(table_format, place, table_options)
    kept = _kept_plan(Location.of(checkpoint, table_options))
    found = measured_plan(table) if kept is None else _measured(table, kept)
    table.close()
    return attrs.evolve(found, partitions=_check_partitions(found.steps, sink), is_new=kept is None)


def _measured(table: Table, steps: list[Step]) -> ReplayPlan:
    parts = {part for step in steps for piece in step for part in piece.parts}
    footers = [_footer(table.location, part) for part in sorted(parts, key=lambda part: part.path)]
    groups = [footer.row_group(index) for footer in footers for index in range(footer.num_row_groups)]
    records = sum(footer.num_rows for footer in footers)
    return ReplayPlan(steps, len(parts), records, sum(group.total_byte_size for group in groups))


def _check_partitions(plan: Sequence[Step], sink: Mapping[str, str]) -> dict[str, int]:
    """Check that each topic has the partitions that its records came from, and return how many they are."""
    options = sink_options(sink)
    needed: dict[str, int] = {}
    for piece in (piece for step in plan for piece in step):
        topic = options.topic or piece.topic
        if not topic:
            raise KafkaConfigurationError(
                SettingText("the table has no column topic: set the option {0}", "topic")
            )
        need_writable(topic, options.marker_topic)
        needed[topic] = max(needed.get(topic, 0), piece.partition + 1)

    async def count(clients: Clients) -> dict[str, int]:
        known = await list_topics(clients.cluster)
        infos = [await describe_topic(clients.cluster, topic) for topic in needed if topic in known]
        return {info.name: len(info.partitions) for info in infos}

    found = options.cluster().ask(count)
    for topic, partitions in needed.items():
        if found.get(topic, 0) < partitions:
            raise KafkaConfigurationError(
                f"the records come from {partitions} partitions, and topic {topic} has "
                f"{found.get(topic, 0)}: splashdam topics create {topic} --partitions {partitions}"
            )
    return needed


TOPIC, PARTITION, OFFSET = "topic", "partition", "offset"
SLICE_BYTES = 64 * 1024 * 1024
"""What a task sorts at a time, by the uncompressed size of the files."""
_FEWEST, _MOST = 1_000, 500_000


@attrs.frozen
class FileRange:
    """The records of one partition in one file.

    Attributes:
        part: the file.
        topic: empty if the table has no such column.
        partition: its number.
        first_offset: the smallest.
        last_offset: the largest.
    """

    part: TablePart
    topic: str
    partition: int
    first_offset: int
    last_offset: int


@attrs.frozen
class Slice:
    """What one task sends: the records of a range of offsets of one partition.

    Attributes:
        topic: as in the table.
        partition: its number.
        first_offset: of the range.
        end_offset: after the range.
        parts: files that may have such records.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    parts: tuple[TablePart, ...]


Step = tuple[Slice, ...]
"""A slice of each partition that has records left."""


def measured_plan(table: Table) -> ReplayPlan:
    """Plan the steps for the current version of a table.

    Raises:
        KafkaConfigurationError: the table lacks ``value``, ``partition`` or ``offset``, or has deleted rows.
    """
    missing = [name for name in ("value", PARTITION, OFFSET) if name not in table.schema.names]
    if missing:
        raise KafkaConfigurationError(
            f"{table.location.uri} has no column {', '.join(missing)}: only a table with Kafka's columns "
            "can be replayed"
        )
    ranges: list[FileRange] = []
    size_bytes = records = 0
    parts = table.parts()
    for part in parts:
        footer = _footer(table.location, part)
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        size_bytes += sum(group.total_byte_size for group in groups)
        records += footer.num_rows
        ranges += _ranges(table, part, footer)
    return ReplayPlan(steps(ranges, _slice_records(size_bytes, records)), len(parts), records, size_bytes)


def _slice_records(size_bytes: int, records: int) -> int:
    return max(_FEWEST, min(_MOST, SLICE_BYTES * records // max(size_bytes, 1)))


def steps(ranges: Iterable[FileRange], slice_records: int) -> list[Step]:
    """Cut partitions at multiples of ``slice_records`` offsets, so that no slice has more records."""
    slices: dict[tuple[str, int], dict[int, list[TablePart]]] = defaultdict(lambda: defaultdict(list))
    for each in ranges:
        of_partition = slices[each.topic, each.partition]
        for number in range(each.first_offset // slice_records, each.last_offset // slice_records + 1):
            of_partition[number].append(each.part)
    columns = [
        [
            Slice(topic, partition, number * slice_records, (number + 1) * slice_records, tuple(parts))
            for number, parts in sorted(numbered.items())
        ]
        for (topic, partition), numbered in sorted(slices.items())
    ]
    longest = max(map(len, columns), default=0)
    return [tuple(column[at] for column in columns if at < len(column)) for at in range(longest)]


def _footer(location: Location, part: TablePart) -> pq.FileMetaData:
    with location.filesystem.open_input_file(location.full_path(part.path)) as file:
        return pq.read_metadata(file)


def _ranges(table: Table, part: TablePart, footer: pq.FileMetaData) -> Iterator[FileRange]:
    """Yield the ranges of a file, from its statistics if it has one partition, as files of an ingest do;
    otherwise the file is read."""
    if not footer.num_rows:
        return
    values = dict(part.partition)
    topic = _only(footer, TOPIC) if TOPIC not in values else values[TOPIC]
    number = _only(footer, PARTITION) if PARTITION not in values else values[PARTITION]
    offsets = _bounds(footer, OFFSET)
    if TOPIC not in table.schema.names:
        topic = ""
    if topic is not None and number is not None and offsets is not None:
        yield FileRange(part, topic, int(number), *offsets)
        return
    names = [name for name in (TOPIC, PARTITION, OFFSET) if name in table.schema.names]
    yield from _read_ranges(table, part, names)


def _read_ranges(table: Table, part: TablePart, names: Sequence[str]) -> Iterator[FileRange]:
    found = pa.Table.from_batches(list(table.iter_part(part, names)))
    keys = [name for name in names if name != OFFSET]
    for row in found.group_by(keys).aggregate([(OFFSET, "min"), (OFFSET, "max")]).to_pylist():
        if row[PARTITION] is not None and row["offset_min"] is not None:
            yield FileRange(part, row.get(TOPIC) or "", row[PARTITION], row["offset_min"], row["offset_max"])


def _only(footer: pq.FileMetaData, name: str) -> Any:
    bounds = _bounds(footer, name)
    return bounds[0] if bounds is not None and bounds[0] == bounds[1] else None


def _bounds(footer: pq.FileMetaData, name: str) -> tuple[Any, Any] | None:
    """Return the bounds of a column without nulls; None if the footer does not have them."""
    names = [footer.schema.column(index).path for index in range(footer.num_columns)]
    if name not in names:
        return None
    at = names.index(name)
    found = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
    if any(each is None or not each.has_min_max or each.null_count for each in found):
        return None
    return min(each.min for each in found), max(each.max for each in found)


def plan_to_json(plan: Sequence[Step]) -> str:
    """Encode a plan for its file."""
    return json.dumps([[attrs.asdict(each) for each in step] for step in plan])


def plan_from_json(text: str) -> list[Step]:
    """Decode what ``plan_to_json`` encoded."""
    return [tuple(_slice(each) for each in step) for step in json.loads(text)]


def _slice(kept: dict[str, Any]) -> Slice:
    parts = tuple(
        TablePart(part["path"], tuple((name, value) for name, value in part["partition"]))
        for part in kept.pop("parts")
    )
    return Slice(**kept, parts=parts)


FORMAT = "splashdam-replay"
"""Name of the internal source; use `replay`."""
READING = "secret.reading"
"""The value may contain keys of object storage; Spark redacts options with ``secret`` in their names."""
PLAN_OPTION = "plan"
COLUMNS = "columns"


@attrs.frozen
class Reading:
    """How a task reads.

    Attributes:
        location: of the table.
        columns: the columns to send.
    """

    location: Location
    columns: Columns


def slice_batches(reading: Reading, piece: Slice) -> Iterator[pa.RecordBatch]:
    """Yield the records of a slice, by offset."""
    tables = [_part(reading, part, piece) for part in piece.parts]
    found = pa.concat_tables(tables).sort_by(OFFSET).select(reading.columns.names).combine_chunks()
    if not found.num_rows:
        return
    rows = max(1, found.num_rows * MAX_BATCH_BYTES // max(found.nbytes, 1))
    for start in range(0, found.num_rows, rows):
        yield from found.slice(start, rows).combine_chunks().to_batches()


def _part(reading: Reading, part: TablePart, piece: Slice) -> pa.Table:
    """Read the slice's records of a file, without row groups that cannot have any."""
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
    """The internal source; its options are the place of the plan, and how tasks read."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ddl(Columns(tuple(self.options[COLUMNS].split(","))))

    def streamReader(self, schema: StructType) -> ReplayReader:
        plan = Location.of(self.options[PLAN_OPTION])
        folder, _, name = plan.uri.rpartition("/")
        kept = Location(folder).read_bytes(name).decode()
        return ReplayReader(from_text(self.options[READING]), kept)


class ReplayReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Takes one step of a plan per micro-batch.

    Args:
        reading: how tasks read.
        plan: as JSON.
    """

    def __init__(self, reading: Reading, plan: str) -> None:
        self._reading = reading
        self._plan = plan
        self._count: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"step": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit: a micro-batch is one step."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the next step, up to the last."""
        if self._count is None:
            self._count = len(plan_from_json(self._plan))
        return {"step": min(int(start["step"]) + 1, self._count)}

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: the plan does not grow."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return a task for each slice."""
        chosen = plan_from_json(self._plan)[int(start["step"]) : int(end["step"])]
        return [InputPartition(piece) for step in chosen for piece in step]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a slice, by offset."""
        return iter(()) if partition.value is None else slice_batches(self._reading, partition.value)
