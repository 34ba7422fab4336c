"""What a coordinator on another broker said counts for one request, until the transaction ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk, batch, produce_request
from support.broker.hostile_batches import MIB, bomb
from support.broker.memory_cluster_kit import Kit, talk_to
from support.broker.transaction_talk import RawProducer

from splashdam.embedded_broker.cluster import Cluster
from splashdam.model.values import TopicPartition
from splashdam.storage.log import Log
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.storage.topic_names import TRANSACTION_STATE
from splashdam.storage.transaction_marker import TransactionMarker
from splashdam.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest

WHERE = TopicPartition("t", 0)
SMALL = {"max.message.bytes": "2000"}


class Remote:
    """A cluster of two, a producer whose coordinator is one of them, and the log that the other leads."""

    def __init__(self, cluster: Cluster, sends: RawProducer, leader: int) -> None:
        self.sends, self.leader = sends, leader
        self.broker = cluster.broker(leader)
        self.log: Log = self.broker.logs.logs[WHERE]
        self.others: Log = self.broker.logs.logs[TopicPartition("u", 0)]
        self._cluster = cluster

    def talk(self) -> Talk:
        """One more connection to the leader."""
        return talk_to(self._cluster, self.leader)

    def batch(self, sequence: int, value: bytes = b"v") -> bytes:
        """A batch of the transaction."""
        who = self.sends
        fields = {"producer_id": who.producer_id, "producer_epoch": who.epoch, "base_sequence": sequence}
        return batch(value, transactional=True, **fields)


@pytest.fixture
async def remote(kit: Kit) -> AsyncIterator[Remote]:
    """A transaction has begun, and its coordinator knows of t-0."""
    async with kit.opened(2, transaction_state_log_num_partitions=1) as cluster:
        await RawProducer(talk_to(cluster, 1), "warm").initialize()
        coordinator = cluster.leader_of(TRANSACTION_STATE)
        assert coordinator is not None
        leader = 3 - coordinator
        cluster.controller.create_topics(
            [NewTopic("t", 1, SMALL, assignments=((leader,),)), NewTopic("u", 1, assignments=((leader,),))],
            dict,
        )
        sends = RawProducer(talk_to(cluster, coordinator), uses_v2=False)
        assert await sends.initialize() == 0
        assert await sends.add(0) == [0]
        yield Remote(cluster, sends, leader)


def many(*batches: tuple[str, bytes]) -> ProduceRequest:
    """A request of many batches, each for partition 0 of a topic."""
    request = produce_request("t", b"", transactional_id="tx")
    topic = request.topic_data[0]
    request.topic_data = []
    for name in dict.fromkeys(name for name, _ in batches):
        request.topic_data.append(
            type(topic)(
                name=name,
                partition_data=[PartitionProduceData(index=0, records=b) for n, b in batches if n == name],
            )
        )
    return request


async def test_no_batch_is_appended_behind_its_marker(remote: Remote) -> None:
    """The transaction ended between two turns of the request; with the old verdict it hung for ever."""
    talk = remote.talk()
    await talk.send(many(*[("t", remote.batch(number)) for number in range(1000)]), 9)
    while not remote.log.log_end_offset:
        await trio.lowlevel.checkpoint()
    sends = remote.sends
    marker = TransactionMarker(sends.producer_id, sends.epoch, is_commit=False, coordinator_epoch=0)
    end = remote.log.append_marker(marker, now_ms=1000).last_offset + 1
    answer = await talk.answer()
    codes = [each.error_code for each in answer.responses[0].partition_responses]
    assert codes == [0] * (end - 1) + [48] * (1001 - end)
    assert remote.log.log_end_offset == end < 1000
    assert remote.log.producers.first_unstable_offset is None


async def test_requests_do_not_share_answers(remote: Remote) -> None:
    """One request's end took the coordinator's answer from another one, on a new connection."""
    plain = [("u", batch(b"v"))] * 20_000
    retry, old = remote.talk(), remote.talk()
    await retry.send(many(*plain, ("t", remote.batch(0))), 9)
    while not remote.others.log_end_offset:
        await trio.lowlevel.checkpoint()
    await old.send(many(("t", remote.batch(0, bytes(3000)))), 9)
    assert (await old.answer()).responses[0].partition_responses[0].error_code == 10
    assert remote.log.log_end_offset == 0  # the other one is still at work
    assert (await retry.answer()).responses[1].partition_responses[0].error_code == 0


async def test_nothing_is_unpacked_before_the_coordinator_agrees(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 64 MiB for each request were unpacked ahead, and kept while the coordinator was asked."""
    peers, asked, agreed = remote.broker.peers, trio.Event(), trio.Event()
    ask = peers.ask

    async def late(node_id: int, request: Any) -> Any:
        if isinstance(request, AddPartitionsToTxnRequest):
            asked.set()
            await agreed.wait()
        return await ask(node_id, request)

    monkeypatch.setattr(peers, "ask", late)
    talk, sends = remote.talk(), remote.sends
    fields = {"producer_id": sends.producer_id, "producer_epoch": sends.epoch, "base_sequence": 0}
    packed = bomb(MIB, transactional=True, **fields)
    await talk.send(many(("t", packed)), 9)
    await asked.wait()
    assert remote.broker.turns.beside == 0
    agreed.set()
    assert (await talk.answer()).responses[0].partition_responses[0].error_code == 0
    assert remote.broker.turns.beside == 1
