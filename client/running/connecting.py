"""How a producer connects: by TCP or a proxy, with TLS and SASL where they are asked for."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Sequence
from typing import Any

import trio

from splashdam.client.running.process import exiting
from splashdam.client.settings.producer_settings import ProducerSettings
from splashdam.model.errors import KafkaConnectionError
from splashdam.net.connect import Connect, TcpConnect, address_text
from splashdam.net.connection.connection import Authenticator

_TCP_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def make_tcp_connect(settings: ProducerSettings) -> Connect:
    """Connections by TCP, through a proxy where one is wanted.

    Raises:
        KafkaConfigurationError: the proxy's package is not installed, or its URL is not complete.
    """
    connect = TcpConnect(
        timeout_ms=settings.socket_connection_setup_timeout_max_ms,  # the link gives up before
        send_buffer_bytes=settings.send_buffer_bytes,
        receive_buffer_bytes=settings.receive_buffer_bytes,
    )
    if settings.proxy_url is None:
        return connect
    from splashdam.net.proxy import ProxyConnect

    return ProxyConnect(settings.proxy_url, connect)


def secured(settings: ProducerSettings, connect: Connect) -> Connect:
    """``connect``, inside TLS where that is asked for.

    Raises:
        KafkaConfigurationError: a file is missing, or is not what it should be.
    """
    if not settings.uses_tls:
        return connect
    from splashdam.client.running.security import tls_connect

    return tls_connect(settings, connect, settings.socket_connection_setup_timeout_max_ms)


def authenticator(settings: ProducerSettings) -> Authenticator | None:
    """What shows brokers who we are, where they want to know.

    Raises:
        KafkaConfigurationError: the mechanism needs an option that is missing.
    """
    if not settings.uses_sasl:
        return None
    from splashdam.client.running.security import make_authenticator

    return make_authenticator(settings)


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
