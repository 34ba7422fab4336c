"""Bytes that nobody should have sent: they cost what they weigh, and the error says where they are wrong."""

from __future__ import annotations

import contextlib
import functools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.record.wire_values import CASES, MESSAGES, NAMES, full_example
from support.running.alone import traced
from support.running.examples import examples
from support.running.patches import Patches

from splashdam.model.errors import ProtocolError, message_of
from splashdam.wire import codec, primitives
from splashdam.wire.codec import ManyElementsError, decode, encode
from splashdam.wire.header import decode_request, decode_response, encode_request
from splashdam.wire.message import Message
from splashdam.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from splashdam.wire.messages.fetch import FetchRequest, FetchResponse
from splashdam.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from splashdam.wire.registry import API_KEYS

LARGEST_INT32 = b"\x7f\xff\xff\xff"
LARGEST_VARINT = b"\xff\xff\xff\xff\x0f"


def check_outcome(cls: type[Message], data: bytes | bytearray, version: int) -> None:
    """The bytes decode, or the error names the message."""
    problem = problem_with(cls, data, version)
    assert not problem or problem.startswith(f"{cls.NAME} v{version}: ")


@functools.cache
def full_body(cls: type[Message], version: int) -> bytes:
    """A message without a single default, encoded."""
    return b"".join(encode(full_example(cls, version), version))


@pytest.mark.parametrize("cls", MESSAGES, ids=NAMES)
def test_truncation_at_every_byte(cls: type[Message]) -> None:
    """Whatever is missing at the end, the error names message, version and position."""
    bodies = {
        full_body(cls, version): version for version in cls.VERSIONS
    }  # many add nothing to the one before
    for body, version in bodies.items():
        said = re.compile(rf"{cls.NAME} v{version}: .*at byte (\d+): ")
        for length in range(len(body)):
            found = said.match(problem_with(cls, body[:length], version))
            assert found is not None, (version, length)
            assert int(found[1]) <= length, version


def problem_with(cls: type[Message], data: bytes | bytearray, version: int) -> str:
    """The text of the error; none if the bytes are right."""
    try:
        decode(cls, data, version)
    except ProtocolError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("cls", MESSAGES, ids=NAMES)
@settings(max_examples=examples(15), deadline=None)
@given(
    which=st.integers(0, 1 << 16),
    place=st.integers(0, 1 << 16),
    removed=st.integers(0, 4),
    put_there=st.binary(max_size=8)
    | st.sampled_from([LARGEST_INT32, LARGEST_VARINT, b"\xff\xff\xff\xff", b"\x80" * 6]),
)
def test_damaged_messages(cls: type[Message], which: int, place: int, removed: int, put_there: bytes) -> None:
    """A message with bytes overwritten is another message or a ProtocolError, never anything else."""
    version = cls.VERSIONS[which % len(cls.VERSIONS)]
    body = bytearray(full_body(cls, version))
    start = place % (len(body) + 1)
    body[start : start + removed] = put_there
    check_outcome(cls, body, version)


@given(data=st.binary(max_size=300), case=st.sampled_from(CASES))
@settings(max_examples=examples(300), deadline=None)
def test_random_bytes(data: bytes, case: tuple[type[Message], int]) -> None:
    """Random bytes are a message or a ProtocolError."""
    cls, version = case
    check_outcome(cls, data, version)


@given(
    key=st.sampled_from([*API_KEYS, 4711]),
    version=st.integers(-1, 20),
    rest=st.binary(max_size=60),
)
@settings(max_examples=examples(300), deadline=None)
def test_random_requests(key: int, version: int, rest: bytes) -> None:
    """A frame behind a plausible start is a request or a ProtocolError."""
    frame = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + rest
    with contextlib.suppress(ProtocolError):
        decode_request(frame)


@given(data=st.binary(max_size=60), version=st.sampled_from(MetadataResponse.VERSIONS))
@settings(max_examples=examples(200), deadline=None)
def test_random_responses(data: bytes, version: int) -> None:
    """A frame is a response or a ProtocolError."""
    with contextlib.suppress(ProtocolError):
        decode_response(data, MetadataResponse, version)


@pytest.mark.parametrize(
    ("cls", "version", "body"),
    [
        (MetadataRequest, 8, LARGEST_INT32 + b"\0" * 1000),
        (MetadataRequest, 12, LARGEST_VARINT + b"\0" * 1000),
        (MetadataResponse, 0, b"\0\0\0\1" + b"\0\0\0\1" + b"\x7f\xff" + b"\0" * 1000),
        (MetadataResponse, 4, b"\0\0\0\0" + LARGEST_INT32 + b"\0" * 1000),
        (FetchResponse, 12, b"\0" * 10 + LARGEST_VARINT + b"\0" * 1000),
        (ProduceRequest, 3, b"\xff\xff\0\1\0\0\0\0" + LARGEST_INT32 + b"\0" * 1000),
        (MetadataRequest, 12, b"\1\1\0" + LARGEST_VARINT + LARGEST_VARINT + b"\0" * 1000),
    ],
    ids=lambda value: getattr(value, "NAME", None) or str(value)[:24],
)
def test_claims_allocate_nothing(cls: type[Message], version: int, body: bytes) -> None:
    """A length of two gigabytes in a kilobyte of input costs kilobytes."""
    assert traced(refuse, cls, body, version).peak_bytes < 100_000


