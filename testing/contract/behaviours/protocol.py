"""The protocol itself, request by request: versions, frames, Metadata."""

from __future__ import annotations

import struct

from splashdam.model.broker_errors import ErrorCode
from splashdam.testing.contract.behaviour import Run, behaviour, expect
from splashdam.testing.contract.raw_connection import RawConnection, connected
from splashdam.testing.contract.vocabulary import PROTOCOL
from splashdam.wire.header import decode_response
from splashdam.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from splashdam.wire.messages.list_groups import ListGroupsRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_KEY_AND_VERSION = struct.Struct(">hh")


def with_key_and_version(frame: bytes, key: int, version: int) -> bytes:
    """Replace API key and version in a request's header."""
    return frame[:4] + _KEY_AND_VERSION.pack(key, version) + frame[8:]


def topics_of(conn: RawConnection, topics: list[str] | None, version: int) -> MetadataResponse:
    """Return Metadata's answer for these topics; from version 4 on without creating them."""
    asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return conn.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=version < 4), version)


@behaviour(PROTOCOL)
def a_version_of_the_future_is_answered(run: Run) -> None:
    """ApiVersions in an unknown version: UNSUPPORTED_VERSION in version 0; the client may ask again."""
    with connected(run) as conn:
        asked = ApiVersionsRequest(client_software_name="contract", client_software_version="1")
        conn.send_bytes(with_key_and_version(conn.frame(asked, 4), ApiVersionsRequest.API_KEY, 99))
        frame = conn.next_frame()
        _, answer = decode_response(frame or b"", ApiVersionsResponse, 0)
        expect(answer.error_code, ErrorCode.UNSUPPORTED_VERSION, "error code")
        expect(ApiVersionsRequest.API_KEY in {each.api_key for each in answer.api_keys}, True, "listed")
        expect(conn.ask(asked, 3).error_code, 0, "error code of the second question")


@behaviour(PROTOCOL)
def every_request_is_listed_once(run: Run) -> None:
    """Each has its range of versions; Produce is listed from 0 on, though it is served from 3 on."""
    with connected(run) as conn:
        answer = conn.ask(ApiVersionsRequest(), 0)
    keys = [each.api_key for each in answer.api_keys]
    expect(len(keys), len(set(keys)), "keys")
    expect([each for each in answer.api_keys if not 0 <= each.min_version <= each.max_version], [], "ranges")
    ranges = {each.api_key: each.min_version for each in answer.api_keys}
    expect(ranges[0], 0, "first version of Produce")


@behaviour(PROTOCOL)
def client_software_names_are_validated(run: Run) -> None:
    """Other characters than letters, digits, dots and hyphens are INVALID_REQUEST (KIP-511)."""
    with connected(run) as conn:
        answer = conn.ask(ApiVersionsRequest(client_software_name="-", client_software_version="1"), 3)
    expect(answer.error_code, ErrorCode.INVALID_REQUEST, "error code")


@behaviour(PROTOCOL)
def an_unknown_request_ends_the_connection(run: Run) -> None:
    """So does an unknown version of a known request."""
    for key, version in ((999, 0), (ListGroupsRequest.API_KEY, 99), (0, 99), (3, -1)):
        with connected(run) as conn:
            conn.send_bytes(with_key_and_version(conn.frame(ListGroupsRequest(), 0), key, version))
            conn.expect_closed(f"key {key}, version {version}")


@behaviour(PROTOCOL)
def an_invalid_frame_ends_the_connection(run: Run) -> None:
    """Invalid are a negative size, a size above every limit, and a frame shorter than its header."""
    frames = {
        "size -1": b"\xff\xff\xff\xff",
        "size 2^31-1": b"\x7f\xff\xff\xff",
        "no header": b"\0\0\0\2\0\0",
    }
    for name, data in frames.items():
        with connected(run) as conn:
            conn.send_bytes(data)
            conn.expect_closed(name)


@behaviour(PROTOCOL)
def a_body_that_does_not_parse_ends_the_connection(run: Run) -> None:
    """For example a body with an array that is longer than the request."""
    with connected(run) as conn:
        frame = conn.frame(MetadataRequest(topics=[]), 1)
        conn.send_bytes(frame[:-4] + b"\x7f\xff\xff\xff")
        conn.expect_closed("an array of 2^31-1 topics")


@behaviour(PROTOCOL)
def answers_come_in_the_order_of_their_requests(run: Run) -> None:
    """Ten requests are sent before the first answer is read."""
    with connected(run) as conn:
        conn.version_of(MetadataRequest)
        for _ in range(5):
            conn.send(MetadataRequest(topics=[]), 4)
            conn.send(ApiVersionsRequest(), 0)
        kinds = [type(conn.answer()).__name__ for _ in range(10)]
    expect(kinds, ["MetadataResponse", "ApiVersionsResponse"] * 5, "answers")


@behaviour(PROTOCOL)
def metadata_of_all_and_of_none(run: Run) -> None:
    """Null asks for all topics, the empty list for none; in version 0 the empty list asks for all."""
    topic = run.topic()
    with connected(run) as conn:
        for version, wanted in ((0, []), (1, None), (12, None)):
            names = {each.name for each in topics_of(conn, wanted, version).topics}
            expect(topic in names, True, f"in the answer of version {version}")
        expect(topics_of(conn, [], 12).topics, [], "topics")


@behaviour(PROTOCOL)
def metadata_errors_are_reported_per_topic(run: Run) -> None:
    """A missing topic, an illegal name, an unknown topic id: each has its own error."""
    missing = run.new_topic()
    with connected(run) as conn:
        answer = topics_of(conn, [missing, "not a name"], 12)
        codes = {each.name: each.error_code for each in answer.topics}
        expect(
            codes,
            {missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not a name": ErrorCode.INVALID_TOPIC_EXCEPTION},
            "error codes",
        )
        unknown = MetadataRequestTopic(topic_id=bytes(range(16)), name=None)
        request = MetadataRequest(topics=[unknown], allow_auto_topic_creation=False)
        expect(
            conn.ask(request, 12).topics[0].error_code,
            ErrorCode.UNKNOWN_TOPIC_ID,
            "error code of an unknown id",
        )


@behaviour(PROTOCOL)
def a_topic_is_found_by_its_id(run: Run) -> None:
    """A topic that is deleted and created again has another id."""
    topic = run.topic()
    with connected(run) as conn:
        (first,) = topics_of(conn, [topic], 12).topics
        by_id = MetadataRequestTopic(topic_id=first.topic_id, name=None)
        request = MetadataRequest(topics=[by_id], allow_auto_topic_creation=False)
        expect(conn.ask(request, 12).topics[0].name, topic, "name")
        run.helper.call("delete_topic", topic=topic)
        run.eventually(lambda: expect(topic in run.helper.call("list_topics"), False, "still there"))
        run.helper.create_topic(topic)
        run.eventually(lambda: expect(topics_of(conn, [topic], 12).topics[0].error_code, 0, "error code"))
        (second,) = topics_of(conn, [topic], 12).topics
    expect(first.topic_id != second.topic_id, True, "ids differ")
