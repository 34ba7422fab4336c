"""``kafka-log`` without a JVM: what Spark calls, called directly."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.pipeline.log_source_kit import partition_on_disk
from support.pipeline.pipeline_kit import rows_of
from support.storage.log_workload import append_random, append_transactions
from support.storage.logs import NOW_MS

from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.local_source.planning import DataLossError
from splashdam.record.reader import Record

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualTo,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
)
from pyspark.sql.types import LongType, StructType

from splashdam.pipeline.log_source.batches import batch_columns
from splashdam.pipeline.log_source.data_source import FilteringLogReader, KafkaLogDataSource, LogReader
from splashdam.pipeline.log_source.options import log_options
from splashdam.pipeline.schema import Columns, all_columns

OFFSETS = Columns(("offset",))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """A data directory with topics ``t`` and ``u``; the records of ``t``."""
    expected: list[Record] = []
    path = tmp_path_factory.mktemp("data")
    partition_on_disk(path, lambda log: expected.extend(append_random(log, 4, 60)))
    partition_on_disk(path, lambda log: append_transactions(log, 4, 20), topic="u")
    return path, expected


def reader(path: Path, columns: Any = OFFSETS, kind: type[LogReader] = LogReader, **given: str) -> LogReader:
    """A reader as Spark gets it."""
    return kind(log_options({"path": str(path), **given}), columns)


def rows(made: LogReader) -> list[dict[str, Any]]:
    """Everything that its tasks yield, each in a process of its own, as far as pickling goes."""
    return [
        row
        for each in made.partitions()
        for row in rows_of(pickle.loads(pickle.dumps(made)).read(pickle.loads(pickle.dumps(each))))
    ]


def offsets(made: LogReader) -> list[int]:
    """The offsets that it reads."""
    return [row["offset"] for row in rows(made)]


def source(**given: str) -> KafkaLogDataSource:
    """As Spark makes it."""
    return KafkaLogDataSource(CaseInsensitiveDict(given))


def test_it_is_called_kafka_log() -> None:
    """One word away from the source over the wire."""
    assert KafkaLogDataSource.name() == "kafka-log"


def test_columns_are_those_of_the_mode() -> None:
    """Kafka's, or a batch's."""
    assert source(path="/d").schema().startswith("`key` binary, `value` binary")
    assert "`headers`" in source(path="/d", includeHeaders="true").schema()
    assert "`crcValid` boolean" in source(path="/d", mode="batches").schema()


def test_trap_15_reader_and_partitions_travel(data: tuple[Path, list[Record]]) -> None:
    """Trap 15: they are pickled, and each task reads its part."""
    path, expected = data
    made = reader(path, all_columns(include_headers=True), subscribe="t", maxPartitionBytes="9k")
    assert len(made.partitions()) > 3
    assert [row["value"] for row in rows(made)] == [each.value for each in expected]


def test_a_choice_of_columns_is_all_that_is_made(data: tuple[Path, list[Record]]) -> None:
    """``.schema("offset bigint")``."""
    made = source(path=str(data[0]), subscribe="t").reader(schema=StructType().add("offset", LongType()))
    assert offsets(made) == [each.offset for each in data[1]]


def test_topics_are_chosen(data: tuple[Path, list[Record]]) -> None:
    """By name, by pattern, by partition, or all of them."""
    topics = Columns(("topic",))
    for given, expected in (
        ({}, {"t", "u"}),
        ({"subscribe": "u"}, {"u"}),
        ({"subscribePattern": "[a-t]"}, {"t"}),
        ({"assign": '{"u":[0]}'}, {"u"}),
    ):
        assert {row["topic"] for row in rows(reader(data[0], topics, **given))} == expected
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        reader(data[0], subscribe="nowhere").partitions()


def test_ranges_are_chosen(data: tuple[Path, list[Record]]) -> None:
    """By offset and by time, as from a cluster."""
    path, expected = data
    end = len(expected)
    assert offsets(reader(path, subscribe="t", startingOffsets='{"t":{"0":7}}')) == list(range(7, end))
    assert offsets(reader(path, subscribe="t", endingOffsets='{"t":{"0":9}}')) == list(range(9))
    time = NOW_MS + 40_000
    first = next(each.offset for each in expected if each.timestamp_ms >= time)
    assert offsets(reader(path, subscribe="t", startingTimestamp=str(time))) == list(range(first, end))
    assert offsets(reader(path, subscribe="t", endingTimestamp=str(time))) == list(range(first))
    with pytest.raises(DataLossError, match="ends at"):
        reader(path, subscribe="t", endingOffsets='{"t":{"0":99999}}').partitions()


def filters_and_rules() -> list[tuple[list[Any], Any]]:
    """Filters of Spark, and the rows that pass them."""
    from datetime import UTC, datetime, timedelta

    late = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=NOW_MS + 60_000)
    return [
        ([EqualTo(("topic",), "u")], lambda row: row["topic"] == "u"),
        ([GreaterThanOrEqual(("offset",), 100)], lambda row: row["offset"] >= 100),
        ([LessThan(("offset",), 30), EqualTo(("partition",), 0)], lambda row: row["offset"] < 30),
        ([EqualTo(("partition",), 1)], lambda row: False),
        (
            [GreaterThanOrEqual(("timestamp",), late)],
            lambda row: row["timestamp"] >= (NOW_MS + 60_000) * 1000,
        ),
        ([LessThan(("timestamp",), late)], lambda row: row["timestamp"] < (NOW_MS + 60_000) * 1000),
    ]


@pytest.mark.parametrize(("filters", "passes"), filters_and_rules(), ids=lambda value: str(value)[:50])
def test_trap_4_filters_leave_out_nothing_that_passes(
    data: tuple[Path, list[Record]], filters: list[Any], passes: Any
) -> None:
    """Trap 4: Spark applies all filters itself, and rows that are not read would not have passed them."""
    columns = all_columns(include_headers=False)
    everything = rows(reader(data[0], columns))
    narrowed = reader(data[0], columns, FilteringLogReader, maxPartitionBytes="5k")
    assert isinstance(narrowed, FilteringLogReader)
    assert narrowed.pushFilters(filters) is filters
    found = rows(narrowed)
    assert list(filter(passes, found)) == list(filter(passes, everything))


def test_batches_are_rows_where_they_are_asked_for(data: tuple[Path, list[Record]]) -> None:
    """``mode=batches``: their counts are those of the records."""
    names = batch_columns(StructType().add("lastOffset", LongType()))
    made = reader(data[0], (*names, "recordCount"), mode="batches", subscribe="t")
    assert sum(row["recordCount"] for row in rows(made)) == len(data[1])
    unchecked = reader(data[0], names, mode="batches", subscribe="t", checkCrcs="false")
    assert rows(unchecked)[-1]["lastOffset"] == data[1][-1].offset


def test_trap_8_an_empty_topic_has_no_rows(tmp_path: Path) -> None:
    """Trap 8: an empty list of partitions becomes one without a value."""
    made = reader(partition_on_disk(tmp_path, lambda log: None))
    assert made.partitions() == []
    assert list(made.read(InputPartition(None))) == []


def test_a_stream_is_refused() -> None:
    """Files do not say when a batch is complete; the source over the wire does."""
    with pytest.raises(KafkaConfigurationError, match="kafka-local"):
        source(path="/d").streamReader(StructType())


def test_trap_24_pandas_is_not_loaded(data: tuple[Path, list[Record]]) -> None:
    """Trap 24: neither planning nor reading wants it."""
    code = (
        "import sys; from splashdam.pipeline.log_source.data_source import *\n"
        "from splashdam.pipeline.schema import all_columns\n"
        f"made = LogReader(log_options({{'path': {str(data[0])!r}}}), all_columns(False))\n"
        "assert sum(b.num_rows for p in made.partitions() for b in made.read(p))\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
