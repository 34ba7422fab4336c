"""What consumers, idempotent producers and transactions see of several replicas."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest
import trio
from support.broker import quota_talk
from support.broker.broker_talk import NOW_MS, Talk, batch, fetch_request, produce, records_of
from support.broker.cluster_kit import T0, Cluster, open_cluster
from trio.testing import MockClock

from splashdam.embedded_broker.replication.partition import Partition
from splashdam.model.broker_errors import ErrorCode
from splashdam.storage.transaction_marker import TransactionMarker
from splashdam.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from splashdam.wire.messages.fetch import FetchRequest, PartitionData, ReplicaState

NONE = 0


def request_of(cluster: Cluster, offset: int, **fields: int) -> FetchRequest:
    """A fetch of t-0."""
    topic_id = cluster.controller.state.topics["t"].topic_id
    return fetch_request("t", offset, topic_id=topic_id, **fields)


async def fetch(talk: Talk, request: FetchRequest) -> PartitionData:
    answer = await talk.ask(request, 17)
    return answer.responses[0].partitions[0]


def values_of(part: PartitionData) -> list[bytes | None]:
    return [record.value for record in records_of(part.records)]


async def test_consumers_see_records_of_all_in_sync_replicas(autojump_clock: MockClock) -> None:
    """A fetch that waits is answered when the last follower has it, not when the leader has."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        cluster.cut(1, 3)
        assert await cluster.produce(b"a", acks=1) == NONE
        talk = await cluster.talk(1)
        part = await fetch(talk, request_of(cluster, 0, max_wait_ms=1000, min_bytes=1))
        assert (values_of(part), part.high_watermark) == ([], 0)
        await talk.send(request_of(cluster, 0, max_wait_ms=10_000, min_bytes=1), 17)
        cluster.join()
        began = trio.current_time()
        part = (await talk.answer()).responses[0].partitions[0]
        assert (values_of(part), part.high_watermark) == ([b"a"], 1)
        assert trio.current_time() - began < 3


async def test_a_consumer_of_the_old_leader_learns_the_new_epoch(autojump_clock: MockClock) -> None:
    """Also one that waits there; and also where the new leader has written nothing yet."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        talk = await cluster.talk(1)
        await talk.send(request_of(cluster, 0, max_wait_ms=60_000, min_bytes=1, current_leader_epoch=0), 17)
        await trio.sleep(1)
        state = cluster.state._replace(leader=2, leader_epoch=1, partition_epoch=1)
        cluster.controller.change_partitions({T0: state})
        part = (await talk.answer()).responses[0].partitions[0]
        assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
        for epoch, code in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            part = await fetch(talk, request_of(cluster, 0, current_leader_epoch=epoch))
            assert part.error_code == code


async def test_repeats_are_recognised_by_the_next_leader(autojump_clock: MockClock) -> None:
    """The answer got lost with the leader: the same batch again gets the same offset, and is there once."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        for sequence in range(3):
            records = batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)
            talk = await cluster.talk(1)
            assert (await produce(talk, "t", records)).error_code == NONE
        await cluster.nodes[1].end(kill=True)
        for sequence in range(3):
            records = batch(b"%d" % sequence, producer_id=7, producer_epoch=0, base_sequence=sequence)
            answer = await produce(await cluster.talk(2), "t", records)
            assert (answer.error_code, answer.base_offset) == (NONE, sequence)
        assert cluster.values(2) == [b"0", b"1", b"2"]


