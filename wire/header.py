"""Encode and decode whole frames: size, header and body.

Requests have header version 1, or 2 in flexible versions. Responses have header version 0, or 1 in flexible
versions. ApiVersions responses always have version 0, since a client must decode them before it knows the
broker's versions (KIP-511). The client id is never compact.
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
    """The header of a request.

    Attributes:
        api_key: API key.
        api_version: version of request and response.
        correlation_id: repeated in the response.
        client_id: name that the client chose; may be null.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(
    message: Request[Any], *, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """Encode a whole request frame, size included.

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
    """Encode a whole response frame to parts as in `encode_request`; file slices stay as they are.

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
        raise ProtocolError(f"a frame of {size} bytes; the size field allows {_MAX_FRAME_BYTES}")
    start = _SIZE.pack(size) + header
    if body and isinstance(body[0], bytes) and len(body[0]) < UNCOPIED_BYTES:
        return [start + body[0], *body[1:]]
    return [start, *body]


def _has_flexible_header(cls: type[Response], version: int) -> bool:
    return cls.API_KEY != API_VERSIONS_KEY and cls.is_flexible(version)


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Decode a request's header; return it and the position of the body.

    An ApiVersions request is accepted in any version, so that the caller can respond with error 35.

    Raises:
        ProtocolError: the frame is too short, or its API key or version is not declared.
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
    """Return the client id and the position after it."""
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
    """Decode a whole request.

    Raises:
        ProtocolError: as `decode_request_header`, or the body is invalid.
    """
    header, position = decode_request_header(frame)
    cls = api_for(header.api_key).request
    return header, decode(cls, frame, header.api_version, position=position)


def api_key_of(frame: Buffer) -> int:
    """Return the API key of a request.

    Raises:
        ProtocolError: the frame is too short.
    """
    if len(frame) < _API_KEY.size:
        raise ProtocolError(f"RequestHeader: {len(frame)} bytes are too few for a request")
    return int(_API_KEY.unpack_from(frame)[0])


def decode_correlation_id(frame: Buffer) -> int:
    """Return the correlation id of a response.

    Raises:
        ProtocolError: the frame is too short.
    """
    if len(frame) < _CORRELATION_ID.size:
        raise ProtocolError(f"ResponseHeader: {len(frame)} bytes are too few for a response")
    return int(_CORRELATION_ID.unpack_from(frame)[0])


def decode_response(
    frame: Buffer, response_cls: type[R], version: int, *, allow_trailing: bool = False
) -> tuple[int, R]:
    """Decode a whole response; return its correlation id and the message.

    Raises:
        ProtocolError: the bytes are not a valid response.
    """
    correlation_id = decode_correlation_id(frame)
    position = _CORRELATION_ID.size
    if _has_flexible_header(response_cls, version):
        if frame[position : position + 1] == _NO_TAGGED_FIELDS:  # no response has one so far
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
