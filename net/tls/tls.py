"""TLS over any stream, for clients and brokers: readable handshake errors, and few large writes."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NoReturn, cast

import trio

from splashdam.model.errors import (
    AuthenticationError,
    CannotConnectError,
    KafkaConnectionError,
    KafkaError,
    SettingText,
    SslAuthenticationError,
    WrongListenerError,
    message_of,
)
from splashdam.model.values import Buffer
from splashdam.net.connect import Connect, address_text
from splashdam.net.connection.streams import receiver
from splashdam.net.connection.wrong_listener import speaks_without_tls, stays_without_tls

_CERTIFICATE = {
    9: ("its certificate is not valid yet", "check the clocks of both machines"),
    10: ("its certificate has expired", "renew it, or check this machine's clock"),
    18: ("its certificate is self-signed and not among those trusted", "name it, or its CA, in ssl_cafile"),
    19: ("its certificate was signed by a CA that is not trusted", "name that CA in ssl_cafile"),
    20: ("its certificate was signed by a CA that is not trusted", "name that CA in ssl_cafile"),
    21: ("its certificate cannot be verified alone", "let the broker send its chain, or name the CA"),
    23: ("its certificate was revoked", "ask for a new one"),
    3: (
        "there is no list of revoked certificates of its CA",
        SettingText("put that list into {0}", "ssl_crlfile"),
    ),
    12: (
        "the list of revoked certificates has expired",
        SettingText("put a new one into {0}", "ssl_crlfile"),
    ),
    62: (
        "its certificate is for another name",
        "connect to, and advertise, a name that is in the certificate",
    ),
    64: (
        "its certificate is for another address",
        "connect to, and advertise, a name or address that is in the certificate",
    ),
}
"""Cause and remedy by OpenSSL's verification code."""

_NOT_TLS = (
    "it does not speak TLS",
    SettingText(
        "check the port, and {0}, which is PLAINTEXT or SASL_PLAINTEXT for such a listener",
        "security_protocol",
    ),
)
_NO_CERTIFICATE = (
    "it requires a client certificate and got none",
    SettingText("set {0} and {1}", "ssl_certfile", "ssl_keyfile"),
)
_REFUSED_CERTIFICATE = (
    "it rejects this side's certificate",
    SettingText(
        "use one, in {0}, that is valid and signed by a CA that the other side trusts", "ssl_certfile"
    ),
)
_BAD_CERTIFICATE = (
    "it rejects this side's certificate, or requires one and got none",
    SettingText("set {0} to one that is valid and signed by a CA that the other side trusts", "ssl_certfile"),
)
_NO_COMMON = (
    "there is no TLS version and cipher that both sides allow",
    SettingText("allow TLS 1.2 or 1.3 there, and look at {0} here", "ssl_ciphers"),
)
_FAILED_THERE = (  # with TLS 1.2 OpenSSL says no more to a client without a certificate
    "it requires a client certificate and got none,"
    " or there is no TLS version and cipher that both sides allow",
    SettingText(
        "set {0} and {1}, or allow TLS 1.2 or 1.3 there, and look at {2} here",
        "ssl_certfile",
        "ssl_keyfile",
        "ssl_ciphers",
    ),
)
_REASONS = {
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "HTTP_REQUEST": _NOT_TLS,
    "RECORD_LAYER_FAILURE": _NOT_TLS,
    "PACKET_LENGTH": _NOT_TLS,
    "CERTIFICATE_REQUIRED": _NO_CERTIFICATE,
    "DID_NOT_RETURN_A_CERTIFICATE": _NO_CERTIFICATE,
    "ALERT_BAD_CERTIFICATE": _BAD_CERTIFICATE,
    "ALERT_CERTIFICATE": _REFUSED_CERTIFICATE,
    "ALERT_UNKNOWN_CA": _REFUSED_CERTIFICATE,
    "ALERT_UNSUPPORTED_CERTIFICATE": _REFUSED_CERTIFICATE,
    "ALERT_ACCESS_DENIED": _REFUSED_CERTIFICATE,
    "ALERT_DECRYPT_ERROR": _REFUSED_CERTIFICATE,
    "UNSUPPORTED_PROTOCOL": _NO_COMMON,
    "PROTOCOL_VERSION": _NO_COMMON,
    "ALERT_HANDSHAKE_FAILURE": _FAILED_THERE,
    "HANDSHAKE_FAILURE": _NO_COMMON,
    "NO_SHARED_CIPHER": _NO_COMMON,
    "UNRECOGNIZED_NAME": (
        "it does not know the host name it was called by",
        "connect to a name of the broker",
    ),
}
"""Cause and remedy by a part of OpenSSL's reason."""


