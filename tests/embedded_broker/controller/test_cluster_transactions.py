"""Transactions whose coordinator and partitions are on different brokers, one of which ends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from support.broker.memory_cluster_kit import Kit
from trio.testing import MockClock

from splashdam.embedded_broker.cluster import Cluster
from splashdam.embedded_broker.topics.internal_topics import partition_for
from splashdam.model.transactions import ConsumerGroupMetadata
from splashdam.model.values import TopicPartition
from splashdam.record.reader import read_records
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.storage.topic_names import TRANSACTION_STATE

ID = "billing"


@pytest.fixture
async def cluster(kit: Kit) -> AsyncIterator[Cluster]:
    """Three brokers; a topic with a partition led by each of them."""
    settings = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}
    async with kit.opened(**settings) as running:
        assignments = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
        running.controller.create_topics([NewTopic("t", 3, assignments=assignments)], dict)
        yield running


def committed(cluster: Cluster, partition: int) -> list[bytes | None]:
    """The records of a partition's leader, which are decided and fully replicated."""
    log = cluster.broker(cluster.leader_of("t", partition)).logs.logs[TopicPartition("t", partition)]
    assert log.last_stable_offset == log.high_watermark == log.log_end_offset
    return [
        record.value
        for header, data in log.batches()
        if not header.is_control
        for record in read_records(data)
    ]


async def test_markers_reach_every_leader(cluster: Cluster, kit: Kit, autojump_clock: MockClock) -> None:
    """One transaction over three brokers is committed on each of them when commit returns."""
    async with kit.producer(cluster, transactional_id=ID) as sends:
        await sends.init_transactions()
        for round_number in range(2):
            async with sends.transaction():
                for partition in range(3):
                    await sends.send("t", b"%d" % round_number, partition=partition)
            for partition in range(3):
                assert len(committed(cluster, partition)) == round_number + 1


async def test_the_coordinator_moves(cluster: Cluster, kit: Kit, autojump_clock: MockClock) -> None:
    """Its broker is killed between two sends of a transaction; another one commits it."""
    async with kit.producer(cluster, transactional_id=ID) as sends:
        await sends.init_transactions()
        async with sends.transaction():
            await sends.send("t", b"a", partition=0)
            await sends.flush()
            coordinator = cluster.leader_of(TRANSACTION_STATE, partition_for(ID, 1))
            await cluster.kill(coordinator)
            await sends.send("t", b"b", partition=1)
        assert len(committed(cluster, 0)) == len(committed(cluster, 1)) == 1
        await cluster.start(coordinator)
        async with sends.transaction():
            await sends.send("t", b"c", partition=0)
        assert len(committed(cluster, 0)) == 2


async def test_offsets_are_committed_with_a_transaction(
    cluster: Cluster, kit: Kit, autojump_clock: MockClock
) -> None:
    """The group's coordinator is on one broker, the transaction's on another."""
    async with kit.producer(cluster, transactional_id=ID) as sends:
        await sends.init_transactions()
        async with sends.transaction():
            await sends.send("t", b"a", partition=2)
            await sends.send_offsets_to_transaction({TopicPartition("t", 0): 7}, ConsumerGroupMetadata("g"))
        leader = cluster.leader_of("__consumer_offsets")
        for _ in range(2):
            found = cluster.broker(leader).groups.find("g")
            assert found is not None
            assert found.offsets[TopicPartition("t", 0)].committed.offset == 7
            await cluster.stop(leader)
            leader = cluster.leader_of("__consumer_offsets")


async def test_a_decided_transaction_waits_for_a_leader(
    cluster: Cluster, kit: Kit, autojump_clock: MockClock
) -> None:
    """No broker leads one of its partitions: the marker is owed until one does."""
    cluster.controller.create_topics([NewTopic("alone", 1, assignments=((3,),))], dict)
    async with kit.producer(cluster, transactional_id=ID) as sends:
        await sends.init_transactions()
        coordinator = cluster.leader_of(TRANSACTION_STATE)
        if coordinator == 3:
            cluster.move_leader(TRANSACTION_STATE, 0, 1)
        await sends.begin_transaction()
        await sends.send("alone", b"a")
        await sends.flush()
        await cluster.kill(3)
        with trio.move_on_after(5):
            await sends.commit_transaction()
        await cluster.start(3)
        await trio.sleep(70)
        log = cluster.broker(3).logs.logs[TopicPartition("alone", 0)]
        assert (log.last_stable_offset, log.log_end_offset) == (2, 2)
