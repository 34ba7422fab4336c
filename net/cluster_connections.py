"""Connections to the brokers of one cluster, opened when first needed, and its metadata: for readers.

The sender has its own, which never waits; this one simply awaits whatever it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import version

import trio

from splashdam.model.broker_errors import error_for
from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.errors import KafkaConnectionError, RetriableError
from splashdam.net.clock import Clock
from splashdam.net.connect import Connect, address_text
from splashdam.net.connection import Connection
from splashdam.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)


class ClusterConnections:
    """Connections by node. Only one task at a time may use one node's.

    Args:
        nursery: where connections run; cancel it to end them.
        bootstrap: addresses to start from.
        connect: makes streams.
        clock: for request deadlines.
        client_id: sent with each request.
        request_timeout_ms: how long one answer may take.
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
    ) -> None:
        self._nursery = nursery
        self._seeds = [Node(-1 - number, host, port) for number, (host, port) in enumerate(bootstrap)]
        self._connect = connect
        self._clock = clock
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._open: dict[int, Connection] = {}

    async def to(self, node: Node) -> Connection:
        """A negotiated connection to a node.

        Raises:
            KafkaError: it could not be made.
        """
        connection = self._open.get(node.node_id)
        if connection is not None and not connection.is_closed:
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
        await self._nursery.start(connection.run)
        await connection.negotiate("splashdam", version("splashdam"))
        self._open[node.node_id] = connection
        return connection

    async def metadata(self, topic: str, known: Iterable[Node] = ()) -> ClusterMetadata:
        """What the cluster says about a topic, asked of the first broker that answers; creates nothing.

        Raises:
            KafkaConnectionError: no broker could be reached; the text says why for each.
            BrokerResponseError: the topic has an error, for example it does not exist.
        """
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        failures: list[str] = []
        for node in [*known, *self._seeds]:
            try:
                connection = await self.to(node)
                response = await connection.request(request)
            except RetriableError as error:
                failures.append(str(error))
            else:
                return _cluster(response, topic)
        raise KafkaConnectionError("no broker can be reached: " + "; ".join(dict.fromkeys(failures)))


def _cluster(response: MetadataResponse, topic: str) -> ClusterMetadata:
    for found in response.topics:
        if found.error_code:
            raise error_for(found.error_code, f"topic {topic!r}")
    return ClusterMetadata(
        nodes={
            each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers
        },
        topics={found.name: _topic(found.name, found) for found in response.topics if found.name is not None},
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
    )


def _topic(name: str, topic: MetadataResponseTopic) -> TopicInfo:
    partitions = [
        PartitionInfo(name, each.partition_index, each.leader_id, each.leader_epoch)
        for each in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    ]
    return TopicInfo(name, tuple(partitions), topic.error_code, topic.topic_id)
