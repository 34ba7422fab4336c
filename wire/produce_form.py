"""A Produce request with one batch, and the answer that acknowledges it, without building either message.

Requests for one partition differ in correlation id and batch alone, their answers in correlation id and
offsets. A form is cut out of what the declared codecs encode once; later requests are filled in, and answers
are compared with it. Whatever does not fit (an error, a throttle time, several partitions) is for the codecs.
The broker reads such requests by ``produce_template.py``.
"""

from __future__ import annotations

import struct
from typing import ClassVar, NamedTuple

from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.wire.header import encode_request, encode_response
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from splashdam.wire.primitives import UNCOPIED_BYTES, uvarint

_START = struct.Struct(">ihhi")
"""Frame size, API key, version, correlation id."""
_INT32 = struct.Struct(">i")
_ANSWER_START_BYTES = 8
"""Frame size and correlation id."""
_NUMBERS_AT = 4
"""Where an answer's body begins in a frame without its size."""

_PROBE_RECORDS = b"\xff" * 16
"""Placeholders that no text of a request or answer can hold: they are not UTF-8."""
_PROBE_NUMBER = struct.Struct(">q").pack(-2)

FIRST_VERSION = 3
LAST_VERSION = 12
"""Newer versions name topics by id."""


class Acknowledged(NamedTuple):
    """What an answer says of a written batch."""

    base_offset: int
    log_append_time_ms: int


class ProduceForm:
    """The requests of one producer for one partition, in one version.

    Args:
        topic_partition: where the batches go.
        version: of the request, `FIRST_VERSION` to `LAST_VERSION`.
        client_id, acks, timeout_ms, transactional_id: of all its requests; ``acks`` is not 0.

    Attributes:
        version: of request and answer.
    """

    REQUEST: ClassVar[type[ProduceRequest]] = ProduceRequest

    __slots__ = ("_after", "_before", "_flexible", "_head", "_numbers", "_size", "_tail", "version")

    def __init__(
        self,
        topic_partition: TopicPartition,
        version: int,
        *,
        client_id: str | None,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None,
    ) -> None:
        topic, index = topic_partition
        self.version = version
        self._flexible = ProduceRequest.is_flexible(version)
        data = PartitionProduceData(index=index, records=_PROBE_RECORDS)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        frame = b"".join(encode_request(request, version=version, correlation_id=0, client_id=client_id))
        # It is in the frame exactly once, since no text can hold it.
        head, self._tail = frame.split(_PROBE_RECORDS)
        self._head = head[_START.size : -len(self._length(len(_PROBE_RECORDS)))]
        self._read_answer(topic, index)

    def _read_answer(self, topic: str, index: int) -> None:
        partition = PartitionProduceResponse(
            index=index, base_offset=-2, log_append_time_ms=-2, log_start_offset=-2
        )
        response = ProduceResponse(
            responses=[TopicProduceResponse(name=topic, partition_responses=[partition])]
        )
        parts = encode_response(response, version=self.version, correlation_id=0)
        frame = b"".join(part for part in parts if isinstance(part, bytes))
        # Older versions have fewer of them; they always stand side by side.
        numbers = _PROBE_NUMBER * frame.count(_PROBE_NUMBER)
        before, self._after = frame[_ANSWER_START_BYTES:].split(numbers)
        self._before = before
        self._size = len(frame) - _INT32.size
        self._numbers = struct.Struct(f">{len(numbers) // 8}q")

    def _length(self, size_bytes: int) -> bytes:
        return uvarint(size_bytes + 1) if self._flexible else _INT32.pack(size_bytes)

    def fill(self, correlation_id: int, records: Buffer) -> list[Buffer]:
        """Return the parts of a request's frame; records of 64 KiB and more are a part of their own.

        Raises:
            ProtocolError: the frame would have 2 GiB or more.
        """
        size_bytes = len(records)
        # As `_length`, without a call.
        length = uvarint(size_bytes + 1) if self._flexible else _INT32.pack(size_bytes)
        head, tail = self._head, self._tail
        frame_bytes = _START.size - _INT32.size + len(head) + len(length) + size_bytes + len(tail)
        try:
            start = _START.pack(frame_bytes, ProduceRequest.API_KEY, self.version, correlation_id)
        except struct.error as error:
            raise ProtocolError(f"a frame of {frame_bytes} bytes is too large") from error
        if size_bytes < UNCOPIED_BYTES:
            return [b"".join((start, head, length, records, tail))]
        return [b"".join((start, head, length)), records, tail] if tail else [start + head + length, records]

    def read(self, frame: memoryview) -> Acknowledged | None:
        """Return what an answer says, without its size and whatever its correlation id; None if it says more.

        An error, a throttle time, a hint at a leader and unknown fields are more.
        """
        before, after = self._before, self._after
        numbers_at = _NUMBERS_AT + len(before)
        if len(frame) != self._size or frame[-len(after) :] != after:
            return None
        if frame[_NUMBERS_AT:numbers_at] != before:
            return None
        offset, log_append_time_ms, *_ = self._numbers.unpack_from(frame, numbers_at)
        return Acknowledged(offset, log_append_time_ms)
