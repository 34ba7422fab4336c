"""Reads Produce requests without decoding them, if they differ only in client id, correlation id and batch.

The bytes between a request's client id and its batch name acks, topic and partition. Requests of one version
with the same bytes there differ in nothing else: they share a template. One decoded request makes the
template. Later ones are recognized by comparing these bytes, and answered by one ``pack`` into the frame that
the declared encoder made once (docs/decisions/embedded-broker.md).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer, TopicPartition
from splashdam.wire.codec import decode
from splashdam.wire.header import decode_request_header, encode_response
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from splashdam.wire.primitives import IllegalBytes, read_uvarint, uvarint

REQUEST_START = struct.Struct(">hhih")
"""API key, version, correlation id and the size of the client id that follows, -1 for none."""

TEMPLATE_AT = REQUEST_START.size
"""Where the template begins in a frame without a client id; with a client id, it begins after that."""

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NO_TAGS = b"\0\0\0"  # of the partition, the topic and the request
_PROBE = (-0x0102030405060708, -0x1112131415161718, -0x2122232425262728)
"""Placeholders whose bytes cannot be in a topic name, to find where an encoded response has its numbers."""

_FIRST_LOG_START_VERSION = 5
_FIRST_TOPIC_ID_VERSION = 13
_FIRST_TRANSACTION_VERSION = 3
_NO_TOPIC_ID = bytes(16)


class ProduceTemplate:
    """Reads the requests that match it, and makes their responses.

    Attributes:
        version: the version of request and response.
        key: the bytes that all such requests share: those between the client id and the batch's length.
        topic_partition: where the batch goes.
        topic_id: the topic's id, if the request names the topic by its id; else None.
    """

    __slots__ = (
        "_answer_size",
        "_flexible",
        "_head",
        "_pack",
        "_tail",
        "key",
        "topic_id",
        "topic_partition",
        "version",
    )

    def __init__(
        self, version: int, key: bytes, topic_partition: TopicPartition, topic_id: bytes | None
    ) -> None:
        self.version = version
        self.key = key
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._flexible = ProduceRequest.is_flexible(version)
        self._compile_answer()

    def records_of(self, frame: memoryview, position: int) -> memoryview | None:
        """Return the batch of a frame in which ``key`` ends at ``position``.

        Return None if the batch is missing or empty, or if anything follows it.
        """
        if self._flexible:
            try:
                size, position = read_uvarint(frame, position)
            except (IllegalBytes, IndexError):
                return None
            stop = position + size - 1
            if size > 1 and stop + len(_NO_TAGS) == len(frame) and frame[stop:] == _NO_TAGS:
                return frame[position:stop]
        elif len(frame) - position > _INT32.size:
            (size,) = _INT32.unpack_from(frame, position)
            position += _INT32.size
            if size > 0 and position + size == len(frame):
                return frame[position:]
        return None

    def answer(
        self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> bytes:
        """Return the frame of the response for a written batch."""
        if self.version < _FIRST_LOG_START_VERSION:
            return self._pack(
                self._answer_size, correlation_id, self._head, base_offset, log_append_time_ms, self._tail
            )
        return self._pack(
            self._answer_size,
            correlation_id,
            self._head,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            self._tail,
        )

    def _compile_answer(self) -> None:
        numbers = _PROBE if self.version >= _FIRST_LOG_START_VERSION else _PROBE[:2]
        partition = PartitionProduceResponse(
            index=self.topic_partition.partition,
            base_offset=_PROBE[0],
            log_append_time_ms=_PROBE[1],
            log_start_offset=_PROBE[2],
        )
        topic = TopicProduceResponse(
            name=self.topic_partition.topic,
            topic_id=self.topic_id or _NO_TOPIC_ID,
            partition_responses=[partition],
        )
        parts = encode_response(ProduceResponse(responses=[topic]), version=self.version, correlation_id=0)
        frame = b"".join(part for part in parts if isinstance(part, bytes))
        layout = struct.Struct(f">{len(numbers)}q")
        at = frame.index(layout.pack(*numbers))
        self._head, self._tail = frame[2 * _INT32.size : at], frame[at + layout.size :]
        self._answer_size = len(frame) - _INT32.size
        pack: Callable[..., bytes] = struct.Struct(
            f">ii{len(self._head)}s{len(numbers)}q{len(self._tail)}s"
        ).pack
        self._pack = pack


def template_size(frame: memoryview, version: int, start: int) -> int:
    """Return the size of the template that begins at ``start``; any number for a frame without a template.

    That is harmless: the caller compares so many bytes with the templates it knows.

    Raises:
        IndexError, struct.error: the frame has no template.
    """
    if ProduceRequest.is_flexible(version):
        at = start + 9  # no tags, no transaction, acks, timeout, one topic
        if version >= _FIRST_TOPIC_ID_VERSION:
            at += len(_NO_TOPIC_ID)
        else:
            size, at = read_uvarint(frame, at)
            at += size - 1
        return at + 5 - start  # one partition, its index
    at = start + (12 if version >= _FIRST_TRANSACTION_VERSION else 10)
    name_size: int = _INT16.unpack_from(frame, at)[0]
    return at + _INT16.size + name_size + 8 - start


def template_of(frame: Buffer, request: ProduceRequest, version: int) -> ProduceTemplate | None:
    """Return the template of a request that was decoded from ``frame``; its topic ids are names by now.

    Return None unless it has one batch for one partition with acks 1 or -1, outside of transactions, and its
    bytes hold nothing that the decoder ignores, such as unknown tagged fields.
    """
    if len(request.topic_data) != 1 or request.acks not in (1, -1) or request.transactional_id is not None:
        return None
    (topic,) = request.topic_data
    if len(topic.partition_data) != 1 or not topic.partition_data[0].records:
        return None
    (data,) = topic.partition_data
    size = len(data.records or b"")
    flexible = ProduceRequest.is_flexible(version)
    length = uvarint(size + 1) if flexible else _INT32.pack(size)
    end = len(frame) - size - len(length) - (len(_NO_TAGS) if flexible else 0)
    start = bytes(memoryview(frame)[:end])
    if not _holds_nothing_else(start, request, version):
        return None
    topic_id = topic.topic_id if version >= _FIRST_TOPIC_ID_VERSION else None
    key = start[TEMPLATE_AT + max(0, REQUEST_START.unpack_from(start)[-1]) :]
    return ProduceTemplate(version, key, TopicPartition(topic.name, data.index), topic_id)


def _holds_nothing_else(start: bytes, request: ProduceRequest, version: int) -> bool:
    """Whether these bytes with an empty batch decode to the request: then nothing unknown is in them."""
    rest = uvarint(1) + _NO_TAGS if ProduceRequest.is_flexible(version) else _INT32.pack(0)
    (topic,) = request.topic_data
    (data,) = topic.partition_data
    emptied = ProduceRequest(
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=[
            TopicProduceData(
                name="" if version >= _FIRST_TOPIC_ID_VERSION else topic.name,
                topic_id=topic.topic_id,
                partition_data=[PartitionProduceData(index=data.index, records=b"")],
            )
        ],
    )
    try:
        _, position = decode_request_header(start)
        return decode(ProduceRequest, start + rest, version, position=position) == emptied
    except ProtocolError:
        return False
