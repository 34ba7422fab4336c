"""Request headers 1 and 2, response headers 0 and 1, and the exception of ApiVersions."""

from __future__ import annotations

import contextlib

import pytest
from support.record.wire_values import MESSAGES, NAMES, full_example

from splashdam.model.errors import ProtocolError
from splashdam.wire.header import (
    RequestHeader,
    decode_correlation_id,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from splashdam.wire.message import Message, Request, Response
from splashdam.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from splashdam.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse


def frame_of(parts: list[object]) -> bytes:
    """A frame without its size."""
    return b"".join(parts)[4:]  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", MESSAGES, ids=NAMES)
def test_frames_round_trip(cls: type[Message]) -> None:
    """Requests come back with their header, responses with their correlation id."""
    for version in cls.VERSIONS:
        message = full_example(cls, version)
        if isinstance(message, Request):
            for client_id in ("me", "", None):
                frame = frame_of(
                    encode_request(message, version=version, correlation_id=-5, client_id=client_id)
                )
                header = RequestHeader(cls.API_KEY, version, -5, client_id)
                assert decode_request(frame) == (header, message)
        else:
            assert isinstance(message, Response)
            frame = frame_of(encode_response(message, version=version, correlation_id=-5))
            assert decode_correlation_id(frame) == -5, version
            assert decode_response(frame, type(message), version) == (-5, message), version


def test_request_headers_by_hand() -> None:
    """Version 1, and version 2 with its tagged fields behind a client id that is never compact."""
    request = FindCoordinatorRequest(key="k")
    old = frame_of(encode_request(request, version=2, correlation_id=3, client_id="me"))
    assert old == b"\0\x0a\0\2\0\0\0\3\0\2me" + b"\0\1k\0"
    new = frame_of(encode_request(request, version=3, correlation_id=3, client_id="me"))
    assert new == b"\0\x0a\0\3\0\0\0\3\0\2me\0" + b"\2k\0\0"


def test_response_headers_by_hand() -> None:
    """Version 0, version 1 in flexible versions, and version 0 for ApiVersions in all."""
    old = frame_of(encode_response(FindCoordinatorResponse(), version=0, correlation_id=3))
    assert old == b"\0\0\0\3" + bytes(12)
    new = frame_of(encode_response(FindCoordinatorResponse(), version=4, correlation_id=3))
    assert new == b"\0\0\0\3\0" + b"\0\0\0\0\1\0"
    exception = frame_of(encode_response(ApiVersionsResponse(), version=3, correlation_id=3))
    assert exception == b"\0\0\0\3" + b"\0\0\1\0\0\0\0\0"


def test_tagged_fields_of_headers_are_skipped() -> None:
    """A newer peer may send some."""
    request = b"\0\x0a\0\3\0\0\0\3\0\2me" + b"\1\x05\3abc" + b"\2k\0\0"
    assert decode_request(request)[1] == FindCoordinatorRequest(key="k")
    response = b"\0\0\0\3" + b"\2\x05\3abc\x06\0" + b"\0\0\0\0\1\0"
    assert decode_response(response, FindCoordinatorResponse, 4) == (3, FindCoordinatorResponse())


@pytest.mark.parametrize("version", [6, 99, 32_767])
def test_api_versions_of_the_future(version: int) -> None:
    """The header of an unknown ApiVersions version is readable, so that a broker can answer error 35."""
    frame = b"\0\x12" + version.to_bytes(2, "big") + b"\0\0\0\7\0\2me\0" + b"whatever"
    header, position = decode_request_header(frame)
    assert header == RequestHeader(ApiVersionsRequest.API_KEY, version, 7, "me")
    assert frame[position:] == b"whatever"
    with pytest.raises(ProtocolError, match=f"ApiVersionsRequest v{version} is not declared"):
        decode_request(frame)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "RequestHeader: 0 bytes are too few"),
        (b"\0\3\0\1\0\0\0\1\0", "RequestHeader: 9 bytes are too few"),
        (b"\x12\x34\0\1\0\0\0\1\xff\xff", "API key 4660 is not declared"),
        (b"\0\0\0\2\0\0\0\1\xff\xff", "Produce v2 is not declared, only v3 to v13"),
        (b"\0\3\0\x0e\0\0\0\1\xff\xff", "Metadata v14 is not declared, only v0 to v13"),
        (b"\0\3\0\1\0\0\0\1\xff\xfe", "client_id at byte 8: length -2 is negative"),
        (b"\0\3\0\1\0\0\0\1\0\5abc", "client_id at byte 8: length 5 exceeds the 3 bytes left"),
        (b"\0\3\0\1\0\0\0\1\0\1\xff", "client_id at byte 8: 'utf-8' codec"),
        (b"\0\3\0\x09\0\0\0\1\xff\xff", "RequestHeader: tagged fields at byte 10: the bytes end here"),
        (b"\0\3\0\x09\0\0\0\1\xff\xff\1\0\x09", "fields at byte 10: length 9 exceeds the 0 bytes left"),
        (b"\0\3\0\x09\0\0\0\1\xff\xff" + b"\xff" * 6, "tagged fields at byte 10: a varint is longer"),
    ],
)
def test_bad_request_headers(frame: bytes, reason: str) -> None:
    """Each says what is wrong and where."""
    with pytest.raises(ProtocolError, match=reason):
        decode_request_header(frame)


def test_bad_response_headers() -> None:
    """Too short for a correlation id, or for its tagged fields."""
    with pytest.raises(ProtocolError, match="ResponseHeader: 3 bytes are too few"):
        decode_response(b"\0\0\0", FindCoordinatorResponse, 4)
    with pytest.raises(ProtocolError, match="ResponseHeader: tagged fields at byte 4: the bytes end here"):
        decode_response(b"\0\0\0\1", FindCoordinatorResponse, 4)


@pytest.mark.parametrize(
    ("version", "correlation_id", "client_id", "reason"),
    [
        (3, 1, "x" * 40_000, "RequestHeader of FindCoordinatorRequest v3: 'h' format"),
        (3, 1, "\ud800", "RequestHeader of FindCoordinatorRequest v3: 'utf-8' codec"),
        (3, 2**31, None, "RequestHeader of FindCoordinatorRequest v3: 'i' format"),
        (99_999, 1, None, "FindCoordinatorRequest v99999 is not declared"),
    ],
)
def test_request_headers_that_do_not_fit(
    version: int, correlation_id: int, client_id: str | None, reason: str
) -> None:
    """Whatever does not fit is a ProtocolError."""
    with pytest.raises(ProtocolError, match=reason):
        encode_request(
            FindCoordinatorRequest(), version=version, correlation_id=correlation_id, client_id=client_id
        )


def test_responses_that_do_not_fit() -> None:
    """Likewise a correlation id, and a frame that its size could not tell."""

    class FilePart:
        size_bytes = 2**31 - 100

    with pytest.raises(ProtocolError, match="ResponseHeader of FindCoordinatorResponse v4: 'i' format"):
        encode_response(FindCoordinatorResponse(), version=4, correlation_id=2**31)
    for count, fits in ((1, True), (2, False)):
        partitions = [PartitionData(records=FilePart()) for _ in range(count)]
        response = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
        expected = (
            contextlib.nullcontext()
            if fits
            else pytest.raises(ProtocolError, match="the size field allows 2147483647")
        )
        with expected:
            encode_response(response, version=12, correlation_id=1)
