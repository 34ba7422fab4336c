"""A minimal reader: a topic's partitions, their offsets and their records. For ``splashdam tail`` and jobs.

It has no group, no session and no position of its own: the caller says from where to read. With the isolation
level read_committed, records of open transactions do not come yet and those of aborted ones never.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs
import trio

from splashdam.model.broker_errors import (
    CorruptMessageError,
    UnknownTopicOrPartitionError,
)
from splashdam.model.cluster import ClusterMetadata, Node
from splashdam.model.errors import KafkaError, ProtocolError, RetriableError
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.clock import Clock
from splashdam.net.cluster.cluster_connections import ClusterConnections, open_connections
from splashdam.net.cluster.fetching import (
    FetchedBatches,
    FetchedPartition,
    fetch_request,
    offsets_request,
    read_fetch_response,
    read_offsets,
    records_of,
)
from splashdam.net.cluster.metadata_reading import by_leader
from splashdam.net.connect import Connect
from splashdam.net.connection.authentication import Authenticator
from splashdam.wire.messages.fetch import FetchRequest

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

        return await self._connections.patiently(
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


Read = Callable[[list[FetchedBatches], Mapping[int, int]], list[T]]
"""What is made of the batches of some partitions, fetched from the given positions on."""


def _by_leader(cluster: ClusterMetadata, topic: str, partitions: Iterable[int]) -> dict[Node, list[int]]:
    led = by_leader(cluster, [TopicPartition(topic, number) for number in partitions])
    return {node: [each.partition for each in those] for node, those in led.items()}


def _as_they_are(fetched: list[FetchedBatches], _positions: Mapping[int, int]) -> list[FetchedBatches]:
    return fetched


def _news(fetched: list[FetchedBatches], positions: Mapping[int, int]) -> list[FetchedPartition]:
    asked = [(each, positions[each.topic_partition.partition]) for each in fetched]
    return [records_of(each, position) for each, position in asked if each.next_offset > position]
