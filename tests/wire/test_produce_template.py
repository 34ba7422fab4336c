"""Produce requests known by their bytes are read and answered exactly as the declared codecs do it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer
from splashdam.wire.header import decode_request, encode_request, encode_response
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from splashdam.wire.produce_template import (
    REQUEST_START,
    TEMPLATE_AT,
    ProduceTemplate,
    template_of,
    template_size,
)

VERSIONS = st.sampled_from(range(3, 14))  # from 13 on with ids
TOPIC_ID = bytes(range(16))
NAMES = st.text("abcXYZ019._-", min_size=1, max_size=249)
INT64 = st.integers(-(2**63), 2**63 - 1)


def request_of(
    topic: str = "t", partition: int = 0, records: bytes | None = b"batch", **fields: Any
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        **{"acks": -1, "timeout_ms": 30_000, **fields},
        topic_data=[TopicProduceData(name=topic, topic_id=TOPIC_ID, partition_data=[data])],
    )


def frame_of(request: ProduceRequest, version: int, client_id: str | None = "c", number: int = 1) -> bytes:
    parts = encode_request(request, version=version, correlation_id=number, client_id=client_id)
    return b"".join(parts)[4:]


def end_of_form(frame: Buffer, version: int) -> int:
    start = TEMPLATE_AT + max(0, REQUEST_START.unpack_from(frame)[-1])
    return start + template_size(memoryview(frame), version, start)


def learned(frame: bytes, topic: str = "t") -> ProduceTemplate | None:
    header, request = decode_request(frame)
    assert isinstance(request, ProduceRequest)
    for each in request.topic_data if header.api_version >= 13 else ():
        assert (each.name, each.topic_id) == ("", TOPIC_ID)
        each.name = topic  # as the handler does
    return template_of(frame, request, header.api_version)


@given(
    version=VERSIONS,
    where=st.tuples(NAMES, st.integers(0, 2**31 - 1)),
    acks=st.sampled_from([-1, 1]),
    client_ids=st.tuples(*[st.none() | st.text(max_size=20)] * 2),
    batches=st.tuples(st.binary(min_size=1, max_size=300), st.binary(min_size=1, max_size=40_000)),
)
def test_later_requests_of_a_form(
    version: int,
    where: tuple[str, int],
    acks: int,
    client_ids: tuple[str | None, str | None],
    batches: tuple[bytes, bytes],
) -> None:
    """Client id and batch length do not matter: the second batch is found in the frame."""
    first, second = (request_of(*where, records, acks=acks) for records in batches)
    template = learned(frame_of(first, version, client_ids[0]), where[0])
    assert template is not None
    assert template.topic_partition == where
    assert template.topic_id == (TOPIC_ID if version >= 13 else None)
    later = frame_of(second, version, client_ids[1], 7)
    end = end_of_form(later, version)
    assert later[end - len(template.key) : end] == template.key
    assert template.records_of(memoryview(later), end) == batches[1]


@given(
    version=VERSIONS, topic=NAMES, number=st.integers(-(2**31), 2**31 - 1), offsets=st.tuples(*[INT64] * 3)
)
def test_answer_equals_the_encoders(
    version: int, topic: str, number: int, offsets: tuple[int, int, int]
) -> None:
    """One pack gives the bytes that the declared encoder gives."""
    template = learned(frame_of(request_of(topic, 5), version), topic)
    assert template is not None
    base_offset, appended_ms, start_offset = offsets
    partition = PartitionProduceResponse(
        index=5, base_offset=base_offset, log_append_time_ms=appended_ms, log_start_offset=start_offset
    )
    answered = TopicProduceResponse(name=topic, topic_id=TOPIC_ID, partition_responses=[partition])
    response = ProduceResponse(responses=[answered])
    expected = b"".join(encode_response(response, version=version, correlation_id=number))  # type: ignore[arg-type]  # all in memory
    assert template.answer(number, *offsets) == expected


@given(version=VERSIONS, records=st.binary(min_size=1, max_size=200), data=st.data())
def test_altered_frames_are_read_as_the_decoder_reads_them(
    version: int, records: bytes, data: st.DataObject
) -> None:
    """Whatever stands behind the template: what is found is what decoding finds, or nothing."""
    frame = bytearray(frame_of(request_of(records=records), version))
    template = learned(bytes(frame))
    assert template is not None
    end = end_of_form(frame, version)
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(end, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = frame[: data.draw(st.integers(end, len(frame)))]
    found = template.records_of(memoryview(cut), end)
    try:
        _, request = decode_request(cut)
    except ProtocolError:
        assert found is None
    else:
        decoded = request.topic_data[0].partition_data[0].records  # type: ignore[attr-defined]  # a Produce
        assert found is None or found == decoded


@pytest.mark.parametrize("version", [3, 9, 13])
def test_what_has_no_form(version: int) -> None:
    """Requests for no answer, or one nobody gives, of transactions, not of one batch for one partition."""
    two = request_of()
    two.topic_data = two.topic_data * 2
    both = request_of()
    both.topic_data[0].partition_data *= 2
    none = request_of()
    none.topic_data = []
    for request in (
        request_of(acks=0),
        request_of(acks=2),
        request_of(transactional_id="x"),
        request_of(records=None),
        request_of(records=b""),
        two,
        both,
        none,
    ):
        assert learned(frame_of(request, version)) is None


def test_bytes_that_the_schema_does_not_explain() -> None:
    """What follows the request, or stands in tagged fields behind the batch, belongs to no template."""
    request = request_of()
    for version in (8, 9):
        frame = frame_of(request, version)
        assert template_of(frame + b"\0", request, version) is None
    tagged = frame_of(request, 9)[:-1] + b"\x01\x05\x01x"
    assert learned(tagged) is None
    template = learned(frame_of(request, 9))
    assert template is not None
    end = end_of_form(tagged, 9)
    assert template.records_of(memoryview(tagged), end) is None
    for position in (-1, -2, -3):
        frame = bytearray(frame_of(request, 9))
        frame[position] = 1
        assert template.records_of(memoryview(frame), end) is None
