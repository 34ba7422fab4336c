"""Triggers wait for enough records; partitions come and go during a stream."""

from __future__ import annotations

import logging

import pytest
from support.pipeline.local_source_kit import FakeCluster, FakeLog, topic

from splashdam.model.values import TopicPartition
from splashdam.net.clock import SystemClock
from splashdam.pipeline.local_source.planning import DataLoss, DataLossError, OffsetRange
from splashdam.pipeline.local_source.stream_reader import Waiting, ranges_between, with_new_partitions
from splashdam.pipeline.local_source.subscriptions import Topics

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
STRICT, LENIENT = DataLoss(fails=True), DataLoss(fails=False)
T = Topics(("t",))


class ClockByHand(SystemClock):
    """Goes where a test puts it."""

    ms = 0.0

    def now_ms(self) -> float:
        """What was set."""
        return self.ms


def test_a_trigger_waits_for_enough_but_not_for_ever() -> None:
    """The first one does not wait; a wait is counted from the last that went ahead."""
    clock = ClockByHand()
    waiting = Waiting(clock, 10, 1000)
    assert waiting.is_over({T0: 0}, {T0: 1})
    clock.ms = 999
    assert not waiting.is_over({T0: 1}, {T0: 10})
    assert waiting.is_over({T0: 1}, {T0: 11})
    clock.ms = 1998
    assert not waiting.is_over({T0: 11}, {T0: 12})
    clock.ms = 1999
    assert waiting.is_over({T0: 11}, {T0: 12})


def test_partitions_that_appear_begin_at_their_first_offset() -> None:
    """Whatever startingOffsets says: what is in them came while the stream ran."""
    cluster = FakeCluster(t=topic(5, 3))
    assert with_new_partitions({T0: 4}, {T0: 5, T1: 3}, cluster) == {T0: 4, T1: 0}
    ranges = ranges_between({T0: 4}, {T0: 5, T1: 3}, T, cluster, STRICT)
    assert ranges == [OffsetRange(T0, 4, 5), OffsetRange(T1, 0, 3)]


def test_a_new_partition_that_has_lost_records_already() -> None:
    """They were never read."""
    cluster = FakeCluster(t=[*topic(5), FakeLog(2, [0])])
    with pytest.raises(DataLossError, match="t-1 is new and starts at 2 instead of 0"):
        ranges_between({T0: 5}, {T0: 5, T1: 3}, T, cluster, STRICT)
    assert ranges_between({T0: 5}, {T0: 5, T1: 3}, T, cluster, LENIENT) == [OffsetRange(T1, 2, 3)]


def test_partitions_that_are_gone(caplog: pytest.LogCaptureFixture) -> None:
    """An error that names them, or a warning and the others."""
    cluster = FakeCluster(t=topic(5))
    start, end = {T0: 0, T1: 7}, {T0: 5, T2: 4}
    with pytest.raises(DataLossError, match="no longer there: t-1, t-2"):
        ranges_between(start, end, T, cluster, STRICT)
    with caplog.at_level(logging.WARNING, "splashdam.pipeline"):
        assert ranges_between(start, end, T, cluster, LENIENT) == [OffsetRange(T0, 0, 5)]
    assert "no longer there: t-1, t-2; continuing because failOnDataLoss is false" in caplog.text


def test_trap_2_an_end_below_its_start() -> None:
    """Trap 2: to Spark it is an empty batch; here it raises, naming partition and both offsets."""
    with pytest.raises(DataLossError, match="t-0 was read up to 9 and now ends at 5"):
        ranges_between({T0: 9}, {T0: 5}, T, FakeCluster(t=topic(5)), STRICT)
    assert ranges_between({T0: 9}, {T0: 5}, T, FakeCluster(t=topic(5)), LENIENT) == []
