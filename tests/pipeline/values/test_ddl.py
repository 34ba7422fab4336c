"""Spark's DDL without Spark: what is understood, what is refused, and that Spark says the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.values.ddl import columns_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNDERSTOOD = [
    "id bigint NOT NULL, name string",
    "id: int, name: STRING COMMENT 'who, and why'",
    "struct<a:int,b: array<struct<`x ``y` string not null>>>",
    "m map<string, float>, t timestamp_ntz -- a remark\n, d date, /* another */ raw binary",
    "a boolean, b tinyint, c smallint, d long, e real, f double, g timestamp, 9lives timestamp_ltz",
]


@pytest.mark.spark
@pytest.mark.parametrize("ddl", UNDERSTOOD)
def test_ddl_is_read_as_spark_reads_it(ddl: str, spark: SparkSession) -> None:
    """Names, types and which fields are required."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import _parse_datatype_string

    assert spark.version
    assert columns_of(ddl) == pa.struct(list(to_arrow_schema(_parse_datatype_string(ddl), timezone="UTC")))


def test_ddl_types() -> None:
    """As the JSON decoder takes them."""
    assert columns_of("id bigint NOT NULL, tags array<string>, at timestamp") == pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("tags", pa.list_(pa.field("element", pa.string()))),
            ("at", pa.timestamp("us", tz="UTC")),
        ]
    )


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("", "names no columns"),
        ("bigint", "names no columns"),
        ("array<int>", "names no columns"),
        ("id bigin", "'bigin' stands where a type"),
        ("id int,", "its end stands where a name"),
        ("id int name string", "'name' stands where"),
        ("id int NOT", "'NOT' stands where"),
        ("id int COMMENT why", "'why' stands where a comment"),
        ("m map<string>", "'>' stands where"),
        ("s struct<>", "'>' stands where a name"),
        ("a int ; b int", "no word of it"),
        ("price decimal(10,2)", "not decoded to decimal"),
    ],
)
def test_ddl_that_is_refused(ddl: str, said: str) -> None:
    """The message has the place."""
    with pytest.raises(KafkaConfigurationError, match=said):
        columns_of(ddl)
