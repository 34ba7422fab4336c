"""What a batch answers to Spark's questions, without Spark."""

from __future__ import annotations

import pickle
import sys
from importlib.machinery import ModuleSpec

import pytest
from support.pipeline.local_source_kit import BOOTSTRAP, FakeCluster, batch_options, topic

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.pipeline.local_source import reading
from splashdam.pipeline.local_source.planning import OffsetRange
from splashdam.pipeline.schema import all_columns

spark = pytest.importorskip("pyspark.sql.datasource", reason="needs splashdam[spark]")

from pyspark.sql.types import LongType, StructField, StructType  # noqa: E402

from splashdam.pipeline.local_source.data_source import (  # noqa: E402  # noqa: E402
    PUSHING_WORKER,
    BatchReader,
    FilteringBatchReader,
    KafkaLocalDataSource,
    filters_come,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """What readers ask: five records and three."""
    cluster = FakeCluster(t=topic(5, 3))
    monkeypatch.setattr(reading, "reader_for", lambda *_: cluster)
    return cluster


def source(**given: str) -> KafkaLocalDataSource:
    """As Spark makes it of a query's options."""
    return KafkaLocalDataSource({"subscribe": "t", **BOOTSTRAP, **given})


def only(name: str) -> StructType:
    """The schema of one bigint."""
    return StructType([StructField(name, LongType())])


def test_filters_narrow_and_stay_with_spark(cluster: FakeCluster) -> None:
    """Trap 4: all come back, so that Spark applies them to what is read."""
    reader = FilteringBatchReader(batch_options(), all_columns(False))
    filters = [spark.EqualTo(("partition",), 1), spark.GreaterThan(("offset",), 0)]
    assert list(reader.pushFilters(filters)) == filters
    twin = pickle.loads(pickle.dumps(reader))
    assert [each.value for each in twin.partitions()] == [OffsetRange(T1, 1, 3, cluster.topic_id("t"))]


def test_trap_3_a_reader_takes_filters_only_where_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 3: elsewhere Spark fails over a reader that could, if pushdown is off."""
    schema = only("offset")
    assert type(source().reader(schema)) is BatchReader
    assert BatchReader.pushFilters is spark.DataSourceReader.pushFilters
    monkeypatch.setitem(sys.modules, PUSHING_WORKER, sys)
    assert type(source().reader(schema)) is FilteringBatchReader


def test_trap_3_without_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 3: with spark.python.use.daemon=false the process is the program itself."""
    assert not filters_come()
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(PUSHING_WORKER, None), raising=False)
    assert filters_come()


def test_trap_8_an_empty_topic(cluster: FakeCluster) -> None:
    """Trap 8: no partitions, in a list; of the one that Spark makes of that, no rows, from an iterator."""
    reader = BatchReader(batch_options(subscribe="u"), all_columns(False))
    cluster.logs[TopicPartition("u", 0)] = topic(0)[0]
    assert reader.partitions() == []
    rows = reader.read(spark.InputPartition(None))
    assert iter(rows) is rows
    assert list(rows) == []


def test_trap_10_partitions_are_planned_when_asked(cluster: FakeCluster) -> None:
    """Trap 10: each call sees the log as it is; that Spark asks once per DataFrame is documented."""
    reader = BatchReader(batch_options(), all_columns(False))
    assert [each.value.end for each in reader.partitions()] == [5, 3]
    cluster.logs[T0].add(2)
    assert [each.value.end for each in reader.partitions()] == [7, 3]


def test_trap_11_a_source_without_options() -> None:
    """Trap 11: says what is missing and how options get lost, already when its schema is asked for."""
    with pytest.raises(KafkaConfigurationError, match="loses options"):
        KafkaLocalDataSource({}).reader(only("offset"))


def test_columns() -> None:
    """Trap 5: those that are asked for; unknown ones are named."""
    assert "headers" not in source().schema()
    assert source(includeHeaders="true").schema().endswith("`headers` array<struct<key:string,value:binary>>")
    with pytest.raises(KafkaConfigurationError, match=r"'ofset'.*Did you mean 'offset'"):
        source().reader(only("ofset"))


def test_trap_15_a_source_travels() -> None:
    """Trap 15: Spark pickles it on its way to every process."""
    twin = pickle.loads(pickle.dumps(source(startingOffsets="earliest")))
    assert twin.name() == "kafka-local"
    assert pickle.loads(pickle.dumps(twin.streamReader(only("offset")))) is not None
