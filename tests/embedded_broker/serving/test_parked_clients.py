"""What clients cost that wait, claim, or leave."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from support.broker.broker_talk import Talk, batch, fetch_request, fetched, produce, produce_request
from trio.testing import MockClock, wait_all_tasks_blocked

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.serving.receiving import BusyPolling, FrameReceiver
from splashdam.embedded_broker.topics.parking import FetchParking
from splashdam.wire.messages.api_versions import ApiVersionsRequest

FOREVER_MS = 2**31 - 1


@pytest.fixture
async def tcp_broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker on the disk and on a port, in real time."""
    async with open_broker(tmp_path) as opened:
        opened.topics.create("t")
        yield opened


async def connected(broker: Broker) -> Talk:
    host, port = broker.addresses[0]
    return Talk(await trio.open_tcp_stream(host, port))


async def until_parked(broker: Broker, count: int) -> None:
    with trio.fail_after(300):
        while broker.parking.parked != count:
            await trio.lowlevel.checkpoint()


async def test_parked_fetch_goes_with_its_client(tcp_broker: Broker) -> None:
    """A client that hangs up while it waits leaves nothing behind."""
    talk = await connected(tcp_broker)
    await talk.send(fetch_request("t", 0, min_bytes=1, max_wait_ms=FOREVER_MS), 12)
    await until_parked(tcp_broker, 1)
    await talk.stream.aclose()
    await until_parked(tcp_broker, 0)


async def test_parked_fetch_with_requests_behind_it_is_answered(tcp_broker: Broker) -> None:
    """Looking for the end of the stream takes no byte of what comes next."""
    talk, producer = await connected(tcp_broker), await connected(tcp_broker)
    await talk.send(fetch_request("t", 0, min_bytes=1, max_wait_ms=FOREVER_MS), 12)
    await until_parked(tcp_broker, 1)
    await talk.send(ApiVersionsRequest(), 0)
    await produce(producer, "t", batch(b"x"))
    assert fetched(await talk.answer())[0].high_watermark == 1
    assert (await talk.answer()).api_keys
    for each in (talk, producer):
        await each.stream.aclose()


async def test_a_connection_has_one_waiting_fetch(
    talk: Talk, broker: Broker, autojump_clock: MockClock
) -> None:
    """Those behind it are not begun, as in Kafka, so max.connections bounds the fetches that wait."""
    broker.topics.create("t")
    asked = fetch_request("t", 0, min_bytes=1, max_wait_ms=1000)
    start = trio.current_time()
    await talk.send_together(*[asked] * 3, version=12)
    for number in range(3):
        await wait_all_tasks_blocked()
        assert broker.parking.parked == 1
        await talk.answer()
        assert trio.current_time() - start == pytest.approx(number + 1)
    assert broker.parking.parked == 0


async def test_longest_wait_is_a_minute(talk: Talk, broker: Broker, autojump_clock: MockClock) -> None:
    """Whatever max_wait_ms says."""
    broker.topics.create("t")
    start = trio.current_time()
    answer = await talk.ask(fetch_request("t", 0, min_bytes=1, max_wait_ms=FOREVER_MS), 12)
    assert fetched(answer)[0].records == b""
    assert trio.current_time() - start == pytest.approx(60)


async def test_a_claimed_frame_costs_only_its_received_bytes() -> None:
    """The first read is 64 KiB whatever a size claims; it grows with the bytes that come."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
    async with listener, client, await listener.accept() as server:
        receiver = FrameReceiver(server, 100 << 20, BusyPolling(FetchParking(), own_loop=False))
        await client.send_all(struct.pack(">i", 50 << 20) + b"x")
        assert await receiver.receive() == []
        await client.send_all(b"x")
        assert await receiver.receive() == []
        assert len(receiver._buffer) == 64 * 1024


async def test_large_frames_arrive_whole(tcp_broker: Broker) -> None:
    """Reads that grow lose nothing."""
    talk = await connected(tcp_broker)
    for _ in range(3):
        request = produce_request("t", batch(b"v" * 1_000_000))
        answer = await talk.ask(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    await talk.stream.aclose()
