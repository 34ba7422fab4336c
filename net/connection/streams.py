"""Read and write the bytes of a connection: first what a socket takes or has at once, the rest through trio.

The parts of a frame are written without joining them. Reads are optimized for a stream that usually has
nothing yet, or that will have something within microseconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from splashdam.model.values import Buffer

MOST_PARTS = 512  # the system accepts at most IOV_MAX, 1024 on Linux

Receive = Callable[[int], Awaitable[bytes | bytearray]]
"""Waits for bytes, at most so many; empty when the peer has ended the stream."""

PATIENCE_US = 100.0
"""How long to wait for the next response in place. A peer on the same machine that responds at once takes
less; two passes of the loop take about as long."""
SPIN_US = 20.0
"""The part of it without sleep: a response that is nearly there costs no switch of threads."""
_MOST_MISSES = 6
_EAGER_READ_BYTES = 4096


def write_within_py(descriptor: int, parts: Sequence[Buffer], patience_ms: float) -> int:
    """Write to a non-blocking socket what it takes, and wait for room for a short time.

    The compiled twin waits without the GIL. This one asks for it again after each piece that the socket
    takes; beside a busy thread of the application each time can take 5 ms (``sys.getswitchinterval``).

    Args:
        descriptor: the socket's.
        parts: the bytes in order; at most ``MOST_PARTS`` parts are written.
        patience_ms: time limit for all waits; a single wait for room ends after 1 ms.

    Returns:
        The number of bytes written. A broken socket ends the write without an error.
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
    # An error or a hang-up counts as no room: the next write meets it.
    return [events for _, events in room.poll(1)] == [select.POLLOUT]


def read_soon_py(
    descriptor: int,
    into: bytearray | memoryview,
    patience_us: float,
    spin_us: float = 0.0,
    grace_us: float = 0.0,
) -> int | None:
    """Read a descriptor that does not block, and wait for bytes for a short time.

    The compiled twin releases the GIL once for all of it. This one rounds a sleep up to a millisecond.

    Args:
        descriptor: of a socket, pipe or eventfd.
        into: buffer for the bytes.
        patience_us: time limit.
        spin_us: how long to try again and again before sleeping.
        grace_us: how long to stay awake without the GIL once bytes came before a sleep. The thread that wrote
            them still has the GIL for a moment, and to wait for it is a sleep, too. This twin has the GIL.

    Returns:
        The number of bytes read, 0 at the end of the stream, None if nothing came.

    Raises:
        OSError: the socket is broken.
    """
    start = time.monotonic()
    waiting: select.poll | None = None
    while True:
        try:
            return os.readv(descriptor, (into,))
        except BlockingIOError:
            waited_us = (time.monotonic() - start) * 1e6
            if waited_us >= patience_us:
                return None
            if waited_us >= spin_us:
                # One sleep only, since it was rounded up to a millisecond.
                if waiting is not None:
                    return None
                waiting = select.poll()
                waiting.register(descriptor, select.POLLIN)
                waiting.poll((patience_us - waited_us) / 1000)


write_within, read_soon = write_within_py, read_soon_py
if not TYPE_CHECKING and not os.environ.get("SPLASHDAM_PURE"):
    with contextlib.suppress(ImportError):  # as in record/kernel/__init__.py
        from splashdam.net.connection import _writing_c

        read_soon, write_within = _writing_c.read_soon, _writing_c.write_within


def send_now(stream: trio.abc.SendStream, parts: Sequence[Buffer], patience_ms: float = 0.0) -> int:
    """Write what a stream takes without waiting: one system call for a socket.

    With ``patience_ms`` it waits for room in a socket for at most that time, and the loop is blocked
    meanwhile; see `write_within_py`.

    It never raises: a broken or closed stream takes nothing, and so does one that is no socket and has no
    method ``send_now(parts)``; the `send_parts` for the rest then raises the error.

    Returns:
        The number of bytes taken.
    """
    if isinstance(stream, trio.SocketStream):
        if patience_ms:
            return write_within(stream.socket.fileno(), parts, patience_ms)
        try:
            return os.writev(stream.socket.fileno(), parts[:MOST_PARTS])
        except OSError:
            return 0
    # An `isinstance` of a protocol takes longer than all the rest of a request's write.
    take: Callable[[Sequence[Buffer]], int] | None = getattr(stream, "send_now", None)
    return 0 if take is None else take(parts)