def refuse(cls: type[Message], body: bytes, version: int) -> None:
    with pytest.raises(ProtocolError):
        decode(cls, body, version)


def hostile(message: Message, version: int, old: bytes, new: bytes) -> str:
    """The error for an encoded message in which ``old`` was replaced."""
    body = b"".join(encode(message, version))
    assert body.count(old) == 1
    with pytest.raises(ProtocolError) as caught:
        decode(type(message), body.replace(old, new), version)
    return message_of(caught.value)


def one_batch() -> ProduceRequest:
    """A request with one topic of two partitions."""
    partitions = [
        PartitionProduceData(index=1, records=b"one"),
        PartitionProduceData(index=2, records=b"two!"),
    ]
    return ProduceRequest(topic_data=[TopicProduceData(name="topic", partition_data=partitions)])


def test_a_long_length_is_named() -> None:
    """The path leads to the second partition's records; the position to their length."""
    text = hostile(one_batch(), 9, b"\x05two!", b"\x85\x07two!")
    assert text == (
        "ProduceRequest v9: topic_data[0].partition_data[1].records at byte 28: "
        "length 900 exceeds the 7 bytes left"
    )


def test_a_negative_length_is_named() -> None:
    """Old versions have signed lengths, of which only -1 has a meaning."""
    text = hostile(one_batch(), 3, b"\0\0\0\4two!", b"\xff\xff\xff\xfetwo!")
    assert text.endswith("partition_data[1].records at byte 38: length -2 is negative")


def test_a_negative_count_is_named() -> None:
    """Likewise counts."""
    text = hostile(one_batch(), 3, b"topic\0\0\0\2", b"topic\xff\xff\xff\xfe")
    assert text.endswith("topic_data[0].partition_data at byte 19: count -2 is negative")


def test_an_illegal_null_is_named() -> None:
    """A null where the version allows none."""
    text = hostile(one_batch(), 9, b"\x06topic", b"\0topic")
    assert text == "ProduceRequest v9: topic_data[0].name at byte 8: null is not allowed in this version"


def test_text_that_is_not_utf8_is_named() -> None:
    """A string of other bytes."""
    text = hostile(one_batch(), 9, b"\x06topic", b"\x06to\xffic")
    assert text.startswith("ProduceRequest v9: topic_data[0].name at byte 8: 'utf-8' codec can't decode")


def test_a_varint_without_end_is_named() -> None:
    """Five bytes hold 32 bits; more are an attack or a mistake."""
    text = hostile(one_batch(), 9, b"\x06topic", b"\x86\x80\x80\x80\x80\x80\0topic")
    assert text.endswith("topic_data[0].name at byte 8: a varint is longer than 5 bytes")
    text = hostile(one_batch(), 9, b"\x06topic", b"\xff\xff\xff\xff\x7ftopic")
    assert text.endswith("topic_data[0].name at byte 8: a varint does not fit in 32 bits")


def test_bytes_behind_the_message() -> None:
    """They are refused, unless the caller knows that some brokers add them."""
    body = b"".join(encode(one_batch(), 9)) + b"tail"
    with pytest.raises(ProtocolError, match="4 bytes are left behind byte"):
        decode(ProduceRequest, body, 9)
    assert decode(ProduceRequest, body, 9, allow_trailing=True) == one_batch()


def test_a_tagged_field_of_another_size() -> None:
    """A known tagged field uses exactly the bytes it announces."""
    body = (
        b"\0" * 10 + b"\1" + b"\1" + b"\0\2\1\1"
    )  # node_endpoints (tag 0): two bytes, of which an empty array takes one
    with pytest.raises(
        ProtocolError, match=r"node_endpoints at byte 14: the tagged field takes 1 bytes but announces 2"
    ):
        decode(FetchResponse, body, 16)


def test_positions_are_those_of_the_frame() -> None:
    """A body inside a frame is not copied, and its positions count from the frame's start."""
    frame = b"".join(encode_request(one_batch(), version=9, correlation_id=1, client_id="me"))[4:]
    with pytest.raises(ProtocolError, match=r"topic_data\[0\].partition_data\[1\].records at byte 41"):
        decode_request(frame[:-4])


def many_topics(count: int) -> bytes:
    """A Fetch request of version 12 that forgets ``count`` nameless topics: three bytes each."""
    head = bytes(4 * 6 + 1) + b"\1"
    number, size = count + 1, bytearray()
    while number > 127:
        size.append(number & 127 | 128)
        number >>= 7
    return head + bytes([*size, number]) + b"\1\1\0" * count + b"\1\0"


