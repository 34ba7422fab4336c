"""The minimal reader, against two brokers in memory whose failures the tests decide."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from crc32c import crc32c
from support.clients.fake_cluster import TOPIC, FakeCluster, FakePartition
from support.clients.scripted_broker import ScriptedBroker
from trio.testing import MockClock

from splashdam.model.broker_errors import (
    ClusterAuthorizationFailedError,
    CorruptMessageError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from splashdam.model.errors import KafkaTimeoutError, ProtocolError
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST, FetchClient, FetchSettings, open_fetch_client
from splashdam.net.memory import MemoryNetwork, MemoryStream
from splashdam.record.sealing import build_batch
from splashdam.storage.transaction_marker import TransactionMarker
from splashdam.testing.clock import VirtualClock
from splashdam.wire.fields import NO_UUID
from splashdam.wire.message import Request, Response
from splashdam.wire.messages.api_versions import ApiVersionsResponse
from splashdam.wire.messages.fetch import AbortedTransaction, FetchRequest, FetchResponse
from splashdam.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from splashdam.wire.messages.metadata import MetadataRequest

CRC_POSITION, ATTRIBUTES_POSITION = 17, 21
CONTROL_BIT = 0x20


def batch(base_offset: int, *values: bytes, control: bool = False) -> bytes:
    """A batch as a broker stores it."""
    data = bytearray(build_batch([(1000, None, value, None) for value in values]))
    if control:
        data[ATTRIBUTES_POSITION + 1] |= CONTROL_BIT
        crc = crc32c(bytes(data[ATTRIBUTES_POSITION:]))
        data[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    data[:8] = base_offset.to_bytes(8, "big")  # the checksum leaves it out
    return bytes(data)


ABORT, COMMIT = TransactionMarker(0, 0, False, 0), TransactionMarker(0, 0, True, 0)


class TransactionalLog:
    """Batches of transactions, one record each, as a log has them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._next_offset = 0

    def append(self, producer_id: int, what: bytes | TransactionMarker) -> None:
        """One record, or the end of the producer's transaction."""
        if isinstance(what, TransactionMarker):
            data = what._replace(producer_id=producer_id).encoded(0)
        else:
            data = build_batch(
                [(0, None, what, None)], producer_id=producer_id, producer_epoch=0, transactional=True
            )
        self.data += self._next_offset.to_bytes(8, "big") + data[8:]
        self._next_offset += 1


@pytest.fixture
def cluster() -> FakeCluster:
    """Partition 0 on broker 1, partition 1 on broker 2, three records each."""
    return FakeCluster(
        partitions={
            0: FakePartition(1, batch(0, b"a", b"b") + batch(2, b"c"), 3),
            1: FakePartition(2, batch(0, b"x", b"y", b"z"), 3),
        }
    )


@asynccontextmanager
async def reading(
    cluster: FakeCluster, mock_clock: MockClock, bootstrap: str = "broker:1", **options: Any
) -> AsyncIterator[FetchClient]:
    """A client of the running cluster."""
    host, port = bootstrap.split(":")
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        async with open_fetch_client(
            [(host, int(port)), ("broker", 2)],
            connect=cluster.network.connect,
            clock=VirtualClock(mock_clock),
            settings=FetchSettings(**options),
        ) as client:
            yield client
        nursery.cancel_scope.cancel()


