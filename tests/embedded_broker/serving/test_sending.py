"""How answers leave: joined, stepwise, by sendfile, and what happens when that fails."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from splashdam.embedded_broker.serving.sending import Outbox, send_slice
from splashdam.storage.files.disk import SENDFILE_MIN_BYTES, DiskFiles
from splashdam.storage.files.log_file import BytesSlice, FileSlice

LARGE = os.urandom(3 * SENDFILE_MIN_BYTES)


def nothing() -> None:
    """Nobody wants to know."""


@pytest.fixture
async def tcp() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Both ends of a TCP connection."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        async with client, await listener.accept() as server:
            yield client, server


@pytest.fixture
def log_slice(tmp_path: Path) -> Iterator[FileSlice]:
    """A slice of a file: LARGE, between other bytes."""
    file = DiskFiles().open_log(str(tmp_path / "f"), create=True)
    file.append([b"before", LARGE, b"after"])
    found = file.slice(6, len(LARGE))
    yield found
    found.close()
    file.close()


async def receive_all(stream: trio.SocketStream, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        data += await stream.receive_some(1 << 16)
    return bytes(data)


async def test_large_slice_leaves_by_sendfile(
    tcp: tuple[trio.SocketStream, trio.SocketStream], log_slice: FileSlice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TCP the bytes go from file to socket and are never read."""
    client, server = tcp
    steps = []
    monkeypatch.setattr(type(log_slice), "read", None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_slice, server, log_slice, lambda: steps.append(1))
        assert await receive_all(client, len(LARGE)) == LARGE
    assert steps


async def test_other_streams_and_slices_are_read(log_slice: FileSlice) -> None:
    """Memory streams know no descriptors, memory slices have none."""
    ours, theirs = trio.testing.memory_stream_pair()
    await send_slice(theirs, log_slice, nothing)
    await send_slice(theirs, BytesSlice(b"small"), nothing)
    await theirs.aclose()
    assert b"".join([part async for part in ours]) == LARGE + b"small"


async def test_file_that_ends_too_early(
    tcp: tuple[trio.SocketStream, trio.SocketStream], log_slice: FileSlice, tmp_path: Path
) -> None:
    """sendfile of 0 bytes would repeat for ever; the answer cannot be completed, so its connection closes."""
    client, server = tcp
    os.truncate(tmp_path / "f", 1000)
    with pytest.raises(trio.BrokenResourceError, match="too early"):
        await send_slice(server, log_slice, nothing)
    assert server.socket.fileno() == -1
    assert await receive_all(client, 994) == LARGE[:994]
    assert await client.receive_some() == b""


async def test_cancelled_in_the_middle(
    tcp: tuple[trio.SocketStream, trio.SocketStream], log_slice: FileSlice, tmp_path: Path
) -> None:
    """Half an answer cannot be taken back, so a cancel closes the connection."""
    _client, server = tcp
    server.setsockopt(1, 7, 4096)  # SO_SNDBUF: nobody reads, so it fills
    with trio.move_on_after(0.05) as scope:
        await send_slice(server, log_slice, nothing)
    assert scope.cancelled_caught
    assert server.socket.fileno() == -1


async def test_peer_that_is_gone(
    tcp: tuple[trio.SocketStream, trio.SocketStream], log_slice: FileSlice
) -> None:
    """A reset shows as a broken stream, whichever way the bytes go."""
    client, server = tcp
    client.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER 0: close resets
    await client.aclose()
    outbox = Outbox(server, nothing)
    outbox.add([b"answer", log_slice])
    with pytest.raises(trio.BrokenResourceError):
        await outbox.flush()


async def test_outbox_keeps_order_and_joins(log_slice: FileSlice) -> None:
    """Small parts leave joined, large ones and slices by themselves, all in order; slices are given back."""
    ours, theirs = trio.testing.memory_stream_pair()
    sent: list[int] = []
    stream = trio.StapledStream(theirs, theirs)
    outbox = Outbox(stream, lambda: sent.append(1))
    big = b"b" * 100_000
    outbox.add([b"one", b"two"])
    outbox.add([b"three", log_slice, b"four"])
    outbox.add([big, bytearray(b"five"), memoryview(b"six")])
    await outbox.flush()
    await theirs.aclose()
    assert b"".join([part async for part in ours]) == b"onetwothree" + LARGE + b"four" + big + b"fivesix"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(log_slice.fileno() or 0)


async def test_outbox_is_full_after_a_mebibyte() -> None:
    """Then answers leave before more are made."""
    outbox = Outbox(trio.testing.memory_stream_pair()[0], nothing)
    outbox.add([bytes((1 << 20) - 1)])
    assert not outbox.is_full
    outbox.add([b"x"])
    assert outbox.is_full
    outbox.discard()
    assert not outbox.is_full


async def test_small_answer_that_does_not_fit(
    tcp: tuple[trio.SocketStream, trio.SocketStream],
) -> None:
    """Bytes that the socket does not take at once are sent later."""
    client, server = tcp
    outbox = Outbox(server, nothing)
    answers = [os.urandom(50_000) for _ in range(200)]

    async def send() -> None:
        for answer in answers:
            outbox.add([answer])
            await outbox.flush()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.sleep(0.01)
        assert await receive_all(client, 50_000 * 200) == b"".join(answers)
