"""OffsetForLeaderEpoch: ends of epochs, and who may ask."""

from __future__ import annotations

import pytest
from support.broker.broker_talk import NOW_MS, Talk, batch

from splashdam.embedded_broker.broker import Broker
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


@pytest.fixture
async def talk(broker: Broker, talk: Talk) -> Talk:
    """A connection to a broker whose log has epochs 1 (offsets 0, 1) and 4 (2)."""
    broker.topics.create("t")
    log = broker.logs.logs[TopicPartition("t", 0)]
    for epoch in (1, 1, 4):
        log.append_as_leader(batch(b"x"), now_ms=NOW_MS, leader_epoch=epoch)
    return talk


async def ask(
    talk: Talk, epoch: int, version: int = 4, *, partition: int = 0, current: int = -1, replica_id: int = -1
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=replica_id, topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
    )
    (topic,) = (await talk.ask(request, version)).topics
    return topic.partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("replica_id", [-2, -1, 5])
@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 0)), (1, (1, 2)), (3, (1, 2)), (4, (4, 3)), (5, (-1, -1))],
)
async def test_ends(talk: Talk, epoch: int, answer: tuple[int, int], version: int, replica_id: int) -> None:
    """The largest known epoch that is not above the one asked for, for consumers and followers alike."""
    found = await ask(talk, epoch, version, replica_id=replica_id)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, *answer)


@pytest.mark.parametrize(
    ("partition", "current", "code"), [(1, -1, 3), (0, 3, 74), (0, 4, 0), (0, 5, 75), (0, -1, 0)]
)
async def test_refusals(talk: Talk, partition: int, current: int, code: int) -> None:
    """3 for an unknown partition, 74 for a leader epoch that has passed, 75 for one that is to come."""
    found = await ask(talk, 4, partition=partition, current=current)
    assert found.error_code == code
    assert (found.leader_epoch, found.end_offset) == ((-1, -1) if code else (4, 3))
