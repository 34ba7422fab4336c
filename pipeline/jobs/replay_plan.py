"""In which steps a table goes back into topics: by partition and offset, from the footers of its files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.table import Table, TablePart

TOPIC, PARTITION, OFFSET = "topic", "partition", "offset"
SLICE_BYTES = 64 * 1024 * 1024
"""What a task sorts at a time, by the size that the files have without compression."""
_FEWEST, _MOST = 1_000, 500_000


@attrs.frozen
class FileRange:
    """The records of one partition in one file.

    Attributes:
        part: the file.
        topic: empty where the table has no such column.
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
    """What one task sends: the records of a partition from an offset up to another.

    Attributes:
        topic: as in the table.
        partition: its number.
        first_offset: where it begins.
        end_offset: behind its end.
        parts: files that may hold such records.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    parts: tuple[TablePart, ...]


Step = tuple[Slice, ...]
"""One slice of each partition that has any left."""


def plan_of(table: Table) -> list[Step]:
    """The steps for a table as it is now.

    Raises:
        KafkaConfigurationError: the table lacks ``value``, ``partition`` or ``offset``, or rows were deleted.
    """
    missing = [name for name in ("value", PARTITION, OFFSET) if name not in table.schema.names]
    if missing:
        raise KafkaConfigurationError(
            f"{table.location.uri} has no column {', '.join(missing)}: only a table with Kafka's columns "
            "can be replayed"
        )
    ranges: list[FileRange] = []
    size_bytes = records = 0
    for part in table.parts():
        footer = _footer(table.location, part)
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        size_bytes += sum(group.total_byte_size for group in groups)
        records += footer.num_rows
        ranges += _ranges(table, part, footer)
    return steps(ranges, _slice_records(size_bytes, records))


def _slice_records(size_bytes: int, records: int) -> int:
    return max(_FEWEST, min(_MOST, SLICE_BYTES * records // max(size_bytes, 1)))


def steps(ranges: Iterable[FileRange], slice_records: int) -> list[Step]:
    """Cuts partitions at multiples of a number of offsets, so that no slice has more records."""
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
    """From statistics, where the file holds one partition, as those of an ingest do; else it is read."""
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
    """Smallest and largest value of a column without nulls; None where the file does not tell."""
    names = [footer.schema.column(index).path for index in range(footer.num_columns)]
    if name not in names:
        return None
    at = names.index(name)
    found = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
    if any(each is None or not each.has_min_max or each.null_count for each in found):
        return None
    return min(each.min for each in found), max(each.max for each in found)


def plan_to_json(plan: Sequence[Step]) -> str:
    """For the file that keeps it."""
    return json.dumps([[attrs.asdict(each) for each in step] for step in plan])


def plan_from_json(text: str) -> list[Step]:
    """What ``plan_to_json`` made."""
    return [tuple(_slice(each) for each in step) for step in json.loads(text)]


def _slice(kept: dict[str, Any]) -> Slice:
    parts = tuple(
        TablePart(part["path"], tuple((name, value) for name, value in part["partition"]))
        for part in kept.pop("parts")
    )
    return Slice(**kept, parts=parts)
