"""Rows with Kafka's columns, and tables of every format to put them into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from splashdam.pipeline.tables.opening import FORMATS, open_table
from splashdam.pipeline.tables.table import Table
from splashdam.pipeline.tables.writing import DataFile, write_files

DAY_US = 24 * 3600 * 1_000_000
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
every_format = pytest.mark.parametrize("table_format", FORMATS)


def rows(
    offsets: Iterable[int], *, topic: str = "t", partition: int = 0, day: int = 0, schema: pa.Schema = SCHEMA
) -> pa.RecordBatch:
    """One record for each offset, a millisecond apart, from a day after the epoch on."""
    made: list[dict[str, Any]] = [
        {
            "key": b"k%d" % offset if offset % 2 else None,
            "value": b"value %d" % offset,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": day * DAY_US + offset * 1000,
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"%d" % offset}] if offset % 3 else None,
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(made, schema=schema)


def new_table(
    table_format: str, folder: Path, *, schema: pa.Schema = SCHEMA, partition_by: Sequence[str] = ()
) -> Table:
    """A table below a folder; skipped where the format's package is missing."""
    for module in {"delta": ["deltalake"], "iceberg": ["pyiceberg"]}.get(table_format, []):
        pytest.importorskip(module, reason=f"needs splashdam[{table_format}]")
    return open_table(table_format, folder / "table", schema=schema, partition_by=partition_by)


def written(table: Table, *batches: pa.RecordBatch) -> list[DataFile]:
    """What a task that writes these would say."""
    return list(write_files(table.writing(), batches))


def offsets_of(table: Table) -> list[int]:
    """The offsets of all rows of a table."""
    return sorted(offset for batch in table.iter_rows(["offset"]) for offset in batch.column(0).to_pylist())
