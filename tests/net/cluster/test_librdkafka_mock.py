"""Over TCP against a broker we did not write: the mock cluster inside librdkafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from support.clients.librdkafka_mock import librdkafka_mock

from splashdam.net.clock import SystemClock
from splashdam.net.cluster.fetch_client import LATEST, open_fetch_client
from splashdam.net.connect import TcpConnect
from splashdam.net.connection.connection import Connection
from splashdam.record.sealing import build_batch
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = "contract"
VALUES = [b"first", b"x" * 200_000, b"last"]


@pytest.fixture
def mock_broker() -> Iterator[tuple[str, int]]:
    """The address on which librdkafka's mock cluster listens."""
    with librdkafka_mock(1) as cluster:
        cluster.create_topic(TOPIC, 1)
        yield cluster.bootstrap[0]


async def produce(connection: Connection, values: list[bytes]) -> list[tuple[int, int]]:
    """One batch per value, all in flight at once; error code and offset of each."""
    waiting = []
    for value in values:
        data = PartitionProduceData(records=build_batch([(1000, b"key", value, None)]))
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
        waiting.append(await connection.submit(request))
    answers = [await each.wait() for each in waiting]
    found = [answer.responses[0].partition_responses[0] for answer in answers]
    return [(each.error_code, each.base_offset) for each in found]


async def test_negotiate_produce_and_fetch(mock_broker: tuple[str, int]) -> None:
    """It refuses our ApiVersions version in its own way, then takes pipelined batches and gives them back."""
    clock = SystemClock()
    with trio.fail_after(300):
        async with trio.open_nursery() as nursery:
            connection = Connection(
                await TcpConnect()(*mock_broker),
                clock=clock,
                client_id="contract",
                request_timeout_ms=10_000,
                max_in_flight_requests=5,
                peer="librdkafka's mock",
            )
            await nursery.start(connection.run)
            await connection.negotiate("splashdam", "1.0")
            topics = [MetadataRequestTopic(name=TOPIC)]
            metadata = await connection.request(MetadataRequest(topics=topics))
            assert [broker.port for broker in metadata.brokers] == [mock_broker[1]]
            assert await produce(connection, VALUES) == [(0, 0), (0, 1), (0, 2)]
            await connection.aclose()
        async with open_fetch_client([mock_broker], connect=TcpConnect(), clock=clock) as client:
            assert (await client.offsets(TOPIC, [0], LATEST)) == {0: 3}
            values: list[bytes | None] = []
            while len(values) < 3:
                for fetched in await client.fetch(TOPIC, {0: len(values)}):
                    values += [record.value for record in fetched.records]
        assert values == VALUES