def explained(error: BaseException, peer: str, *, is_open: bool = False) -> KafkaError:
    """Convert an error of OpenSSL, or of the stream below, to one of splashdam.

    Args:
        error: the error.
        peer: the other end, as ``host:port``.
        is_open: whether the handshake was complete; then errors that are not about trust are retriable.

    Returns:
        SslAuthenticationError: the peers do not trust each other, or share no TLS version and cipher.
        WrongListenerError: the peer does not speak TLS.
        KafkaConnectionError: the connection was lost.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        cause, remedy = _CERTIFICATE.get(error.verify_code, (error.verify_message, "look at both ends"))
        return SslAuthenticationError(_no_tls(peer, cause, remedy, _detail(error)))
    if not isinstance(error, ssl.SSLError) or _is_end(error):
        when = "" if is_open else " during the TLS handshake; perhaps this listener does not speak TLS"
        return KafkaConnectionError(f"{peer} closed the connection{when}{_because(error)}")
    reason = error.reason or ""
    for part, (cause, remedy) in _REASONS.items():
        if part in reason:
            if (cause, remedy) == _NOT_TLS and not is_open:
                return not_tls(peer, _detail(error))
            return SslAuthenticationError(_no_tls(peer, cause, remedy, _detail(error)))
    if is_open:
        return KafkaConnectionError(f"TLS with {peer} broke: {_detail(error)}")
    return SslAuthenticationError(f"no TLS with {peer}: {_detail(error)}")


def not_tls(peer: str, detail: str) -> WrongListenerError:
    """Make the error for a listener that speaks another protocol than TLS."""
    return WrongListenerError(_no_tls(peer, *_NOT_TLS, detail))


def _no_tls(peer: str, cause: str, remedy: str, detail: str) -> SettingText:
    return SettingText(
        "no TLS with {peer}: {cause}; {remedy} ({detail})",
        peer=peer,
        cause=cause,
        remedy=remedy,
        detail=detail,
    )


def _is_end(error: ssl.SSLError) -> bool:
    kinds = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    return isinstance(error, kinds) or "UNEXPECTED_EOF" in (error.reason or "")


def _because(error: BaseException) -> str:
    cause = error if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else error.__cause__
    return f" ({cause})" if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) else ""


def _detail(error: ssl.SSLError) -> str:
    """Return OpenSSL's own words, for searching, without its file names."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLWantReadError):  # from a write
        return "the peer asks for a renegotiation, which Kafka's clients do not do"
    return (error.reason or error.strerror or type(error).__name__).replace("_", " ").lower()


_JOINED_BYTES = 128 * 1024
"""Small parts are joined up to this size: each write costs TLS records of its own and a system call."""
_AT_ONCE_BYTES = 64 * 1024
"""As much is encrypted and written without a pass of the loop."""
_READ_BYTES = 64 * 1024
_REPLY_BYTES = 4096
"""A peer that asks for more replies, for example by asking for new keys, is not read until it takes them."""


