"""Frames: size, header and body in one go.

Requests have header version 1, or 2 in flexible versions. Responses have header version 0, or 1 in flexible
versions; ApiVersions responses have version 0 always, since a client must read them before it knows what
the broker speaks (KIP-511). The client id is never compact.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypeVar

from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer
from splashdam.wire.codec import decode, encode
from splashdam.wire.fields import Part
from splashdam.wire.message import Request, Response
from splashdam.wire.primitives import (
    MAX_TAGGED_FIELDS,
    UNCOPIED_BYTES,
    IllegalBytes,
    read_uvarint,
    records_size,
    refuse_length,
    refuse_tagged_fields,
)
from splashdam.wire.registry import api_for

R = TypeVar("R", bound=Response)

API_VERSIONS_KEY = 18

_REQUEST_HEADER = struct.Struct(">hhih")
_API_KEY = struct.Struct(">h")
_CORRELATION_ID = struct.Struct(">i")
_SIZE = struct.Struct(">i")
_NO_TAGGED_FIELDS = b"\0"
_MAX_FRAME_BYTES = 0x7FFFFFFF


class RequestHeader(NamedTuple):
    """What stands before a request's body.

    Attributes:
        api_key: which API.
        api_version: the version of request and response.
        correlation_id: returned in the response.
        client_id: the client's name for itself, may be null.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(
    message: Request[Any], *, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """A whole request frame, size included.

    Returns:
        Its parts in order; records of 64 KiB and more are parts of their own, by reference.

    Raises:
        ProtocolError: the message does not fit the version, a value of the header does not fit its type, or
            the frame would have 2 GiB or more.
    """
    body = encode(message, version)
    try:
        name = b"" if client_id is None else client_id.encode()
        length = -1 if client_id is None else len(name)
        header = _REQUEST_HEADER.pack(message.API_KEY, version, correlation_id, length) + name
    except (struct.error, UnicodeEncodeError) as error:
        raise ProtocolError(f"RequestHeader of {message.NAME} v{version}: {error}") from error
    if message.is_flexible(version):
        header += _NO_TAGGED_FIELDS
    parts: list[Any] = _frame(header, body)
    return parts


def encode_response(message: Response, *, version: int, correlation_id: int) -> list[Part]:
    """A whole response frame, size included; parts as `encode_request` has them, file slices as they are.

    Raises:
        ProtocolError: the message does not fit the version, a value of the header does not fit its type, or
            the frame would have 2 GiB or more.
    """
    body = encode(message, version)
    try:
        header = _CORRELATION_ID.pack(correlation_id)
    except struct.error as error:
        raise ProtocolError(f"ResponseHeader of {message.NAME} v{version}: {error}") from error
    if _has_flexible_header(type(message), version):
        header += _NO_TAGGED_FIELDS
    return _frame(header, body)


def _frame(header: bytes, body: list[Part]) -> list[Part]:
    size = len(header) + sum(map(records_size, body))
    if size > _MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {size} bytes; at most {_MAX_FRAME_BYTES} fit its size field")
    start = _SIZE.pack(size) + header
    if body and isinstance(body[0], bytes) and len(body[0]) < UNCOPIED_BYTES:
        return [start + body[0], *body[1:]]
    return [start, *body]


def _has_flexible_header(cls: type[Response], version: int) -> bool:
    return cls.API_KEY != API_VERSIONS_KEY and cls.is_flexible(version)


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Reads a request's header; returns it and the position of the body.

    An ApiVersions request passes in any version, so that the caller can answer it with error 35.

    Raises:
        ProtocolError: the frame is too short, or key or version are not declared here.
    """
    if len(frame) < _REQUEST_HEADER.size:
        raise ProtocolError(f"RequestHeader: {len(frame)} bytes are too few for a request")
    view = memoryview(frame)
    key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(view)
    client_id, position = _client_id(view, length)
    api = api_for(key)
    if version not in api.versions and key != API_VERSIONS_KEY:
        declared = f"v{api.versions[0]} to v{api.versions[-1]}"
        raise ProtocolError(f"{api.name} v{version} is not declared, only {declared}")
    if api.request.is_flexible(version):
        position = _skip_tagged_fields(view, position, "RequestHeader")
    return RequestHeader(key, version, correlation_id, client_id), position


def _client_id(view: memoryview, length: int) -> tuple[str | None, int]:
    """The client id behind its length, and the position behind it."""
    start = _REQUEST_HEADER.size
    if length == -1:
        return None, start
    try:
        if not 0 <= length <= len(view) - start:
            refuse_length(length, len(view) - start)
        return str(view[start : start + length], "utf-8"), start + length
    except (IllegalBytes, UnicodeDecodeError) as error:
        raise ProtocolError(f"RequestHeader: client_id at byte {start - 2}: {error}") from error


def decode_request(frame: Buffer) -> tuple[RequestHeader, Request[Any]]:
    """Reads a whole request.

    Raises:
        ProtocolError: as `decode_request_header`, or the body is not legal.
    """
    header, position = decode_request_header(frame)
    cls = api_for(header.api_key).request
    return header, decode(cls, frame, header.api_version, position=position)


def api_key_of(frame: Buffer) -> int:
    """Which API a request asks.

    Raises:
        ProtocolError: the frame is too short to say.
    """
    if len(frame) < _API_KEY.size:
        raise ProtocolError(f"RequestHeader: {len(frame)} bytes are too few for a request")
    return int(_API_KEY.unpack_from(frame)[0])


def decode_correlation_id(frame: Buffer) -> int:
    """The correlation id of a response.

    Raises:
        ProtocolError: the frame is shorter than that.
    """
    if len(frame) < _CORRELATION_ID.size:
        raise ProtocolError(f"ResponseHeader: {len(frame)} bytes are too few for a response")
    return int(_CORRELATION_ID.unpack_from(frame)[0])


def decode_response(
    frame: Buffer, response_cls: type[R], version: int, *, allow_trailing: bool = False
) -> tuple[int, R]:
    """Reads a whole response; returns its correlation id and the message.

    Raises:
        ProtocolError: the bytes are not such a response.
    """
    correlation_id = decode_correlation_id(frame)
    position = _CORRELATION_ID.size
    if _has_flexible_header(response_cls, version):
        if frame[position : position + 1] == _NO_TAGGED_FIELDS:  # as always, so far
            position += 1
        else:
            position = _skip_tagged_fields(memoryview(frame), position, "ResponseHeader")
    message = decode(response_cls, frame, version, position=position, allow_trailing=allow_trailing)
    return correlation_id, message


def _skip_tagged_fields(view: memoryview, position: int, what: str) -> int:
    start = position
    try:
        count, position = read_uvarint(view, position)
        if count > MAX_TAGGED_FIELDS:
            refuse_tagged_fields(count)
        for _ in range(count):
            _tag, position = read_uvarint(view, position)
            size, position = read_uvarint(view, position)
            if size > len(view) - position:
                refuse_length(size, len(view) - position)
            position += size
    except IllegalBytes as error:
        raise ProtocolError(f"{what}: tagged fields at byte {start}: {error}") from error
    except IndexError as error:
        raise ProtocolError(f"{what}: tagged fields at byte {start}: the bytes end here") from error
    return position
