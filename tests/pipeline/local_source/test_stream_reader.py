"""What a stream answers to Spark's questions, without Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from support.pipeline.local_source_kit import FakeCluster, stream_options, topic

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.net.clock import SystemClock
from splashdam.pipeline.local_source import reading
from splashdam.pipeline.local_source.planning import DataLossError, OffsetRange
from splashdam.pipeline.schema import all_columns

limits = pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs splashdam[spark]")

from splashdam.pipeline.local_source.stream_reader import StreamReader  # noqa: E402  # needs pyspark

ID = b"t".ljust(16)  # of topic t, see FakeCluster
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
ALL = limits.ReadAllAvailable()


class ClockByHand(SystemClock):
    """Goes where a test puts it."""

    ms = 0.0

    def now_ms(self) -> float:
        """What was set."""
        return self.ms


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """What readers ask: five records and three."""
    cluster = FakeCluster(t=topic(5, 3))
    monkeypatch.setattr(reading, "reader_for", lambda *_: cluster)
    return cluster


def reader(clock: SystemClock | None = None, **given: str) -> StreamReader:
    """The reader of a stream that begins with the earliest offsets, unless told otherwise."""
    options = stream_options(**{"startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "0", **given})
    return StreamReader(options, all_columns(False), clock)


def ranges(of: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    """The records that the tasks of a trigger read."""
    return [each.value for each in of.partitions(start, end)]


def test_trap_1_the_beginning_is_decided_once(cluster: FakeCluster, tmp_path: Path) -> None:
    """Trap 1: two calls with a moved head are equal, also after a crash before the first commit."""
    given = {"startingOffsets": "latest", "initialOffsetsLocation": str(tmp_path / "start")}
    first = reader(**given)
    begin = first.initialOffset()
    end = first.latestOffset(begin, ALL)
    cluster.logs[T0].add(2)
    assert first.initialOffset() == begin == {"t": {"0": 5, "1": 3}}
    assert ranges(first, first.initialOffset(), end) == []

    restarted = reader(**given)
    assert restarted.initialOffset() == begin
    end = restarted.latestOffset(begin, ALL)
    assert ranges(restarted, restarted.initialOffset(), end) == [OffsetRange(T0, 5, 7, ID)]


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"t":{"0":-1,"1":0}}'},
        {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_a_beginning_that_moves_needs_a_place(given: dict[str, str]) -> None:
    """Trap 1: the latest offsets without a place to keep them are refused."""
    with pytest.raises(
        KafkaConfigurationError, match="initialOffsetsLocation to a directory of this query's own"
    ):
        reader(**given)


def test_trap_2_a_start_after_its_end(cluster: FakeCluster) -> None:
    """Trap 2: raises, naming partition and both offsets."""
    with pytest.raises(DataLossError, match="t-0 was read up to 9 and now ends at 5"):
        reader().partitions({"t": {"0": 9, "1": 3}}, {"t": {"0": 5, "1": 3}})


def test_trap_16_most_and_least_and_delay(cluster: FakeCluster) -> None:
    """Trap 16: Spark's limits know no delay and no two at once, so latestOffset decides."""
    clock = ClockByHand()
    stream = reader(clock, maxOffsetsPerTrigger="4", minOffsetsPerTrigger="3", maxTriggerDelay="1s")
    limit = stream.getDefaultReadLimit()
    assert limit == limits.ReadMaxRows(4)
    start = stream.initialOffset()
    first = stream.latestOffset(start, limit)
    assert first == {"t": {"0": 2, "1": 1}}
    second = stream.latestOffset(first, limit)
    third = stream.latestOffset(second, limit)
    assert (second, third) == ({"t": {"0": 4, "1": 2}}, second)  # two are left, which is too few
    clock.ms = 1000
    assert stream.latestOffset(second, limit) == {"t": {"0": 5, "1": 3}}


def test_the_least_alone(cluster: FakeCluster) -> None:
    """It waits; a trigger that is to take all does not."""
    stream = reader(ClockByHand(), minOffsetsPerTrigger="100")
    limit = stream.getDefaultReadLimit()
    assert limit == limits.ReadMinRows(100)
    end = stream.latestOffset(stream.initialOffset(), limit)
    assert end == {"t": {"0": 5, "1": 3}}
    cluster.logs[T0].add(1)
    cluster.logs[T2] = topic(1)[0]
    assert stream.latestOffset(end, limit) is end
    assert stream.latestOffset(end, ALL) == {"t": {"0": 6, "1": 3, "2": 1}}


def test_without_options_a_trigger_takes_all(cluster: FakeCluster) -> None:
    """Progress reports name the end offsets."""
    stream = reader()
    assert stream.getDefaultReadLimit() == ALL
    assert stream.reportLatestOffset() is None
    end = stream.latestOffset(stream.initialOffset(), ALL)
    assert stream.reportLatestOffset() == end
    assert ranges(stream, stream.initialOffset(), end) == [
        OffsetRange(T0, 0, 5, ID),
        OffsetRange(T1, 0, 3, ID),
    ]


def test_available_now_ends(cluster: FakeCluster) -> None:
    """Records that arrive after its start are left, and a minimum does not make it wait."""
    stream = reader(ClockByHand(), maxOffsetsPerTrigger="4", minOffsetsPerTrigger="4")
    stream.prepareForTriggerAvailableNow()
    limit = stream.getDefaultReadLimit()
    cluster.logs[T0].add(10)
    ends = [stream.initialOffset()]
    while True:
        end = stream.latestOffset(ends[-1], limit)
        if end == ends[-1]:
            break
        ends.append(end)
    assert ends[-1] == {"t": {"0": 5, "1": 3}}
    assert len(ends) == 4