async def test_partitions_and_offsets(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """Each leader is asked for its own."""
    async with reading(cluster, autojump_clock) as client:
        assert await client.partitions(TOPIC) == [0, 1]
        assert await client.offsets(TOPIC, [0, 1], EARLIEST) == {0: 0, 1: 0}
        assert await client.offsets(TOPIC, [0, 1], LATEST) == {0: 3, 1: 3}


@pytest.mark.parametrize(("topic_id", "version"), [(bytes(range(16)), 18), (NO_UUID, 12)])
async def test_fetch(cluster: FakeCluster, autojump_clock: MockClock, topic_id: bytes, version: int) -> None:
    """Records of all partitions, by topic id where the cluster has one, by name elsewhere."""
    cluster.topic_id = topic_id
    async with reading(cluster, autojump_clock) as client:
        fetched = {each.topic_partition: each for each in await client.fetch(TOPIC, {0: 0, 1: 0})}
    first = fetched[TopicPartition(TOPIC, 0)]
    assert [(record.offset, record.value) for record in first.records] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert (first.next_offset, first.high_watermark) == (3, 3)
    assert [record.value for record in fetched[TopicPartition(TOPIC, 1)].records] == [b"x", b"y", b"z"]
    assert {each[2] for each in cluster.asked if isinstance(each[1], FetchRequest)} == {version}


async def test_fetch_from_inside_a_batch(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """Brokers send whole batches; what lies before is left out, as is a torn batch at the end."""
    cluster.partitions[0].records += batch(3, b"torn")[:-1]
    async with reading(cluster, autojump_clock) as client:
        (fetched,) = await client.fetch(TOPIC, {0: 1})
    assert [record.offset for record in fetched.records] == [1, 2]
    assert fetched.next_offset == 3


async def test_control_records_are_left_out(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """They move the position and are not records."""
    cluster.partitions[0].records = batch(0, b"a") + batch(1, b"marker", control=True)
    async with reading(cluster, autojump_clock) as client:
        (fetched,) = await client.fetch(TOPIC, {0: 0})
    assert [record.value for record in fetched.records] == [b"a"]
    assert fetched.next_offset == 2


async def test_read_committed(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """Aborted transactions are left out up to their marker, also from inside one; all requests ask for it."""
    log = TransactionalLog()
    for producer_id, value in ((7, b"no"), (8, b"yes"), (7, ABORT), (7, b"later"), (8, COMMIT), (7, COMMIT)):
        log.append(producer_id, value)
    cluster.partitions[0].records = bytes(log.data)
    cluster.partitions[0].aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    committed = IsolationLevel.READ_COMMITTED
    async with reading(cluster, autojump_clock, isolation_level=committed) as client:
        await client.offsets(TOPIC, [0], LATEST)
        for position in (0, 1):
            (fetched,) = await client.fetch(TOPIC, {0: position})
            assert [record.value for record in fetched.records] == [b"yes", b"later"]
            assert fetched.next_offset == 6
    asked = [each for _, each, _ in cluster.asked if isinstance(each, FetchRequest | ListOffsetsRequest)]
    assert {each.isolation_level for each in asked} == {committed}


async def test_batches_as_they_stand(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """Whole ones, from before the asked offset or, behind a hole, after it; markers move the position."""
    log = TransactionalLog()
    for what in (b"no", ABORT):
        log.append(7, what)
    stored, listed = bytes(log.data), [AbortedTransaction(producer_id=7, first_offset=0)]
    cluster.partitions[0].records, cluster.partitions[0].aborted = stored + batch(2, b"torn")[:-1], listed
    cluster.partitions[1].records = batch(5, b"behind a hole")
    committed = IsolationLevel.READ_COMMITTED
    async with reading(cluster, autojump_clock, isolation_level=committed) as client:
        first, second = sorted(
            await client.fetch_batches(TOPIC, {0: 1, 1: 2}), key=lambda each: each.topic_partition.partition
        )
    assert (bytes(first.batches), first.next_offset) == (stored, 2)
    assert first.aborted == listed
    assert (bytes(second.batches), second.next_offset) == (batch(5, b"behind a hole"), 6)


async def test_batches_of_a_partition_without_news(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """How far the partition goes is known all the same; a damaged record is no matter, a lost offset is."""
    cluster.partitions[0].records = b""
    async with reading(cluster, autojump_clock) as client:
        (fetched,) = await client.fetch_batches(TOPIC, {0: 3})
        assert (bytes(fetched.batches), fetched.next_offset, fetched.high_watermark) == (b"", 3, 3)
        cluster.errors[1] = [1]
        with pytest.raises(OffsetOutOfRangeError, match="fetch of topic-0 at offset 99"):
            await client.fetch_batches(TOPIC, {0: 99})


async def test_nothing_new(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """An empty answer."""
    cluster.partitions[0].records = b""
    async with reading(cluster, autojump_clock) as client:
        assert await client.fetch(TOPIC, {0: 3}) == []


async def test_a_leader_that_moved(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """Error 6 brings new metadata, and the new leader answers."""
    async with reading(cluster, autojump_clock) as client:
        await client.fetch(TOPIC, {0: 0})
        cluster.partitions[0].leader = 2
        (fetched,) = await client.fetch(TOPIC, {0: 0})
        assert fetched.next_offset == 3
        assert (await client.offsets(TOPIC, [0], LATEST)) == {0: 3}
    asked = [node for node, request, _ in cluster.asked if isinstance(request, FetchRequest)]
    assert asked == [1, 1, 2]


async def test_one_leader_fails(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """The other's records are not kept back; later the failed one is read too."""
    async with reading(cluster, autojump_clock) as client:
        await client.partitions(TOPIC)
        cluster.errors[2] = [6]
        (fetched,) = await client.fetch(TOPIC, {0: 0, 1: 0})
        assert fetched.topic_partition.partition == 0
        (fetched,) = await client.fetch(TOPIC, {1: 0})
        assert fetched.next_offset == 3


async def test_a_partition_without_leader(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """It is waited for."""
    cluster.partitions[0].leader = -1
    async with reading(cluster, autojump_clock) as client, trio.open_nursery() as nursery:

        async def elect() -> None:
            await trio.sleep(5)
            cluster.partitions[0].leader = 2

        nursery.start_soon(elect)
        assert await client.offsets(TOPIC, [0], LATEST) == {0: 3}
        assert trio.current_time() >= 5


async def test_a_connection_that_breaks(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """It is made anew."""
    async with reading(cluster, autojump_clock) as client:
        await client.fetch(TOPIC, {0: 0})
        cluster.network.drop("broker", 1)
        await trio.testing.wait_all_tasks_blocked()
        (fetched,) = await client.fetch(TOPIC, {0: 0})
        assert fetched.next_offset == 3


async def test_the_first_address_is_dead(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """The next one serves."""
    async with reading(cluster, autojump_clock, bootstrap="nobody:9092") as client:
        assert await client.partitions(TOPIC) == [0, 1]


async def test_nobody_can_be_reached(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """After the timeout the error says what was tried last and why it failed."""
    cluster.network.refuse("broker", 2)
    async with reading(cluster, autojump_clock, bootstrap="nobody:9092", timeout_ms=5000) as client:
        with pytest.raises(KafkaTimeoutError, match="no success in 5000 ms; last: no") as caught:
            await client.partitions(TOPIC)
        assert "cannot connect to nobody:9092: Connection refused" in str(caught.value)
        assert trio.current_time() == pytest.approx(5, abs=0.2)


async def test_an_unknown_topic(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """It is an error at once, and the broker was not asked to create it."""
    cluster.topic_error = 3
    async with reading(cluster, autojump_clock) as client:
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 'topic'"):
            await client.partitions(TOPIC)
    (request,) = (each for _, each, _ in cluster.asked if isinstance(each, MetadataRequest))
    assert not request.allow_auto_topic_creation
    assert trio.current_time() < 1


async def test_an_unknown_partition(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """It may be new, so it is looked for until the time is over."""
    async with reading(cluster, autojump_clock, timeout_ms=3000) as client:
        with pytest.raises(KafkaTimeoutError, match=r"last: .*topic-7 does not exist"):
            await client.offsets(TOPIC, [7], LATEST)


async def test_errors_that_do_not_pass(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """They are raised as what they are, without a group around them."""
    async with reading(cluster, autojump_clock) as client:
        cluster.errors[1] = [1]
        with pytest.raises(OffsetOutOfRangeError, match="fetch of topic-0 at offset 99"):
            await client.fetch(TOPIC, {0: 99})
        cluster.errors[1] = [29]
        with pytest.raises(TopicAuthorizationFailedError, match="offsets of topic-0"):
            await client.offsets(TOPIC, [0], LATEST)
        cluster.fetch_error = -1
        with pytest.raises(UnknownServerError, match="fetch of 'topic'"):
            await client.fetch(TOPIC, {0: 0})


async def test_metadata_refused_as_a_whole(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """The answer's own error is looked at before its topics."""
    cluster.metadata_error = 31
    async with reading(cluster, autojump_clock) as client:
        with pytest.raises(ClusterAuthorizationFailedError):
            await client.partitions(TOPIC)


async def test_metadata_about_something_else(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """An answer that leaves out what was asked for, or numbers partitions with a gap, is illegal."""
    async with reading(cluster, autojump_clock) as client:
        cluster.topic_name = "other"
        with pytest.raises(ProtocolError, match="topic 'topic' was requested but is missing"):
            await client.partitions(TOPIC)
        cluster.topic_name = TOPIC
        cluster.partitions[3] = FakePartition(1)
        with pytest.raises(ProtocolError, match="one has number 3"):
            await client.partitions(TOPIC)


async def test_answers_about_partitions_not_asked_for(
    cluster: FakeCluster, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets and records alike: illegal, and not a KeyError."""
    usual = FakeCluster._answer

    def answer(self: FakeCluster, node: int, request: Request[Any]) -> Response:
        response = usual(self, node, request)
        if isinstance(response, ListOffsetsResponse):
            response.topics[0].partitions[0].partition_index = 9
        elif isinstance(response, FetchResponse):
            response.responses[0].partitions[0].partition_index = 9
        return response

    monkeypatch.setattr(FakeCluster, "_answer", answer)
    async with reading(cluster, autojump_clock) as client:
        words = r"partitions \[0\] of 'topic' were requested, but it contains \[9\]"
        with pytest.raises(ProtocolError, match=words):
            await client.offsets(TOPIC, [0], LATEST)
        with pytest.raises(ProtocolError, match="topic-9 was not requested"):
            await client.fetch(TOPIC, {0: 0})


@pytest.mark.parametrize("how", ["cancelled", "refused"])
async def test_connection_without_negotiation_is_closed(autojump_clock: MockClock, how: str) -> None:
    """A call that is cancelled or refused while a connection is being made leaves none behind."""
    network, opened, closed = MemoryNetwork(), [], []

    async def serve(stream: MemoryStream) -> None:
        opened.append(stream)
        broker = ScriptedBroker(stream)
        try:
            while True:
                header, _ = await broker.receive()
                if how == "refused":
                    await broker.answer(header, ApiVersionsResponse(error_code=42))
        except (EOFError, trio.BrokenResourceError):
            closed.append(stream)

    listeners = await network.listen("broker", 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, list(listeners))
        clock = VirtualClock(autojump_clock)
        async with open_fetch_client([("broker", 1)], connect=network.connect, clock=clock) as client:
            for _ in range(3):
                with trio.move_on_after(1), contextlib.suppress(InvalidRequestError):
                    await client.partitions(TOPIC)
            await trio.testing.wait_all_tasks_blocked()
            assert len(opened) == len(closed) == 3
        nursery.cancel_scope.cancel()


async def test_a_damaged_batch(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """The checksum is looked at, and damage is not asked for again."""
    damaged = bytearray(batch(0, b"value"))
    damaged[-2] ^= 1
    cluster.partitions[0].records = bytes(damaged)
    async with reading(cluster, autojump_clock) as client:
        with pytest.raises(CorruptMessageError, match="topic-0: the batch at offset 0 fails its checksum"):
            await client.fetch(TOPIC, {0: 0})
    assert trio.current_time() < 1


async def test_errors_of_the_block(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """What the caller raises inside comes out as it is."""
    clock = VirtualClock(autojump_clock)
    with pytest.raises(ZeroDivisionError):
        async with open_fetch_client([("x", 1)], connect=cluster.network.connect, clock=clock):
            raise ZeroDivisionError
