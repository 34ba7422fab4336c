"""Writing the parts of a frame without copying them together, and at once where the stream takes them."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import trio

from splashdam.model.values import Buffer

MOST_PARTS = 512  # the system takes at most IOV_MAX, 1024 on Linux


def write_within_py(descriptor: int, parts: Sequence[Buffer], patience_ms: float) -> int:
    """Writes to a non-blocking socket what it takes, and waits for room as long as there soon is some.

    Args:
        descriptor: the socket's.
        parts: what to write, in order; at most ``MOST_PARTS`` of them are.
        patience_ms: after this nothing more is waited for, nor before, when there is no room for 1 ms.

    Returns:
        how many bytes were taken, from the first on. Where the socket is broken, those before: no error.
    """
    until = time.monotonic() + patience_ms / 1000
    rest: Sequence[Buffer] = parts[:MOST_PARTS]
    taken = 0
    while True:
        try:
            written = os.writev(descriptor, rest)
        except BlockingIOError:
            written = 0
        except OSError:
            return taken
        taken += written
        rest = rest_of(rest, written)
        if not rest or time.monotonic() >= until or not _has_room_soon(descriptor):
            return taken


def _has_room_soon(descriptor: int) -> bool:
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    return [events for _, events in room.poll(1)] == [select.POLLOUT]


write_within = write_within_py
if not TYPE_CHECKING and not os.environ.get("SPLASHDAM_PURE"):
    with contextlib.suppress(ImportError):  # as in record/kernel/__init__.py
        from splashdam.net.connection._writing_c import write_within


@runtime_checkable
class TakesNow(Protocol):
    """A stream of ours that can take bytes without a task's waiting for it."""

    def send_now(self, parts: Sequence[Buffer]) -> int:
        """Takes what there is room for, and answers how many bytes that were."""
        ...


@runtime_checkable
class SendsParts(Protocol):
    """A stream of ours that knows how to send several parts at the least cost."""

    async def send_parts(self, parts: Sequence[Buffer]) -> None:
        """Sends all."""
        ...


def send_now(stream: trio.abc.SendStream, parts: Sequence[Buffer], patience_ms: float = 0.0) -> int:
    """Gives a stream what it takes without waiting: one system call for a socket.

    With ``patience_ms`` a socket is waited for, for at most so long, and the loop stands still meanwhile. The
    interpreter's lock is free: see `write_within`.

    Never raises: a broken or closed stream, or one that cannot take anything in this way, takes nothing, and
    whoever goes on with `send_parts` meets the error.

    Returns:
        how many bytes were taken, from the first on.
    """
    if isinstance(stream, trio.SocketStream):
        if patience_ms:
            return write_within(stream.socket.fileno(), parts, patience_ms)
        try:
            return os.writev(stream.socket.fileno(), parts[:MOST_PARTS])
        except OSError:
            return 0
    return stream.send_now(parts) if isinstance(stream, TakesNow) else 0


def rest_of(parts: Sequence[Buffer], taken: int) -> list[memoryview]:
    """What is left of the parts after ``taken`` bytes, without a copy; empty if nothing is."""
    for number, part in enumerate(parts):
        if taken < len(part):
            return [memoryview(part)[taken:], *(memoryview(each) for each in parts[number + 1 :])]
        taken -= len(part)
    return []


async def send_parts(stream: trio.abc.SendStream, parts: Sequence[Buffer]) -> None:
    """Writes all parts in order: ``sendmsg`` of many at once to a socket, ``send_all`` per part elsewhere.

    Nothing guards against two writers at once: the caller does. After a cancel an unknown number of bytes has
    been written, so the stream must be closed.

    Raises:
        trio.BrokenResourceError: the peer has gone.
        trio.ClosedResourceError: the stream was closed here.
    """
    if len(parts) > 1 and isinstance(stream, trio.SocketStream):
        await _send_gathered(stream, parts)
        return
    if isinstance(stream, SendsParts):
        await stream.send_parts(parts)
        return
    for part in parts:
        await stream.send_all(part)


async def _send_gathered(stream: trio.SocketStream, parts: Sequence[Buffer]) -> None:
    views = [memoryview(part) for part in parts]
    try:
        while views:
            sent = await stream.socket.sendmsg(views[:MOST_PARTS])
            views = rest_of(views, sent)
    except OSError as error:
        if stream.socket.fileno() == -1:
            raise trio.ClosedResourceError("the stream was closed here") from None
        raise trio.BrokenResourceError(f"the socket is broken: {error}") from error
