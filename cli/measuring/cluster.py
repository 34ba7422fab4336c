"""A user's own cluster as destination: a topic for the comparison, counted by its end offsets."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import attrs
import trio

from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.model.errors import KafkaTimeoutError
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.admin.topics import create_topic, delete_topic
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient, ClusterClientSettings, open_cluster_client
from splashdam.net.cluster.fetch_client import LATEST, FetchSettings, open_fetch_client
from splashdam.net.connect import TcpConnect

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
def bench_topic(
    bootstrap: str, partitions: int, replication_factor: int, timeout_ms: float
) -> Iterator[BenchTopic]:
    """A new topic with a name of its own, deleted at the end, also after Ctrl-C.

    Args:
        bootstrap: addresses of the cluster.
        partitions: how many it gets.
        replication_factor: -1 leaves it to the cluster.
        timeout_ms: how long the cluster may take to answer.

    Raises:
        KafkaError: the cluster cannot be reached, or refuses the topic.
    """
    topic = f"splashdam-bench-{secrets.token_hex(4)}"

    async def create(client: ClusterClient) -> None:
        await create_topic(client, topic, partitions=partitions, replication_factor=replication_factor)

    async def delete(client: ClusterClient) -> None:
        await delete_topic(client, topic)

    trio.run(_administer, bootstrap, create, timeout_ms)
    try:
        made = BenchTopic(bootstrap, topic, partitions)
        trio.run(made.wait_until_known)
        yield made
    finally:
        trio.run(_administer, bootstrap, delete, timeout_ms)


async def _administer(
    bootstrap: str, task: Callable[[ClusterClient], Awaitable[None]], timeout_ms: float
) -> None:
    settings = ClusterClientSettings(client_id=_CLIENT_ID, timeout_ms=timeout_ms)
    async with open_cluster_client(
        parse_bootstrap_servers(bootstrap), connect=TcpConnect(), clock=SystemClock(), settings=settings
    ) as client:
        await task(client)
