"""A minimal consumer: a topic's partitions, offsets and records, for ``splashdam tail`` and Spark jobs.

It has no group, no fetch session and no position: the caller passes the offsets to read from. With isolation
level read_committed it returns no records of open and aborted transactions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import NamedTuple, TypeVar

import attrs
import trio

from splashdam.model.broker_errors import (
    CorruptMessageError,
    UnknownTopicOrPartitionError,
    error_for,
)
from splashdam.model.cluster import ClusterMetadata, Node
from splashdam.model.errors import KafkaError, ProtocolError, RetriableError
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.clock import Clock
from splashdam.net.cluster.cluster_connections import ClusterConnections, open_connections
from splashdam.net.cluster.metadata_reading import by_leader
from splashdam.net.connect import Connect
from splashdam.net.connection.connection import Authenticator
from splashdam.record.aborted_transactions import ABORT, AbortedTransactions, control_type
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

T = TypeVar("T")

LATEST = -1
"""As a timestamp: the offset after the last readable record."""
EARLIEST = -2
"""As a timestamp: the offset of the first record."""


@attrs.frozen(kw_only=True)
class FetchSettings:
    """Settings of a `FetchClient`.

    Attributes:
        client_id: sent with each request.
        request_timeout_ms: time limit for one response.
        timeout_ms: time limit for a call, with all retries after retriable errors.
        retry_backoff_ms: pause before a retry.
        awaits_first_broker: retry, too, while all addresses refuse connections before the first contact.
        max_wait_ms: how long a broker may wait for ``min_bytes``.
        min_bytes: how many bytes a broker collects before it responds.
        max_bytes: limit of one response; a larger first batch is returned whole nevertheless.
        max_partition_bytes: limit of one partition in one response, likewise.
        isolation_level: whether to read records of open and aborted transactions; they are by default, as in
            Kafka.
    """

    client_id: str = "splashdam"
    request_timeout_ms: float = 30_000
    timeout_ms: float = 60_000
    retry_backoff_ms: float = 100
    awaits_first_broker: bool = True
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    max_partition_bytes: int = 1024 * 1024
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


@asynccontextmanager
async def open_fetch_client(
    bootstrap: Sequence[tuple[str, int]],
    *,
    connect: Connect,
    clock: Clock,
    settings: FetchSettings | None = None,
    authenticator: Authenticator | None = None,
) -> AsyncIterator[FetchClient]:
    """Provide a `FetchClient` for the block. It connects with the first call.

    Args:
        bootstrap: addresses, see `splashdam.net.addresses.parse_bootstrap_servers`.
        connect: opens streams, for example `splashdam.net.connect.TcpConnect`.
        clock: for deadlines.
        settings: see `FetchSettings`.
        authenticator: see `ClusterConnections`.
    """
    settings = settings or FetchSettings()
    async with open_connections(
        bootstrap,
        connect=connect,
        clock=clock,
        settings=settings,
        authenticator=authenticator,
        awaits_first_broker=settings.awaits_first_broker,
    ) as connections:
        yield FetchClient(connections, settings)


class FetchClient:
    """Reads a topic; made by `open_fetch_client`. One task at a time may use it.

    Calls are retried after retriable errors (a leader moves, a connection breaks) for ``timeout_ms``; then
    they raise ``KafkaTimeoutError``. For a topic that does not exist they raise
    ``UnknownTopicOrPartitionError`` at once.
    """

    def __init__(self, connections: ClusterConnections, settings: FetchSettings) -> None:
        self._connections = connections
        self._settings = settings
        self._clusters: dict[str, ClusterMetadata] = {}
        self._nodes: list[Node] = []

    async def partitions(self, topic: str) -> list[int]:
        """Return the topic's partition numbers, ascending."""

        async def numbers(cluster: ClusterMetadata) -> list[int]:
            return [info.partition for info in cluster.topics[topic].partitions]

        return await self._persist(topic, f"partitions of {topic!r}", numbers)

    async def offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        """Return for each partition the offset of its first record at or after a time, else -1.

        Args:
            topic: name of the topic.
            partitions: partition numbers.
            timestamp: milliseconds since the epoch, or `LATEST` or `EARLIEST`.
        """

        async def look_up(cluster: ClusterMetadata) -> dict[int, int]:
            found: dict[int, int] = {}
            for node, numbers in _by_leader(cluster, topic, partitions).items():
                found |= await self._offsets_at(node, topic, numbers, timestamp)
            return found

        return await self._persist(topic, f"offsets of {topic!r}", look_up)

    async def fetch(self, topic: str, positions: Mapping[int, int]) -> list[FetchedPartition]:
        """Read records from the given offsets on, from all leaders concurrently.

        Args:
            topic: name of the topic.
            positions: the offset to read next, by partition.

        Returns:
            The partitions that have advanced, perhaps none. Continue at their ``next_offset``.

        Raises:
            OffsetOutOfRangeError: a position is below the log start offset or above the end of the log.
            CorruptMessageError: a batch fails its checksum.
        """

        async def read(cluster: ClusterMetadata) -> list[FetchedPartition]:
            return await self._fetch_once(cluster, topic, positions, self._settings, _news)

        return await self._persist(topic, f"records of {topic!r}", read)

    async def fetch_batches(
        self, topic: str, positions: Mapping[int, int], *, max_partition_bytes: int | None = None
    ) -> list[FetchedBatches]:
        """Read batches as they are in the log, without decompressing them or checking their checksums.

        Args:
            topic: name of the topic.
            positions: the offset to read next, by partition.
            max_partition_bytes: overrides the setting.

        Returns:
            All partitions of the responses, also those without batches.

        Raises:
            OffsetOutOfRangeError: a position is below the log start offset or above the end of the log.
            CorruptMessageError: the header of a batch is damaged.
        """

        limits = self._settings
        if max_partition_bytes is not None:
            limits = attrs.evolve(limits, max_partition_bytes=max_partition_bytes)

        async def read(cluster: ClusterMetadata) -> list[FetchedBatches]:
            return await self._fetch_once(cluster, topic, positions, limits, _as_they_are)

        return await self._persist(topic, f"batches of {topic!r}", read)

    async def fetch_bytes(
        self, topic: str, positions: Mapping[int, int], *, max_partition_bytes: int
    ) -> dict[int, memoryview]:
        """Read bytes of the log without a look at them: a loop that others share has no time for each batch.

        Args:
            topic: name of the topic.
            positions: the offset to read next, by partition.
            max_partition_bytes: overrides the setting.

        Returns:
            By partition: batches, of which the first may begin before the requested offset; the last one may
            be cut off.

        Raises:
            OffsetOutOfRangeError: a position is below the log start offset or above the end of the log.
        """
        limits = attrs.evolve(self._settings, max_partition_bytes=max_partition_bytes)

        async def read(cluster: ClusterMetadata) -> dict[int, memoryview]:
            return dict(await self._fetch_once(cluster, topic, positions, limits, _unread))

        return await self._persist(topic, f"bytes of {topic!r}", read)

    async def _persist(self, topic: str, what: str, attempt: Callable[[ClusterMetadata], Awaitable[T]]) -> T:
        async def ask() -> T:
            return await attempt(await self._cluster(topic))

        def is_final(error: RetriableError) -> bool:
            if isinstance(error, CorruptMessageError):
                return True  # a retry would read the same damaged bytes
            known = self._clusters.pop(topic, None)
            # With metadata from before it is asked once more: the topic may have been created since.
            return known is None and isinstance(error, UnknownTopicOrPartitionError)

        return await self._connections.retry(
            what,
            ask,
            timeout_ms=self._settings.timeout_ms,
            backoff_ms=self._settings.retry_backoff_ms,
            is_final=is_final,
        )

    async def _cluster(self, topic: str) -> ClusterMetadata:
        if topic not in self._clusters:
            cluster = await self._connections.metadata(topic, self._nodes)
            self._nodes = list(cluster.nodes.values())
            self._clusters[topic] = cluster
        return self._clusters[topic]

    async def _offsets_at(
        self, node: Node, topic: str, partitions: Sequence[int], timestamp: int
    ) -> dict[int, int]:
        asked = [TopicPartition(topic, number) for number in partitions]
        connection = await self._connections.to(node)
        response = await connection.request(offsets_request(asked, timestamp, self._settings.isolation_level))
        found = {where.partition: offset for where, offset in read_offsets(response).items()}
        if found.keys() != set(partitions):
            raise ProtocolError(
                f"ListOffsetsResponse: partitions {sorted(partitions)} of {topic!r} were requested, but"
                f" it contains {sorted(found)}"
            )
        return found

    async def _fetch_once(
        self,
        cluster: ClusterMetadata,
        topic: str,
        positions: Mapping[int, int],
        limits: FetchSettings,
        read: Read[T],
    ) -> list[T]:
        """Fetch once from all leaders; if some have records, ignore a retriable error of another."""
        fetched: list[T] = []
        failures: list[KafkaError] = []

        async def ask(node: Node, numbers: list[int]) -> None:
            try:
                here = {number: positions[number] for number in numbers}
                fetched.extend(read(*await self._fetch_from(node, cluster, topic, here, limits), here))
            except KafkaError as error:
                # Kept until all have answered: the records of other leaders must not be lost with it.
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for node, numbers in _by_leader(cluster, topic, positions).items():
                nursery.start_soon(ask, node, numbers)
        for failure in failures:
            if not (fetched and isinstance(failure, RetriableError)):
                raise failure
        return fetched

    async def _fetch_from(
        self,
        node: Node,
        cluster: ClusterMetadata,
        topic: str,
        positions: Mapping[int, int],
        limits: FetchSettings,
    ) -> tuple[FetchResponse, TopicKey]:
        connection = await self._connections.to(node)
        topic_id = cluster.topics[topic].topic_id
        version = connection.version_for(FetchRequest)
        request, version = fetch_request(topic, topic_id, positions, limits, version)
        # The broker may wait for ``min_bytes`` before it begins to answer.
        timeout_ms = limits.max_wait_ms + self._settings.request_timeout_ms
        response = await connection.request(request, version, timeout_ms=timeout_ms)
        return response, TopicKey(topic, request.topics[0].topic_id)


