"""A minimal reader: a topic's partitions, their offsets and their records. For ``splashdam tail`` and jobs.

It has no group, no session and no position of its own: the caller says from where to read. With the isolation
level read_committed, records of open transactions do not come yet and those of aborted ones never.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from typing import TypeVar

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

T = TypeVar("T")

LATEST = -1
"""As a timestamp: the offset behind the last record that can be read."""
EARLIEST = -2
"""As a timestamp: the offset of the first record."""


@attrs.frozen(kw_only=True)
class FetchSettings:
    """How to read.

    Attributes:
        client_id: sent with each request.
        request_timeout_ms: how long one answer may take.
        timeout_ms: how long a call goes on after failures that may pass.
        retry_backoff_ms: pause after such a failure.
        awaits_first_broker: whether it is one, too, that nobody listens anywhere, before the first contact.
        max_wait_ms: how long a broker may wait for ``min_bytes``.
        min_bytes: what a broker should collect before it answers.
        max_bytes: most bytes of one answer; a larger first batch comes whole all the same.
        max_partition_bytes: most bytes of one partition in one answer, likewise.
        isolation_level: whether records are read before their transaction is committed; Kafka's default is
            that they are.
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
    """A `FetchClient` for as long as the block lasts. Nothing is connected before the first call.

    Args:
        bootstrap: addresses to start from, see `splashdam.net.addresses.parse_bootstrap_servers`.
        connect: makes streams, for example `splashdam.net.connect.TcpConnect`.
        clock: for deadlines.
        settings: see `FetchSettings`.
        authenticator: see `ClusterConnections`.
    """
    settings = settings or FetchSettings()
    async with open_connections(
        bootstrap,
        connect=connect,
        clock=clock,
        client_id=settings.client_id,
        request_timeout_ms=settings.request_timeout_ms,
        authenticator=authenticator,
        awaits_first_broker=settings.awaits_first_broker,
    ) as connections:
        yield FetchClient(connections, settings)


class FetchClient:
    """Reads a topic; made by `open_fetch_client`. One task at a time may use it.

    Every call goes on through failures that may pass (a leader moves, a connection breaks) for
    ``timeout_ms``, then raises ``KafkaTimeoutError``. A topic that does not exist is
    ``UnknownTopicOrPartitionError`` at once.
    """

    def __init__(self, connections: ClusterConnections, settings: FetchSettings) -> None:
        self._connections = connections
        self._settings = settings
        self._clusters: dict[str, ClusterMetadata] = {}
        self._nodes: list[Node] = []

    async def partitions(self, topic: str) -> list[int]:
        """The topic's partition numbers, ascending."""

        async def numbers(cluster: ClusterMetadata) -> list[int]:
            return [info.partition for info in cluster.topics[topic].partitions]

        return await self._persist(topic, f"partitions of {topic!r}", numbers)

    async def offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        """For each partition the first offset at or after a time, -1 where there is none.

        Args:
            topic: its name.
            partitions: which partitions.
            timestamp: milliseconds since the epoch, or `LATEST` or `EARLIEST`.
        """

        async def look_up(cluster: ClusterMetadata) -> dict[int, int]:
            found: dict[int, int] = {}
            for node, numbers in _by_leader(cluster, topic, partitions).items():
                found |= await self._offsets_at(node, topic, numbers, timestamp)
            return found

        return await self._persist(topic, f"offsets of {topic!r}", look_up)

    async def fetch(self, topic: str, positions: Mapping[int, int]) -> list[FetchedPartition]:
        """Records from the given offsets on; all leaders are asked at once.

        Args:
            topic: its name.
            positions: the offset to read next, by partition.

        Returns:
            What came of each partition that had news; may be empty. Read on at its ``next_offset``.

        Raises:
            OffsetOutOfRangeError: a position is below the log's start or above its end.
            CorruptMessageError: a batch fails its checksum.
        """

        async def read(cluster: ClusterMetadata) -> list[FetchedPartition]:
            return await self._fetch_once(cluster, topic, positions, self._settings, _news)

        return await self._persist(topic, f"records of {topic!r}", read)

    async def fetch_batches(
        self, topic: str, positions: Mapping[int, int], *, max_partition_bytes: int | None = None
    ) -> list[FetchedBatches]:
        """As `fetch`, with the batches as they stand in the log; nothing is unpacked, no checksum looked at.

        Args:
            topic: its name.
            positions: the offset to read next, by partition.
            max_partition_bytes: instead of that of the settings.

        Returns:
            What the brokers say of each partition, news or not.

        Raises:
            OffsetOutOfRangeError: a position is below the log's start or above its end.
            CorruptMessageError: the header of a batch is damaged.
        """

        limits = self._settings
        if max_partition_bytes is not None:
            limits = attrs.evolve(limits, max_partition_bytes=max_partition_bytes)

        async def read(cluster: ClusterMetadata) -> list[FetchedBatches]:
            return await self._fetch_once(cluster, topic, positions, limits, _as_they_are)

        return await self._persist(topic, f"batches of {topic!r}", read)

    async def _persist(self, topic: str, what: str, attempt: Callable[[ClusterMetadata], Awaitable[T]]) -> T:
        async def ask() -> T:
            return await attempt(await self._cluster(topic))

        def is_final(error: RetriableError) -> bool:
            if isinstance(error, CorruptMessageError):
                return True  # asking again reads the same damage
            known = self._clusters.pop(topic, None)
            return known is None and isinstance(error, UnknownTopicOrPartitionError)  # the metadata says so

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
                f"ListOffsetsResponse: asked about partitions {sorted(partitions)} of {topic!r},"
                f" it names {sorted(found)}"
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
        """One round: news of some leaders counts more than a failure of another; the next round meets it."""
        fetched: list[T] = []
        failures: list[KafkaError] = []

        async def ask(node: Node, numbers: list[int]) -> None:
            try:
                here = {number: positions[number] for number in numbers}
                fetched.extend(read(await self._fetch_from(node, cluster, topic, here, limits), here))
            except KafkaError as error:
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
    ) -> list[FetchedBatches]:
        connection = await self._connections.to(node)
        topic_id = cluster.topics[topic].topic_id
        version = connection.version_for(FetchRequest)
        request, version = fetch_request(topic, topic_id, positions, limits, version)
        timeout_ms = limits.max_wait_ms + self._settings.request_timeout_ms
        response = await connection.request(request, version, timeout_ms=timeout_ms)
        return read_fetch_response(response, topic, positions, request.topics[0].topic_id)


def _by_leader(cluster: ClusterMetadata, topic: str, partitions: Iterable[int]) -> dict[Node, list[int]]:
    led = by_leader(cluster, [TopicPartition(topic, number) for number in partitions])
    return {node: [each.partition for each in those] for node, those in led.items()}


def _as_they_are(fetched: list[FetchedBatches], _positions: Mapping[int, int]) -> list[FetchedBatches]:
    return fetched


def _news(fetched: list[FetchedBatches], positions: Mapping[int, int]) -> list[FetchedPartition]:
    asked = [(each, positions[each.topic_partition.partition]) for each in fetched]
    return [records_of(each, position) for each, position in asked if each.next_offset > position]


_FIRST_VERSION_WITH_TOPIC_IDS = 13


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


Read = Callable[[list[FetchedBatches], Mapping[int, int]], list[T]]
"""What is made of the batches of some partitions, fetched from the given positions on."""


def fetch_request(
    topic: str, topic_id: bytes, positions: Mapping[int, int], limits: FetchSettings, version: int
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
