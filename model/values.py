"""Small values that every room uses."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""An object with contiguous bytes; a ``memoryview`` always has format ``B``."""

HeaderPairs: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Record headers as they are encoded: ordered; keys may repeat, a value may be null."""


class IsolationLevel(IntEnum):
    """Which transactional records a reader sees; the numbers are those of Fetch and ListOffsets."""

    READ_UNCOMMITTED = 0
    """All records, those of open and aborted transactions included."""
    READ_COMMITTED = 1
    """Records below the last stable offset, without those of aborted transactions."""


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
    """The result of a batch, as passed to ``on_batch``.

    Attributes:
        topic_partition: partition of the batch.
        base_offset: offset of the first record; -1 if the batch failed, and with ``acks=0``.
        record_count: number of records.
        base_timestamp: timestamp of the first record in milliseconds since the epoch, or the broker's append
            time if the topic uses LogAppendTime.
        max_timestamp: largest timestamp of the records, or the append time, likewise.
        error: why the batch failed; None if it was delivered. If the broker rejected some of the records,
            those have errors of their own.
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
        timestamp: milliseconds since the epoch: the record's own, or the broker's append time if the topic
            uses LogAppendTime.
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
