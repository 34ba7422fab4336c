"""Real sockets: TCP, pairs between threads, gathered writes."""

from __future__ import annotations

import errno
import os
import queue
import socket
import threading
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from splashdam.model.errors import CannotListenError, KafkaConnectionError
from splashdam.net.connect import PairConnect, TcpConnect, address_text, socket_pair, stream_of
from splashdam.net.connection.streams import receiver, rest_of, send_now, send_parts
from splashdam.net.listen import address_of, tcp_listen

PARTS = [b"a" * 100, memoryview(bytearray(b"b" * 3_000_000)), b"", bytearray(b"c" * 70_000)]


async def test_tcp_both_ways() -> None:
    """A free port is told; delay is off; buffer sizes are set as asked."""
    (listener,) = await tcp_listen("127.0.0.1", 0)
    host, port = address_of(listener)
    assert host == "127.0.0.1"
    connect = TcpConnect(send_buffer_bytes=100_000, receive_buffer_bytes=100_000)
    async with await connect(host, port) as ours, await listener.accept() as theirs, listener:
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert int(ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)) >= 100_000
        assert int(ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)) >= 100_000
        await ours.send_all(b"ping")
        assert await theirs.receive_some() == b"ping"


@pytest.mark.parametrize(("port", "kept"), [(0, 1), (9092, 2)])
async def test_several_addresses(monkeypatch: pytest.MonkeyPatch, port: int, kept: int) -> None:
    """With port 0 only one address of a name is listened to, as each would get a port of its own."""
    opened = [(await trio.open_tcp_listeners(0, host="127.0.0.1"))[0] for _ in range(2)]

    async def two(*_: object, **__: object) -> list[trio.SocketListener]:
        return list(opened)

    monkeypatch.setattr(trio, "open_tcp_listeners", two)
    assert list(await tcp_listen("localhost", port)) == opened[:kept]
    assert [each.socket.fileno() == -1 for each in opened] == [False, kept == 1]
    for each in opened:
        await each.aclose()


async def test_nobody_listens() -> None:
    """The error names the address and the system's reason."""
    (listener,) = await tcp_listen("127.0.0.1", 0)
    host, port = address_of(listener)
    await listener.aclose()
    with pytest.raises(KafkaConnectionError, match=f"cannot connect to 127.0.0.1:{port}: Connection refused"):
        await TcpConnect()(host, port)


@pytest.mark.parametrize("port", [-1, 70_000])
async def test_a_port_that_is_none_was_taken_modulo_65536(port: int) -> None:
    """70,000 listened on 4464."""
    with pytest.raises(CannotListenError, match=f"127.0.0.1:{port}: ports are 0 to 65535"):
        await tcp_listen("127.0.0.1", port)


async def test_an_address_in_use() -> None:
    """Likewise for listening."""
    (listener,) = await tcp_listen("127.0.0.1", 0)
    _, port = address_of(listener)
    with pytest.raises(
        CannotListenError, match=f"cannot listen on 127.0.0.1:{port}: .*in use.*choose another"
    ):
        await tcp_listen("127.0.0.1", port)
    await listener.aclose()


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "the name cannot be resolved"),
        (OSError("all attempts failed"), "all attempts failed"),
    ],
)
async def test_causes(monkeypatch: pytest.MonkeyPatch, failure: OSError, reason: str) -> None:
    """A name that does not exist, and an error without a cause of its own."""

    async def fail(*_: object) -> trio.SocketStream:
        raise failure

    monkeypatch.setattr(trio, "open_tcp_stream", fail)
    with pytest.raises(KafkaConnectionError, match=f"cannot connect to nowhere:1: {reason}"):
        await TcpConnect()("nowhere", 1)


