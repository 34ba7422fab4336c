"""How a byte stream to a broker is made: by TCP, or between two trio loops in threads of one process."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Protocol, TypeAlias

import attrs
import trio

from splashdam.model.errors import CannotConnectError, KafkaConnectionError


class Connect(Protocol):
    """Opens a stream to an address: by TCP, in memory, or with faults in tests."""

    async def __call__(self, host: str, port: int) -> trio.abc.Stream:
        """Connect.

        Raises:
            KafkaConnectionError: the connection failed; the text names address and cause.
        """
        ...


def address_text(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@attrs.frozen(eq=False, repr=False)  # unused methods would cost import time
class TcpConnect:
    """Connects by TCP: tries all addresses of a name (happy eyeballs, RFC 8305), disables Nagle's algorithm.

    Attributes:
        timeout_ms: time limit for resolving and connecting (Kafka:
            ``socket.connection.setup.timeout.ms``).
        send_buffer_bytes: ``SO_SNDBUF``; None keeps the system's default.
        receive_buffer_bytes: ``SO_RCVBUF``; None keeps the system's default.
    """

    timeout_ms: float = 10_000
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None

    async def __call__(self, host: str, port: int) -> trio.SocketStream:
        """Connect.

        Raises:
            KafkaConnectionError: the name is unknown or invalid, every address refused, or time is up.
        """
        where = address_text(host, port)
        with trio.move_on_after(self.timeout_ms / 1000):
            try:
                stream = await trio.open_tcp_stream(_encoded(host), port)
            except UnicodeError as error:  # from the IDNA codec; a broker may advertise such a name, too
                raise CannotConnectError(
                    f"cannot connect to {where}: the host name is invalid: {error}"
                ) from error
            except OSError as error:
                raise CannotConnectError(f"cannot connect to {where}: {_cause(error)}") from error
            self.set_options(stream)
            return stream
        raise KafkaConnectionError(f"cannot connect to {where}: no answer within {self.timeout_ms:g} ms")

    def set_options(self, stream: trio.SocketStream) -> None:
        """Set the options of a stream's socket."""
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        if self.send_buffer_bytes is not None:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes is not None:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)


def _encoded(host: str) -> str | bytes:
    """Encode an ASCII name here: for a ``str`` Python imports its IDNA codec, which takes milliseconds."""
    return host.encode("ascii") if host.isascii() else host


def _cause(error: OSError) -> str:
    """Return the innermost texts: trio wraps the errors of all addresses in a group."""
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved ({error.strerror})"
    inner = error.__cause__
    if isinstance(inner, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(_text(each) for each in inner.exceptions))
    return _text(inner or error)


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # without the address, which trio puts before it
    return str(error)


_BUFFER_BYTES = 1024 * 1024  # with the system's 208 KiB a writer would have to wait several times per request

HandOver: TypeAlias = Callable[[socket.socket], None]
"""Passes a socket to the other loop, for example with ``TrioToken.run_sync_soon``."""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected non-blocking sockets, one for each loop."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    return ends


def stream_of(end: socket.socket) -> trio.SocketStream:
    """Wrap one end as a stream; call it in the loop that will use it."""
    return trio.SocketStream(trio.socket.from_stdlib_socket(end))


class PairConnect:
    """A `Connect` to a server in another thread of this process, whatever the address.

    Args:
        hand_over: passes the server its end. It runs in the connecting loop and must not block; its
            exceptions are raised from the call.
    """

    def __init__(self, hand_over: HandOver) -> None:
        self._hand_over = hand_over

    async def __call__(self, host: str, port: int) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        ours, theirs = socket_pair()
        try:
            self._hand_over(theirs)
        except BaseException:
            ours.close()
            theirs.close()
            raise
        return stream_of(ours)
