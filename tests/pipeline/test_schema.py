"""Columns, as Spark and Arrow name them."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.schema import COLUMNS, Columns, all_columns, columns_of, ddl

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")
types = pytest.importorskip("pyspark.sql.types", reason="needs splashdam[spark]")

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HEADER_FIELDS = [("key", "StringType"), ("value", "BinaryType")]
SPARK = {
    "key": "BinaryType",
    "value": "BinaryType",
    "topic": "StringType",
    "partition": "IntegerType",
    "offset": "LongType",
    "timestamp": "TimestampType",
    "timestampType": "IntegerType",
}


def spark_schema(*names: str, nullable: bool = True) -> StructType:
    """Spark's schema of the columns' names and types."""
    header = types.StructType(
        [types.StructField(name, getattr(types, kind)()) for name, kind in HEADER_FIELDS]
    )
    fields = []
    for name in names:
        kind = types.ArrayType(header) if name == "headers" else getattr(types, SPARK[name])()
        fields.append(types.StructField(name, kind, nullable))
    return types.StructType(fields)


@pytest.mark.parametrize(
    "columns",
    [all_columns(False), all_columns(True), Columns(("timestamp", "offset")), Columns(("headers",))],
)
def test_arrow_schema_is_sparks(columns: Columns) -> None:
    """Trap 7: the schema is what Spark compares each source's first batch with."""
    from pyspark.sql.pandas.types import to_arrow_schema

    expected = to_arrow_schema(spark_schema(*columns.names), timezone="UTC")
    assert columns.arrow.equals(expected)
    assert columns.arrow.names == list(columns.names)


def test_ddl() -> None:
    """The source's own schema is used when the user names no columns."""
    assert ddl(all_columns(True)) == (
        "`key` binary, `value` binary, `topic` string, `partition` int, `offset` bigint,"
        " `timestamp` timestamp, `timestampType` int, `headers` array<struct<key:string,value:binary>>"
    )
    assert columns_of(spark_schema(*COLUMNS, "headers"), True) == all_columns(True)


def test_users_choice() -> None:
    """Trap 5: the user's schema is the choice of columns, in the user's order."""
    columns = columns_of(spark_schema("timestamp", "offset"), False)
    assert columns.names == ("timestamp", "offset")
    assert columns.wants("offset")
    assert not columns.wants("value")


def schema_with(name: str, kind: str) -> StructType:
    """A schema of one column of that type."""
    return types.StructType([types.StructField(name, getattr(types, kind)())])


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (schema_with("ofset", "LongType"), "no column 'ofset'; .* Did you mean 'offset'"),
        (schema_with("offset", "IntegerType"), "column 'offset' is bigint, not int"),
        (schema_with("value", "StringType"), "column 'value' is binary, not string"),
        (spark_schema("headers"), "set includeHeaders to true"),
        (spark_schema("offset", "offset"), "names column 'offset' twice"),
        (spark_schema("offset", nullable=False), "NOT NULL"),
        (spark_schema(), "the schema is empty"),
    ],
)
def test_refused_schemas(schema: StructType, complaint: str) -> None:
    """Trap 5: what is no choice among Kafka's columns is refused by name."""
    with pytest.raises(KafkaConfigurationError, match=complaint):
        columns_of(schema, False)


def test_columns_are_values() -> None:
    """Workers get them by pickle."""
    columns = all_columns(True)
    assert pickle.loads(pickle.dumps(columns)) == columns