async def test_causes_of_several_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address has its own; the same text is said once."""
    each = [OSError(errno.ECONNREFUSED, "Connection refused")] * 2 + [OSError(errno.EHOSTUNREACH, "No route")]

    async def fail(*_: object) -> trio.SocketStream:
        raise OSError("all attempts failed") from ExceptionGroup("attempts", each)

    monkeypatch.setattr(trio, "open_tcp_stream", fail)
    with pytest.raises(KafkaConnectionError, match=r"nowhere:1: Connection refused; No route to host\. What"):
        await TcpConnect()("nowhere", 1)


@pytest.mark.parametrize("host", ["b\u00fccher..test", "\u00e9" * 70, "\ud800", "\u00e9\0"])
async def test_a_name_that_no_host_can_have_ended_the_sender(host: str) -> None:
    """A broker's answer can hold one, too: it is a connection that fails, not a bug."""
    with pytest.raises(KafkaConnectionError, match="the host name is invalid"):
        await TcpConnect()(host, 1)


async def test_no_answer(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    """After the timeout the attempt is given up."""

    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(trio, "open_tcp_stream", hang)
    with pytest.raises(KafkaConnectionError, match=r"cannot connect to \[::1\]:7: no answer within 1500 ms"):
        await TcpConnect(timeout_ms=1500)("::1", 7)
    assert trio.current_time() == pytest.approx(1.5)


@pytest.mark.parametrize(("host", "given"), [("localhost", b"localhost"), ("bücher.test", "bücher.test")])
async def test_an_ordinary_name_is_not_given_to_the_idna_codec(
    monkeypatch: pytest.MonkeyPatch, host: str, given: str | bytes
) -> None:
    """Python imports that codec for every ``str``; names beyond ASCII still need it."""
    asked: list[str | bytes] = []

    async def resolve(host: str | bytes, _port: int) -> trio.SocketStream:
        asked.append(host)
        raise OSError("enough")

    monkeypatch.setattr(trio, "open_tcp_stream", resolve)
    with pytest.raises(KafkaConnectionError, match=f"cannot connect to {host}:1: enough"):
        await TcpConnect()(host, 1)
    assert asked == [given]


def test_address_text() -> None:
    """IPv6 in brackets."""
    assert address_text("a", 1) == "a:1"
    assert address_text("::1", 1) == "[::1]:1"


async def read_all(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    """``size`` bytes."""
    data = bytearray()
    while len(data) < size:
        data += await stream.receive_some(size - len(data))
    return bytes(data)


async def test_gathered_writes() -> None:
    """More than the socket takes at once, in order and complete."""
    ours, theirs = (stream_of(end) for end in socket_pair())
    expected = b"".join(PARTS)
    async with ours, theirs, trio.open_nursery() as nursery:
        nursery.start_soon(send_parts, ours, PARTS)
        assert await read_all(theirs, len(expected)) == expected


async def test_more_parts_than_the_system_takes() -> None:
    """They go out in several turns."""
    ours, theirs = (stream_of(end) for end in socket_pair())
    parts = [bytes([number % 256]) for number in range(3000)]
    async with ours, theirs, trio.open_nursery() as nursery:
        nursery.start_soon(send_parts, ours, parts)
        assert await read_all(theirs, 3000) == b"".join(parts)


async def test_gathered_write_to_a_peer_that_has_gone() -> None:
    """It is trio's error for a broken stream."""
    ours, theirs = (stream_of(end) for end in socket_pair())
    await theirs.aclose()
    async with ours:
        with pytest.raises(trio.BrokenResourceError, match="the socket is broken"):
            await send_parts(ours, PARTS)


async def test_send_now_takes_what_fits() -> None:
    """The socket's buffer, from the first byte on; the rest arrives behind it."""
    ours, theirs = (stream_of(end) for end in socket_pair())
    parts = [*PARTS, b"d" * 5_000_000]
    expected = b"".join(parts)
    async with ours, theirs, trio.open_nursery() as nursery:
        taken = send_now(ours, parts)
        assert 0 < taken < len(expected)
        assert send_now(ours, [b"no room"]) == 0
        nursery.start_soon(send_parts, ours, rest_of(parts, taken))
        assert await read_all(theirs, len(expected)) == expected


async def test_send_now_to_nobody() -> None:
    """It writes nothing and raises nothing: the next write raises the error."""
    ours, theirs = (stream_of(end) for end in socket_pair())
    await theirs.aclose()
    assert send_now(ours, PARTS) == 0
    await ours.aclose()
    assert send_now(ours, PARTS) == 0


def test_rest_of_parts() -> None:
    """Cut anywhere, nothing is copied."""
    whole = b"".join(PARTS)
    for taken in (0, 1, 100, 101, 3_000_100, 3_000_101, len(whole)):
        rest = rest_of(PARTS, taken)
        assert b"".join(rest) == whole[taken:]
    assert rest_of(PARTS, len(whole)) == []


async def test_reading_ends_as_trio_has_it() -> None:
    """The peer's end is an empty read; a stream that was closed here raises trio's error, meanwhile too."""
    ours, theirs = (stream_of(end) for end in socket_pair())
    receive = receiver(ours)
    await theirs.send_all(b"bye")
    await theirs.aclose()
    assert await receive(100) == b"bye"
    assert await receive(100) == b""
    await ours.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await receive(100)
    ours, theirs = (stream_of(end) for end in socket_pair())

    async def read() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await receiver(ours)(100)

    async with theirs, trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        await ours.aclose()


async def test_a_descriptor_that_was_taken_again_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is closed and its number taken again after the reader was woken and before it runs."""
    ours, theirs = (stream_of(end) for end in socket_pair())
    other, writer = socket_pair()
    writer.send(b"for somebody else")

    async def woken_too_late(sock: trio.socket.SocketType) -> None:
        number = sock.fileno()
        sock.close()
        os.dup2(other.fileno(), number)
        taken.append(number)

    taken: list[int] = []
    async with theirs:
        with monkeypatch.context() as patch:
            patch.setattr(trio.lowlevel, "wait_readable", woken_too_late)
            with pytest.raises(trio.ClosedResourceError):
                await receiver(ours)(100)
    assert other.recv(100) == b"for somebody else"
    os.close(taken.pop())
    other.close()
    writer.close()


@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "meanwhile"])
async def test_gathered_write_to_a_closed_stream(autojump_clock: MockClock, meanwhile: bool) -> None:
    """It is trio's error for a stream that was closed here, before or during the write."""
    ours, theirs = (stream_of(end) for end in socket_pair())

    async def close_later() -> None:
        await trio.sleep(meanwhile)
        await ours.aclose()

    async with theirs, trio.open_nursery() as nursery:
        if meanwhile:
            nursery.start_soon(close_later)
        else:
            await ours.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await send_parts(ours, PARTS)


@attrs.define
class EchoServer:
    """A trio loop in a thread of its own that echoes what arrives on handed-over sockets."""

    started: queue.Queue[tuple[trio.lowlevel.TrioToken, trio.Nursery]] = attrs.field(factory=queue.Queue)

    def run(self) -> None:
        """The thread."""
        trio.run(self._main)

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self.started.put((trio.lowlevel.current_trio_token(), nursery))
            await trio.sleep_forever()

    @staticmethod
    async def echo(end: socket.socket) -> None:
        """Serves one connection."""
        async with stream_of(end) as stream:
            async for data in stream:
                await stream.send_all(data)


async def test_two_loops_in_two_threads() -> None:
    """A pair of sockets joins them, whatever address is named."""
    server = EchoServer()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    token, nursery = await trio.to_thread.run_sync(server.started.get)

    def hand_over(end: socket.socket) -> None:
        token.run_sync_soon(nursery.start_soon, server.echo, end)

    async with await PairConnect(hand_over)("any host", 0) as stream:
        data: Any = b"x" * 500_000
        async with trio.open_nursery() as ours:
            ours.start_soon(stream.send_all, data)
            assert await read_all(stream, len(data)) == data
    token.run_sync_soon(nursery.cancel_scope.cancel)
    await trio.to_thread.run_sync(thread.join)


async def test_a_server_that_refuses_the_pair() -> None:
    """Its error is the caller's, and no socket stays open."""

    def hand_over(end: socket.socket) -> None:
        raise KafkaConnectionError("the broker has stopped")

    with pytest.raises(KafkaConnectionError, match="the broker has stopped"):
        await PairConnect(hand_over)("any", 1)
