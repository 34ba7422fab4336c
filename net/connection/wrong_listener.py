"""What listens at an address, where it is not what the settings say: found out by asking it, and named.

A connection that ends before the first answer may be a broker that restarts, a proxy whose broker is away, or
a listener that speaks something else. The first two pass, the third does not, and the end looks the same. So
the listener is asked once more in the other tongue: a `ClientHello` where we spoke without TLS, ApiVersions
where we spoke TLS, SaslHandshake where we spoke without SASL. Only an answer counts; silence and another end
prove nothing.

Text, such as HTTP's, may come from a balancer that speaks for a broker which restarts. It counts where it
comes again after a pause, and never where it says that the server is at fault (HTTP 5xx): that passes. A
record of TLS counts at once: no balancer makes one up.
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
"""How long the listener may take for its answer to such a question."""

_PAUSE_SECONDS = 0.3
"""Between an answer of another protocol and the question whether that was all there is."""

_FIRST_REQUESTS = 3
"""Versions, metadata, producer id: a broker that leaves before more were sent may want something else."""

_FIRST_RESPONSES = 1
"""That to ApiVersions, which every listener without TLS gives to everybody."""

_SIZE = struct.Struct(">i")
_MOST_BYTES = 64 * 1024
_TLS_ANSWERS = (b"\x16\x03", b"\x15\x03")
"""How a handshake and an alert of TLS begin."""
_SERVER_AT_FAULT = re.compile(rb"HTTP/[\d.]+ 5\d\d")
_TEXT_BYTES = 4
"""So many printable characters, where a size or a record of TLS would stand, are text."""


@runtime_checkable
class Encrypts(Protocol):
    """A `Connect` whose streams are inside TLS.

    Attributes:
        tls_context: the client's.
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
    """The reason why a young connection has ended, where that is the listener or what stands before it.

    Args:
        error: why it has ended.
        connect: how it was made.
        host: where the listener is.
        port: likewise.
        requests_sent: how many there were; the first is ApiVersions, which a listener with SASL answers.
        authenticates: whether it was to show who we are.

    Returns:
        WrongListenerError: the listener speaks something else than the settings say.
        KafkaConnectionError: it did so once, which may pass.
        None: it may be the right one.
    """
    where = address_text(host, port)
    if isinstance(error, ForeignBytesError):
        lasts = error.is_tls or await _says_text_again(connect, host, port)
        said = f"the listener at {where} {error.speaks}"
        return (
            WrongListenerError(f"{said}; {error.advice}")
            if lasts
            else KafkaConnectionError(f"{said}, which may pass")
        )
    if not isinstance(error, NetworkExceptionError):
        return None
    has_tls = isinstance(connect, Encrypts)
    if requests_sent <= 1:
        if has_tls or not await _speaks_tls(connect, host, port):
            return None
        return WrongListenerError(
            f"the listener at {where} speaks TLS; set security_protocol to SSL or SASL_SSL"
        )
    mechanisms = None if authenticates else await _sasl_mechanisms(connect, host, port)
    if mechanisms is None:
        return None
    protocol = "SASL_SSL" if has_tls else "SASL_PLAINTEXT"
    return WrongListenerError(
        f"the listener at {where} asks who we are, by SASL ({', '.join(mechanisms)}); set security_protocol"
        f" to {protocol}, sasl_mechanism and the credentials"
    )


def may_be_wrong(requests: int, responses: int) -> bool:
    """Whether a connection has ended so early that its listener may be another one than the settings say.

    One that has answered more than ApiVersions is the right one, and is not asked.

    Args:
        requests: how many were sent.
        responses: how many of them were answered.
    """
    return requests <= _FIRST_REQUESTS and responses <= _FIRST_RESPONSES


async def stays_without_tls(connect: Connect, host: str, port: int) -> bool:
    """Whether a listener that has answered a `ClientHello` without TLS does so again after a pause.

    Args:
        connect: makes streams without TLS.
        host: where the listener is.
        port: likewise.
    """
    await trio.sleep(_PAUSE_SECONDS)
    answer = await _exchange(connect, host, port, _client_hello(host), _SIZE.size)
    return bool(answer) and not answer.startswith(_TLS_ANSWERS) and not _SERVER_AT_FAULT.match(answer)


async def speaks_without_tls(connect: Connect, host: str, port: int) -> bool:
    """Whether a broker answers there without TLS.

    Args:
        connect: makes streams without TLS.
        host: where the listener is.
        port: likewise.
    """
    return await _answer(connect, host, port, ApiVersionsRequest(), 0) is not None


async def _sasl_mechanisms(connect: Connect, host: str, port: int) -> list[str] | None:
    """Those that a listener with SASL offers; None if there is none with SASL."""
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
    """The frame that answers a request, without its size; None if none does."""
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
    context.verify_mode = ssl.CERT_NONE  # nothing is told to the other side, and nothing it says is believed
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=host)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a peer cannot end")


async def _exchange(connect: Connect, host: str, port: int, question: bytes, prefix_bytes: int) -> bytes:
    """What comes first in answer to some bytes, on a connection of its own; empty where nothing does.

    Args:
        connect: makes streams.
        host: where to.
        port: likewise.
        question: what is sent.
        prefix_bytes: 0: any bytes do; 4: a whole frame is read, whose size comes first.
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
        except (KafkaError, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
    return data


def _is_whole(data: bytes, prefix_bytes: int) -> bool:
    if not prefix_bytes:
        return len(data) >= len(_TLS_ANSWERS[0])
    if len(data) < prefix_bytes:
        return False
    size = _SIZE.unpack_from(data)[0]
    return not 0 <= size <= _MOST_BYTES or len(data) >= prefix_bytes + size
