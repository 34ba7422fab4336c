"""Tables by the name of their format."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.tables.locations import Location
from splashdam.pipeline.tables.table import Table, TableMissingError
from splashdam.pipeline.tables.writing import DATE

FORMATS = ("parquet", "delta", "iceberg")
"""What a table can be."""


def _adapter(table_format: str) -> type[Table]:
    if table_format == "parquet":
        from splashdam.pipeline.tables.parquet_table import ParquetTable

        return ParquetTable
    if table_format == "delta":
        from splashdam.pipeline.tables.delta_table import DeltaTable

        return DeltaTable
    if table_format == "iceberg":
        from splashdam.pipeline.tables.iceberg_table import IcebergTable

        return IcebergTable
    raise KafkaConfigurationError(f"{table_format!r} is no format of tables: {', '.join(FORMATS)}")


def existing_table(
    table_format: str, place: str | os.PathLike[str], options: Mapping[str, str] | None = None
) -> Table:
    """A table that is there.

    Args:
        table_format: one of ``FORMATS``.
        place: a folder, or an address in object storage.
        options: see `Location` and, for Iceberg, `catalog_properties`.

    Raises:
        TableMissingError: it is not.
        KafkaConfigurationError: the format is unknown, or its package is not installed.
    """
    return _adapter(table_format).open(Location.of(place, options))


def open_table(
    table_format: str,
    place: str | os.PathLike[str],
    *,
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> Table:
    """A table for rows of a schema: made if there is none, else with the columns that are new.

    Args:
        table_format: one of ``FORMATS``.
        place: a folder, or an address in object storage.
        schema: of the rows to come.
        partition_by: columns whose values are the folders of the files; ``date`` is the day of ``timestamp``
            in UTC, where the rows have no such column.
        options: see `Location` and, for Iceberg, `catalog_properties`.

    Raises:
        KafkaConfigurationError: the table has another partitioning, or a column of another type; or the
            format is unknown, or its package is not installed.
    """
    adapter = _adapter(table_format)
    location = Location.of(place, options)
    wanted = _with_date(schema, partition_by)
    try:
        table = adapter.open(location)
    except TableMissingError:
        return adapter.create(location, wanted, tuple(partition_by))
    if table.partition_by != tuple(partition_by):
        named, asked = ", ".join(table.partition_by), ", ".join(partition_by)
        table.close()
        raise KafkaConfigurationError(
            f"{location.uri} is partitioned by ({named}), not by ({asked}): say the same, "
            "or take another folder"
        )
    table.evolve(wanted)
    return table


def _with_date(schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    if DATE in partition_by and DATE not in schema.names and "timestamp" in schema.names:
        schema = schema.append(pa.field(DATE, pa.date32()))
    unknown = [name for name in partition_by if name not in schema.names]
    if unknown:
        raise KafkaConfigurationError(
            f"cannot partition by {', '.join(unknown)}: the columns are {', '.join(schema.names)}"
        )
    return schema
