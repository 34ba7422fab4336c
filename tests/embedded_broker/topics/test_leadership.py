"""Several brokers that share one map of leaders: who answers, who names whom, and how a leader moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from support.broker.broker_talk import (
    Talk,
    batch,
    fetch_request,
    fetched,
    produce,
    produce_request,
    records_of,
)
from trio.testing import MockClock

from lab.simulator.single_replicas import LeadershipMap, move_directory
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.controller.producer_ids import ProducerIds
from splashdam.embedded_broker.controller.state import NOBODY
from splashdam.embedded_broker.execution.answers import Address
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.init_producer_id import InitProducerIdRequest
from splashdam.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from splashdam.wire.messages.metadata import MetadataRequest

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Pair:
    """Two brokers; node 1 leads t-0, node 2 leads t-1."""

    def __init__(self, clock: VirtualClock, network: MemoryNetwork, nursery: trio.Nursery) -> None:
        self.clock = clock
        self.network = network
        self.nursery = nursery
        self.disks = {1: MemoryFiles(), 2: MemoryFiles()}
        self.brokers: dict[int, Broker] = {}
        self.stops: dict[int, tuple[trio.Event, trio.Event]] = {}
        self.map = LeadershipMap(ProducerIds(MemoryFiles(), "/", above=-1))
        for node_id in self.disks:
            self.map.addresses[node_id] = Address(f"node-{node_id}", 9092)

    async def start(self, node_id: int) -> None:
        """Starts one, or starts it again."""
        await self.nursery.start(self._run, node_id)

    async def _run(self, node_id: int, *, task_status: trio.TaskStatus[None]) -> None:
        stop, stopped = self.stops[node_id] = (trio.Event(), trio.Event())
        async with open_broker(
            "/data",
            host=f"node-{node_id}",
            port=9092,
            listen=self.network.listen,
            clock=self.clock,
            files=self.disks[node_id],
            leadership=self.map,
            node_id=node_id,
            auto_create_topics_enable=False,
        ) as self.brokers[node_id]:
            task_status.started()
            await stop.wait()
        stopped.set()

    async def stop(self, node_id: int) -> None:
        """Ends one in order."""
        stop, stopped = self.stops[node_id]
        stop.set()
        await stopped.wait()

    def create(self) -> None:
        """The topic, at both."""
        self.map.appoint(T0, 1)
        self.map.appoint(T1, 2)
        for broker in self.brokers.values():
            broker.topics.add([NewTopic("t", 2, {}, b"t" * 16)])

    def move(self, topic_partition: TopicPartition, to: int) -> None:
        """Another leader."""
        old, new = self.brokers[self.map.leaders[topic_partition].node_id], self.brokers[to]
        old.logs.release(topic_partition)
        directory = f"/data/{topic_partition}"
        move_directory(self.disks[old.node_id], directory, self.disks[to], directory)
        leader = self.map.appoint(topic_partition, to)
        new.logs.take_over(
            topic_partition,
            leader_epoch=leader.leader_epoch,
            now_ms=self.clock.wall_ms(),
            clean_shutdown=True,
        )

    async def talk(self, node_id: int) -> Talk:
        """A connection to one of them."""
        return Talk(await self.network.connect(f"node-{node_id}", 9092))


@pytest.fixture
async def pair(
    autojump_clock: MockClock, network: MemoryNetwork, nursery: trio.Nursery
) -> AsyncIterator[Pair]:
    """Both run, and have the topic."""
    made = Pair(VirtualClock(autojump_clock), network, nursery)
    await made.start(1)
    await made.start(2)
    made.create()
    yield made
    await made.stop(2)
    await made.stop(1)


async def test_metadata_lists_all_brokers(pair: Pair) -> None:
    """Every broker answers with all brokers and addresses, and with every partition's leader."""
    for node_id in (1, 2):
        answer = await (await pair.talk(node_id)).ask(MetadataRequest(topics=None), 9)
        assert [(each.node_id, each.host) for each in answer.brokers] == [(1, "node-1"), (2, "node-2")]
        (topic,) = answer.topics
        found = [(each.partition_index, each.leader_id, each.leader_epoch) for each in topic.partitions]
        assert found == [(0, 1, 0), (1, 2, 0)]


async def test_each_broker_keeps_its_partitions(pair: Pair) -> None:
    """A partition has one directory in the cluster."""
    assert list(pair.brokers[1].logs.logs) == [T0]
    assert list(pair.brokers[2].logs.logs) == [T1]