async def test_followers_know_of_transactions(autojump_clock: MockClock) -> None:
    """The last stable offset and the aborted ones are the same at the next leader."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2)
        log = cluster.nodes[1].log
        for producer_id in (7, 8):
            log.append_as_leader(
                batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True),
                now_ms=NOW_MS,
            )
        log.append_marker(TransactionMarker(7, 0, False, 0), now_ms=0)
        cluster.nodes[1].broker.parking.appended(T0, 1)
        assert log.last_stable_offset == 0
        await cluster.settle()
        for node_id in (1, 2):
            found = cluster.nodes[node_id].log
            assert (found.high_watermark, found.last_stable_offset) == (3, 1)
            assert [each.producer_id for each in found.aborted_transactions(0, 9)] == [7]


async def test_a_fetch_of_an_earlier_broker_epoch_is_refused(autojump_clock: MockClock) -> None:
    """A fetch that a broker made before its last start proves nothing of what it has now."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2)
        request = request_of(cluster, 0)
        talk = await cluster.talk(1)
        for epoch, code in ((1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (2, NONE)):
            request.replica_state = ReplicaState(replica_id=2, replica_epoch=epoch)
            assert (await fetch(talk, request)).error_code == code
        request.replica_state = ReplicaState(replica_id=3, replica_epoch=3)
        request.topics[0].partitions[0].current_leader_epoch = 0
        assert (await fetch(talk, request)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_topic_that_is_deleted_and_made_again(autojump_clock: MockClock) -> None:
    """Waiting requests are answered; no record of the old topic gets into the new one."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        assert await cluster.produce(b"old") == NONE
        cluster.cut(1, 2)
        codes = []

        async def send() -> None:
            codes.append(await cluster.produce(b"old 2"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.sleep(0.1)
            cluster.controller.delete_topic("t")
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        cluster.join()
        cluster.create(3, 1, 2)
        assert await cluster.produce(b"new") == NONE
        await cluster.settle()
        for node_id in cluster.nodes:
            assert cluster.values(node_id, up_to_high_watermark=True) == [b"new"]


async def test_deleted_records_do_not_come_back_with_another_leader(autojump_clock: MockClock) -> None:
    """DeleteRecords is answered when every replica that is alive has the new start; else with 7."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        for value in (b"a", b"b", b"c"):
            assert await cluster.produce(value) == NONE
        await cluster.nodes[3].end()
        asked = DeleteRecordsPartition(partition_index=0, offset=2)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=5_000
        )
        talk = await cluster.talk(1)
        answer = (await talk.ask(request, 2)).topics[0].partitions[0]
        assert (answer.error_code, answer.low_watermark) == (NONE, 2)
        assert cluster.nodes[2].log.log_start_offset == 2
        cluster.cut(1, 2)
        asked.offset = 3
        answer = (await talk.ask(request, 2)).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_two_who_delete_records_wait_for_the_same_follower(autojump_clock: MockClock) -> None:
    """The second one took the event of the first, which was told of a time-out long after the follower."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2)
        assert await cluster.produce(b"a", b"b") == NONE
        cluster.cut(1, 2)
        codes: list[int] = []

        async def delete() -> None:
            asked = DeleteRecordsPartition(partition_index=0, offset=2)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=20_000
            )
            answer = await (await cluster.talk(1)).ask(request, 2)
            codes.append(answer.topics[0].partitions[0].error_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            nursery.start_soon(delete)
            await trio.sleep(1)
            cluster.join()
            await cluster.settle()
            assert codes == [NONE, NONE]


async def test_a_partition_named_ten_thousand_times_is_waited_for_once(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait took some 10 µs, all of them in one turn of the loop."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2)
        assert await cluster.produce(b"a") == NONE
        partitions = [DeleteRecordsPartition(partition_index=0, offset=1)] * 10_000
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=5_000
        )
        waits: list[int] = []
        wait_deleted = Partition.wait_deleted

        def counted(replica: Partition, offset: int) -> Awaitable[None]:
            waits.append(offset)
            return wait_deleted(replica, offset)

        monkeypatch.setattr(Partition, "wait_deleted", counted)
        answer = (await (await cluster.talk(1)).ask(request, 2)).topics[0].partitions
        assert {(each.error_code, each.low_watermark) for each in answer} == {(NONE, 1)}
        assert len(answer) == 10_000
        assert waits == [1]


async def test_brokers_have_no_quotas(autojump_clock: MockClock) -> None:
    """A fault that slows consumers down must not remove followers from the ISR."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2)
        assert await quota_talk.alter(await cluster.talk(1), {"client-id": None}, consumer_byte_rate=10) == 0
        began = trio.current_time()
        for _ in range(5):
            assert await cluster.produce(b"x" * 1000) == NONE
        assert trio.current_time() - began < 1
