"""The sink under Spark itself: jobs, streams, tasks that fail or are killed, queries that restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from support.pipeline.pipeline_sink_kit import read
from support.pipeline.pipeline_sink_streams import add_file, deadly, forget_commits, send_files

from splashdam import EmbeddedBroker
from splashdam.pipeline.local_source.options import NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 400


def values(broker: EmbeddedBroker, topic: str) -> Counter[bytes]:
    """The records that read_committed consumers see."""
    return Counter(bytes(each.value) for each in read(broker.bootstrap_servers, topic))


def once(count: int = ROWS) -> Counter[bytes]:
    """Each row one time."""
    return Counter(b"%d" % number for number in range(count))


def numbers(spark: SparkSession, count: int = ROWS) -> DataFrame:
    """Rows of two partitions."""
    return spark.range(0, count, 1, 2).selectExpr("cast(id as string) as value")


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_batch_job(spark: SparkSession, kafka_broker: EmbeddedBroker, delivery: str) -> None:
    """Every row is there once; a mode that would overwrite is refused with what to do."""
    writer = (
        numbers(spark)
        .write.format(NAME)
        .option("kafka.bootstrap.servers", kafka_broker.bootstrap_servers)
        .option("topic", "t")
        .option("delivery", delivery)
    )
    writer.mode("append").save()
    assert values(kafka_broker, "t") == once()
    with pytest.raises(Exception, match=r"overwrite.*is refused"):
        writer.mode("overwrite").save()


@pytest.mark.parametrize("how", ["fails", "killed"])
def test_a_task_is_lost(spark: SparkSession, kafka_broker: EmbeddedBroker, tmp_path: Path, how: str) -> None:
    """Trap 21: with two cores and four attempts it runs again; what the lost attempt sent is never seen."""
    add_file(tmp_path, 0, ROWS)
    sink = deadly(spark, tmp_path / "done", how)
    send_files(spark, tmp_path, sink, kafka_broker.bootstrap_servers, "t")
    assert (tmp_path / "done").exists()
    assert values(kafka_broker, "t") == once()


def test_the_driver_dies_between_the_commit_and_the_checkpoint(
    spark: SparkSession, kafka_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """Spark writes the batch again; it is known, nothing is written, and the query goes on."""
    add_file(tmp_path, 0, ROWS // 2)
    send_files(spark, tmp_path, NAME, kafka_broker.bootstrap_servers, "t")
    forget_commits(tmp_path)
    add_file(tmp_path, ROWS // 2, ROWS // 2)
    send_files(spark, tmp_path, NAME, kafka_broker.bootstrap_servers, "t")
    assert values(kafka_broker, "t") == once()


def test_duplicates_are_dropped(spark: SparkSession) -> None:
    """Records of one row are one; records without the headers are left alone. Of rows that came from such a
    topic and were written to another one, the first topic's headers counted, and made different rows one."""
    from splashdam.pipeline.sink.duplicates import drop_duplicates

    row = "array({})"
    header = "named_struct('key', 'splashdam.{}', 'value', cast('{}' as binary))"

    def named(*numbers: int) -> str:
        texts = {"query": "q", "batch": 3, "partition": 0}
        each = [header.format(*pair) for number in numbers for pair in [*texts.items(), ("row", number)]]
        return row.format(", ".join(each))

    lines = [named(0), named(1), named(0), "null", "null", named(0, 7), named(0, 8), named(0, 8)]
    query = " union all ".join(
        f"select 't' as topic, 0 as partition, {offset}L as offset, {headers} as headers"
        for offset, headers in enumerate(lines)
    )
    kept = drop_duplicates(spark.sql(query))
    assert kept.columns == ["topic", "partition", "offset", "headers"]
    assert kept.count() == 6