def rest_of(parts: Sequence[Buffer], taken: int) -> list[memoryview]:
    """Return what is left of the parts after ``taken`` bytes, without a copy."""
    for number, part in enumerate(parts):
        if taken < len(part):
            return [memoryview(part)[taken:], *(memoryview(each) for each in parts[number + 1 :])]
        taken -= len(part)
    return []


async def send_parts(stream: trio.abc.SendStream, parts: Sequence[Buffer]) -> None:
    """Write all parts in order: by ``sendmsg`` to a socket, by one ``send_all`` per part elsewhere.

    A stream that is no socket may have its own way, in a method ``send_parts(parts)``.
    The caller must prevent concurrent writes. After a cancel an unknown number of bytes has been written, so
    the stream must be closed.

    Raises:
        trio.BrokenResourceError: the peer closed the stream.
        trio.ClosedResourceError: the stream was closed here.
    """
    if len(parts) > 1 and isinstance(stream, trio.SocketStream):
        await _send_gathered(stream, parts)
        return
    send: Callable[[Sequence[Buffer]], Awaitable[None]] | None = getattr(stream, "send_parts", None)
    if send is not None:
        await send(parts)
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
    """Decides whether waiting with `read_soon` is worthwhile for one peer.

    Each miss in a row doubles the number of occasions that are skipped, up to 63, so a slow peer costs next
    to nothing.
    """

    __slots__ = ("_misses", "_pause")

    def __init__(self) -> None:
        self._misses = self._pause = 0

    def is_due(self) -> bool:
        """Return whether to poll on this occasion."""
        if self._pause:
            self._pause -= 1
            return False
        return True

    def note(self, has_come: bool) -> None:
        """Record the result of a poll."""
        self._misses = 0 if has_come else min(self._misses + 1, _MOST_MISSES)
        self._pause = (1 << self._misses) - 1


class EagerReader:
    """Reads a response that arrives within microseconds, from a peer that usually responds that fast.

    Args:
        stream: a socket, or a TLS stream over one; from any other nothing is read.
    """

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._socket, self._decrypt = _socket_below(stream)
        self._into = memoryview(bytearray(_EAGER_READ_BYTES if self._socket is not None else 0))
        self._eagerness = Eagerness()

    def read(self) -> Buffer:
        """Poll for up to `PATIENCE_US`, blocking the loop; return the bytes, valid until the next call.

        The result is empty if nothing came, and at an end or error of the stream: the next read meets those.
        """
        count = None
        if self._socket is not None and self._eagerness.is_due():
            try:  # noqa: SIM105 (suppress makes three calls)
                count = read_soon(self._socket.fileno(), self._into, PATIENCE_US, SPIN_US)
            except OSError:
                pass
            self._eagerness.note(bool(count))
        data = self._into[: count or 0]
        return self._decrypt(data) if data and self._decrypt is not None else data


def receiver(stream: trio.abc.ReceiveStream) -> Receive:
    """Return a function that reads the stream: ``receive_some``, or a cheaper one with its errors."""
    if isinstance(stream, trio.SocketStream):
        return partial(_receive_when_readable, stream)
    return stream.receive_some


def received_now(stream: trio.abc.ReceiveStream, most_bytes: int) -> bytes | None:
    """Return what a socket has, empty at its end; None if it has nothing, is broken, or is no socket."""
    below, decrypt = _socket_below(stream)
    if below is None:
        return None
    try:
        data = os.read(below.fileno(), most_bytes)
    except OSError:  # the next wait for it meets the error
        return None
    return data if decrypt is None or not data else decrypt(data) or None


def _socket_below(
    stream: trio.abc.ReceiveStream,
) -> tuple[trio.socket.SocketType | None, Callable[[Buffer], bytes] | None]:
    """Return the socket that a stream reads, if there is one, and what decrypts its bytes, if needed."""
    if isinstance(stream, trio.SocketStream):
        return stream.socket, None
    return getattr(stream, "socket_below", None), getattr(stream, "decrypted", None)


async def _receive_when_readable(stream: trio.SocketStream, most_bytes: int) -> bytes:
    """Wait, then read. trio reads first: a wasted system call if everything was read just before."""
    socket = stream.socket
    while socket.fileno() >= 0:
        await trio.lowlevel.wait_readable(socket)
        try:
            return os.read(socket.fileno(), most_bytes)  # fileno() again: a close frees the number
        except BlockingIOError:  # a spurious wake-up
            continue
        except OSError as error:
            if socket.fileno() >= 0:
                raise trio.BrokenResourceError(f"the socket is broken: {error}") from error
    raise trio.ClosedResourceError("the stream was closed here")
