"""Opening and creating tables by the name of their format."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from splashdam.model.errors import KafkaConfigurationError, KafkaError, WrongSettingError
from splashdam.model.options import nearest_name
from splashdam.pipeline.tables.locations import S3_OPTIONS, Location
from splashdam.pipeline.tables.surroundings import check_around, check_inside, held_by
from splashdam.pipeline.tables.table import Table, TableFailedError, TableMissingError
from splashdam.pipeline.tables.writing import DATE

FORMATS = ("parquet", "delta", "iceberg")
_SIGNS = {"_common_metadata": "parquet", "_delta_log": "delta", "catalog.sqlite": "iceberg"}
"""The file or folder by which a table's format is recognized."""


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
    raise KafkaConfigurationError(f"{table_format!r} is not a table format: {', '.join(FORMATS)}")


def existing_table(
    table_format: str, place: str | os.PathLike[str], options: Mapping[str, str] | None = None
) -> Table:
    """Open an existing table.

    Args:
        table_format: one of ``FORMATS``.
        place: a folder, or an address in object storage.
        options: see `Location` and, for Iceberg, `catalog_properties`.

    Raises:
        TableMissingError: it does not exist.
        TableFailedError: its log is damaged.
        KafkaConfigurationError: the format is unknown, or its package is not installed.
    """
    adapter, location = _adapter(table_format), Location.of(place, options)
    _refuse_unknown(table_format, location)
    with _failures_named(location):
        try:
            return adapter.open(location)
        except TableMissingError:
            _refuse_other_format(table_format, location, location.entries())
            raise


def is_there(
    table_format: str, place: str | os.PathLike[str], options: Mapping[str, str] | None = None
) -> bool:
    """Whether a table exists; nothing is changed. The arguments are those of `existing_table`.

    Raises:
        TableFailedError: its log is damaged.
        KafkaConfigurationError: the format is unknown, or its package is not installed.
    """
    adapter, location = _adapter(table_format), Location.of(place, options)
    with _failures_named(location):
        try:
            adapter.look(location).close()
        except TableMissingError:
            return False
    return True


