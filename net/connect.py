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
    """Opens a stream to an address: TCP, memory, or a faulty one in tests."""

    async def __call__(self, host: str, port: int) -> trio.abc.Stream:
        """Connects.

        Raises:
            KafkaConnectionError: there is no connection; the text names address and cause.
        """
        ...


def address_text(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@attrs.frozen(eq=False, repr=False)  # what nobody uses takes time to make, at import
class TcpConnect:
    """Connects by TCP, trying all addresses of a name (happy eyeballs, RFC 8305), without Nagle's delay.

    Attributes:
        timeout_ms: how long resolving and connecting may take (Kafka:
            ``socket.connection.setup.timeout.ms``).
        send_buffer_bytes: ``SO_SNDBUF``, None leaves the system's.
        receive_buffer_bytes: ``SO_RCVBUF``, None leaves the system's.
    """

    timeout_ms: float = 10_000
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None

    async def __call__(self, host: str, port: int) -> trio.SocketStream:
        """Connects.

        Raises:
            KafkaConnectionError: the name is unknown or impossible, every address refused, or time is over.
        """
        where = address_text(host, port)
        with trio.move_on_after(self.timeout_ms / 1000):
            try:
                stream = await trio.open_tcp_stream(_encoded(host), port)
            except UnicodeError as error:  # the IDNA codecs; a broker can name such a host, too
                raise CannotConnectError(
                    f"cannot connect to {where}: no host has this name: {error}"
                ) from error
            except OSError as error:
                raise CannotConnectError(f"cannot connect to {where}: {_cause(error)}") from error
            self.set_options(stream)
            return stream
        raise KafkaConnectionError(f"cannot connect to {where}: no answer within {self.timeout_ms:g} ms")

    def set_options(self, stream: trio.SocketStream) -> None:
        """Sets up a stream's socket."""
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        if self.send_buffer_bytes is not None:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer_bytes)
        if self.receive_buffer_bytes is not None:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer_bytes)


def _encoded(host: str) -> str | bytes:
    """An ordinary name as it goes to the resolver. Of a ``str``, Python makes that with its IDNA codec, which
    takes some milliseconds to import and does nothing here."""
    return host.encode("ascii") if host.isascii() else host


def _cause(error: OSError) -> str:
    """The innermost texts: trio wraps what each address answered."""
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved ({error.strerror})"
    inner = error.__cause__
    if isinstance(inner, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(_text(each) for each in inner.exceptions))
    return _text(inner or error)


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # trio puts the address before it
    return str(error)


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
