"""A user's own cluster as destination: a topic for the comparison, counted by its end offsets."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import attrs
import trio

from splashdam.model.broker_errors import UnknownTopicOrPartitionError, error_for
from splashdam.model.cluster import Node
from splashdam.model.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, ProtocolError
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.clock import SystemClock
from splashdam.net.cluster_connections import ClusterConnections
from splashdam.net.connect import TcpConnect
from splashdam.net.connection import Connection
from splashdam.net.fetch_client import LATEST, FetchSettings, open_fetch_client
from splashdam.net.metadata_reading import read_cluster
from splashdam.net.nursery import open_plain_nursery
from splashdam.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from splashdam.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from splashdam.wire.messages.metadata import MetadataRequest

T = TypeVar("T")

_TIMEOUT_MS = 30_000
_PAUSE_SECONDS = 0.1
_CLIENT_ID = "splashdam-bench"


@attrs.define
class BenchTopic:
    """A topic on a cluster, and how many records it had when the measurement began."""

    bootstrap: str
    topic: str
    partitions: int
    before: int = 0

    def counts(self) -> dict[str, int]:
        """How many records have arrived since the beginning: by the topic's end offsets."""
        return {"records": self.end() - self.before}

    def end(self) -> int:
        """The end offsets of all partitions together."""
        return trio.run(self._end)

    async def wait_until_known(self) -> None:
        """Returns once the brokers' metadata have the new topic.

        Raises:
            KafkaTimeoutError: they have it not within half a minute.
        """
        with trio.move_on_after(_TIMEOUT_MS / 1000):
            while True:
                try:
                    await self._end()
                except UnknownTopicOrPartitionError:
                    await trio.sleep(_PAUSE_SECONDS)
                else:
                    return
        raise KafkaTimeoutError(
            f"topic {self.topic!r} was created, and {_TIMEOUT_MS} ms later nobody knows it"
        )

    async def _end(self) -> int:
        settings = FetchSettings(client_id=_CLIENT_ID, timeout_ms=_TIMEOUT_MS)
        addresses = parse_bootstrap_servers(self.bootstrap)
        async with open_fetch_client(
            addresses, connect=TcpConnect(), clock=SystemClock(), settings=settings
        ) as client:
            ends = await client.offsets(self.topic, range(self.partitions), LATEST)
        return sum(ends.values())

    @contextmanager
    def opened(self) -> Iterator[BenchTopic]:
        """The topic for one measurement; its count begins anew."""
        self.before = self.end()
        yield self


@contextmanager
def bench_topic(bootstrap: str, partitions: int, replication_factor: int) -> Iterator[BenchTopic]:
    """A new topic with a name of its own, deleted at the end, also after Ctrl-C.

    Args:
        bootstrap: addresses of the cluster.
        partitions: how many it gets.
        replication_factor: -1 leaves it to the cluster.

    Raises:
        KafkaError: the cluster cannot be reached, or refuses the topic.
    """
    topic = f"splashdam-bench-{secrets.token_hex(4)}"
    created = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=replication_factor)
    trio.run(_ask, bootstrap, lambda connection: _create(connection, created))
    try:
        made = BenchTopic(bootstrap, topic, partitions)
        trio.run(made.wait_until_known)
        yield made
    finally:
        trio.run(_ask, bootstrap, lambda connection: _delete(connection, topic))


async def _create(connection: Connection, topic: CreatableTopic) -> None:
    request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
    response = await connection.request(request)
    for result in response.topics:
        if result.error_code:
            raise error_for(result.error_code, result.error_message or f"creating topic {topic.name!r}")


async def _delete(connection: Connection, topic: str) -> None:
    if connection.version_for(DeleteTopicsRequest) >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=_TIMEOUT_MS)
    else:
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=_TIMEOUT_MS)
    response = await connection.request(request)
    for result in response.responses:
        if result.error_code:
            raise error_for(result.error_code, result.error_message or f"deleting topic {topic!r}")


async def _ask(bootstrap: str, question: Callable[[Connection], Awaitable[T]]) -> T:
    """What the controller answers."""
    seeds = [Node(-1 - number, *address) for number, address in enumerate(parse_bootstrap_servers(bootstrap))]
    async with open_plain_nursery() as nursery:
        connections = ClusterConnections(
            nursery,
            parse_bootstrap_servers(bootstrap),
            connect=TcpConnect(),
            clock=SystemClock(),
            client_id=_CLIENT_ID,
            request_timeout_ms=_TIMEOUT_MS,
        )
        answer = await question(await _controller(connections, seeds))
        nursery.cancel_scope.cancel()
    return answer


async def _controller(connections: ClusterConnections, seeds: Sequence[Node]) -> Connection:
    failures = []
    for seed in seeds:
        try:
            response = await (await connections.to(seed)).request(MetadataRequest(topics=[]))
        except KafkaError as error:
            failures.append(str(error))
        else:
            cluster = read_cluster(response)
            node = cluster.nodes.get(cluster.controller_id)
            if node is None:
                raise ProtocolError(f"MetadataResponse: controller {cluster.controller_id} is no broker")
            return await connections.to(node)
    raise KafkaConnectionError("no broker can be reached: " + "; ".join(dict.fromkeys(failures)))
