"""TLS over any stream, for clients and brokers: handshakes that say what is wrong, and few large writes."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress

import trio

from splashdam.model.errors import (
    AuthenticationError,
    KafkaConnectionError,
    KafkaError,
    WrongListenerError,
    message_of,
)
from splashdam.model.values import Buffer
from splashdam.net.connect import Connect, address_text
from splashdam.net.tls.errors import explained, not_tls
from splashdam.net.wrong_listener import speaks_without_tls, stays_without_tls

_JOINED_BYTES = 128 * 1024
"""Small parts are joined up to so much: each write makes TLS records of its own and a system call."""


class TlsStream(trio.abc.Stream):
    """A stream inside TLS, made by `TlsConnect` and `accept_tls`. Where it fails, the error's cause says why.

    Args:
        tls: the stream, its handshake done.
        peer: who is at the other end, for messages.
    """

    def __init__(self, tls: trio.SSLStream[trio.abc.Stream], peer: str) -> None:
        self._tls = tls
        self._peer = peer
        self._reason: KafkaError | None = None

    @property
    def peer_subject(self) -> str | None:
        """The subject of the peer's certificate, as RFC 4514 writes it; None where it has shown none."""
        certificate = self._tls.getpeercert()
        return _distinguished_name(certificate["subject"]) if certificate else None

    async def send_all(self, data: Buffer) -> None:
        """Sends all."""
        try:
            await self._tls.send_all(data)
        except trio.BrokenResourceError as error:
            raise self._explained(error) from error

    async def send_parts(self, parts: Sequence[Buffer]) -> None:
        """Sends all parts, small neighbours as one; see ``net.writing.send_parts``."""
        for data in _joined(parts):
            await self.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Waits for room."""
        await self._tls.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Waits for bytes; empty means that the peer ended the stream."""
        try:
            return bytes(await self._tls.receive_some(max_bytes))
        except trio.BrokenResourceError as error:
            raise self._explained(error) from error

    async def aclose(self) -> None:
        """Closes the stream and what is below it."""
        await self._tls.aclose()

    def _explained(self, error: trio.BrokenResourceError) -> trio.BrokenResourceError:
        """The same with a text, and where the peer has refused us with that as its cause.

        Always another error: one that is raised from itself is its own cause, without an end. OpenSSL gives
        its reason once, trio none to those who come later: they are told the first.
        """
        cause = error.__cause__
        if cause is not None and self._reason is None:
            self._reason = explained(cause, self._peer, is_open=True)
        if self._reason is None:
            return trio.BrokenResourceError(str(error) or f"the connection to {self._peer} has failed before")
        if isinstance(self._reason, AuthenticationError):
            error.__cause__ = self._reason
        return trio.BrokenResourceError(str(self._reason))


class TlsConnect:
    """Wraps another `Connect`: its streams, inside TLS.

    The broker's certificate is checked against the host that is connected to, which is the one that the
    broker advertises, if the context wants that.

    Args:
        connect: makes the streams below.
        context: a client's.
        timeout_ms: how long the handshake may take.
    """

    def __init__(self, connect: Connect, context: ssl.SSLContext, *, timeout_ms: float = 10_000) -> None:
        self._connect = connect
        self._context = context
        self._timeout_ms = timeout_ms

    async def __call__(self, host: str, port: int) -> TlsStream:
        """Connects.

        Raises:
            KafkaConnectionError: there is no connection, or the broker left during the handshake.
            SslAuthenticationError: broker and client do not trust or understand each other.
            WrongListenerError: the listener does not speak TLS.
        """
        stream = await self._connect(host, port)
        tls = trio.SSLStream(stream, self._context, server_hostname=host, https_compatible=True)
        where = address_text(host, port)
        with trio.move_on_after(self._timeout_ms / 1000):
            try:
                await _shake_hands(tls, where)
            except KafkaConnectionError as error:
                if await speaks_without_tls(self._connect, host, port):
                    raise not_tls(where, "a broker answers there without it") from error
                raise
            except WrongListenerError as error:
                if await stays_without_tls(self._connect, host, port):
                    raise
                raise KafkaConnectionError(f"{message_of(error)}, which may pass") from error
            return TlsStream(tls, where)
        await trio.aclose_forcefully(stream)
        raise KafkaConnectionError(f"no TLS with {where}: no answer within {self._timeout_ms:g} ms")


async def accept_tls(stream: trio.abc.Stream, context: ssl.SSLContext, peer: str) -> TlsStream:
    """The broker's half of the handshake.

    Args:
        stream: a client's connection; it is closed where there is no handshake.
        context: a server's.
        peer: the client, for messages.

    Raises:
        SslAuthenticationError: the client is not trusted, or speaks something else.
        KafkaConnectionError: it left.
    """
    tls = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
    await _shake_hands(tls, peer)
    return TlsStream(tls, peer)


async def _shake_hands(tls: trio.SSLStream[trio.abc.Stream], peer: str) -> None:
    try:
        await tls.do_handshake()
    except trio.BrokenResourceError as error:
        await _send_alert(tls)
        await trio.aclose_forcefully(tls.transport_stream)
        raise explained(error.__cause__ or error, peer) from error.__cause__
    except BaseException:
        await trio.aclose_forcefully(tls.transport_stream)
        raise


async def _send_alert(tls: trio.SSLStream[trio.abc.Stream]) -> None:
    """Lets the peer know what is wrong. OpenSSL has written it; trio does not send it."""
    outgoing = getattr(tls, "_outgoing", None)
    alert = outgoing.read() if outgoing is not None else b""
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        if alert:
            await tls.transport_stream.send_all(alert)


def _joined(parts: Sequence[Buffer]) -> Iterator[Buffer]:
    small: list[Buffer] = []
    size_bytes = 0
    for part in parts:
        if small and size_bytes + len(part) > _JOINED_BYTES:
            yield small[0] if len(small) == 1 else b"".join(small)
            small, size_bytes = [], 0
        small.append(part)
        size_bytes += len(part)
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)


def _distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    pairs = [f"{_SHORT.get(name, name)}={value}" for group in reversed(subject) for name, value in group]
    return ",".join(pairs)


_SHORT = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
}
