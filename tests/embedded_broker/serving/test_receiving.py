"""Frames out of a stream of bytes, however it is cut, in memory that is bounded by what arrived."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from splashdam.embedded_broker.serving.receiving import (
    POLLED_READS,
    SOLE_CLIENT_SECONDS,
    BusyPolling,
    FrameReceiver,
)
from splashdam.embedded_broker.topics.parking import FetchParking, FetchWaiter
from splashdam.model.errors import ProtocolError
from splashdam.model.values import TopicPartition

MIB = 1 << 20


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def never_polling() -> BusyPolling:
    """Never says that the loop may stand still."""
    return BusyPolling(FetchParking(), own_loop=False)


async def received(receiver: FrameReceiver) -> list[bytes] | None:
    frames = await receiver.receive()
    return None if frames is None else [bytes(frame) for frame in frames]


class ScriptedStream(trio.abc.ReceiveStream):
    """Gives the pieces it was made with, one at a time, as far as there is room."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if not self._pieces:
            return b""
        piece = self._pieces.pop(0)
        if len(piece) > (max_bytes or 0):
            self._pieces.insert(0, piece[max_bytes:])
        return piece[:max_bytes]

    async def aclose(self) -> None:
        """Nothing to close."""


async def all_frames(pieces: list[bytes]) -> list[bytes]:
    receiver = FrameReceiver(ScriptedStream(pieces), 100 * MIB, never_polling())
    found: list[bytes] = []
    while (frames := await received(receiver)) is not None:
        found += frames
    return found


async def test_cut_at_every_byte() -> None:
    """Two frames arrive the same wherever the stream is cut."""
    stream = framed(b"first") + framed(b"the second")
    for cut in range(len(stream) + 1):
        assert await all_frames([stream[:cut], stream[cut:]]) == [b"first", b"the second"]


@given(
    sizes=st.lists(st.integers(4, 200_000), max_size=6), cuts=st.lists(st.integers(0, 600_000), max_size=6)
)
def test_any_sizes_and_cuts(sizes: list[int], cuts: list[int]) -> None:
    """Frames around the buffer's size, and many times it, arrive whole."""
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = b"".join(map(framed, payloads))
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert trio.run(all_frames, pieces) == payloads


async def test_end_in_the_middle_of_a_frame() -> None:
    """The frames before it are there, then the stream ends."""
    assert await all_frames([framed(b"whole") + framed(b"never whole")[:-1]]) == [b"whole"]


@pytest.mark.parametrize("size", [-1, 3, 1001])
async def test_frames_before_a_bad_size(size: int) -> None:
    """They are handed out first; the next call says what is wrong."""
    receiver = FrameReceiver(
        ScriptedStream([framed(b"good") + struct.pack(">i", size), b"x"]), 1000, never_polling()
    )
    assert await received(receiver) == [b"good"]
    with pytest.raises(ProtocolError, match="frame size"):
        await receiver.receive()


@pytest.fixture
async def tcp() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Both ends of a TCP connection."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        async with client, await listener.accept() as server:
            yield client, server


async def test_memory_follows_the_frames(tcp: tuple[trio.SocketStream, trio.SocketStream]) -> None:
    """A buffer of a usual size is kept, a huge one is given back when the next frame is awaited."""
    client, server = tcp
    receiver = FrameReceiver(server, 100 * MIB, never_polling())
    held = []
    for size in (100, MIB, 100, 5 * MIB, 100, 100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_all, framed(bytes(size)))
            while not await received(receiver):
                pass
        held.append(len(receiver._buffer))
    assert held == [64 * 1024, MIB + 4, MIB + 4, 5 * MIB + 4, 64 * 1024, 64 * 1024]


async def test_huge_buffer_goes_with_the_next_frame_begun(
    tcp: tuple[trio.SocketStream, trio.SocketStream],
) -> None:
    """Also where a part of the next frame is in it already."""
    client, server = tcp
    receiver = FrameReceiver(server, 100 * MIB, never_polling())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, framed(bytes(5 * MIB)) * 2 + framed(b"small"))
        found: list[int] = []
        while len(found) < 3:
            found += map(len, await received(receiver) or [])
    assert found == [5 * MIB, 5 * MIB, 5]


