"""Kafka's columns, as in Spark's own ``kafka`` format, and the selection that a reader yields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.options import nearest_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType

HEADERS = "headers"
"""The last column, present with ``includeHeaders``; null for a record without headers."""

_TYPES: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}

COLUMNS = tuple(name for name in _TYPES if name != HEADERS)
"""The columns without ``includeHeaders``, in order."""


@attrs.frozen
class Columns:
    """The columns that a reader yields.

    Attributes:
        names: in the order of the rows.
    """

    names: tuple[str, ...]

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema that Spark expects of a source with these columns."""
        return _arrow_schema(self.names)

    def wants(self, name: str) -> bool:
        return name in self.names


def all_columns(include_headers: bool) -> Columns:
    """Return all columns, ``headers`` among them only if asked for."""
    return Columns((*COLUMNS, HEADERS) if include_headers else COLUMNS)


def ddl(columns: Columns) -> str:
    """Return the columns in the DDL that ``DataSource.schema()`` returns."""
    return ", ".join(f"`{name}` {_TYPES[name]}" for name in columns.names)


def columns_of(schema: StructType, include_headers: bool) -> Columns:
    """Return the columns of a schema: a user's, ``.schema("offset bigint, timestamp timestamp")``, or that of
    ``DataSource.schema()``.

    Args:
        schema: with the columns' names and types.
        include_headers: whether ``headers`` may be one of them.

    Raises:
        KafkaConfigurationError: a column is unknown, of another type, or named twice, or there is none.
    """
    known = all_columns(include_headers).names
    if not schema.fields:
        raise KafkaConfigurationError(f"the schema is empty; name some of the columns {', '.join(known)}")
    names: list[str] = []
    for field in schema.fields:
        _check(field, known)
        if field.name in names:
            raise KafkaConfigurationError(f"the schema names column {field.name!r} twice")
        names.append(field.name)
    return Columns(tuple(names))


def _check(field: StructField, known: tuple[str, ...]) -> None:
    name = field.name
    if name == HEADERS and name not in known:
        raise KafkaConfigurationError("the schema names column 'headers': set includeHeaders to true")
    if name not in known:
        raise KafkaConfigurationError(
            f"no column {name!r}; the columns are {', '.join(known)}.{nearest_name(name, known)}"
        )
    found = field.dataType.simpleString()
    if found != _TYPES[name]:
        raise KafkaConfigurationError(
            f"column {name!r} is {_TYPES[name]}, not {found}: read it with its type, then cast it"
        )
    if "false" in json.dumps([field.nullable, field.dataType.jsonValue()]):
        raise KafkaConfigurationError(f"column {name!r} is NOT NULL in the schema: remove NOT NULL")


@cache
def _arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        HEADERS: pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, types[name]) for name in names])