def test_the_beginning_is_not_behind_the_ends_of_available_now(cluster: FakeCluster, tmp_path: Path) -> None:
    """Spark has the ends fixed first: what came before the beginning was asked for is for the next run."""
    stream = reader(startingOffsets="latest", initialOffsetsLocation=str(tmp_path))
    stream.prepareForTriggerAvailableNow()
    cluster.logs[T0].add(2)
    begin = stream.initialOffset()
    assert begin == stream.latestOffset(begin, ALL) == {"t": {"0": 5, "1": 3}}
    assert stream.partitions(begin, begin) == []


def test_partitions_come_and_topics_go(cluster: FakeCluster) -> None:
    """New ones are read from their first offset on; what is gone is an error, or left out."""
    stream = reader(subscribe="t,u", startingOffsets="earliest", failOnDataLoss="false")
    cluster.logs[TopicPartition("u", 0)] = topic(2)[0]
    begin = stream.latestOffset(stream.initialOffset(), ALL)
    assert begin == {"t": {"0": 5, "1": 3}, "u": {"0": 2}}
    cluster.logs[T2] = topic(4)[0]
    del cluster.logs[TopicPartition("u", 0)]
    end = stream.latestOffset(begin, ALL)
    assert end == {"t": {"0": 5, "1": 3, "2": 4}}
    assert ranges(stream, begin, end) == [OffsetRange(T2, 0, 4, ID)]
    with pytest.raises(DataLossError, match="no longer there: u-0"):
        reader(subscribe="t,u").partitions(begin, end)


def test_a_partition_that_comes_before_the_first_trigger_is_replayed(cluster: FakeCluster) -> None:
    """It is no loss that the trigger's end does not have it: the next trigger reads it, from its start."""
    before = reader()
    end = before.latestOffset(before.initialOffset(), ALL)
    cluster.logs[T2] = topic(4)[0]
    restarted = reader()
    begin = restarted.initialOffset()
    assert begin == {"t": {"0": 0, "1": 0, "2": 0}}
    assert ranges(restarted, begin, end) == [OffsetRange(T0, 0, 5, ID), OffsetRange(T1, 0, 3, ID)]
    assert ranges(restarted, end, restarted.latestOffset(end, ALL)) == [OffsetRange(T2, 0, 4, ID)]


def test_a_partition_that_goes_before_the_first_trigger_is_a_loss(cluster: FakeCluster) -> None:
    """Not to be mistaken for one that came late."""
    stream = reader()
    begin = stream.initialOffset()
    del cluster.logs[T1]
    with pytest.raises(DataLossError, match="no longer there: t-1"):
        stream.partitions(begin, stream.latestOffset(begin, ALL))


def test_available_now_without_topics_ends(cluster: FakeCluster) -> None:
    """A topic that comes after it began is for the next run, also where it is the first."""
    stream = StreamReader(
        stream_options(subscribe=None, subscribePattern="u.*", startingOffsets="earliest"),
        all_columns(False),
    )
    stream.prepareForTriggerAvailableNow()
    cluster.logs[TopicPartition("u", 0)] = topic(2)[0]
    assert stream.latestOffset({}, ALL) == {}


def test_a_topic_created_again_between_triggers(cluster: FakeCluster) -> None:
    """Longer than the old one was, so that offsets tell nothing: an error, or the new one from its start."""
    for lenient in (False, True):
        cluster.ids.clear()
        stream = reader(failOnDataLoss=str(not lenient))
        first = {"t": {"0": 2, "1": 1}}
        stream.partitions({"t": {"0": 0, "1": 0}}, first)
        cluster.ids["t"] = b"another one's id"
        second = stream.latestOffset(first, ALL)
        if lenient:
            assert ranges(stream, first, second) == [
                OffsetRange(T0, 0, 5, b"another one's id"),
                OffsetRange(T1, 0, 3, b"another one's id"),
            ]
            continue
        for _ in range(2):  # it is not forgotten by asking again
            with pytest.raises(DataLossError, match="deleted and created again since they were last read: t"):
                stream.partitions(first, second)


def test_trap_22_and_23_nothing_rests_on_commit_and_stop(cluster: FakeCluster) -> None:
    """Trap 22 and trap 23: Spark calls the one late, and never for the last trigger; the other not at all."""
    answers = []
    for told in (True, False):
        stream = reader(maxOffsetsPerTrigger="4")
        end = stream.latestOffset(stream.initialOffset(), limits.ReadMaxRows(4))
        if told:
            stream.commit(end)
            stream.stop()
        answers.append((stream.initialOffset(), stream.latestOffset(end, limits.ReadMaxRows(4))))
    assert answers[0] == answers[1]


def test_trap_15_a_reader_travels(cluster: FakeCluster) -> None:
    """Trap 15: tasks get it pickled, with its partitions, and connect by themselves."""
    stream = reader()
    stream.latestOffset(stream.initialOffset(), ALL)
    twin = pickle.loads(pickle.dumps(stream))
    assert twin.initialOffset() == stream.initialOffset()
    (first, _) = stream.partitions({"t": {"0": 0, "1": 0}}, {"t": {"0": 5, "1": 3}})
    assert pickle.loads(pickle.dumps(first)).value == OffsetRange(T0, 0, 5, ID)


def test_streams_split_only_by_an_option(cluster: FakeCluster) -> None:
    """One task per partition keeps the order on the way into another topic."""
    cluster.logs[T0].add(3_000_000)
    end = {"t": {"0": 3_000_005, "1": 3}}
    assert len(reader().partitions({"t": {"0": 0, "1": 3}}, end)) == 1
    assert len(reader(minPartitions="4").partitions({"t": {"0": 0, "1": 3}}, end)) == 4
