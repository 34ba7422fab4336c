"""Record batches pass through the codecs without a copy."""

from __future__ import annotations

import attrs
import pytest

from splashdam.wire.codec import decode, encode
from splashdam.wire.header import decode_response, encode_request, encode_response
from splashdam.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from splashdam.wire.primitives import UNCOPIED_BYTES

LARGE = bytes(UNCOPIED_BYTES)


def produce(*batches: bytes | bytearray | memoryview) -> ProduceRequest:
    """A request with these batches as partitions."""
    partitions = [PartitionProduceData(index=number, records=batch) for number, batch in enumerate(batches)]
    return ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=partitions)])


@pytest.mark.parametrize("version", [3, 9])
def test_large_records_are_parts_by_reference(version: int) -> None:
    """From 64 KiB on, records are a part of their own: the very object that was given."""
    large = memoryview(bytearray(LARGE))
    request = produce(b"small", large, b"small too")
    parts = encode_request(request, version=version, correlation_id=1, client_id=None)
    assert len(parts) == 3
    assert parts[1] is large
    assert b"small too" in bytes(parts[2])


def test_small_records_are_coalesced() -> None:
    """Below 64 KiB they share one buffer with their neighbours."""
    (frame,) = encode_request(produce(*[b"batch"] * 3), version=9, correlation_id=1, client_id="c")
    assert bytes(frame).count(b"batch") == 3
    parts = encode_request(produce(*[LARGE[1:]] * 3), version=9, correlation_id=1, client_id="c")
    assert [len(part) > UNCOPIED_BYTES for part in parts] == [False, True]


def test_the_size_counts_every_part() -> None:
    """The frame's size covers copied and uncopied parts."""
    frame = b"".join(encode_request(produce(LARGE, b"x", LARGE), version=9, correlation_id=1, client_id="c"))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def test_decoded_records_are_slices_of_the_frame() -> None:
    """What the frame shows later, the records show: nothing was copied."""
    body = bytearray(b"".join(encode(produce(b"batch"), 9)))
    records = decode(ProduceRequest, body, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert not records.readonly
    body[body.index(b"batch")] = ord("B")
    assert records == b"Batch"


@attrs.frozen
class Slice:
    """Stands for a slice of a file."""

    size_bytes: int


@pytest.mark.parametrize("version", [4, 12, 17])
@pytest.mark.parametrize("size_bytes", [3, 300_000])
def test_file_slices_stay_parts(version: int, size_bytes: int) -> None:
    """A part that is not in memory is handed through, whatever its size."""
    piece = Slice(size_bytes)
    data = PartitionData(partition_index=5, records=piece)
    message = FetchResponse(responses=[FetchableTopicResponse(partitions=[data])])
    parts = encode_response(message, version=version, correlation_id=9)
    assert parts[1] is piece
    frame = b"".join(bytes(part.size_bytes) if isinstance(part, Slice) else bytes(part) for part in parts)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, decoded = decode_response(frame[4:], FetchResponse, version)
    assert correlation_id == 9
    assert decoded.responses[0].partitions[0].records == bytes(size_bytes)
