"""Detect a listener with another security protocol than the client's settings, by probing it.

A connection that ends before the first response may be a broker that restarts, a proxy without its broker, or
a listener with another security protocol. The first two are temporary, the third is not, and all three end
the same way. So the listener is probed once with the other protocol: a `ClientHello` after a connection
without TLS, ApiVersions after one with TLS, SaslHandshake after one without SASL. Only a response counts;
silence and another closed connection prove nothing.

A response in text, such as HTTP, may come from a load balancer in front of a broker that restarts. It counts
only if it comes again after a pause, and never if it blames the server (HTTP 5xx), which is temporary. A TLS
record counts at once: load balancers do not make them up.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import trio

from splashdam.model.broker_errors import ErrorCode, NetworkExceptionError
from splashdam.model.errors import (
    ForeignBytesError,
    KafkaConnectionError,
    KafkaError,
    ProtocolError,
    SettingText,
    WrongListenerError,
)
from splashdam.net.connect import Connect, address_text
from splashdam.wire.header import decode_response, encode_request
from splashdam.wire.message import Request, Response
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    import ssl

PATIENCE_SECONDS = 2.0
"""Time limit of one probe."""

_PAUSE_SECONDS = 0.3
"""Pause between a response in another protocol and the probe that confirms it."""

_FIRST_REQUESTS = 3
"""ApiVersions, Metadata, InitProducerId: a listener that closes the connection by then may be a wrong one."""

_FIRST_RESPONSES = 1
"""To ApiVersions, which every listener without TLS answers before authentication."""

_SIZE = struct.Struct(">i")
_MOST_BYTES = 64 * 1024
_TLS_ANSWERS = (b"\x16\x03", b"\x15\x03")
"""The first bytes of a TLS handshake and of a TLS alert."""
_SERVER_AT_FAULT = re.compile(rb"HTTP/[\d.]+ 5\d\d")
_TEXT_BYTES = 4
"""That many printable characters, in place of a frame's size or a TLS record, are text."""


@runtime_checkable
class Encrypts(Protocol):
    """A `Connect` whose streams use TLS.

    Attributes:
        tls_context: of the client.
    """

    tls_context: ssl.SSLContext


async def wrong_listener(
    error: BaseException | None,
    connect: Connect,
    host: str,
    port: int,
    *,
    requests_sent: int,
    authenticates: bool,
) -> WrongListenerError | KafkaConnectionError | None:
    """Find out whether a new connection ended because of a wrong listener; probes it.

    Args:
        error: why the connection ended.
        connect: how it was opened.
        host: of the listener.
        port: likewise.
        requests_sent: requests on the connection; the first is ApiVersions, which a SASL listener answers.
        authenticates: whether the client authenticates.

    Returns:
        WrongListenerError: the listener uses another protocol than the settings say.
        KafkaConnectionError: it did so once, which may be temporary.
        None: nothing was found.
    """
    where = address_text(host, port)
    if isinstance(error, ForeignBytesError):
        lasts = error.is_tls or await _says_text_again(connect, host, port)
        said = f"the listener at {where} {error.speaks}"
        return (
            WrongListenerError(SettingText("{said}; {advice}", said=said, advice=error.advice))
            if lasts
            else KafkaConnectionError(f"{said}, which may be temporary")
        )
    if not isinstance(error, NetworkExceptionError):
        return None
    has_tls = isinstance(connect, Encrypts)
    if requests_sent <= 1:
        if has_tls or not await _speaks_tls(connect, host, port):
            return None
        return WrongListenerError(
            SettingText(
                "the listener at {where} speaks TLS; set {0} to SSL or SASL_SSL",
                "security_protocol",
                where=where,
            )
        )
    mechanisms = None if authenticates else await _sasl_mechanisms(connect, host, port)
    if mechanisms is None:
        return None
    protocol = "SASL_SSL" if has_tls else "SASL_PLAINTEXT"
    return WrongListenerError(
        SettingText(
            "the listener at {where} requires SASL ({mechanisms}); set {0} to {protocol}, {1} and the"
            " credentials",
            "security_protocol",
            "sasl_mechanism",
            where=where,
            mechanisms=", ".join(mechanisms),
            protocol=protocol,
        )
    )


def may_be_wrong(requests: int, responses: int) -> bool:
    """Return whether a connection ended so early that its listener may be a wrong one.

    A listener that has answered more than ApiVersions is the right one.

    Args:
        requests: how many were sent.
        responses: how many were received.
    """
    return requests <= _FIRST_REQUESTS and responses <= _FIRST_RESPONSES