async def test_reset_is_a_broken_stream(tcp: tuple[trio.SocketStream, trio.SocketStream]) -> None:
    """Whatever the system calls it."""
    client, server = tcp
    receiver = FrameReceiver(server, 1000, never_polling())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close resets
    await client.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await receiver.receive()


def test_the_only_client_is_polled_after_a_while() -> None:
    """The loop stands still for a client only when nobody else was heard and no fetch waits."""
    parking, ours, theirs = FetchParking(), object(), object()
    polling = BusyPolling(parking, own_loop=True)
    later = SOLE_CLIENT_SECONDS + 1.0
    assert polling.reads_granted(ours, 1.0) == 0
    assert polling.reads_granted(ours, 1.0 + SOLE_CLIENT_SECONDS / 2) == 0
    assert polling.reads_granted(ours, later) == POLLED_READS
    with FetchWaiter(parking, [TopicPartition("t", 0)]):
        assert polling.reads_granted(ours, later) == 0
    assert polling.reads_granted(ours, later) == POLLED_READS
    assert polling.reads_granted(theirs, later) == 0
    assert polling.reads_granted(ours, later) == 0


def test_a_shared_loop_never_polls() -> None:
    """However long there was one client alone."""
    polling, client = BusyPolling(FetchParking(), own_loop=False), object()
    assert [polling.reads_granted(client, float(now)) for now in range(3)] == [0, 0, 0]


class EagerPolling(BusyPolling):
    """Allows the same number at each turn, and counts the turns."""

    def __init__(self) -> None:
        super().__init__(FetchParking(), own_loop=True)
        self.turns = 0

    def reads_granted(self, client: object, now: float) -> int:
        self.turns += 1
        return 3


async def test_others_have_their_turn(tcp: tuple[trio.SocketStream, trio.SocketStream]) -> None:
    """Requests that are there at once pass the scheduler as often as they are granted."""
    client, server = tcp
    polling = EagerPolling()
    receiver = FrameReceiver(server, 1000, polling)
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for number in range(20):  # a read takes one frame, as each is sent after the one before was read
            assert os.write(client.socket.fileno(), framed(b"request%d" % number)) > 0
            assert await received(receiver) == [b"request%d" % number]
        nursery.cancel_scope.cancel()
    assert polling.turns >= 5
    assert others >= 2


@pytest.mark.parametrize("way", ["of its task", "polled", "of the selector"])
async def test_each_read_has_its_time(
    tcp: tuple[trio.SocketStream, trio.SocketStream], mock_clock: MockClock, way: str
) -> None:
    """By it a connection is idle, and a client alone."""
    client, server = tcp
    receiver = FrameReceiver(server, 1000, EagerPolling() if way == "polled" else never_polling())
    for number in range(3):
        mock_clock.jump(5)
        assert os.write(client.socket.fileno(), framed(b"request")) > 0
        if way == "of the selector":
            await trio.lowlevel.wait_readable(server.socket)
            assert receiver.read_now()
            assert receiver.next_frame() == b"request"
        else:
            assert await received(receiver) == [b"request"]
        assert receiver.read_at == trio.current_time(), number


async def test_slow_clients_are_not_polled(tcp: tuple[trio.SocketStream, trio.SocketStream]) -> None:
    """A client that lets the loop wait in vain is read in its turn, and can be cancelled there."""
    client, server = tcp
    receiver = FrameReceiver(server, 1000, EagerPolling())
    await client.send_all(framed(b"first"))
    assert await received(receiver) == [b"first"]
    with trio.move_on_after(0) as scope:
        await received(receiver)
    assert scope.cancelled_caught
    await client.send_all(framed(b"second"))
    assert await received(receiver) == [b"second"]


async def test_end_is_seen_straight(tcp: tuple[trio.SocketStream, trio.SocketStream]) -> None:
    """The end of the stream where the next request was looked out for."""
    client, server = tcp
    receiver = FrameReceiver(server, 1000, EagerPolling())
    await client.send_all(framed(b"first"))
    assert await received(receiver) == [b"first"]
    await client.aclose()
    assert await received(receiver) is None
