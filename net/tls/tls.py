"""TLS over any stream, for clients and brokers: readable handshake errors, and few large writes."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress

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
    return (error.reason or error.strerror or type(error).__name__).replace("_", " ").lower()


_JOINED_BYTES = 128 * 1024
"""Small parts are joined up to this size: each write costs TLS records of its own and a system call."""


class TlsStream(trio.abc.Stream):
    """A TLS stream, made by `TlsConnect` and `accept_tls`. The cause of its errors says why they happened.

    Args:
        tls: the stream, after the handshake.
        peer: name of the other end, for messages.
    """

    def __init__(self, tls: trio.SSLStream[trio.abc.Stream], peer: str) -> None:
        self._tls = tls
        self._peer = peer
        self._reason: KafkaError | None = None

    @property
    def peer_subject(self) -> str | None:
        """Subject of the peer's certificate in the form of RFC 4514; None if it presented none."""
        certificate = self._tls.getpeercert()
        return _distinguished_name(certificate["subject"]) if certificate else None

    async def send_all(self, data: Buffer) -> None:
        try:
            await self._tls.send_all(data)
        except trio.BrokenResourceError as error:
            raise self._explained(error) from error

    async def send_parts(self, parts: Sequence[Buffer]) -> None:
        """Send all parts, joining small ones; see ``net.connection.streams.send_parts``."""
        for data in _joined(parts):
            await self.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._tls.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for bytes; empty means that the peer ended the stream."""
        try:
            return bytes(await self._tls.receive_some(max_bytes))
        except trio.BrokenResourceError as error:
            raise self._explained(error) from error

    async def aclose(self) -> None:
        """Close the stream and the one below it."""
        await self._tls.aclose()

    def _explained(self, error: trio.BrokenResourceError) -> trio.BrokenResourceError:
        """Make an error with a readable text; if the peer rejected us, its cause says so.

        It is always a new error: one that is raised from itself would be its own cause. OpenSSL reports its
        reason only once, so later errors repeat the first.
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
            # https_compatible: closing does not wait for the peer's closing alert. Kafka's frames have
            # lengths, so a stream that was cut off is noticed without it.
            tls = trio.SSLStream(stream, self.tls_context, server_hostname=host, https_compatible=True)
        except (ValueError, TypeError, ssl.SSLError) as error:  # a proxy may have known the name
            await trio.aclose_forcefully(stream)
            raise CannotConnectError(f"no TLS with {where}: the host name is invalid: {error}") from error
        with trio.move_on_after(self._timeout_ms / 1000):
            try:
                await _shake_hands(tls, where)
            except KafkaConnectionError as error:
                if await speaks_without_tls(self._connect, host, port):
                    raise not_tls(where, "a broker answers there without TLS") from error
                raise
            except WrongListenerError as error:
                if await stays_without_tls(self._connect, host, port):
                    raise
                raise KafkaConnectionError(f"{message_of(error)}, which may be temporary") from error
            return TlsStream(tls, where)
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
    """Send OpenSSL's alert, which says what is wrong: trio drops it."""
    outgoing = getattr(tls, "_outgoing", None)  # private; without it the peer only sees the connection close
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
