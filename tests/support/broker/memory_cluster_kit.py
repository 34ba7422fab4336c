"""Whole clusters in one loop in virtual time, on one disk and one network, both in memory.

The time of the loop is virtual only where the test itself takes ``autojump_clock``: pytest-trio looks for it
among the arguments of the test.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from trio.testing import MockClock

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.embedded_broker.cluster import Cluster, open_cluster
from splashdam.net.memory import MemoryNetwork, memory_stream_pair
from splashdam.storage.files.memory import MemoryFiles
from splashdam.testing.clock import VirtualClock
from support.broker.broker_talk import Talk


class Kit:
    """Opens clusters, one after the other on the same disk, and producers for them."""

    def __init__(self, mock_clock: MockClock) -> None:
        self.files = MemoryFiles()
        self.network = MemoryNetwork()
        self.clock = VirtualClock(mock_clock)

    @asynccontextmanager
    async def opened(self, brokers: int = 3, **settings: Any) -> AsyncIterator[Cluster]:
        """A cluster that runs."""
        async with open_cluster(
            "/c",
            brokers,
            port=9000,
            listen=self.network.listen,
            clock=self.clock,
            files=self.files,
            **settings,
        ) as cluster:
            yield cluster

    def producer(self, cluster: Cluster, **options: Any) -> AsyncKafkaProducer:
        """A producer that finds the cluster by its addresses; it does not run yet."""
        return AsyncKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            connect=self.network.connect,
            clock=self.clock,
            **options,
        )


def talk_to(cluster: Cluster, node_id: int) -> Talk:
    """A client of one broker."""
    ours, theirs = memory_stream_pair()
    cluster.broker(node_id).server.adopt(theirs)
    return Talk(ours)
