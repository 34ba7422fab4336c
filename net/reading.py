"""Reading from a stream that most of the time has nothing."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial

import trio

Receive = Callable[[int], Awaitable[bytes | bytearray]]
"""Waits for at most so many bytes; empty when the peer has ended the stream."""


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
