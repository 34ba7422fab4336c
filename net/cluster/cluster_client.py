"""Requests to the right broker of a cluster: any, the controller, a partition leader, a coordinator.

For commands and tests that administer a cluster. The sender has connections of its own, which never wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs

from splashdam.model.broker_errors import (
    ErrorCode,
    KafkaStorageError,
    UnknownTopicOrPartitionError,
    error_for,
)
from splashdam.model.cluster import ClusterMetadata, Node
from splashdam.model.errors import RetriableError
from splashdam.model.values import TopicPartition
from splashdam.net.clock import Clock
from splashdam.net.cluster.cluster_connections import ClusterConnections, open_connections
from splashdam.net.cluster.metadata_reading import by_leader, leader_in, read_cluster
from splashdam.net.connect import Connect
from splashdam.net.connection.connection import Authenticator, Connection
from splashdam.wire.message import Request, Response
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

R = TypeVar("R", bound=Response)
T = TypeVar("T")

GROUP = 0
TRANSACTION = 1
"""Key types of FindCoordinator."""

_FIRST_WITH_KEYS = 4


@attrs.frozen(kw_only=True)
class ClusterClientSettings:
    """Settings of a `ClusterClient`.

    Attributes:
        client_id: sent with each request.
        request_timeout_ms: time limit for one response.
        timeout_ms: time limit for a call, with all retries after retriable errors.
        retry_backoff_ms: pause before a retry.
    """

    client_id: str = "splashdam"
    request_timeout_ms: float = 30_000
    timeout_ms: float = 30_000
    retry_backoff_ms: float = 100


@asynccontextmanager
async def open_cluster_client(
    bootstrap: Sequence[tuple[str, int]],
    *,
    connect: Connect,
    clock: Clock,
    settings: ClusterClientSettings | None = None,
    authenticator: Authenticator | None = None,
) -> AsyncIterator[ClusterClient]:
    """Provide a `ClusterClient` for the block. It connects with the first request.

    Args:
        bootstrap: addresses, see `splashdam.net.addresses.parse_bootstrap_servers`.
        connect: opens streams, for example `splashdam.net.connect.TcpConnect`.
        clock: for deadlines.
        settings: see `ClusterClientSettings`.
        authenticator: see `ClusterConnections`.
    """
    settings = settings or ClusterClientSettings()
    async with open_connections(
        bootstrap,
        connect=connect,
        clock=clock,
        settings=settings,
        authenticator=authenticator,
    ) as connections:
        yield ClusterClient(connections, settings)


class ClusterClient:
    """Sends requests and retries them; made by `open_cluster_client`. One task at a time may use it.

    A call takes a request, or a function that makes one for the version that both sides support, and
    ``read``, which turns the response into a result or raises its error. After retriable errors (a leader
    moves, a coordinator is loading, a connection breaks) the request is sent again for ``timeout_ms``; then
    ``KafkaTimeoutError`` is raised. If no broker was reached so far and all addresses refuse connections,
    ``CannotConnectError`` is raised at once.
    """

    def __init__(self, connections: ClusterConnections, settings: ClusterClientSettings) -> None:
        self._connections = connections
        self._settings = settings

    async def any(self, request: Question[R], read: Callable[[R], T]) -> T:
        """Ask the first broker that can be reached."""
        return await self._ask("the cluster", self._reachable, request, read)

    async def controller(self, request: Question[R], read: Callable[[R], T]) -> T:
        """Ask the controller. A ``KafkaStorageError`` is not retried, since the disk would fail again."""
        try:
            return await self._ask("the controller", self._controller, request, _finally_refused(read))
        except _DiskRefusal as refusal:
            raise refusal.error from refusal.error.__cause__

    async def leader(
        self, topic_partition: TopicPartition, request: Question[R], read: Callable[[R], T]
    ) -> T:
        async def find() -> Connection:
            return await self._leader(topic_partition)

        return await self._ask(f"the leader of {topic_partition}", find, request, read)

    async def leaders(
        self,
        partitions: Iterable[TopicPartition],
        request: Callable[[Sequence[TopicPartition]], Request[R]],
        read: Callable[[R], Mapping[TopicPartition, T]],
    ) -> dict[TopicPartition, T]:
        """Ask each partition's leader, with one request per broker; ask all again if a leader has moved.

        Args:
            partitions: the partitions.
            request: makes the request for those that one broker leads, in order.
            read: turns each response into results.
        """
        asked = sorted(set(partitions))

        async def ask() -> dict[TopicPartition, T]:
            cluster = await self._cluster_now(sorted({each.topic for each in asked}))
            found: dict[TopicPartition, T] = {}
            for node, led in by_leader(cluster, asked).items():
                connection = await self._connections.to(node)
                found |= read(await connection.request(request(led)))
            return found

        return await self._retry("the leaders", ask) if asked else {}

    async def coordinator(
        self,
        key: str,
        request: Question[R],
        read: Callable[[R], T],
        *,
        key_type: int = GROUP,
        newest: Newest = None,
    ) -> T:
        """Ask the coordinator of a group or of a transactional id.

        Args:
            key: the group id or the transactional id.
            request: the request.
            read: turns the response into the result.
            key_type: `GROUP` or `TRANSACTION`.
            newest: newest version to use, or a function that returns it for a connection.
        """

        async def find() -> Connection:
            return await self._coordinator(key, key_type)

        return await self._ask(f"the coordinator of {key!r}", find, request, read, newest)

    async def broker(self, node: Node, request: Question[R], read: Callable[[R], T]) -> T:
        async def find() -> Connection:
            return await self._connections.to(node)

        return await self._ask(str(node), find, request, read)

    async def cluster(self, topics: Sequence[str] | None = ()) -> ClusterMetadata:
        """Fetch metadata of these topics (None: all topics), brokers and controller; create no topic."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        return await self.any(MetadataRequest(topics=asked, allow_auto_topic_creation=False), read_cluster)

    async def _ask(
        self,
        whom: str,
        find: Callable[[], Awaitable[Connection]],
        question: Question[R],
        read: Callable[[R], T],
        newest: Newest = None,
    ) -> T:
        async def ask() -> T:
            connection = await find()
            request = question if isinstance(question, Request) else question(connection)
            limit = newest(connection) if callable(newest) else newest
            version = connection.version_for(type(request), limit)
            return read(await connection.request(request, version))

        return await self._retry(whom, ask)

    async def _retry(self, whom: str, ask: Callable[[], Awaitable[T]]) -> T:
        return await self._connections.retry(
            whom,
            ask,
            timeout_ms=self._settings.timeout_ms,
            backoff_ms=self._settings.retry_backoff_ms,
            is_final=_is_final,
        )

    async def _reachable(self) -> Connection:
        async def itself(connection: Connection) -> Connection:
            return connection

        return await self._connections.any(itself)

    async def _controller(self) -> Connection:
        cluster = await self._cluster_now([])
        node = cluster.nodes.get(cluster.controller_id)
        if node is None:
            raise error_for(ErrorCode.NOT_CONTROLLER, "the brokers know no controller")
        return await self._connections.to(node)

    async def _leader(self, topic_partition: TopicPartition) -> Connection:
        cluster = await self._cluster_now([topic_partition.topic])
        return await self._connections.to(leader_in(cluster, topic_partition))

    async def _cluster_now(self, topics: Sequence[str]) -> ClusterMetadata:
        asked = [MetadataRequestTopic(name=name) for name in topics]
        connection = await self._reachable()
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        return read_cluster(await connection.request(request))

    async def _coordinator(self, key: str, key_type: int) -> Connection:
        connection = await self._reachable()
        has_keys = connection.version_for(FindCoordinatorRequest) >= _FIRST_WITH_KEYS
        request = FindCoordinatorRequest(
            key="" if has_keys else key, key_type=key_type, coordinator_keys=[key] if has_keys else []
        )
        answer = await connection.request(request)
        found = answer.coordinators[0] if has_keys and answer.coordinators else answer
        if found.error_code:
            why = f": {found.error_message}" if found.error_message else ""
            raise error_for(found.error_code, f"the coordinator of {key!r}{why}")
        return await self._connections.to(Node(found.node_id, found.host, found.port))


def _is_final(error: RetriableError) -> bool:
    """Whether not to retry: a caller that asked about a missing topic wants to know that it is missing."""
    return isinstance(error, UnknownTopicOrPartitionError)


class _DiskRefusal(Exception):
    """Carries a ``KafkaStorageError``, which is retriable elsewhere, past the retries."""

    def __init__(self, error: KafkaStorageError) -> None:
        super().__init__(error)
        self.error = error


def _finally_refused(read: Callable[[R], T]) -> Callable[[R], T]:
    def checked(answer: R) -> T:
        try:
            return read(answer)
        except KafkaStorageError as error:
            raise _DiskRefusal(error) from error

    return checked


Newest = int | Callable[[Connection], int | None] | None
"""The newest version of a request to use, or a function that returns it for a connection; None: no limit."""

Question = Request[R] | Callable[[Connection], Request[R]]
"""A request, or a function that makes one for a connection, for example depending on its versions."""