async def test_a_partition_without_a_leader(pair: Pair) -> None:
    """Metadata answers 5; a broker that gets a Produce answers 6 and names no leader."""
    pair.brokers[1].logs.release(T0)
    pair.map.appoint(T0, NOBODY)
    talk = await pair.talk(1)
    (topic,) = (await talk.ask(MetadataRequest(topics=None), 9)).topics
    assert [(each.error_code, each.leader_id) for each in topic.partitions] == [(5, -1), (0, 2)]
    answer = await produce(talk, "t", batch(b"x"), version=11)
    assert (answer.error_code, answer.current_leader.leader_id) == (6, -1)


@pytest.mark.parametrize("version", [9, 10, 11])
async def test_produce_elsewhere_names_the_leader(pair: Pair, version: int) -> None:
    """KIP-951: from version 10 on leader, epoch and address stand beside error 6."""
    talk = await pair.talk(2)
    response = await talk.ask(produce_request("t", batch(b"x")), version)
    answer = response.responses[0].partition_responses[0]
    assert answer.error_code == 6
    named = [(each.node_id, each.host, each.port) for each in response.node_endpoints]
    leader = (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
    assert (leader, named) == (((1, 0), [(1, "node-1", 9092)]) if version > 9 else ((-1, -1), []))


@pytest.mark.parametrize("version", [11, 12, 16])
async def test_fetch_elsewhere_names_the_leader(pair: Pair, version: int) -> None:
    """Leader and epoch from version 12 on, the address from 16 on."""
    talk = await pair.talk(2)
    response = await talk.ask(fetch_request("t", 0, topic_id=b"t" * 16), version)
    (answer,) = fetched(response)
    assert answer.error_code == 6
    assert answer.current_leader.leader_id == (1 if version >= 12 else -1)
    assert [each.host for each in response.node_endpoints] == (["node-1"] if version >= 16 else [])


async def test_list_offsets_elsewhere(pair: Pair) -> None:
    """6 as well; this answer has no place for a hint."""
    asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = await (await pair.talk(2)).ask(ListOffsetsRequest(topics=[asked]), 7)
    assert answer.topics[0].partitions[0].error_code == 6


async def test_a_leader_moves_with_its_log(pair: Pair) -> None:
    """The next leader goes on where the last one stopped, in the next epoch, and knows its producers."""
    first, second = await pair.talk(1), await pair.talk(2)
    sent = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    assert (await produce(first, "t", sent)).base_offset == 0
    pair.move(T0, 2)
    assert (await produce(first, "t", batch(b"b"), version=11)).current_leader.leader_epoch == 1
    assert (await produce(second, "t", sent)).base_offset == 0  # a repeat
    assert (await produce(second, "t", batch(b"b"))).base_offset == 1
    (answer,) = fetched(await second.ask(fetch_request("t", 0, current_leader_epoch=1), 11))
    assert [record.value for record in records_of(answer.records)] == [b"a", b"b"]
    (answer,) = fetched(await second.ask(fetch_request("t", 0, current_leader_epoch=0), 11))
    assert answer.error_code == 74
    pair.move(T0, 1)
    assert (await produce(first, "t", batch(b"c"))).base_offset == 2
    assert pair.brokers[1].logs.logs[T0].leader_epoch == 2


async def test_a_move_ends_waiting_fetches(pair: Pair) -> None:
    """Facts B23: a fetch that waits for the partition hears at once that it is led elsewhere."""
    talk = await pair.talk(1)
    await talk.send(fetch_request("t", 0, max_wait_ms=60_000, min_bytes=1), 12)
    await talk.send(fetch_request("t", 0, max_wait_ms=0), 12)
    pair.move(T0, 2)
    pair.brokers[1].parking.changed(T0)
    assert [fetched(await talk.answer())[0].error_code for _ in range(2)] == [6, 6]


async def test_an_epoch_without_records_outlives_a_restart(pair: Pair) -> None:
    """The files of a log do not have it; the map does."""
    pair.move(T0, 2)
    await pair.stop(2)
    await pair.start(2)
    assert pair.brokers[2].logs.logs[T0].leader_epoch == 1
    assert sorted(pair.brokers[2].logs.logs) == [T0, T1]


async def test_producer_ids_are_unique_in_the_cluster(pair: Pair) -> None:
    """Partitions move with what they know of producers, so two brokers must not hand out one id."""
    ids = []
    for node_id in (1, 2, 1):
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        ids.append((await (await pair.talk(node_id)).ask(request, 4)).producer_id)
    assert len(set(ids)) == 3
