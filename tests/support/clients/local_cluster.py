"""A scripted cluster and its producers in one loop, in virtual time."""

from __future__ import annotations

from typing import Any

from trio.testing import MockClock

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.net.memory import MemoryNetwork
from splashdam.testing.clock import VirtualClock
from support.scripted.cluster import ScriptedCluster

TOPICS = {"one": 1, "two": 2, "six": 6}


class LocalCluster:
    """A scripted cluster in the loop of the test."""

    def __init__(self, clock: MockClock) -> None:
        self.network = MemoryNetwork()
        self.scripted = ScriptedCluster(self.network, topics=TOPICS)
        self.clock = VirtualClock(clock)

    def producer(self, **options: Any) -> AsyncKafkaProducer:
        """One that finds the cluster; it does not run yet."""
        options = {"bootstrap_servers": "node-1:9092", **options}
        return AsyncKafkaProducer(connect=self.network.connect, clock=self.clock, **options)

    def values(self, topic: str, partition: int = 0) -> list[Any]:
        """What a partition holds."""
        return [record.value for record in self.scripted.logs[topic, partition].records]  # type: ignore[index]
