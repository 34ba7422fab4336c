"""Connections: the order of answers, waiting, limits, and bytes that nobody should send."""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.broker.broker_talk import MIB, Talk, batch, fetch_request, fetched, produce, produce_request
from support.running.alone import alone, descriptor_count
from support.running.examples import examples
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.execution.answers import Address, CloseConnectionError
from splashdam.embedded_broker.serving import client_connection
from splashdam.embedded_broker.serving.dispatch import dispatch
from splashdam.model.errors import ProtocolError
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.wire.header import encode_request
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.metadata import MetadataRequest


class CountingStream(trio.abc.Stream):
    """Counts the writes of the broker's end."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.writes = 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.writes += 1
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def other(network: MemoryNetwork) -> Talk:
    return Talk(await network.connect("broker", 9092))


async def test_answers_come_in_order_of_requests(talk: Talk, broker: Broker) -> None:
    """B6: a hundred requests sent ahead are answered one by one, in their order."""
    broker.topics.create("t")
    for _ in range(50):
        await talk.send(produce_request("t", batch(b"a")), 9)
        await talk.send(MetadataRequest(topics=[]), 9)
    for number in range(50):
        answer = await talk.answer()
        assert answer.responses[0].partition_responses[0].base_offset == number
        assert (await talk.answer()).brokers


async def test_answers_are_not_made_for_a_client_that_does_not_read(
    talk: Talk, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hundred large answers asked for together a client that does not read costs the memory of a few."""
    broker.topics.create("t")
    await produce(talk, "t", batch(bytes(MIB // 2)))
    handled: list[object] = []
    monkeypatch.setattr(
        client_connection, "dispatch", lambda *args, **more: handled.append(1) or dispatch(*args, **more)
    )
    await talk.send_together(*[fetch_request("t", 0)] * 100, version=11)
    await trio.testing.wait_all_tasks_blocked()
    assert len(handled) < 10
    for _ in range(100):
        assert fetched(await talk.answer())[0].high_watermark == 1


async def test_one_write_for_all_answers_of_a_wake(broker: Broker, nursery: trio.Nursery) -> None:
    """Requests that arrive together are answered together."""
    broker.topics.create("t")
    ours, theirs = trio.testing.memory_stream_pair()
    counting = CountingStream(theirs)
    nursery.start_soon(broker.server.serve, counting)
    frame = b"".join(
        encode_request(produce_request("t", batch(b"a")), version=9, correlation_id=1, client_id=None)
    )
    await ours.send_all(frame * 20)
    talk = Talk(ours)
    for _ in range(20):
        await talk.frame()
    assert counting.writes == 1
    await ours.aclose()


async def test_flood_of_requests_gives_others_their_turn(broker: Broker, nursery: trio.Nursery) -> None:
    """Thousands of tiny requests of one wake are answered a few hundred at a time."""
    ours, theirs = trio.testing.memory_stream_pair()
    counting = CountingStream(theirs)
    nursery.start_soon(broker.server.serve, counting)
    frame = b"".join(encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id=None))
    await ours.send_all(frame * 600)
    talk = Talk(ours)
    for _ in range(600):
        await talk.frame()
    assert counting.writes == 3
    await ours.aclose()


async def test_parked_fetch_holds_back_its_own_connection_alone(
    talk: Talk, network: MemoryNetwork, broker: Broker, autojump_clock: MockClock
) -> None:
    """B6: what was asked before it is answered at once, what comes later waits; other connections go on."""
    broker.topics.create("t")
    start = trio.current_time()
    await talk.send(MetadataRequest(topics=[]), 9)
    await talk.send(fetch_request("t", 0, min_bytes=1, max_wait_ms=800), 12)
    await talk.send(ApiVersionsRequest(), 0)
    assert (await talk.answer()).brokers
    assert (await (await other(network)).ask(ApiVersionsRequest(), 0)).api_keys
    assert trio.current_time() == start
    assert fetched(await talk.answer())[0].records == b""
    assert (await talk.answer()).api_keys
    assert trio.current_time() - start == pytest.approx(0.8)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(struct.pack(">i", -1), id="negative size"),
        pytest.param(struct.pack(">i", 104_857_601), id="above the limit"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="a TLS hello"),
        pytest.param(struct.pack(">i", 0), id="empty frame"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="shorter than a header"),
        pytest.param(struct.pack(">ihhih", 10, 999, 0, 1, -1), id="unknown key"),
        pytest.param(struct.pack(">ihhih", 10, 11, 5, 1, -1), id="a key that is not served"),
        pytest.param(struct.pack(">ihhih", 10, 3, 99, 1, -1), id="unknown version"),
        pytest.param(struct.pack(">ihhih", 10, 0, 2, 1, -1), id="Produce 2, advertised and not served"),
        pytest.param(struct.pack(">ihhih", 10, 3, 0, 1, 500), id="client id beyond the frame"),
        pytest.param(
            struct.pack(">ihhihi", 14, 3, 0, 1, -1, 2**31 - 1), id="an array of two thousand millions"
        ),
    ],
)
async def test_hostile_bytes_close_their_connection(
    talk: Talk, network: MemoryNetwork, frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """B5: whatever is no request closes its connection with one line in the log; others are served."""
    bystander = await other(network)
    await talk.stream.send_all(frame)
    assert await talk.is_closed()
    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is None
    assert (await bystander.ask(ApiVersionsRequest(), 0)).error_code == 0


async def test_answers_before_a_bad_request_leave(talk: Talk) -> None:
    """Earlier requests are answered, even if the same bytes end with an invalid one."""
    good = b"".join(encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id=None))
    await talk.stream.send_all(good + struct.pack(">ihhih", 10, 999, 0, 2, -1))
    assert len(await talk.frame()) > 4
    assert await talk.is_closed()


