"""Fetches of followers: up to the end of the log, and told to replication."""

from __future__ import annotations

import pytest
import trio
from support.broker.broker_talk import NOW_MS, Talk, batch, fetch_request, fetched, produce, records_of
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.fetching.replica_fetches import ReplicaFetch
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.log import Log
from splashdam.wire.messages.fetch import FetchRequest, PartitionData, ReplicaState


class Listener:
    """Takes every fetch and remembers it."""

    def __init__(self) -> None:
        self.heard: list[tuple[TopicPartition, ReplicaFetch]] = []

    def on_fetch(self, log: Log, fetch: ReplicaFetch) -> None:
        """Remembers."""
        self.heard.append((log.topic_partition, fetch))

    def on_fetch_end(self) -> None:
        """Nothing waits for that."""


@pytest.fixture
async def log(broker: Broker) -> Log:
    """A log whose last batch no follower has yet."""
    broker.topics.create("t")
    log = broker.logs.logs[TopicPartition("t", 0)]
    log.append_as_leader(batch(b"old"), now_ms=NOW_MS)
    log.append_as_leader(batch(b"new"), now_ms=NOW_MS)
    log.high_watermark = 1
    return log


def request_of(version: int, offset: int, **fields: int) -> FetchRequest:
    """A fetch of node 7, as that version says who it is."""
    if version < 15:
        return fetch_request("t", offset, replica_id=7, **fields)
    return fetch_request("t", offset, replica_state=ReplicaState(replica_id=7, replica_epoch=3), **fields)


async def ask(talk: Talk, broker: Broker, version: int, request: FetchRequest) -> PartitionData:
    topic = broker.topics.get("t")
    assert topic is not None
    request.topics[0].topic_id = topic.topic_id
    return fetched(await talk.ask(request, version))[0]


@pytest.mark.parametrize("version", [4, 11, 14, 15, 17])
async def test_followers_read_up_to_the_end(talk: Talk, broker: Broker, log: Log, version: int) -> None:
    """Above the high watermark, too, which consumers do not see; replication hears of it once."""
    broker.replicas = listener = Listener()
    part = await ask(talk, broker, version, request_of(version, 1, max_wait_ms=50, min_bytes=10_000))
    assert [record.value for record in records_of(part.records)] == [b"new"]
    assert (part.high_watermark, part.aborted_transactions) == (1, None)
    epoch = 3 if version >= 15 else -1
    assert listener.heard == [(log.topic_partition, ReplicaFetch(7, epoch, 1, -1, -1, 2))]
    assert not (await ask(talk, broker, version, fetch_request("t", 1))).records


@pytest.mark.parametrize(("epoch", "code"), [(-1, 6), (0, 75)])
async def test_a_node_that_is_no_replica_gets_an_error(
    talk: Talk, broker: Broker, log: Log, epoch: int, code: int
) -> None:
    """As Kafka: 75 where the fetch names the leader epoch, 6 otherwise."""
    part = await ask(talk, broker, 12, request_of(12, 0, current_leader_epoch=epoch))
    assert (part.error_code, part.records) == (code, b"")


async def test_which_events_wake_which_fetches(
    talk: Talk, network: MemoryNetwork, broker: Broker, log: Log, autojump_clock: MockClock
) -> None:
    """Followers wait for the log's end, consumers for the high watermark."""
    broker.replicas = Listener()
    follower, consumer = Talk(await network.connect("broker", 9092)), talk
    await follower.send(request_of(12, 2, max_wait_ms=60_000, min_bytes=1), 12)
    await consumer.send(fetch_request("t", 1, max_wait_ms=60_000, min_bytes=1), 12)
    await trio.testing.wait_all_tasks_blocked()
    data = batch(b"newest")
    log.append_as_leader(data, now_ms=NOW_MS)
    log.high_watermark = 1
    broker.parking.appended(log.topic_partition, len(data), is_visible=False)
    assert len(records_of(fetched(await follower.answer())[0].records)) == 1
    log.high_watermark = 3
    broker.parking.high_watermark_moved(log.topic_partition)
    assert len(records_of(fetched(await consumer.answer())[0].records)) == 2
    assert trio.current_time() == 0


async def test_acknowledged_batches_wake_consumers(
    talk: Talk, network: MemoryNetwork, broker: Broker, log: Log, autojump_clock: MockClock
) -> None:
    """A log without followers is replicated at once, and its consumers hear of every batch."""
    await talk.send(fetch_request("t", 2, max_wait_ms=60_000, min_bytes=1), 12)
    await trio.testing.wait_all_tasks_blocked()
    await produce(Talk(await network.connect("broker", 9092)), "t", batch(b"newest"))
    assert len(records_of(fetched(await talk.answer())[0].records)) == 1
    assert trio.current_time() == 0
