"""The small values that travel through every room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Anything with contiguous bytes; a ``memoryview`` is always of format ``B``."""

HeaderPairs: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Record headers as they are encoded: in order, keys may repeat, a value may be null."""

HeadersLike: TypeAlias = Sequence[tuple[str, Buffer | None]] | Mapping[str, Buffer | None]
"""Record headers as an application may give them."""


class IsolationLevel(IntEnum):
    """What a reader gets to see of transactions; the numbers are those of Fetch and ListOffsets."""

    READ_UNCOMMITTED = 0
    """Everything, also what is or will be aborted."""
    READ_COMMITTED = 1
    """What is below the last stable offset, without what was aborted."""


class TopicPartition(NamedTuple):
    """A partition of a topic.

    Attributes:
        topic: name of the topic.
        partition: number of the partition, from 0.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class BatchMetadata(NamedTuple):
    """What became of a batch; what ``on_batch`` is called with.

    Attributes:
        topic_partition: where it went.
        base_offset: offset of its first record; -1 if it failed, and with ``acks=0``.
        record_count: how many records it has.
        base_timestamp: of its first record, or the broker's append time where the topic uses LogAppendTime.
            Milliseconds since the epoch.
        max_timestamp: the highest of its records, or as above.
        error: why it failed; None if it was delivered. If the broker has refused some of the records, they
            have errors of their own.
    """

    topic_partition: TopicPartition
    base_offset: int
    record_count: int
    base_timestamp: int
    max_timestamp: int
    error: BaseException | None


class RecordMetadata(NamedTuple):
    """Where an acknowledged record went. Field names and order are kafka-python's.

    Attributes:
        topic: name of the topic.
        partition: number of the partition.
        topic_partition: both as one value.
        offset: offset of this record in the partition, -1 with ``acks=0``.
        timestamp: milliseconds since the epoch: the record's own, or the broker's append time where the
            topic uses LogAppendTime.
        checksum: always ``None``; message format 2 has no checksum per record.
        serialized_key_size: bytes, -1 for a null key.
        serialized_value_size: bytes, -1 for a null value.
        serialized_header_size: bytes of UTF-8 keys and values, -1 without headers.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int
