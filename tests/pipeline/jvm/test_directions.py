"""What one connector writes, the other reads; and both write the same."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.pipeline.connector_kit import FORMATS, Stream, batch, written
from support.pipeline.connector_topics import Books, create

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.spark_jvm]

WAYS = tuple(product(FORMATS, FORMATS))
"""Who writes, and who reads."""

FULL = "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int"
WRITTEN = [
    (b"a", b"1", [("h", b"x"), ("h", None)], 0),
    (None, b"2", None, 1),
    (b"c", None, [], 2),
    (b"", b"", [("", b"")], 2),
    (None, None, None, 0),
]

NoRecord = tuple[str, tuple[object, ...], str | None, str]
NO_RECORDS: tuple[NoRecord, ...] = (
    ("key string", ("a",), "plain", "value"),
    ("value string", ("a",), None, "topic"),
    ("value int", (1,), "plain", "value"),
    ("value string, topic string", ("a", None), None, "topic"),
    ("value string, partition string", ("a", "0"), "plain", "partition"),
    ("value string, headers string", ("a", "0"), "plain", "headers"),
)
"""Schema, row, the option `topic`, and what the refusal says."""


@pytest.fixture
def topic(books: Books, request: pytest.FixtureRequest) -> str:
    """A topic of one test and format, with three partitions."""
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    create(books.servers, {name: 3})
    return name


def save(frame: DataFrame, word: str, servers: str, topic: str | None) -> None:
    """A batch into a topic; without one, into those of the column."""
    writer = frame.write.format(word).mode("append").option("kafka.bootstrap.servers", servers)
    (writer.option("topic", topic) if topic else writer).save()


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_batch(spark: SparkSession, books: Books, topic: str, way: tuple[str, str]) -> None:
    """Keys, values, headers and partitions come back; nulls stay nulls, and no headers stay no headers."""
    writer, reader = way
    save(spark.createDataFrame(WRITTEN, FULL).coalesce(1), writer, books.servers, topic)
    found = written(batch(spark, reader, books.servers, {"subscribe": topic, "includeHeaders": "true"}))
    expected = [(partition, key, value, tuple(headers or ())) for key, value, headers, partition in WRITTEN]
    assert found == sorted(expected, key=lambda each: each[0])


@pytest.mark.parametrize("way", WAYS, ids="-".join)
def test_stream(spark: SparkSession, books: Books, topic: str, tmp_path: Path, way: tuple[str, str]) -> None:
    """A stream copies a topic, ends, and goes on with what came since."""
    writer, reader = way
    back = f"{topic}-back"
    create(books.servers, {back: 1})
    copy = Stream(spark, tmp_path, reader, books.servers, {"subscribe": topic, "startingOffsets": "earliest"})
    for first in (0, 40):
        numbers = spark.range(first, first + 40).selectExpr("CAST(id AS string) AS value")
        save(numbers, writer, books.servers, topic)
        copy.run_into(writer, back)
    found = written(batch(spark, reader, books.servers, {"subscribe": back}))
    assert sorted(int(value or b"-1") for _, _, value, _ in found) == list(range(80))


def test_partitions_of_keys(spark: SparkSession, books: Books, topic: str) -> None:
    """A key has one partition, whoever writes it."""
    frame = spark.range(50).selectExpr("concat('key ', id) AS key", "CAST(id AS string) AS value")
    found = []
    for word in FORMATS:
        create(books.servers, {f"{topic}-{word}": 3})
        save(frame, word, books.servers, f"{topic}-{word}")
        read = batch(spark, "kafka", books.servers, {"subscribe": f"{topic}-{word}"})
        found.append({key: partition for partition, key, _, _ in written(read)})
    assert len(set(found[0].values())) == 3
    assert found[0] == found[1]


@pytest.mark.parametrize("word", FORMATS)
def test_topics_of_rows(spark: SparkSession, books: Books, topic: str, word: str) -> None:
    """The column says where a row goes."""
    create(books.servers, {f"{topic}-1": 1, f"{topic}-2": 1})
    frame = spark.createDataFrame(
        [(f"{topic}-1", "one"), (f"{topic}-2", "two")], "topic string, value string"
    )
    save(frame, word, books.servers, None)
    for name, value in ((f"{topic}-1", b"one"), (f"{topic}-2", b"two")):
        assert written(batch(spark, word, books.servers, {"subscribe": name})) == [(0, None, value, ())]


@pytest.mark.parametrize("word", FORMATS)
def test_the_option_wins(spark: SparkSession, books: Books, topic: str, word: str) -> None:
    """Over the column."""
    save(
        spark.createDataFrame([("other", "one", 0)], "topic string, value string, partition int"),
        word,
        books.servers,
        topic,
    )
    assert written(batch(spark, word, books.servers, {"subscribe": topic})) == [(0, None, b"one", ())]


@pytest.mark.parametrize("word", FORMATS)
@pytest.mark.parametrize("case", NO_RECORDS, ids=lambda case: case[0])
def test_refused(spark: SparkSession, books: Books, word: str, case: NoRecord) -> None:
    """Frames that are no records; the column is named."""
    schema, row, topic, says = case
    with pytest.raises(Exception, match=says):
        save(spark.createDataFrame([row], schema), word, books.servers, topic)


@pytest.mark.parametrize("word", FORMATS)
def test_overwrite(spark: SparkSession, books: Books, word: str) -> None:
    """A topic is not overwritten."""
    frame = spark.createDataFrame([("a",)], "value string")
    writer = frame.write.format(word).mode("overwrite").option("kafka.bootstrap.servers", books.servers)
    with pytest.raises(Exception, match=r"(?i)overwrite"):
        writer.option("topic", "plain").save()
