"""Kafka's columns, as Spark's own ``kafka`` format has them, and a reader's choice among them."""

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
"""The last column, with ``includeHeaders`` alone; null for a record that has none."""

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
"""Spark's type of each column."""

COLUMNS = tuple(name for name in _TYPES if name != HEADERS)
"""The columns that are always there, in this order."""


@attrs.frozen
class Columns:
    """Which of Kafka's columns a reader yields.

    Attributes:
        names: of the columns, in the order of the rows.
    """

    names: tuple[str, ...]

    @property
    def arrow(self) -> pa.Schema:
        """What Arrow calls them, which is what Spark expects of a source with this schema."""
        return _arrow_schema(self.names)

    def wants(self, name: str) -> bool:
        """Whether a column is one of them."""
        return name in self.names


def all_columns(include_headers: bool) -> Columns:
    """Every column, ``headers`` where they are asked for."""
    return Columns((*COLUMNS, HEADERS) if include_headers else COLUMNS)


def ddl(columns: Columns) -> str:
    """The columns as ``DataSource.schema()`` says them."""
    return ", ".join(f"`{name}` {_TYPES[name]}" for name in columns.names)


def columns_of(schema: StructType, include_headers: bool) -> Columns:
    """The choice that a schema is: a user's, ``.schema("offset bigint, timestamp timestamp")``, or that of
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
            f"the schema names column {name!r}, there are {', '.join(known)}.{nearest_name(name, known)}"
        )
    found = field.dataType.simpleString()
    if found != _TYPES[name]:
        raise KafkaConfigurationError(
            f"column {name!r} is {_TYPES[name]}, not {found}: read it as it is, then cast it"
        )
    if "false" in json.dumps([field.nullable, field.dataType.jsonValue()]):
        raise KafkaConfigurationError(f"column {name!r} is NOT NULL in the schema: leave that out")


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
