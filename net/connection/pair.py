"""Streams between two trio loops in threads of one process: a pair of connected sockets, no port."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TypeAlias

import trio

_BUFFER_BYTES = 1024 * 1024  # the system's 208 KiB would stop a writer several times per request

HandOver: TypeAlias = Callable[[socket.socket], None]
"""Takes the other loop's socket there, for example with ``TrioToken.run_sync_soon``."""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected non-blocking sockets; each end belongs to one loop."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    return ends


def stream_of(end: socket.socket) -> trio.SocketStream:
    """Makes a stream of an end; call it in the loop that will use it."""
    return trio.SocketStream(trio.socket.from_stdlib_socket(end))


class PairConnect:
    """A `splashdam.net.connect.Connect` that reaches a server in another thread, whatever address is named.

    Args:
        hand_over: gives the server its end. It runs in the connecting loop and must not block; what it
            raises, ``connect`` raises.
    """

    def __init__(self, hand_over: HandOver) -> None:
        self._hand_over = hand_over

    async def __call__(self, host: str, port: int) -> trio.SocketStream:
        """Connects."""
        await trio.lowlevel.checkpoint()
        ours, theirs = socket_pair()
        try:
            self._hand_over(theirs)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return stream_of(ours)
