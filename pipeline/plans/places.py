"""What a pipeline writes: tables and topics, with what is there already."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import pyarrow as pa

from splashdam.model.errors import KafkaConfigurationError, KafkaError
from splashdam.pipeline.plans.checkpoints import need_folder
from splashdam.pipeline.plans.plan import Entry, counted, shown_size
from splashdam.pipeline.sink.options import sink_options
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.opening import check_table
from splashdam.pipeline.tables.writing import STAGING

_NEARLY_UNIQUE = ("offset", "timestamp")
"""Columns that nearly every record has another value in."""


def table_entry(
    table_format: str,
    place: str,
    *,
    schema: pa.Schema | None = None,
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    what: str = "",
) -> Entry:
    """Return the line of a table, after the checks that its opening would fail by.

    Args:
        table_format: see `check_table`.
        place: see `check_table`.
        schema: see `check_table`.
        partition_by: see `check_table`.
        options: see `check_table`.
        what: it gets, in words.

    Raises:
        TableFailedError: its log is damaged.
        KafkaConfigurationError: see `check_table`; or the folder cannot be made or written to.
    """
    location = Location.of(place, options)
    if location.is_local:
        need_folder(location, "a table")
    table = check_table(table_format, place, schema=schema, partition_by=partition_by, options=options)
    details = []
    if table is None:
        state = "new"
        if schema is not None:
            details.append("columns " + ", ".join(schema.names))
    else:
        added = [] if schema is None else [field.name for field in table.lacking(schema)]
        state = f"there, with {counted(len(table.schema.names), 'column')}"
        if added:
            details.append("gets new columns: " + ", ".join(added))
        table.close()
    if partition_by:
        details.append("folders by " + ", ".join(partition_by))
        if many := [name for name in partition_by if name in _NEARLY_UNIQUE]:
            details.append(f"warning: {many[0]} makes a folder for nearly every record; date makes one a day")
    if location.is_local:
        details.append(_on_disk(location))
    return Entry(f"{table_format} table {location.uri}: {state}{what and ', ' + what}", details)


def _on_disk(location: Location) -> str:
    """Return what the folder holds, and the free space of its disk."""
    files = [file for file in location.files() if file.path.endswith(".parquet")]
    inside = [file for file in files if not file.path.startswith(f"{STAGING}/")]
    folder = next(path for path in (Path(location.uri), *Path(location.uri).parents) if path.is_dir())
    text = f"{shown_size(shutil.disk_usage(folder).free)} free"
    if inside:
        held = shown_size(sum(file.size_bytes for file in inside))
        return f"{counted(len(inside), 'file')} with {held} in the folder, {text}"
    return text


def topic_entry(topic: str, kafka: Mapping[str, str], *, delivery: str, what: str = "") -> Entry:
    """Return the line of a topic that is written to, after a check of the sink's options.

    Args:
        topic: its name; the command has looked it up already.
        kafka: options of the sink.
        delivery: the sink's guarantee.
        what: it gets, in words.

    Raises:
        KafkaConfigurationError: an option is unknown or wrong.
    """
    options = sink_options({**kafka, "topic": topic, "delivery": delivery})
    try:
        there = counted(len(options.cluster().partitions(topic)), "partition")
    except KafkaError:  # the brokers may create it
        there = "created by the first record"
    details = [f"delivery {delivery}"]
    if delivery == "exactly_once":
        details.append(f"decisions go to topic {options.marker_topic}; a task has a transaction of its own")
    return Entry(f"topic {topic}: {there}{what and ', ' + what}", details)


def need_apart(*places: str | None) -> None:
    """Check that tables of one pipeline are in different folders.

    Raises:
        KafkaConfigurationError: two are the same, or one is inside the other.
    """
    given = [Location.of(place) for place in places if place is not None]
    for one, other in combinations(given, 2):
        if one.overlaps(other):
            raise KafkaConfigurationError(
                f"tables {one.uri} and {other.uri} are one folder, or one inside the other: "
                "give each a folder of its own"
            )