class TlsStream(trio.abc.Stream):
    """A TLS stream over another one. The cause of its errors says why they happened.

    Python's ``ssl`` encrypts and decrypts in memory, and this class moves the bytes. So a small request is
    written and its answer read in the same steps as on a plain socket, where trio's own stream takes locks
    and passes of the loop. A close sends no closing alert and waits for none: Kafka's frames have lengths, so
    a stream that was cut off is noticed without it.

    Args:
        stream: below.
        context: of this side.
        peer: name of the other end, for messages.
        host: the name that a client asks for; None for the broker's side.

    Attributes:
        socket_below: of ``stream``, None if that is no socket.

    Raises:
        ValueError, TypeError, ssl.SSLError: TLS cannot ask for a host of this name.
    """

    def __init__(
        self, stream: trio.abc.Stream, context: ssl.SSLContext, peer: str, *, host: str | None = None
    ) -> None:
        self.socket_below = stream.socket if isinstance(stream, trio.SocketStream) else None
        self._stream = stream
        self._receive = receiver(stream)
        self._peer = peer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if host is None else _server_name(host)
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=host is None, server_hostname=name
        )
        self._sending = trio.Lock()  # a reader writes, too, when the peer asks for new keys
        self._unsent = b""  # encrypted, and before what is in ``_outgoing``
        self._reply_bytes = 0  # those among both that reading has made, for example for new keys
        self._is_ahead = False  # `send_now` has encrypted what `send_parts` gets next
        self._is_broken = False
        self._reason: KafkaError | None = None

    @property
    def peer_subject(self) -> str | None:
        """Subject of the peer's certificate in the form of RFC 4514; None if it presented none."""
        certificate = self._tls.getpeercert()
        return _distinguished_name(cast("Any", certificate["subject"])) if certificate else None

    async def shake_hands(self) -> None:
        """Do the handshake. If it fails, the peer is told why, and the stream below is closed.

        Raises:
            KafkaError: as in `explained`.
        """
        try:
            while not self._has_shaken_hands():
                await self._flush()
                await self._feed()
            # A broker's session tickets go with its first answer: a client that has closed its end by now
            # would answer them with a reset, and what it has sent would be lost.
            if not self._tls.server_side or self._tls.version() != "TLSv1.3":
                await self._flush()
        except (ssl.SSLError, ssl.CertificateError, trio.BrokenResourceError) as error:
            try:
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._flush()  # OpenSSL's alert
            finally:  # also if that is cancelled
                await trio.aclose_forcefully(self._stream)
            cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) else error
            raise explained(cause or error, self._peer) from cause
        except BaseException:
            await trio.aclose_forcefully(self._stream)
            raise

    def _has_shaken_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def send_now(self, parts: Sequence[Buffer]) -> int:
        """Send small parts if the socket takes them at once; see ``net.connection.streams.send_now``.

        What is encrypted cannot be taken back. Where the socket takes only some of it, 0 is returned, and the
        rest waits for `send_parts`. The caller must call that next, with the same parts, or close the stream.
        """
        size_bytes = sum(map(len, parts))
        if self.socket_below is None or self._unsent or not 0 < size_bytes <= _AT_ONCE_BYTES:
            return 0
        try:
            self._encrypt(b"".join(parts))
        except trio.BrokenResourceError:  # `send_parts` raises it again
            return 0
        self._is_ahead = not self._is_flushed_now()
        return 0 if self._is_ahead else size_bytes

    async def send_parts(self, parts: Sequence[Buffer]) -> None:
        """Send all parts, joining small ones; see ``net.connection.streams.send_parts``."""
        if self._is_ahead:
            self._is_ahead = False
            await self.send_all(b"")
            return
        for data in _joined(parts):
            await self.send_all(data)

    async def send_all(self, data: Buffer) -> None:
        """Encrypt and send; small data go without a pass of the loop if the socket takes them at once."""
        if data:
            self._encrypt(data)
        if len(data) > _AT_ONCE_BYTES or not self._is_flushed_now():
            try:
                await self._flush()
            except trio.BrokenResourceError as error:
                self._fail(error.__cause__, str(error))

    def _encrypt(self, data: Buffer) -> None:
        if self._is_broken:
            self._fail(None)
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._fail(error)

    def _is_flushed_now(self) -> bool:
        """Write as much as the socket takes at once; return whether nothing is left."""
        if self.socket_below is None or self._sending.locked():
            return False
        self._unsent += self._outgoing.read()
        try:
            self._unsent = self._unsent[os.write(self.socket_below.fileno(), self._unsent) :]
        except OSError:  # `_flush` meets it again
            return False
        if self._unsent:
            return False
        self._reply_bytes = 0
        return True

    async def _flush(self) -> None:
        async with self._sending:
            if self._is_broken:  # by the cancelled send that this one has waited for
                raise trio.BrokenResourceError
            while data := self._unsent + self._outgoing.read():
                self._unsent = b""
                self._reply_bytes = 0
                try:
                    await self._stream.send_all(data)
                except trio.ClosedResourceError:
                    raise
                except BaseException:  # half a TLS record cannot be taken back
                    self._is_broken = True
                    raise

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; empty means that the peer ended the stream."""
        if self._incoming.pending or self._tls.pending():
            # Others have their turn although nothing is waited for. Not later: a reader in place would
            # overtake bytes that are decrypted already.
            await trio.lowlevel.checkpoint()
        while (data := self._read(max_bytes or _READ_BYTES)) is None:
            try:
                # Small replies may go with the next request. To wait for room stops the reading, and a peer
                # that reads nothing until its answer is taken would wait, too.
                if self._reply_bytes and not self._is_flushed_now() and self._reply_bytes > _REPLY_BYTES:
                    await self._flush()
                await self._feed()
            except trio.BrokenResourceError as error:
                self._fail(error.__cause__, str(error))
        return data

    def decrypted(self, data: Buffer) -> bytes:
        """Decrypt bytes that were read from ``socket_below``; an error is left to `receive_some`.

        Returns:
            what is complete; empty if nothing is.
        """
        self._incoming.write(data)
        plain: list[bytes] = []
        with suppress(trio.BrokenResourceError):
            while piece := self._read(_READ_BYTES):
                plain.append(piece)
            if piece is None:
                return b"".join(plain)
        self._wake_reader()
        return b"".join(plain)

    def _wake_reader(self) -> None:
        """End its wait for bytes, which an error or the end has made useless: the peer may stay connected."""
        assert self.socket_below is not None  # the bytes came from it
        with suppress(OSError):  # it is closed, or broken as well
            self.socket_below.shutdown(socket.SHUT_RD)

    def _read(self, most_bytes: int) -> bytes | None:
        """Return decrypted bytes, empty at the end of the stream; None if more have to come first."""
        if self._is_broken:
            self._fail(None)
        pending = self._outgoing.pending
        try:
            return self._tls.read(most_bytes)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLError as error:
            if _is_end(error):
                return b""
            self._fail(error)
        finally:
            self._reply_bytes += self._outgoing.pending - pending

    async def _feed(self) -> None:
        """Wait for bytes from below."""
        data = await self._receive(_READ_BYTES)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def aclose(self) -> None:
        """Close the stream and the one below it."""
        await self._stream.aclose()

    def _fail(self, cause: BaseException | None, text: str = "") -> NoReturn:
        """Raise an error with a readable text; if the peer rejected us, its cause says so.

        OpenSSL reports its reason only once, so later errors repeat the first.
        """
        self._is_broken = True
        if cause is not None and self._reason is None:
            self._reason = explained(cause, self._peer, is_open=True)
        if self._reason is not None:
            text = str(self._reason)
        is_refused = isinstance(self._reason, AuthenticationError)
        raise trio.BrokenResourceError(text or f"the connection to {self._peer} has failed before") from (
            self._reason if is_refused else cause
        )


class TlsConnect:
    """Wraps the streams of another `Connect` in TLS.

    If the context checks host names, the broker's certificate must match the host that is connected to: the
    one that the broker advertises.

    Args:
        connect: opens the streams below.
        context: of the client.
        timeout_ms: time limit for the handshake.

    Attributes:
        tls_context: as ``context``.
    """

    def __init__(self, connect: Connect, context: ssl.SSLContext, *, timeout_ms: float = 10_000) -> None:
        self._connect = connect
        self.tls_context = context
        self._timeout_ms = timeout_ms

    async def __call__(self, host: str, port: int) -> TlsStream:
        """Connect.

        Raises:
            KafkaConnectionError: the connection failed, the broker closed it during the handshake, or TLS
                cannot ask for a host of this name.
            SslAuthenticationError: broker and client do not trust each other, or share no TLS version.
            WrongListenerError: the listener does not speak TLS.
        """
        stream = await self._connect(host, port)
        where = address_text(host, port)
        try:
            tls = TlsStream(stream, self.tls_context, where, host=host)
        except (ValueError, TypeError, ssl.SSLError) as error:  # a proxy may have known the name
            await trio.aclose_forcefully(stream)
            raise CannotConnectError(f"no TLS with {where}: the host name is invalid: {error}") from error
        with trio.move_on_after(self._timeout_ms / 1000):
            try:
                await tls.shake_hands()
            except KafkaConnectionError as error:
                if await speaks_without_tls(self._connect, host, port):
                    raise not_tls(where, "a broker answers there without TLS") from error
                raise
            except WrongListenerError as error:
                if await stays_without_tls(self._connect, host, port):
                    raise
                raise KafkaConnectionError(f"{message_of(error)}, which may be temporary") from error
            return tls
        await trio.aclose_forcefully(stream)
        raise KafkaConnectionError(f"no TLS with {where}: no answer within {self._timeout_ms:g} ms")


async def accept_tls(stream: trio.abc.Stream, context: ssl.SSLContext, peer: str) -> TlsStream:
    """Do the broker's side of the handshake.

    Args:
        stream: a client's connection; it is closed if the handshake fails.
        context: of the broker.
        peer: name of the client, for messages.

    Raises:
        SslAuthenticationError: the client is not trusted, or does not speak TLS.
        KafkaConnectionError: the client closed the connection.
    """
    tls = TlsStream(stream, context, peer)
    await tls.shake_hands()
    return tls


def _server_name(host: str) -> bytes:
    """Encode a host name by IDNA 2008, as trio does to look it up; ``ssl`` would encode it by IDNA 2003."""
    if host.isascii():
        return host.encode()
    import idna  # trio depends on it

    return idna.encode(host, uts46=True)


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
