"""An idle cluster: partitions to which nothing happens cost nothing, and are there at once when it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import trio
from support.broker.broker_talk import MIB, NOW_MS, Talk, batch, produce, records_of
from support.broker.cluster_kit import T0, Cluster, open_cluster
from trio.testing import MockClock

from splashdam.embedded_broker.controller.election import moved
from splashdam.embedded_broker.fetching.reading import FetchReading
from splashdam.embedded_broker.replication.partition import Partition
from splashdam.embedded_broker.replication.replica_fetcher import LeaderFetcher
from splashdam.embedded_broker.replication.replica_manager import ReplicaManager
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.storage.directories import checkpoints
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

NONE = 0
PARTITIONS = 30
REST_SECONDS = 400
"""Over ten times ``replica.lag.time.max.ms``, and longer than any interval by which a broker looks around."""
IDLE_SECONDS = 100
"""Over three times ``replica.lag.time.max.ms``: long enough to be late."""


def led(cluster: Cluster) -> Partition:
    """t-0 as its leader has it."""
    replicas = cluster.leader.broker.replicas
    assert isinstance(replicas, ReplicaManager)
    return replicas.partitions[T0]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often what costs something for each partition was done."""
    done: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        method: Callable[..., Any] = getattr(owner, name)

        def counted(*args: Any, **options: Any) -> Any:
            done[name] += 1
            return method(*args, **options)

        monkeypatch.setattr(owner, name, counted)

    count(LeaderFetcher, "_wanted")
    count(LeaderFetcher, "_request")
    count(FetchReading, "_log_of")
    count(Partition, "check_isr")
    count(checkpoints, "encode_lines")
    return done


def create_many(cluster: Cluster) -> None:
    """A topic of many partitions on all three brokers."""
    assignments = [
        (1 + number % 3, 1 + (number + 1) % 3, 1 + (number + 2) % 3) for number in range(PARTITIONS)
    ]
    cluster.controller.create_topics(
        [NewTopic("many", PARTITIONS, {}, assignments=assignments)], lambda _: None
    )


async def test_an_idle_cluster_looks_at_no_partition(autojump_clock: MockClock, work: Counter[str]) -> None:
    """Two small requests a second from follower to leader; nothing of any partition, however many."""
    async with open_cluster(autojump_clock) as cluster:
        create_many(cluster)
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"a") == NONE
        await trio.sleep(90)
        work.clear()
        await trio.sleep(REST_SECONDS)
        requests = work.pop("_request")
        assert requests <= 6 * 2 * REST_SECONDS + 6
        assert not work


async def test_work_is_proportional_to_events(autojump_clock: MockClock, work: Counter[str]) -> None:
    """A batch in one of the partitions has that one looked at, and no other."""
    async with open_cluster(autojump_clock) as cluster:
        create_many(cluster)
        cluster.create(1, 2, 3)
        await trio.sleep(90)
        work.clear()
        assert await cluster.produce(b"a") == NONE
        await trio.sleep(60)
        assert 0 < work["_wanted"] <= 6
        assert 0 < work["_log_of"] <= 16
        assert 0 < work["check_isr"] <= 2


async def test_a_long_idle_follower_is_in_sync_at_the_next_append(autojump_clock: MockClock) -> None:
    """The time of the rest counts: a look at the ISR between an append and the next fetch drops nobody."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        await trio.sleep(IDLE_SECONDS)
        partition = led(cluster)
        data = batch(b"a")
        cluster.leader.log.append_as_leader(data, now_ms=NOW_MS)
        cluster.leader.broker.parking.appended(T0, len(data), is_visible=False)
        partition.check_isr()
        assert partition.proposal is None
        assert cluster.state.isr == (1, 2, 3)
        await cluster.settle()
        assert [node.log.high_watermark for node in cluster.nodes.values()] == [1, 1, 1]


async def test_an_idle_follower_that_is_cut_off_leaves_the_isr_in_time(autojump_clock: MockClock) -> None:
    """Not before something is written, and then ``replica.lag.time.max.ms`` after its last fetch."""
    async with open_cluster(autojump_clock, replica_lag_time_max_ms=10_000) as cluster:
        cluster.create(1, 2, 3)
        await trio.sleep(IDLE_SECONDS)
        cluster.cut(1, 3)
        await trio.sleep(60)
        assert cluster.state.isr == (1, 2, 3)
        assert await cluster.produce(b"a", acks=1) == NONE
        await trio.sleep(16)
        assert cluster.state.isr == (1, 2)
        cluster.join()
        await cluster.settle()
        assert cluster.state.isr == (1, 2, 3)


async def test_a_follower_that_starts_again_comes_up(autojump_clock: MockClock) -> None:
    """Its old session rests for ever; the new one tells where it is."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"a") == NONE
        await trio.sleep(IDLE_SECONDS)
        await cluster.nodes[3].end(kill=True)
        assert cluster.state.isr == (1, 2)
        assert await cluster.produce(b"b") == NONE
        await cluster.start(3)
        await cluster.settle()
        assert cluster.state.isr == (1, 2, 3)
        assert cluster.values(3, up_to_high_watermark=True) == [b"a", b"b"]