def _by_leader(cluster: ClusterMetadata, topic: str, partitions: Iterable[int]) -> dict[Node, list[int]]:
    led = by_leader(cluster, [TopicPartition(topic, number) for number in partitions])
    return {node: [each.partition for each in those] for node, those in led.items()}


class TopicKey(NamedTuple):
    """The topic of a request, and the topic id that it named."""

    topic: str
    topic_id: bytes


def _as_they_are(
    response: FetchResponse, asked: TopicKey, positions: Mapping[int, int]
) -> list[FetchedBatches]:
    return read_fetch_response(response, asked.topic, positions, asked.topic_id)


def _news(response: FetchResponse, asked: TopicKey, positions: Mapping[int, int]) -> list[FetchedPartition]:
    fetched = _as_they_are(response, asked, positions)
    found = [(each, positions[each.topic_partition.partition]) for each in fetched]
    return [records_of(each, position) for each, position in found if each.next_offset > position]


def _unread(
    response: FetchResponse, asked: TopicKey, positions: Mapping[int, int]
) -> list[tuple[int, memoryview]]:
    return [
        (where.partition, _bytes_of(data)) for where, data in _partitions_of(response, asked.topic, positions)
    ]


_FIRST_VERSION_WITH_TOPIC_IDS = 13


@attrs.frozen
class FetchedBatches:
    """One partition of a fetch response, with batches as they are in the log.

    Attributes:
        topic_partition: the partition.
        batches: whole batches. The first may begin before the requested offset (it is returned whole), or
            after it (compaction removed the records between). Checksums are not checked.
        aborted: with read_committed the aborted transactions that have records here; see
            `splashdam.record.aborted_transactions.AbortedTransactions`.
        next_offset: offset to read next: after the last batch, control batches included; the requested offset
            if there are no batches.
        high_watermark: high watermark of the partition.
        last_stable_offset: last stable offset, up to which read_committed reads; -1 if the broker does not
            say.
        log_start_offset: log start offset; -1 if the broker does not say.
        topic_id: the topic id of the request, which tells the topic from a later one of the same name;
            `splashdam.wire.fields.NO_UUID` if the request used the name.
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
    """New records of one partition.

    Attributes:
        topic_partition: the partition.
        records: from the requested offset on, without control records, and with read_committed without
            records of aborted transactions.
        next_offset: offset to read next; it may be larger than that of the last record plus one.
        high_watermark: high watermark of the partition.
    """

    topic_partition: TopicPartition
    records: list[Record]
    next_offset: int
    high_watermark: int


Read = Callable[[FetchResponse, TopicKey, Mapping[int, int]], list[T]]
"""Turns a response into results; the last argument is the requested offsets."""


def fetch_request(
    topic: str, topic_id: bytes, positions: Mapping[int, int], limits: FetchSettings, version: int
) -> tuple[FetchRequest, int]:
    """Make a request without a session, and its version: one with topic ids only if the id is known."""
    if topic_id == NO_UUID:  # brokers before Kafka 2.8 have no topic ids
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
    """Return the partitions of a response for one topic, also those without batches.

    Args:
        response: the response.
        topic: name of the topic.
        positions: the requested offsets, by partition.
        topic_id: the requested topic id.

    Raises:
        BrokerResponseError: the response or one of its partitions has an error.
        CorruptMessageError: the header of a batch is damaged.
        ProtocolError: the response contains a partition that was not requested.
    """
    return [
        _read_partition(data, where, positions[where.partition], topic_id)
        for where, data in _partitions_of(response, topic, positions)
    ]


def _partitions_of(
    response: FetchResponse, topic: str, positions: Mapping[int, int]
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """Yield the partitions of a response; raise their errors."""
    if response.error_code:
        raise error_for(response.error_code, f"fetch of {topic!r}")
    for answer in response.responses:
        for data in answer.partitions:
            where = TopicPartition(topic, data.partition_index)
            if where.partition not in positions:
                raise ProtocolError(f"FetchResponse: {where} was not requested")
            if data.error_code:
                position = positions[where.partition]
                raise error_for(data.error_code, f"fetch of {where} at offset {position}")
            yield where, data


def _bytes_of(data: PartitionData) -> memoryview:
    return data.records if isinstance(data.records, memoryview) else memoryview(b"")


def _read_partition(
    data: PartitionData, where: TopicPartition, position: int, topic_id: bytes
) -> FetchedBatches:
    batches = _bytes_of(data)
    # A broker cuts the last batch off at the byte limit: only whole batches count. Offsets go by the headers,
    # since compaction may have removed a batch's last records.
    end, next_offset = 0, position
    for start, header in iter_stored_headers(batches):
        end, next_offset = start + header.size_bytes, max(position, header.next_offset)
    return FetchedBatches(
        where,
        batches[:end],
        data.aborted_transactions or [],  # null with read_uncommitted
        next_offset,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        topic_id,
    )


def records_of(fetched: FetchedBatches, position: int) -> FetchedPartition:
    """Decode the records of fetched batches from ``position`` on.

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
    """Request the first offset at or after a time; ``partitions`` must be in order of their topics."""
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
    """Return the offsets of a response, -1 for none.

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
