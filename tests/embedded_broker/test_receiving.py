"""Frames out of a stream of bytes, however it is cut, in memory that is bounded by what arrived."""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from splashdam.embedded_broker.receiving import FrameReceiver
from splashdam.model.errors import ProtocolError

MIB = 1 << 20


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


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
    receiver = FrameReceiver(ScriptedStream(pieces), 100 * MIB)
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
    receiver = FrameReceiver(ScriptedStream([framed(b"good") + struct.pack(">i", size), b"x"]), 1000)
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
    receiver = FrameReceiver(server, 100 * MIB)
    held = []
    async with trio.open_nursery() as nursery:
        for size in (100, MIB, 100, 5 * MIB, 100, 100):
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
    receiver = FrameReceiver(server, 100 * MIB)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, framed(bytes(5 * MIB)) * 2 + framed(b"small"))
        found: list[int] = []
        while len(found) < 3:
            found += map(len, await received(receiver) or [])
    assert found == [5 * MIB, 5 * MIB, 5]


async def test_reset_is_a_broken_stream(tcp: tuple[trio.SocketStream, trio.SocketStream]) -> None:
    """Whatever the system calls it."""
    client, server = tcp
    receiver = FrameReceiver(server, 1000)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close resets
    await client.aclose()
    with pytest.raises(trio.BrokenResourceError):
        await receiver.receive()