async def stays_without_tls(connect: Connect, host: str, port: int) -> bool:
    """Return whether a listener that answered a `ClientHello` without TLS does so again after a pause.

    Args:
        connect: opens streams without TLS.
        host: of the listener.
        port: likewise.
    """
    await trio.sleep(_PAUSE_SECONDS)
    answer = await _exchange(connect, host, port, _client_hello(host), _SIZE.size)
    return bool(answer) and not answer.startswith(_TLS_ANSWERS) and not _SERVER_AT_FAULT.match(answer)


async def speaks_without_tls(connect: Connect, host: str, port: int) -> bool:
    """Return whether a broker responds to ApiVersions without TLS.

    Args:
        connect: opens streams without TLS.
        host: of the listener.
        port: likewise.
    """
    return await _answer(connect, host, port, ApiVersionsRequest(), 0) is not None


async def _sasl_mechanisms(connect: Connect, host: str, port: int) -> list[str] | None:
    """Return the mechanisms that a SASL listener offers; None for a listener without SASL."""
    frame = await _answer(connect, host, port, SaslHandshakeRequest(mechanism=""), 1)
    if frame is None:
        return None
    try:
        _, response = decode_response(frame, SaslHandshakeResponse, 1, allow_trailing=True)
    except ProtocolError:
        return None
    refused = response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    return response.mechanisms if refused and response.mechanisms else None


async def _answer(
    connect: Connect, host: str, port: int, request: Request[Response], version: int
) -> bytes | None:
    """Return the response frame to a request, without its size; None without a response."""
    data = await _exchange(connect, host, port, _encoded(request, version), _SIZE.size)
    if len(data) < 2 * _SIZE.size:
        return None
    size, correlation_id = _SIZE.unpack_from(data)[0], _SIZE.unpack_from(data, _SIZE.size)[0]
    return data[_SIZE.size :] if correlation_id == 1 and size == len(data) - _SIZE.size else None


async def _says_text_again(connect: Connect, host: str, port: int) -> bool:
    await trio.sleep(_PAUSE_SECONDS)
    answer = await _exchange(connect, host, port, _encoded(ApiVersionsRequest(), 0), _SIZE.size)
    begin = answer[:_TEXT_BYTES]
    is_text = len(begin) == _TEXT_BYTES and begin.isascii() and begin.decode().isprintable()
    return is_text and not _SERVER_AT_FAULT.match(answer)


def _encoded(request: Request[Response], version: int) -> bytes:
    return b"".join(encode_request(request, version=version, correlation_id=1, client_id=None))


async def _speaks_tls(connect: Connect, host: str, port: int) -> bool:
    data = await _exchange(connect, host, port, _client_hello(host), 0)
    return data.startswith(_TLS_ANSWERS)


def _client_hello(host: str) -> bytes:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the probe sends no data and trusts nothing that it receives
    outgoing = ssl.MemoryBIO()
    try:
        tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=host)
    except (ValueError, TypeError, ssl.SSLError):  # a proxy may know a host by a name that TLS cannot ask for
        tls = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a peer cannot end")


async def _exchange(connect: Connect, host: str, port: int, question: bytes, prefix_bytes: int) -> bytes:
    """Send some bytes on a connection of their own; return the first bytes of the response, or nothing.

    Args:
        connect: opens streams.
        host: of the listener.
        port: likewise.
        question: the bytes to send.
        prefix_bytes: 4: read a whole frame with its size; 0: any bytes will do.
    """
    data = b""
    with trio.move_on_after(PATIENCE_SECONDS):
        try:
            async with await connect(host, port) as stream:
                await stream.send_all(question)
                while not _is_whole(data, prefix_bytes):
                    more = await stream.receive_some(_MOST_BYTES)
                    if not more:
                        break
                    data += more
        # An answer counts as far as it came, and a connection that ends without one proves nothing.
        except (KafkaError, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
    return data


def _is_whole(data: bytes, prefix_bytes: int) -> bool:
    if not prefix_bytes:
        return len(data) >= len(_TLS_ANSWERS[0])
    if len(data) < prefix_bytes:
        return False
    size = _SIZE.unpack_from(data)[0]
    # An impossible size means that this is no frame: the caller judges its first bytes.
    return not 0 <= size <= _MOST_BYTES or len(data) >= prefix_bytes + size
