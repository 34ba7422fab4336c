"""Reading and writing the bytes of a connection: what a socket takes or gives at once, and the rest by trio.

The parts of a frame are written without copying them together. Reading is from a stream that most of the time
has nothing, or that is about to have something.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import trio

from splashdam.model.values import Buffer

MOST_PARTS = 512  # the system takes at most IOV_MAX, 1024 on Linux

Receive = Callable[[int], Awaitable[bytes | bytearray]]
"""Waits for at most so many bytes; empty when the peer has ended the stream."""

PATIENCE_US = 100.0
"""How long it is worth while to look out for what comes next. A peer on the same machine that answers at once
takes less; to sleep and be woken takes as long."""
_MOST_MISSES = 6
_EAGER_READ_BYTES = 4096


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


def read_soon_py(descriptor: int, into: bytearray | memoryview, patience_us: float) -> int | None:
    """Looks for bytes at a non-blocking socket again and again, without going to sleep.

    The interpreter's lock is free meanwhile, and whoever else wants this processor gets it.

    Args:
        descriptor: the socket's.
        into: where the bytes go.
        patience_us: after this the search is given up.

    Returns:
        how many bytes came, 0 at the end of the stream, None where nothing came.

    Raises:
        OSError: the socket is broken.
    """
    until = time.monotonic() + patience_us / 1e6
    while True:
        try:
            return os.readv(descriptor, (into,))
        except BlockingIOError:
            if time.monotonic() >= until:
                return None


write_within, read_soon = write_within_py, read_soon_py
if not TYPE_CHECKING and not os.environ.get("SPLASHDAM_PURE"):
    with contextlib.suppress(ImportError):  # as in record/kernel/__init__.py
        from splashdam.net.connection import _writing_c

        read_soon, write_within = _writing_c.read_soon, _writing_c.write_within


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


class Eagerness:
    """Whether `read_soon` is worth its processor time with one peer: each miss in a row doubles the number of
    occasions that are let pass, up to 63, so a peer that is slow costs next to nothing."""

    __slots__ = ("_misses", "_pause")

    def __init__(self) -> None:
        self._misses = self._pause = 0

    def is_due(self) -> bool:
        """Asked at each occasion."""
        if self._pause:
            self._pause -= 1
            return False
        return True

    def note(self, has_come: bool) -> None:
        """What came of it."""
        self._misses = 0 if has_come else min(self._misses + 1, _MOST_MISSES)
        self._pause = (1 << self._misses) - 1


class EagerReader:
    """Reads what comes at once from a stream that usually answers so.

    Args:
        stream: where from; nothing ever comes at once from one that is no socket.
    """

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None
        self._into = memoryview(bytearray(_EAGER_READ_BYTES if self._socket is not None else 0))
        self._eagerness = Eagerness()

    def read(self) -> memoryview:
        """What came, valid until the next call; empty where nothing did, or where an end or an error did:
        those are seen by whoever reads next. The loop stands still for up to `PATIENCE_US`."""
        count = None
        if self._socket is not None and self._eagerness.is_due():
            with contextlib.suppress(OSError):
                count = read_soon(self._socket.fileno(), self._into, PATIENCE_US)
            self._eagerness.note(bool(count))
        return self._into[: count or 0]


def receiver(stream: trio.abc.ReceiveStream) -> Receive:
    """How to read from a stream: its ``receive_some``, or something cheaper that raises the same errors."""
    if isinstance(stream, trio.SocketStream):
        return partial(_receive_when_readable, stream)
    return stream.receive_some


async def _receive_when_readable(stream: trio.SocketStream, most_bytes: int) -> bytes:
    """Waits, then reads. trio reads first, which for who has just read everything is a call for nothing."""
    socket = stream.socket
    while socket.fileno() >= 0:
        await trio.lowlevel.wait_readable(socket)
        try:
            return os.read(socket.fileno(), most_bytes)  # anew: a close meanwhile freed the number
        except BlockingIOError:  # readable for nothing, as happens; it is non-blocking
            continue
        except OSError as error:
            if socket.fileno() >= 0:
                raise trio.BrokenResourceError(f"the socket is broken: {error}") from error
    raise trio.ClosedResourceError("the stream was closed here")