def open_table(
    table_format: str,
    place: str | os.PathLike[str],
    *,
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> Table:
    """Open a table for rows of a schema: create it if necessary, and add columns that it lacks.

    Args:
        table_format: one of ``FORMATS``.
        place: a folder, or an address in object storage.
        schema: of the rows to be written.
        partition_by: columns whose values become folders; ``date`` is the day of ``timestamp`` in UTC unless
            the rows have a column of that name.
        options: see `Location` and, for Iceberg, `catalog_properties`.

    Raises:
        TableFailedError: its log is damaged.
        KafkaConfigurationError: the table has another partitioning, or a column of another type; the folder
            has foreign files, or a table of another format, or is in another table or in a broker's data
            directory; or the format is unknown, or its package is not installed.
    """
    adapter = _adapter(table_format)
    location = Location.of(place, options)
    _refuse_unknown(table_format, location)
    wanted = _with_date(schema, partition_by)
    with _failures_named(location):
        try:
            table = adapter.open(location)
        except TableMissingError:
            _check_new(table_format, location)
            return adapter.create(location, wanted, tuple(partition_by))
    _check_partitioning(table, partition_by)
    table.evolve(wanted)
    return table


def check_table(
    table_format: str,
    place: str | os.PathLike[str],
    *,
    schema: pa.Schema | None = None,
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> Table | None:
    """Check what `open_table` would refuse, and change nothing.

    Args:
        table_format: see `open_table`.
        place: see `open_table`.
        schema: of the rows to be written; None if only Spark will know it.
        partition_by: see `open_table`.
        options: see `open_table`.

    Returns:
        The table, for a look at it; None if `open_table` would create it.

    Raises:
        TableFailedError: see `open_table`.
        KafkaConfigurationError: see `open_table`.
    """
    adapter, location = _adapter(table_format), Location.of(place, options)
    _refuse_unknown(table_format, location)
    wanted = None if schema is None else _with_date(schema, partition_by)
    with _failures_named(location):
        try:
            table = adapter.look(location)
        except TableMissingError:
            _check_new(table_format, location)
            return None
    check_around(location, f"table {location.uri}", may_be_table=True)
    check_inside(location)
    _check_partitioning(table, partition_by)
    if wanted is not None:
        table.lacking(wanted)
    return table


def _check_partitioning(table: Table, partition_by: Sequence[str]) -> None:
    if table.partition_by != tuple(partition_by):
        named, asked = ", ".join(table.partition_by), ", ".join(partition_by)
        table.close()
        raise KafkaConfigurationError(
            f"{table.location.uri} is partitioned by ({named}), not by ({asked}): give the same "
            "columns, or use another folder"
        )


@contextmanager
def _failures_named(location: Location) -> Iterator[None]:
    """Wrap the errors of the formats' packages, which share no base class."""
    try:
        yield
    except KafkaError:
        raise
    except OSError as error:
        if location.is_local:
            raise
        raise TableFailedError(
            f"{location.uri} cannot be looked into: {_in_one_line(str(error))}. What to do: check its name, "
            "the network, the credentials, and the options of object storage"
        ) from error
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise TableFailedError(f"{location.uri} cannot be opened: {lines[0]}") from error


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def _in_one_line(text: str) -> str:
    """Return an error of deltalake, which draws its causes as a tree, with colours, in one line."""
    lines = (line.strip(" \t↳").rstrip(":.") for line in _COLOUR.sub("", text).splitlines())
    return ": ".join(filter(None, lines))


def _refuse_unknown(table_format: str, location: Location) -> None:
    """Refuse options that no format reads: a misspelled endpoint would ask another service."""
    is_iceberg = table_format == "iceberg"
    families = ("catalog.", "s3.") if is_iceberg else ()
    known = [*S3_OPTIONS, *(["identifier", "catalog.type", "catalog.uri"] if is_iceberg else [])]
    for name, _ in location.options:
        if name in known or name.startswith(families):
            continue
        raise KafkaConfigurationError(
            f"unknown option {name!r} of a {table_format} table.{nearest_name(name, known)}"
            f" Known are {', '.join(known)}"
        )


def _check_new(table_format: str, location: Location) -> None:
    """Refuse a folder that is not the new table's alone: readers would read other files as rows."""
    check_around(location, f"table {location.uri}", may_be_table=True)
    entries = location.entries()
    _refuse_other_format(table_format, location, entries)
    # Leftovers of an interrupted creation are accepted: logs and hidden files, and what Iceberg creates
    # first.
    own = {"catalog.sqlite", "metadata"} if table_format == "iceberg" else set()
    foreign = [name for name in entries if not name.startswith(("_", ".")) and name not in own]
    for name in foreign if location.is_local else foreign[:1]:  # in object storage each is some requests
        if found := held_by(location.filesystem, location.full_path(name)):
            raise KafkaConfigurationError(
                f"{location.uri} has {found} in it, at {name}, whose rows readers would take for those of "
                "the new table: use another folder"
            )
    if foreign:
        raise KafkaConfigurationError(
            f"{location.uri} has files that belong to no table, such as {foreign[0]}: use another folder"
        )


def _refuse_other_format(table_format: str, location: Location, entries: Sequence[str]) -> None:
    for name in entries:
        if _SIGNS.get(name, table_format) != table_format:
            raise TableMissingError(
                f"{location.uri} holds a table of the format {_SIGNS[name]}, not {table_format}: give that "
                "format, or use another folder"
            )


def _with_date(schema: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    if DATE in partition_by and DATE not in schema.names and "timestamp" in schema.names:
        schema = schema.append(pa.field(DATE, pa.date32()))
    if problem := _partition_problem(schema, partition_by):
        raise WrongSettingError("partition_by", problem, given=",".join(partition_by))
    return schema


def _partition_problem(schema: pa.Schema, partition_by: Sequence[str]) -> str:
    """Return why rows cannot be partitioned by these columns, "" if they can."""
    if unknown := [name for name in partition_by if name not in schema.names]:
        return f"cannot partition by {', '.join(unknown)}: the columns are {', '.join(schema.names)}"
    if twice := [name for name in dict.fromkeys(partition_by) if partition_by.count(name) > 1]:
        return f"{twice[0]} is named twice"
    if partition_by and len(partition_by) == len(schema):
        return "these are all columns: the files would have none. Leave one out"
    for name in partition_by:
        # Folders are named by the values, as text.
        if pa.types.is_nested(kind := schema.field(name).type):
            return f"cannot partition by {name}, which is {kind}: only columns with plain values"
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return (
                f"cannot partition by {name}, which is {kind}: folders are named by values as text, and "
                "bytes are none. Name a column with plain values, such as date"
            )
    return ""
