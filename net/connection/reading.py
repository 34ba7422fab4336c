"""Reading from a stream that most of the time has nothing, or that is about to have something."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

Receive = Callable[[int], Awaitable[bytes | bytearray]]
"""Waits for at most so many bytes; empty when the peer has ended the stream."""

PATIENCE_US = 100.0
"""How long it is worth while to look out for what comes next. A peer on the same machine that answers at once
takes less; to sleep and be woken takes as long."""
_MOST_MISSES = 6
_LOOKOUT_BYTES = 4096


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


read_soon = read_soon_py
if not TYPE_CHECKING and not os.environ.get("SPLASHDAM_PURE"):
    with contextlib.suppress(ImportError):  # as in record/kernel/__init__.py
        from splashdam.net.connection._writing_c import read_soon


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


class Lookout:
    """Reads what comes at once from a stream that usually answers so.

    Args:
        stream: where from; nothing ever comes at once from one that is no socket.
    """

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None
        self._into = memoryview(bytearray(_LOOKOUT_BYTES if self._socket is not None else 0))
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