async def test_smaller_limit(tmp_path: Path) -> None:
    """socket.request.max.bytes: the limit itself is served, one byte more is not."""
    network = MemoryNetwork()
    request = produce_request("t", batch(b"a" * 1000))
    size = sum(map(len, encode_request(request, version=9, correlation_id=1, client_id="talk"))) - 4
    async with open_broker(
        tmp_path, host="b", port=1, listen=network.listen, socket_request_max_bytes=size
    ) as broker:
        broker.topics.create("t")
        talk = Talk(await network.connect("b", 1))
        assert (await talk.ask(request, 9)).responses[0].partition_responses[0].error_code == 0
        await talk.send(produce_request("t", batch(b"a" * 1001)), 9)
        assert await talk.is_closed()


@settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    key=st.sampled_from([0, 1, 2, 3, 10, 18, 19, 20, 22]),
    version=st.integers(0, 17),
    rest=st.binary(max_size=60),
)
def test_random_requests_raise_nothing_else(key: int, version: int, rest: bytes) -> None:
    """Bytes behind a good header either are a request or are refused as one of two errors."""

    async def main() -> None:
        async with open_broker("/data", port=None, files=MemoryFiles()) as broker:
            frame = struct.pack(">hhih", key, version, 1, -1) + rest
            with contextlib.suppress(ProtocolError, CloseConnectionError):
                dispatch(memoryview(bytearray(frame)), broker, Address("b", 1))

    trio.run(main)


