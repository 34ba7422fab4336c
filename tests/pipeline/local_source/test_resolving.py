"""Edges and times become offsets."""

from __future__ import annotations

import pytest
from support.pipeline.local_source_kit import FakeCluster, FakeLog, topic

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.local_source.positions import (
    AtEdge,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Patience,
    Position,
    latest_from,
    moves,
    resolve,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOGS = [FakeLog(3, [10, 30, 20]), FakeLog(0, [10])]


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (AtEdge(EARLIEST), {T0: 3, T1: 0}),
        (AtEdge(LATEST), {T0: 6, T1: 1}),
        (AtOffsets({T0: 4, T1: LATEST}), {T0: 4, T1: 1}),
        (AtOffsets({T0: EARLIEST, T1: LATEST}), {T0: 3, T1: 1}),
        (AtTimestamp(20), {T0: 4, T1: 1}),
        (AtTimestamps({T0: 20, T1: 5}), {T0: 4, T1: 0}),
    ],
)
def test_positions(position: Position, expected: dict[TopicPartition, int]) -> None:
    """Where no record is so young, the end, if that is wanted."""
    found = resolve(position, [T0, T1], FakeCluster(t=LOGS), option="x", latest_if_no_match=True)
    assert found == expected


def test_positions_name_every_partition() -> None:
    """Neither too few nor too many, of offsets and of times."""
    for position in (AtOffsets({T0: 4}), AtTimestamps({T0: 4})):
        with pytest.raises(KafkaConfigurationError, match="x does not name t-1"):
            resolve(position, [T0, T1], FakeCluster(t=LOGS), option="x", latest_if_no_match=True)


def test_which_answers_move() -> None:
    """Those that more records change."""
    assert moves(AtEdge(LATEST), latest_if_no_match=False)
    assert moves(AtOffsets({T0: 4, T1: LATEST}), latest_if_no_match=False)
    assert moves(AtTimestamp(20), latest_if_no_match=True)
    assert not moves(AtTimestamp(20), latest_if_no_match=False)
    assert not moves(AtEdge(EARLIEST), latest_if_no_match=True)
    assert not moves(AtOffsets({T0: 4, T1: EARLIEST}), latest_if_no_match=True)


def test_ends_below_the_read_offsets_are_requested_again() -> None:
    """A broker that has just become leader may not know better; one that goes on saying so is believed."""
    cluster = FakeCluster(t=topic(5, 5))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        cluster.logs[T0].add(1)

    patience = Patience(attempts=3, interval_ms=10, pause=pause)
    assert latest_from(cluster, [T0, T1], {T0: 6, T1: 5}, patience) == {T0: 6, T1: 5}
    assert pauses == [0.01]
    assert latest_from(cluster, [T0, T1], {T0: 99}, patience) == {T0: 8, T1: 5}
    assert len(pauses) == 3
