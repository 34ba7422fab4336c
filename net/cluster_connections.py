"""Connections to the brokers of one cluster, opened when first needed, and its metadata: for readers.

The sender has its own, which never waits; this one simply awaits whatever it takes.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

import trio

from splashdam.model.broker_errors import error_for
from splashdam.model.cluster import ClusterMetadata, Node
from splashdam.model.errors import KafkaConnectionError, ProtocolError, RetriableError
from splashdam.net.authentication import Authenticator, renewal_delay_ms
from splashdam.net.clock import Clock
from splashdam.net.connect import Connect, address_text
from splashdam.net.connection import Connection
from splashdam.net.metadata_reading import read_cluster
from splashdam.net.nursery import open_plain_nursery
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


@asynccontextmanager
async def open_connections(
    bootstrap: Sequence[tuple[str, int]],
    *,
    connect: Connect,
    clock: Clock,
    client_id: str,
    request_timeout_ms: float,
    authenticator: Authenticator | None,
) -> AsyncIterator[ClusterConnections]:
    """`ClusterConnections` for as long as the block lasts. Nothing is connected before it is needed."""
    async with open_plain_nursery() as nursery:
        yield ClusterConnections(
            nursery,
            bootstrap,
            connect=connect,
            clock=clock,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            authenticator=authenticator,
        )
        nursery.cancel_scope.cancel()


class ClusterConnections:
    """Connections by node. Only one task at a time may use one node's.

    Args:
        nursery: where connections run; cancel it to end them.
        bootstrap: addresses to start from.
        connect: makes streams.
        clock: for request deadlines.
        client_id: sent with each request.
        request_timeout_ms: how long one answer may take.
        authenticator: proves to brokers who we are, where they want to know.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        bootstrap: Sequence[tuple[str, int]],
        *,
        connect: Connect,
        clock: Clock,
        client_id: str,
        request_timeout_ms: float,
        authenticator: Authenticator | None = None,
    ) -> None:
        self._nursery = nursery
        self._seeds = [Node(-1 - number, host, port) for number, (host, port) in enumerate(bootstrap)]
        self._connect = connect
        self._clock = clock
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._authenticator = authenticator
        self._open: dict[int, Connection] = {}
        self._renew_at_ms: dict[int, float] = {}

    async def to(self, node: Node) -> Connection:
        """A negotiated connection to a node.

        Raises:
            KafkaError: it could not be made.
        """
        connection = self._open.get(node.node_id)
        if connection is not None and not connection.is_closed:
            if self._clock.now_ms() >= self._renew_at_ms[node.node_id]:
                await self._authenticate(connection, node)
            return connection
        stream = await self._connect(node.host, node.port)
        connection = Connection(
            stream,
            clock=self._clock,
            client_id=self._client_id,
            request_timeout_ms=self._request_timeout_ms,
            max_in_flight_requests=1,
            peer=str(node) if node.node_id >= 0 else address_text(node.host, node.port),
        )
        try:
            await self._nursery.start(connection.run)
            await connection.negotiate("splashdam", version("splashdam"))
            await self._authenticate(connection, node)
        except BaseException:  # nobody else knows of it yet
            with trio.CancelScope(shield=True):
                await connection.aclose()
            raise
        self._open[node.node_id] = connection
        return connection

    async def _authenticate(self, connection: Connection, node: Node) -> None:
        lifetime_ms = 0.0
        if self._authenticator is not None:
            lifetime_ms = await self._authenticator.authenticate(connection, node.host)
        delay_ms = renewal_delay_ms(lifetime_ms, random.random) if lifetime_ms else math.inf
        self._renew_at_ms[node.node_id] = self._clock.now_ms() + delay_ms

    async def metadata(self, topic: str, known: Iterable[Node] = ()) -> ClusterMetadata:
        """What the cluster says about a topic, asked of the first broker that answers; creates nothing.

        Raises:
            KafkaConnectionError: no broker could be reached; the text says why for each.
            BrokerResponseError: the topic has an error, for example it does not exist.
            ProtocolError: the answer is not one.
        """
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        failures: list[str] = []
        for node in [*known, *self._seeds]:
            try:
                connection = await self.to(node)
                cluster = read_cluster(await connection.request(request))
            except RetriableError as error:
                failures.append(str(error))
            else:
                _check_topic(cluster, topic)
                return cluster
        raise KafkaConnectionError("no broker can be reached: " + "; ".join(dict.fromkeys(failures)))


def _check_topic(cluster: ClusterMetadata, topic: str) -> None:
    info = cluster.topics.get(topic)
    if info is None:
        raise ProtocolError(f"MetadataResponse: asked about topic {topic!r}, it does not name it")
    if info.error_code:
        raise error_for(info.error_code, f"topic {topic!r}")