async def test_defect_in_a_handler_closes_one_connection(
    talk: Talk,
    network: MemoryNetwork,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A bug of ours is logged with its traceback, and the server lives on."""
    monkeypatch.setattr(broker.topics, "all", lambda: 1 / 0)
    await talk.send(MetadataRequest(topics=None), 9)
    assert await talk.is_closed()
    (record,) = caplog.records
    assert record.exc_info is not None
    assert (await (await other(network)).ask(MetadataRequest(topics=[]), 9)).brokers


async def test_slow_loris(talk: Talk, broker: Broker, autojump_clock: MockClock) -> None:
    """A request that trickles in is served; connections are cheap, and others do not wait."""
    broker.topics.create("t")
    frame = b"".join(
        encode_request(produce_request("t", batch(b"a")), version=9, correlation_id=1, client_id="x")
    )
    for position in range(len(frame)):
        await talk.stream.send_all(frame[position : position + 1])
        await trio.sleep(30)
    assert len(await talk.frame()) > 0


@pytest.mark.parametrize("sent", [b"", b"\0\0", struct.pack(">i", 1000) + b"half"])
async def test_idle_connections_are_closed(talk: Talk, sent: bytes, autojump_clock: MockClock) -> None:
    """B5: ten minutes without a byte, in a frame or between frames, end a connection."""
    if sent:
        await talk.stream.send_all(sent)
    start = trio.current_time()
    assert await talk.is_closed()
    assert trio.current_time() - start == pytest.approx(600, abs=1)


async def test_busy_connections_are_not_idle(talk: Talk, autojump_clock: MockClock) -> None:
    """The limit counts from the last byte."""
    for _ in range(5):
        assert (await talk.ask(ApiVersionsRequest(), 0)).api_keys
        await trio.sleep(590)


async def test_short_idle_limit(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A limit below a second counts from the last byte as well."""
    network = MemoryNetwork()
    async with open_broker(tmp_path, host="b", port=1, listen=network.listen, connections_max_idle_ms=100):
        talk = Talk(await network.connect("b", 1))
        for _ in range(10):
            assert (await talk.ask(ApiVersionsRequest(), 0)).api_keys
            await trio.sleep(0.08)
        start = trio.current_time()
        assert await talk.is_closed()
        assert trio.current_time() - start < 0.1


async def test_a_client_that_does_not_read(broker: Broker, autojump_clock: MockClock) -> None:
    """A client that takes no answers is closed as idle, and keeps no slice or descriptor."""
    broker.topics.create("t")
    network = MemoryNetwork(capacity_bytes=1000)
    async with trio.open_nursery() as nursery:
        (listener,) = await network.listen("b", 1)
        ours = await network.connect("b", 1)
        nursery.start_soon(broker.server.serve, await listener.accept())
        for _ in range(100):
            with trio.move_on_after(1):
                await Talk(ours).send(MetadataRequest(topics=[]), 9)
        start = trio.current_time()
    assert trio.current_time() - start < 601


async def test_clients_that_vanish(
    broker: Broker, network: MemoryNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    """Ending in the middle of a frame, or of an answer, is nobody's error."""
    broker.topics.create("t")
    half = await network.connect("broker", 9092)
    await half.send_all(struct.pack(">i", 100) + b"half")
    await half.aclose()
    unread = await other(network)
    await unread.send(fetch_request("t", 0, min_bytes=1, max_wait_ms=1), 12)
    await unread.stream.aclose()
    broken = await other(network)
    await broken.send(MetadataRequest(topics=[]), 9)
    network.drop("broker", 9092)
    assert (await (await other(network)).ask(ApiVersionsRequest(), 0)).api_keys
    assert caplog.records == []


def test_tcp_end_to_end(tmp_path: Path) -> None:
    """Over real sockets: small answers, large ones by sendfile, garbage, a reset, and nothing left open."""
    assert alone(left_of_a_broker_on_tcp, tmp_path) == 0


def left_of_a_broker_on_tcp(directory: Path) -> int:
    return trio.run(talk_over_tcp, directory)


async def talk_over_tcp(directory: Path) -> int:
    """Descriptors that are left afterwards."""
    before = descriptor_count()
    async with open_broker(directory) as broker:
        broker.topics.create("t")
        host, port = broker.addresses[0]
        async with await trio.open_tcp_stream(host, port) as stream:
            talk = Talk(stream)
            big = batch(os.urandom(900_000))
            for offset in range(4):
                assert (await produce(talk, "t", big)).base_offset == offset
            request = fetch_request("t", 0, max_bytes=50 * MIB, partition_max_bytes=50 * MIB)
            for _ in range(3):
                await talk.send(request, 12)
            for _ in range(3):
                assert len(fetched(await talk.answer())[0].records) == 4 * len(big)
            garbage = await trio.open_tcp_stream(host, port)
            await garbage.send_all(b"\xff" * 100)
            assert await garbage.receive_some(1) == b""
            await garbage.aclose()
            half_read = Talk(await trio.open_tcp_stream(host, port))
            await half_read.send(request, 12)
            await half_read.stream.receive_some(1000)
            half_read.stream.setsockopt(1, 13, struct.pack("ii", 1, 0))  # type: ignore[attr-defined]  # SO_LINGER: reset
            await half_read.stream.aclose()
            assert (await produce(talk, "t", batch(b"x"))).base_offset == 4
    return descriptor_count() - before


async def test_closing_with_clients_connected(tmp_path: Path) -> None:
    """B31: the broker ends at once whatever its clients wait for, and its directory can be removed."""
    network = MemoryNetwork()
    with trio.fail_after(300):
        async with open_broker(tmp_path / "d", host="b", port=1, listen=network.listen) as broker:
            broker.topics.create("t")
            idle, parked = [Talk(await network.connect("b", 1)) for _ in range(2)]
            await parked.send(fetch_request("t", 0, min_bytes=1, max_wait_ms=600_000), 12)
            await trio.testing.wait_all_tasks_blocked()
    assert await idle.is_closed()
    assert await parked.is_closed()
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()


async def test_error_of_the_block_leaves_as_itself(tmp_path: Path) -> None:
    """``async with open_broker`` does not wrap what its block raises in a group, and closes all the same."""
    with pytest.raises(ZeroDivisionError):
        async with open_broker(tmp_path, port=None):
            raise ZeroDivisionError
    assert (tmp_path / ".kafka_cleanshutdown").exists()
