"""Requests that are filled in, and answers that are compared, say what the declared codecs say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.examples import examples

from splashdam.model.errors import ProtocolError
from splashdam.model.values import TopicPartition
from splashdam.wire.header import decode_response, encode_request, encode_response
from splashdam.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from splashdam.wire.produce_form import FIRST_VERSION, LAST_VERSION, Acknowledged, ProduceForm

VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)
TOPIC, INDEX = "tópic", 3


def form(version: int, **fields: Any) -> ProduceForm:
    settings = {"client_id": "me", "acks": -1, "timeout_ms": 30_000, "transactional_id": None, **fields}
    return ProduceForm(TopicPartition(TOPIC, INDEX), version, **settings)


def answer(version: int, topic: str = TOPIC, throttle_time_ms: int = 0, **fields: Any) -> memoryview:
    partition = PartitionProduceResponse(**{"index": INDEX, "base_offset": 7, **fields})
    response = ProduceResponse(
        responses=[TopicProduceResponse(name=topic, partition_responses=[partition])],
        throttle_time_ms=throttle_time_ms,
    )
    return framed(response, version)


def framed(response: ProduceResponse, version: int) -> memoryview:
    parts = encode_response(response, version=version, correlation_id=9)
    return memoryview(bytearray(b"".join(part for part in parts if isinstance(part, bytes))[4:]))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("transactional_id", [None, "mine"])
def test_requests(version: int, acks: int, transactional_id: str | None) -> None:
    """Byte for byte what the codec writes, around each change of a length's size and of the parts."""
    fields = {"acks": acks, "timeout_ms": 1_234, "transactional_id": transactional_id}
    for client_id in ("me", "", None):
        ours = form(version, client_id=client_id, **fields)
        for size in (1, 126, 127, 16_382, 16_383, 65_535, 65_536, 70_000):
            records = memoryview(bytes(size))
            data = PartitionProduceData(index=INDEX, records=records)
            request = ProduceRequest(
                topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])], **fields
            )
            declared = encode_request(request, version=version, correlation_id=77, client_id=client_id)
            filled = ours.fill(77, records)
            assert b"".join(filled) == b"".join(declared)
            assert (records in filled) == (size >= 65_536), "large records are not copied"


def test_a_frame_that_is_too_large() -> None:
    """It ends the batch and not the sender, as the codec's error does."""

    class Huge(bytes):
        def __len__(self) -> int:
            return (1 << 31) - 8

    with pytest.raises(ProtocolError, match="too large"):
        form(9).fill(1, Huge())


INT64 = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=examples(60))
@given(version=st.sampled_from(VERSIONS), offset=INT64, time_ms=INT64, start=INT64)
def test_answers(version: int, offset: int, time_ms: int, start: int) -> None:
    """All numbers that an acknowledgement can hold."""
    frame = answer(version, base_offset=offset, log_append_time_ms=time_ms, log_start_offset=start)
    assert form(version).read(frame) == Acknowledged(offset, time_ms)
    decoded = decode_response(frame, ProduceResponse, version)[1].responses[0].partition_responses[0]
    assert (decoded.base_offset, decoded.log_append_time_ms) == (offset, time_ms)


@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_says_more(version: int) -> None:
    """Errors, throttle times, hints, other partitions, fields of the future: they are decoded."""
    ours, plain = form(version), answer(version)
    assert ours.read(plain) == Acknowledged(7, -1)
    others = [
        answer(version, error_code=6),
        answer(version, index=INDEX + 1),
        answer(version, topic="topic"),
        answer(version, topic="tópid"),
        answer(version, throttle_time_ms=1),
        memoryview(bytearray(plain) + b"\0"),
        plain[:-1],
        plain[:4],
        memoryview(b""),
        framed(ProduceResponse(responses=[]), version),
    ]
    if version >= 8:
        others.append(answer(version, error_message="why"))
        others.append(answer(version, record_errors=[BatchIndexAndErrorMessage(batch_index=0)]))
    if version >= 10:
        others.append(answer(version, current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2)))
        hint = ProduceResponse(node_endpoints=[NodeEndpoint(node_id=1, host="h", port=1)])
        others.append(framed(hint, version))
    assert [ours.read(frame) for frame in others] == [None] * len(others)
