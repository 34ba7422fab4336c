"""Fetch and ListOffsets requests and what their answers hold: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Protocol

import attrs

from splashdam.model.broker_errors import CorruptMessageError, error_for
from splashdam.model.errors import ProtocolError
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.record.aborted import ABORT, AbortedTransactions, control_type
from splashdam.record.batch import BatchHeader
from splashdam.record.reader import Record, read_records
from splashdam.record.stored import iter_stored_headers, stored_crc_ok
from splashdam.wire.fields import NO_UUID
from splashdam.wire.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from splashdam.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_FIRST_VERSION_WITH_TOPIC_IDS = 13


class FetchLimits(Protocol):
    """The part of the settings that goes into a request."""

    @property
    def max_wait_ms(self) -> int:
        """How long the broker may wait."""
        ...

    @property
    def min_bytes(self) -> int:
        """For how many bytes it waits."""
        ...

    @property
    def max_bytes(self) -> int:
        """Most bytes of the answer."""
        ...

    @property
    def max_partition_bytes(self) -> int:
        """Most bytes of one partition."""
        ...

    @property
    def isolation_level(self) -> IsolationLevel:
        """Whether transactions that are not committed are read, too."""
        ...


@attrs.frozen
class FetchedBatches:
    """What a broker says of one partition, its batches as they stand in the log.

    Attributes:
        topic_partition: which one.
        batches: whole batches. The first may begin before the asked offset, and after it where compaction or
            the end of a transaction left nothing else. No checksum was looked at.
        aborted: with read_committed the aborted transactions that have records here, by producer and first
            offset; see `splashdam.record.aborted.AbortedTransactions`.
        next_offset: where to read on: behind the last batch, control batches too; the asked offset where
            there are none.
        high_watermark: the offset up to which records are committed to the log.
        last_stable_offset: the offset up to which read_committed reads; -1 where the broker does not say.
        log_start_offset: of the first record that is still there; -1 where the broker does not say.
        topic_id: the id that the topic was asked for by, which tells it from a later one of that name;
            `splashdam.wire.fields.NO_UUID` where it was asked for by name.
    """

    topic_partition: TopicPartition
    batches: memoryview
    aborted: list[AbortedTransaction]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    topic_id: bytes = NO_UUID


@attrs.frozen
class FetchedPartition:
    """News of one partition.

    Attributes:
        topic_partition: which one.
        records: from the asked offset on; control records are left out, and with read_committed the records
            of aborted transactions.
        next_offset: where to read on; it may be beyond the last record here.
        high_watermark: the offset up to which records are committed to the log, whatever becomes of their
            transactions.
    """

    topic_partition: TopicPartition
    records: list[Record]
    next_offset: int
    high_watermark: int


def fetch_request(
    topic: str, topic_id: bytes, positions: Mapping[int, int], limits: FetchLimits, version: int
) -> tuple[FetchRequest, int]:
    """A sessionless request and the version to send it in: topic ids are used only where one is known."""
    if topic_id == NO_UUID:
        version = min(version, _FIRST_VERSION_WITH_TOPIC_IDS - 1)
    elif version < _FIRST_VERSION_WITH_TOPIC_IDS:
        topic_id = NO_UUID
    partitions = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=limits.max_partition_bytes)
        for number, offset in positions.items()
    ]
    request = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)],
    )
    return request, version


def read_fetch_response(
    response: FetchResponse, topic: str, positions: Mapping[int, int], topic_id: bytes = NO_UUID
) -> list[FetchedBatches]:
    """The partitions of a one-topic answer, those without news, too.

    Args:
        response: the answer.
        topic: the topic's name.
        positions: the offset that was asked for, by partition.
        topic_id: the id it was asked for by.

    Raises:
        BrokerResponseError: the answer or one of its partitions has an error.
        CorruptMessageError: the header of a batch is damaged.
        ProtocolError: the answer names a partition that was not asked for.
    """
    if response.error_code:
        raise error_for(response.error_code, f"fetch of {topic!r}")
    fetched = []
    for answer in response.responses:
        for data in answer.partitions:
            where = TopicPartition(topic, data.partition_index)
            if where.partition not in positions:
                raise ProtocolError(f"FetchResponse: {where} was not asked for")
            fetched.append(_read_partition(data, where, positions[data.partition_index], topic_id))
    return fetched


def _read_partition(
    data: PartitionData, where: TopicPartition, position: int, topic_id: bytes
) -> FetchedBatches:
    if data.error_code:
        raise error_for(data.error_code, f"fetch of {where} at offset {position}")
    batches = data.records if isinstance(data.records, memoryview) else memoryview(b"")
    end, next_offset = 0, position
    for start, header in iter_stored_headers(batches):
        end, next_offset = start + header.size_bytes, max(position, header.next_offset)
    return FetchedBatches(
        where,
        batches[:end],
        data.aborted_transactions or [],  # none are named with read_uncommitted
        next_offset,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        topic_id,
    )


def records_of(fetched: FetchedBatches, position: int) -> FetchedPartition:
    """The records of fetched batches from ``position`` on.

    Raises:
        CorruptMessageError: a batch is damaged.
    """
    where, batches = fetched.topic_partition, fetched.batches
    aborted = AbortedTransactions(fetched.aborted)
    records: list[Record] = []
    for start, header in iter_stored_headers(batches):
        _check(batches, start, header, where)
        if header.is_control:
            if control_type(batches, start) == ABORT:
                aborted.ended_by(header)
        elif aborted.of_data(header) is None:
            records += [each for each in read_records(batches, start) if each.offset >= position]
    return FetchedPartition(where, records, fetched.next_offset, fetched.high_watermark)


def _check(batches: memoryview, start: int, header: BatchHeader, where: TopicPartition) -> None:
    if not stored_crc_ok(batches, start, header):
        raise CorruptMessageError(f"{where}: the batch at offset {header.base_offset} fails its checksum")


def offsets_request(
    partitions: Iterable[TopicPartition],
    timestamp: int,
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> ListOffsetsRequest:
    """Asks a leader for the first offset at or after a time in each partition, those of a topic in a row."""
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(partition_index=each.partition, timestamp=timestamp) for each in chosen
            ],
        )
        for topic, chosen in groupby(partitions, lambda where: where.topic)
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)


def read_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, int]:
    """The offsets found, -1 where there is none.

    Raises:
        BrokerResponseError: a partition has an error.
    """
    found = {}
    for topic in response.topics:
        for each in topic.partitions:
            where = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                raise error_for(each.error_code, f"offsets of {where}")
            found[where] = each.offset
    return found
