"""The ``Connect`` that a producer gives to its sender: it sets socket options and knows its streams."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Sequence
from typing import Any

import trio

from splashdam.client.running.process import exiting
from splashdam.model.errors import KafkaConnectionError
from splashdam.net.connect import Connect, TcpConnect, address_text

_TCP_FAMILIES = (socket.AF_INET, socket.AF_INET6)


class TrackedConnect:
    """Wraps another ``Connect``; knows its open streams.

    Args:
        connect: makes the streams.
        socket_options: ``(level, option, value)`` for each socket, where the streams have one.

    Attributes:
        connect: as above; may be exchanged before the first connection.
    """

    def __init__(self, connect: Connect, socket_options: Sequence[tuple[int, int, Any]] = ()) -> None:
        self.connect = connect
        self._socket_options = tuple(socket_options)
        self._streams: weakref.WeakSet[trio.abc.Stream] = weakref.WeakSet()

    async def __call__(self, host: str, port: int) -> trio.abc.Stream:
        """Connects.

        Raises:
            KafkaConnectionError: there is no connection.
        """
        if exiting() and isinstance(self.connect, TcpConnect):
            host = _resolve_here(host, port)
        stream = await self.connect(host, port)
        self._streams.add(stream)
        if isinstance(stream, trio.SocketStream) and stream.socket.family in _TCP_FAMILIES:
            self._set_options(stream, address_text(host, port))
        return stream

    def close_in_child(self) -> None:
        """After a fork: closes the child's copies of the sockets; the parent's connections do not notice."""
        for stream in list(self._streams):
            if isinstance(stream, trio.SocketStream) and stream.socket.fileno() >= 0:
                # Not close(): trio would take the socket out of the epoll set that both processes share.
                os.close(stream.socket.detach())
        self._streams.clear()

    def _set_options(self, stream: trio.SocketStream, where: str) -> None:
        try:
            for level, option, value in self._socket_options:
                stream.setsockopt(level, option, value)
        except OSError as error:
            stream.socket.close()
            raise KafkaConnectionError(f"cannot set socket_options on {where}: {error}") from error


def _resolve_here(host: str, port: int) -> str:
    """A numeric address. trio would resolve in a thread, and none may be started once the exit has begun."""
    try:
        return str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise KafkaConnectionError(f"cannot connect to {address_text(host, port)}: {error}") from error
