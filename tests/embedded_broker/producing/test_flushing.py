"""Answers that wait for the disk: many share one sync, in their order, and a failed sync is told to each."""

from __future__ import annotations

import errno

import pytest
import trio
from support.broker.broker_talk import Talk, batch, fetch_request, fetched, produce_request
from trio.testing import wait_all_tasks_blocked

from splashdam.embedded_broker.broker import Broker
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.flushing import FlushRound
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

SAFE = TopicPartition("safe", 0)


class GatedSyncs:
    """Counts the syncs of every log and lets each go on when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self._gate = trio.Event()
        run_async = FlushRound.run_async

        async def gated(round_: FlushRound) -> None:
            self.begun += 1
            await self._gate.wait()
            await run_async(round_)

        monkeypatch.setattr(FlushRound, "run_async", gated)

    def open(self) -> None:
        self._gate.set()


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch, broker: Broker) -> GatedSyncs:
    """Syncs that begin closed, and a topic that wants one for each record."""
    broker.topics.create("safe", 1, {"flush.messages": "1"})
    return GatedSyncs(monkeypatch)


async def send_together(talk: Talk, count: int) -> None:
    """Sends so many requests so that they arrive in one wake."""
    await talk.send_together(*[produce_request("safe", batch(b"v"))] * count, version=9)


async def partition_answer(talk: Talk) -> tuple[int, int]:
    (answer,) = (await talk.answer()).responses[0].partition_responses
    return answer.error_code, answer.base_offset


async def test_one_wake_shares_a_sync(talk: Talk, syncs: GatedSyncs, broker: Broker) -> None:
    """Appended one after the other, synced once, answered in order; nothing is answered before."""
    await send_together(talk, 1)
    await wait_all_tasks_blocked()
    await send_together(talk, 20)
    await wait_all_tasks_blocked()
    assert syncs.begun == 1
    assert broker.logs.logs[SAFE].recovery_point == 0
    syncs.open()
    assert [await partition_answer(talk) for _ in range(21)] == [(0, offset) for offset in range(21)]
    assert syncs.begun == 2
    assert broker.logs.logs[SAFE].recovery_point == 21


async def test_clients_share_a_sync(
    talk: Talk, syncs: GatedSyncs, network: MemoryNetwork, broker: Broker
) -> None:
    """A request that comes while a sync runs waits for the next one, with all the others."""
    others = [Talk(await network.connect("broker", 9092)) for _ in range(10)]
    await send_together(talk, 1)
    await wait_all_tasks_blocked()
    for other in others:
        await send_together(other, 1)
    await wait_all_tasks_blocked()
    assert broker.logs.logs[SAFE].log_end_offset == 11
    syncs.open()
    assert await partition_answer(talk) == (0, 0)
    offsets = sorted([(await partition_answer(other))[1] for other in others])
    assert offsets == list(range(1, 11))
    assert syncs.begun == 2


async def test_other_requests_wait_for_their_turn(talk: Talk, syncs: GatedSyncs) -> None:
    """Behind a produce that waits only produces begin; a fetch is read when its turn has come."""
    one = produce_request("safe", batch(b"v"))
    await talk.send_together(one, one, fetch_request("safe", 0), one, version=11)
    await wait_all_tasks_blocked()
    syncs.open()
    assert await partition_answer(talk) == (0, 0)
    assert await partition_answer(talk) == (0, 1)
    assert fetched(await talk.answer())[0].high_watermark == 2
    assert await partition_answer(talk) == (0, 2)


async def test_requests_after_a_produce_have_no_effect_before_its_answer(
    talk: Talk, syncs: GatedSyncs, broker: Broker
) -> None:
    """Requests of one client take effect in their order; only produces may overlap."""
    await talk.send_together(
        produce_request("safe", batch(b"v")),
        MetadataRequest(topics=[MetadataRequestTopic(name="fresh")]),
        version=9,
    )
    await wait_all_tasks_blocked()
    assert broker.topics.get("fresh") is None
    syncs.open()
    assert await partition_answer(talk) == (0, 0)
    assert (await talk.answer()).topics[0].name == "fresh"


async def test_client_that_leaves_while_it_waits(
    talk: Talk, syncs: GatedSyncs, network: MemoryNetwork
) -> None:
    """The others get their sync all the same."""
    other = Talk(await network.connect("broker", 9092))
    await send_together(talk, 1)
    await wait_all_tasks_blocked()
    await send_together(other, 1)
    await talk.stream.aclose()
    await wait_all_tasks_blocked()
    syncs.open()
    assert await partition_answer(other) == (0, 1)


async def test_topic_that_is_deleted_meanwhile(talk: Talk, syncs: GatedSyncs, broker: Broker) -> None:
    """Nothing is left to sync, so nothing is waited for."""
    await send_together(talk, 2)
    await wait_all_tasks_blocked()
    topic = broker.topics.get("safe")
    assert topic is not None
    broker.topics.delete(topic)
    syncs.open()
    with trio.fail_after(1):
        assert [await partition_answer(talk) for _ in range(2)] == [(0, 0), (0, 1)]


async def test_sync_that_fails(
    talk: Talk, syncs: GatedSyncs, broker: Broker, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """Every batch that waited for it is refused: what the disk has of them is unknown."""
    await send_together(talk, 3)
    await wait_all_tasks_blocked()
    files.inject(Fault(errno.EIO, times=1))
    syncs.open()
    refused = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert [await partition_answer(talk) for _ in range(3)] == [refused] * 3
    await send_together(talk, 1)
    assert await partition_answer(talk) == refused
    assert caplog.records
    assert "failed earlier" in str(broker.logs.close())


@pytest.mark.parametrize("fails", [False, True])
async def test_acks_0(talk: Talk, syncs: GatedSyncs, broker: Broker, files: MemoryFiles, fails: bool) -> None:
    """There is no answer; a failed sync closes the connection, as every failure does with acks=0."""
    syncs.open()
    if fails:
        log = broker.logs.logs[SAFE]
        await talk.send(produce_request("safe", batch(b"v")), 9)  # so that the segment's file is there
        assert await partition_answer(talk) == (0, 0)
        files.inject(Fault(errno.EIO, after=1, times=1))
        await talk.send(produce_request("safe", batch(b"v"), acks=0), 9, answered=False)
        assert await talk.is_closed()
        assert log.recovery_point == 1
        assert "failed earlier" in str(broker.logs.close())
        return
    await talk.send(produce_request("safe", batch(b"v"), acks=0), 9, answered=False)
    await send_together(talk, 1)
    assert await partition_answer(talk) == (0, 1)


async def test_the_interval_counts_unsynced_records(talk: Talk, syncs: GatedSyncs, broker: Broker) -> None:
    """flush.messages=3: two records wait for nothing, and a sync under way counts for what it covers."""
    broker.topics.create("third", 1, {"flush.messages": "3"})
    syncs.open()
    recovery_points = []
    for _ in range(7):
        await talk.ask(produce_request("third", batch(b"v")), 9)
        recovery_points.append(broker.logs.logs[TopicPartition("third", 0)].recovery_point)
    assert recovery_points == [0, 0, 3, 3, 3, 6, 6]
