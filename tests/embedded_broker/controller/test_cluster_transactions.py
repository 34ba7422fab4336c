"""Transactions whose coordinator and partitions are on different brokers, one of which ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import trio
from support.broker.memory_cluster_kit import Kit
from trio.testing import MockClock

from splashdam.embedded_broker.cluster import Cluster
from splashdam.embedded_broker.topics.internal_topics import partition_for
from splashdam.embedded_broker.transactions import markers
from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import KafkaError
from splashdam.model.transactions import ConsumerGroupMetadata
from splashdam.model.values import TopicPartition
from splashdam.record.reader import read_records
from splashdam.storage.log import Log
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.storage.topic_names import TRANSACTION_STATE
from splashdam.storage.transaction_marker import parse_marker

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


async def test_a_late_marker_of_an_earlier_coordinator_ends_no_later_transaction(
    cluster: Cluster, kit: Kit, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator is held up in a commit. Another one completes it, hands back, and the first goes on.

    Its commit markers reached the transaction that the producer had begun meanwhile, as those of the newest
    coordinator: it was aborted then, and consumers read its records all the same.
    """
    wait_safe, held_up, go_on = markers.wait_safe, trio.Event(), trio.Event()

    async def hold_up_the_first_marker(log: Log, *arguments: Any, **options: Any) -> None:
        if log.topic_partition.topic == "t" and not held_up.is_set():
            held_up.set()
            await go_on.wait()
        await wait_safe(log, *arguments, **options)

    monkeypatch.setattr(markers, "wait_safe", hold_up_the_first_marker)
    async with kit.producer(cluster, transactional_id=ID, request_timeout_ms=2_000) as sends:
        await sends.init_transactions()
        earlier = cluster.leader_of(TRANSACTION_STATE)
        later = earlier % 3 + 1
        async with trio.open_nursery() as nursery:
            await sends.begin_transaction()
            for partition in range(3):
                await sends.send("t", b"committed", partition=partition)
            nursery.start_soon(sends.commit_transaction)
            await held_up.wait()
            cluster.move_leader(TRANSACTION_STATE, 0, later)
        await sends.begin_transaction()
        for partition in range(3):
            await sends.send("t", b"aborted", partition=partition)
        await sends.flush()
        cluster.move_leader(TRANSACTION_STATE, 0, earlier)
        await trio.sleep(1)
        go_on.set()
        await trio.sleep(10)
        await sends.abort_transaction()
    for partition in range(3):
        log = cluster.broker(cluster.leader_of("t", partition)).logs.logs[TopicPartition("t", partition)]
        told = told_by(log)
        assert told[0] == b"committed"
        assert told[told.index(b"aborted") + 1 :] == [False]


def told_by(log: Log) -> list[object]:
    """Values and decisions in a log: True for a commit marker, False for one of an abort."""
    told: list[object] = []
    for header, data in log.batches():
        marker = parse_marker(data, header.producer_id, header.producer_epoch) if header.is_control else None
        told += [record.value for record in read_records(data)] if marker is None else [marker.is_commit]
    return told


async def test_an_aborted_batch_was_committed_after_its_coordinator_had_forgotten_the_partition(
    cluster: Cluster, kit: Kit, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition joins a transaction on the coordinator's own broker, and no other broker hears of it.

    The batch was in the log before. The next coordinator did not know of the partition and wrote no abort
    marker there, so the producer's next commit committed the aborted batch.
    """
    append, is_held = Log.append_as_follower, False

    def append_unless_held(self: Log, batches: memoryview, *, now_ms: int) -> int:
        if is_held and self.topic_partition.topic == TRANSACTION_STATE:
            raise CorruptMessageError("held")  # the follower asks again after its backoff
        return append(self, batches, now_ms=now_ms)

    monkeypatch.setattr(Log, "append_as_follower", append_unless_held)
    async with kit.producer(cluster, transactional_id=ID, request_timeout_ms=2_000) as sends:
        await sends.init_transactions()
        coordinator = cluster.leader_of(TRANSACTION_STATE)
        partition = next(each for each in range(3) if cluster.leader_of("t", each) == coordinator)
        await sends.begin_transaction()
        await sends.send("t", b"in time", partition=(partition + 1) % 3)
        await sends.flush()
        is_held = True
        future = await sends.send("t", b"aborted", partition=partition)
        await trio.sleep(1)
        cluster.move_leader(TRANSACTION_STATE, 0, coordinator % 3 + 1)
        is_held = False
        with suppress(KafkaError):
            await future
        await sends.abort_transaction()
        async with sends.transaction():
            await sends.send("t", b"committed", partition=partition)
    log = cluster.broker(cluster.leader_of("t", partition)).logs.logs[TopicPartition("t", partition)]
    told = told_by(log)
    assert told[-2:] == [b"committed", True]
    assert told[:-2] in ([], [False], [b"aborted", False])


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
