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
    """Connect by TCP, through a proxy if ``proxy_url`` is set.

    Raises:
        KafkaConfigurationError: the proxy's package is not installed, or its URL is not complete.
    """
    connect = TcpConnect(
        timeout_ms=settings.socket_connection_setup_timeout_max_ms,  # the link times out before
        send_buffer_bytes=settings.send_buffer_bytes,
        receive_buffer_bytes=settings.receive_buffer_bytes,
    )
    if settings.proxy_url is None:
        return connect
    from splashdam.net.proxy import ProxyConnect

    return ProxyConnect(settings.proxy_url, connect)


def secured(settings: ProducerSettings, connect: Connect) -> Connect:
    """Wrap ``connect`` in TLS if ``security_protocol`` asks for it.

    Raises:
        KafkaConfigurationError: a certificate or key file is missing or invalid.
    """
    if not settings.uses_tls:
        return connect
    from splashdam.client.running.security import tls_connect

    return tls_connect(settings, connect, settings.socket_connection_setup_timeout_max_ms)


def authenticator(settings: ProducerSettings) -> Authenticator | None:
    """Make the SASL authenticator; None without SASL.

    Raises:
        KafkaConfigurationError: an option that the mechanism needs is missing.
    """
    if not settings.uses_sasl:
        return None
    from splashdam.client.running.security import make_authenticator

    return make_authenticator(settings)


class TrackedConnect:
    """Wraps another ``Connect``: sets socket options and tracks open streams.

    Args:
        connect: opens the streams.
        socket_options: ``(level, option, value)`` for each TCP socket.

    Attributes:
        connect: as above; may be replaced before the first connection.
    """

    def __init__(self, connect: Connect, socket_options: Sequence[tuple[int, int, Any]] = ()) -> None:
        self.connect = connect
        self._socket_options = tuple(socket_options)
        self._streams: weakref.WeakSet[trio.abc.Stream] = weakref.WeakSet()

    async def __call__(self, host: str, port: int) -> trio.abc.Stream:
        """Connect.

        Raises:
            KafkaConnectionError: the connection attempt failed.
        """
        if exiting() and isinstance(self.connect, TcpConnect):
            host = _resolve_here(host, port)
        stream = await self.connect(host, port)
        self._streams.add(stream)
        if isinstance(stream, trio.SocketStream) and stream.socket.family in _TCP_FAMILIES:
            self._set_options(stream, address_text(host, port))
        return stream

    def close_in_child(self) -> None:
        """Close the child's copies of the sockets after a fork; the parent's connections stay open."""
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
    """Resolve in this thread. trio would start a thread, which is impossible at interpreter exit."""
    try:
        return str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise KafkaConnectionError(f"cannot connect to {address_text(host, port)}: {error}") from error