async def test_a_moved_log_start_offset_is_reported_by_an_idle_follower(autojump_clock: MockClock) -> None:
    """Deleted records go from all replicas, with no record to carry the news."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"a", b"b", b"c") == NONE
        await trio.sleep(IDLE_SECONDS)
        cluster.leader.log.advance_log_start(2)
        cluster.leader.broker.log_start_moved(T0)
        await cluster.settle()
        assert [node.log.log_start_offset for node in cluster.nodes.values()] == [2, 2, 2]
        leader = led(cluster).leader
        assert leader.low_watermark(2) == 2


class Consumer:
    """Fetches t-0 in a session."""

    def __init__(self, cluster: Cluster, talk: Talk) -> None:
        self._topic_id = cluster.nodes[1].log.topic_id
        self._talk = talk
        self._session_id = self._epoch = 0

    async def send(self, offset: int | None, leader_epoch: int = -1, max_wait_ms: int = 0) -> None:
        """Asks; without an offset for what it asked before."""
        asked = [FetchPartition(partition=0, fetch_offset=offset or 0, partition_max_bytes=MIB)]
        asked[0].current_leader_epoch = leader_epoch
        topics = [] if offset is None else [FetchTopic(topic_id=self._topic_id, partitions=asked)]
        request = FetchRequest(
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=topics,
            min_bytes=1,
            max_wait_ms=max_wait_ms,
        )
        await self._talk.send(request, 16)

    async def answer(self) -> list[tuple[int, int]]:
        """Error and number of records of each partition answered."""
        answer = await self._talk.answer()
        assert isinstance(answer, FetchResponse)
        self._session_id, self._epoch = answer.session_id, self._epoch + 1
        return [
            (part.error_code, len(records_of(part.records)))
            for topic in answer.responses
            for part in topic.partitions
        ]

    async def rest(self, leader_epoch: int = -1) -> None:
        """Asks until there is nothing more to say."""
        await self.send(0, leader_epoch)
        assert await self.answer() == [(NONE, 0)]
        for _ in range(2):
            await self.send(None)
            assert await self.answer() == []


@pytest.mark.parametrize("node_id", [1, 3])
async def test_a_consumers_rest_ends_with_a_record(autojump_clock: MockClock, node_id: int) -> None:
    """At the leader and at a follower: as soon as the high watermark is behind it."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        await cluster.settle()
        consumer = Consumer(cluster, await cluster.talk(node_id))
        await consumer.rest()
        await consumer.send(None, max_wait_ms=60_000)
        await trio.sleep(30)
        assert await cluster.produce(b"a") == NONE
        with trio.fail_after(1):
            assert await consumer.answer() == [(NONE, 1)]


async def test_a_consumers_rest_ends_with_a_new_leader(autojump_clock: MockClock) -> None:
    """It hears that another one leads, and at that one that its epoch is old."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        await cluster.settle()
        consumers = [Consumer(cluster, await cluster.talk(node_id)) for node_id in (1, 2)]
        for consumer in consumers:
            await consumer.rest(0)
            await consumer.send(None, max_wait_ms=60_000)
        await trio.sleep(1)
        cluster.controller.change_partitions(
            {T0: moved(cluster.state, 2, cluster.controller.state.is_eligible)}
        )
        with trio.fail_after(1):
            for consumer in consumers:
                assert await consumer.answer() == [(ErrorCode.FENCED_LEADER_EPOCH, 0)]


async def test_a_consumers_rest_ends_with_its_topic(autojump_clock: MockClock) -> None:
    """Deleted, and made anew under the same name: 100 and 103 as ever."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        await cluster.settle()
        consumer = Consumer(cluster, await cluster.talk(1))
        await consumer.rest()
        cluster.controller.delete_topic("t")
        await consumer.send(None)
        assert await consumer.answer() == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]
        cluster.create(1, 2, 3)
        await consumer.send(None)
        assert await consumer.answer() == [(ErrorCode.INCONSISTENT_TOPIC_ID, 0)]


async def test_sessions_that_go_leave_nothing_behind(autojump_clock: MockClock) -> None:
    """A broker hears of partitions for sessions that there are, and no others."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        await cluster.settle()
        broker = cluster.nodes[1].broker
        before = {where: len(watchers) for where, watchers in broker.parking._waiters.items()}
        consumer = Consumer(cluster, await cluster.talk(1))
        await consumer.rest()
        assert len(broker.parking._waiters[TopicPartition("t", 0)]) == before[T0] + 1
        consumer._epoch = -1  # the last one
        await consumer.send(None)
        await consumer.answer()
        assert {where: len(watchers) for where, watchers in broker.parking._waiters.items()} == before


async def test_produce_to_a_cluster_that_was_idle(autojump_clock: MockClock) -> None:
    """The first batch after a long rest is acknowledged by all without waiting for anything."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        await trio.sleep(IDLE_SECONDS)
        before = trio.current_time()
        talk = await cluster.talk(1)
        assert (await produce(talk, "t", batch(b"a"), acks=-1)).error_code == NONE
        assert trio.current_time() == before
