"""What ``send`` has to know of a topic, computed once per metadata snapshot and not per record."""

from __future__ import annotations

from collections.abc import Callable, Container

from splashdam.client.future import RecordFuture
from splashdam.client.guard import Guard
from splashdam.client.partitioners import ClusterView, DefaultPartitioner
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.values import TopicPartition
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.kernel import PartitionLane, StraightPath, TopicLanes
from splashdam.sender.metadata import Metadata


class TopicRoute(TopicLanes):
    """One topic as one metadata snapshot shows it.

    Attributes:
        cluster: the snapshot; a route of another one is out of date.
        view: the snapshot as partitioners see it.
        count: how many partitions there are.
    """

    __slots__ = ("_draw", "_drawn_from", "cluster", "count", "view")

    def __init__(
        self,
        lanes: list[PartitionLane],
        drawn_from: list[int],
        draw: Callable[[list[int]], int],
        cluster: ClusterMetadata,
        *,
        sticky_limit_bytes: int,
        before: TopicRoute | None,
    ) -> None:
        self.cluster = cluster
        self.view = ClusterView(cluster)
        self.count = len(lanes)
        self._draw = draw
        self._drawn_from = drawn_from
        if before is not None and before.sticky.topic_partition.partition in drawn_from:
            number, sticky_bytes = before.sticky.topic_partition.partition, before.sticky_bytes
        else:
            number, sticky_bytes = draw(drawn_from), HEADER_BYTES
        super().__init__(lanes, lanes[number], sticky_bytes, sticky_limit_bytes)

    def switch(self) -> None:
        """Draws the next partition for null keys from those with a leader (from all while none has one)."""
        self.stick_to(self.lanes[self._draw(self._drawn_from)], HEADER_BYTES)


class RouteTable:
    """The routes of the topics one producer sends to, published in its straight path.

    They are forgotten when the metadata change, and made again when they are asked for.

    Args:
        path: where they are published.
        metadata: the cluster.
        guard: under which the metadata change.
        partitioner: draws the partition for null keys where the producer uses the default rule.
        lane: the lane of a partition.
        forget_lanes: told which topics there are, when the metadata change.
        sticky_limit_bytes: null keys leave a partition for another one after this much in any case.
    """

    def __init__(
        self,
        *,
        path: StraightPath[RecordFuture],
        metadata: Metadata,
        guard: Guard,
        partitioner: DefaultPartitioner,
        lane: Callable[[TopicPartition], PartitionLane],
        forget_lanes: Callable[[Container[str]], None],
        sticky_limit_bytes: int,
    ) -> None:
        self._routes: dict[str, TopicRoute] = {}
        self._path = path
        self._metadata = metadata
        self._guard = guard
        self._draw = partitioner.draw
        self._lane = lane
        self._sticky_limit_bytes = sticky_limit_bytes
        self._forget_lanes = forget_lanes
        metadata.on_change = self._forget

    def get(self, topic: str) -> TopicRoute | None:
        """The topic as the present metadata shows it; None where they do not, or have an error for it."""
        route = self._routes.get(topic)
        if route is not None and route.cluster is self._metadata.cluster:
            return route
        with (
            self._guard.lock
        ):  # so that the metadata cannot change between a look at them and the publication
            return self._refresh(topic, self._metadata.cluster)

    def _forget(self) -> None:
        topics = self._metadata.cluster.topics
        self._path.clear()
        self._routes = {topic: route for topic, route in self._routes.items() if topic in topics}
        self._forget_lanes(topics)

    def _refresh(self, topic: str, cluster: ClusterMetadata) -> TopicRoute | None:
        info = cluster.topics.get(topic)
        if info is None or info.error_code or not info.partitions:
            self._routes.pop(topic, None)
            return None
        numbers = list(range(cluster.partition_count(topic)))
        route = self._routes[topic] = TopicRoute(
            [self._lane(TopicPartition(topic, number)) for number in numbers],
            list(cluster.available_partitions(topic)) or numbers,
            self._draw,
            cluster,
            sticky_limit_bytes=self._sticky_limit_bytes,
            before=self._routes.get(topic),
        )
        self._path.publish(topic, route)
        return route
