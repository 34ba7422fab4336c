"""What ``send`` has to know of a topic, computed once per metadata snapshot and not per record."""

from __future__ import annotations

from collections.abc import Callable

from splashdam.client.partitioners import ClusterView, DefaultPartitioner
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.values import TopicPartition
from splashdam.record.batch import HEADER_BYTES

RECORD_FRAMING_BYTES = 13
"""What a record usually takes beside key, value and headers: enough to see a batch fill up."""


class TopicRoute:
    """One topic as one metadata snapshot shows it.

    Attributes:
        cluster: the snapshot; a route of another one is out of date.
        view: the snapshot as partitioners see it.
        partitions: all partitions by number.
        count: how many.
        sticky: where records with null keys go now.
        sticky_bytes: how much went there since it was chosen. Both are changed under the guard only.
    """

    __slots__ = ("_draw", "_drawn_from", "cluster", "count", "partitions", "sticky", "sticky_bytes", "view")

    def __init__(
        self,
        topic: str,
        cluster: ClusterMetadata,
        draw: Callable[[list[int]], int],
        before: TopicRoute | None,
    ) -> None:
        self.cluster = cluster
        self.view = ClusterView(cluster)
        self.count = cluster.partition_count(topic)
        self.partitions = tuple(TopicPartition(topic, number) for number in range(self.count))
        self._drawn_from = list(cluster.available_partitions(topic)) or list(range(self.count))
        self._draw = draw
        self.sticky: TopicPartition
        self.sticky_bytes: int
        if before is not None and before.sticky.partition in self._drawn_from:
            self.sticky = self.partitions[before.sticky.partition]
            self.sticky_bytes = before.sticky_bytes
        else:
            self.switch()

    def switch(self) -> None:
        """Draws the next partition for null keys from those with a leader (from all while none has one)."""
        self.sticky = self.partitions[self._draw(self._drawn_from)]
        self.sticky_bytes = HEADER_BYTES


class RouteTable:
    """The routes of the topics one producer sends to.

    Args:
        partitioner: draws the partition for null keys where the producer uses the default rule.
    """

    def __init__(self, partitioner: DefaultPartitioner) -> None:
        self.routes: dict[str, TopicRoute] = {}
        self._draw = partitioner.draw

    def refresh(self, topic: str, cluster: ClusterMetadata) -> TopicRoute | None:
        """The route by this snapshot; None where it does not know the topic, or has an error for it."""
        info = cluster.topics.get(topic)
        if info is None or info.error_code or not info.partitions:
            self.routes.pop(topic, None)
            return None
        route = self.routes[topic] = TopicRoute(topic, cluster, self._draw, self.routes.get(topic))
        return route