def problem_of(data: bytes, explained_bytes: int) -> ProtocolError | None:
    """The error, with its traceback, of a request that is broken; None: it is not."""
    with Patches.context() as patches:
        patches.setattr(codec, "_EXPLAINED_BYTES", explained_bytes)
        try:
            decode(FetchRequest, data, 12)
        except ProtocolError as error:
            return error
    return None


def cost(data: bytes, explained_bytes: int = codec._EXPLAINED_BYTES) -> tuple[float, float, str]:
    """Peak of memory and what is held afterwards, both per byte; and the error, which is still alive."""
    peak, held, problem = traced(problem_of, data, explained_bytes)
    return peak / len(data), held / len(data), "" if problem is None else message_of(problem)


def test_the_smallest_structures() -> None:
    """Objects take many times their bytes, but a bounded number; a broken message leaves nothing behind."""
    whole = many_topics(2_000)
    assert len(decode(FetchRequest, whole, 12).forgotten_topics_data) == 2_000
    peak, _, _ = cost(whole)
    assert peak < 60
    peak, held, problem = cost(whole[:-1])
    assert peak < 60  # the second decoding begins when the first is forgotten
    assert held < 1
    assert problem.endswith(f"tagged fields at byte {len(whole) - 1}: the bytes end here")


def test_large_messages_are_not_decoded_twice() -> None:
    """Above 1 MiB (here less, as tracing is slow) the error names the message alone."""
    peak, held, problem = cost(many_topics(2_000)[:-1], explained_bytes=5_000)
    assert peak < 60
    assert held < 1
    assert problem == "FetchRequest v12: the bytes end here"


def test_too_many_elements() -> None:
    """More than a million structures or strings are refused before the first one is made; numbers are not.

    A request has to do with 50,000 of all kinds, in all of its arrays.
    """
    peak, _, problem = cost(many_topics(50_001))
    assert problem.endswith("more than 50000 elements in one request; split it")
    assert peak < 1
    groups = [DescribedGroup()] * 1_000_001
    with pytest.raises(ProtocolError, match="1000001 elements are above the limit of 1000000"):
        decode(DescribeGroupsResponse, b"".join(encode(DescribeGroupsResponse(groups=groups), 5)), 5)
    nodes = MetadataResponsePartition(isr_nodes=list(range(1_000_001)))
    response = MetadataResponse(topics=[MetadataResponseTopic(partitions=[nodes])])
    assert decode(MetadataResponse, b"".join(encode(response, 9)), 9) == response


def test_a_request_is_decoded_up_to_a_number_of_elements() -> None:
    """The broker's loop stops decoding there, since other clients wait; the bytes may be valid."""
    frame = many_topics(1000)
    whole = decode(FetchRequest, frame, 12)
    assert decode(FetchRequest, frame, 12, most_elements=2000) == whole
    with pytest.raises(ManyElementsError):
        decode(FetchRequest, frame, 12, most_elements=999)
    with pytest.raises(ProtocolError, match="the bytes end here"):
        decode(FetchRequest, frame[:-1], 12, most_elements=2000)


def uvarint(value: int) -> bytes:
    """As the wire has it."""
    return primitives.uvarint(value)


def unknown_tags(count: int) -> bytes:
    """A section of so many tagged fields that nobody knows, two bytes each."""
    return uvarint(count) + b"\x7f\0" * count


@pytest.mark.parametrize("cls", [MetadataRequest, MetadataResponse], ids=lambda cls: cls.NAME)
def test_tagged_fields_in_one_place_are_as_many_as_kafka_takes(cls: type[Message]) -> None:
    """10,000 in requests and answers, bodies and headers: a request of 100 MB held the loop for seconds."""
    body = b"".join(encode(cls(), 12))
    assert body.endswith(b"\0")
    decode(cls, body[:-1] + unknown_tags(10_000), 12)
    with pytest.raises(ProtocolError, match="10001 tagged fields are above the limit of 10000"):
        decode(cls, body[:-1] + unknown_tags(10_001), 12)
    frame = b"".join(encode_request(MetadataRequest(), version=12, correlation_id=1, client_id=None))
    header, rest = frame[4:14], frame[15:]
    decode_request(header + unknown_tags(10_000) + rest)
    with pytest.raises(ProtocolError, match="10001 tagged fields are above the limit"):
        decode_request(header + unknown_tags(10_001) + rest)


def test_tagged_fields_in_many_places_of_a_request_are_counted_together() -> None:
    """Each costs a step of the loop that everybody shares: a request has room for 200,000."""
    topic = b"".join([bytes(16), b"\0"])  # no id, no name

    def body(topics: int) -> bytes:
        return b"".join(
            [uvarint(topics + 1), *[topic + unknown_tags(10_000)] * topics, b"\0\0" + unknown_tags(0)]
        )

    assert len(decode(MetadataRequest, body(20), 12).topics or ()) == 20
    with pytest.raises(ProtocolError, match="more than 200000 tagged fields in one request"):
        decode(MetadataRequest, body(21), 12)
