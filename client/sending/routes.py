"""What ``send`` has to know of a topic, computed once per metadata snapshot and not per record."""

from __future__ import annotations

from collections.abc import Callable, Container

from splashdam.client.future import RecordFuture
from splashdam.client.partitioning.partitioners import ClusterView
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.values import TopicPartition
from splashdam.net.guard import Guard
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.kernel import PartitionLane, StraightPath, TopicLanes
from splashdam.sender.metadata import Metadata

BATCHES_PER_STAY = 2
"""Null keys leave a partition after so many full batches in any case."""

Draw = Callable[[list[PartitionLane], ClusterMetadata], PartitionLane]
"""Chooses the next partition for null keys among candidates, of which there is one at least."""


class TopicRoute(TopicLanes):
    """One topic as one metadata snapshot shows it.

    Attributes:
        cluster: the snapshot; a route of another one is out of date.
        view: the snapshot as partitioners see it.
        count: how many partitions there are.
    """

    __slots__ = ("_candidates", "_draw", "_full_bytes", "cluster", "count", "view")

    def __init__(
        self,
        lanes: list[PartitionLane],
        candidates: list[PartitionLane],
        draw: Draw,
        cluster: ClusterMetadata,
        *,
        full_bytes: Callable[[str], int],
        before: TopicRoute | None,
    ) -> None:
        self.cluster = cluster
        self.view = ClusterView(cluster)
        self.count = len(lanes)
        self._draw = draw
        self._candidates = candidates
        self._full_bytes = full_bytes
        number = -1 if before is None else before.sticky.topic_partition.partition
        if before is not None and any(lane.topic_partition.partition == number for lane in candidates):
            sticky, sticky_bytes = lanes[number], before.sticky_bytes
        else:
            sticky, sticky_bytes = draw(candidates, cluster), HEADER_BYTES
        super().__init__(lanes, sticky, sticky_bytes, self._limit_bytes(sticky))

    def switch(self) -> None:
        """Draws the next partition for null keys from those with a leader (from all while none has one)."""
        lane = self._draw(self._candidates, self.cluster)
        self.stick_to(lane, HEADER_BYTES)
        self.sticky_limit_bytes = self._limit_bytes(lane)

    def full_with(self, more_bytes: int) -> bool:
        """Whether a batch's worth has gone to the sticky partition, with so much more."""
        return (self.sticky_bytes + more_bytes) * BATCHES_PER_STAY >= self.sticky_limit_bytes

    def _limit_bytes(self, lane: PartitionLane) -> int:
        return BATCHES_PER_STAY * self._full_bytes(lane.topic_partition.topic)


class RouteTable:
    """The routes of the topics one producer sends to, published in its straight path.

    They are forgotten when the metadata change, and made again when they are asked for.

    Args:
        path: where they are published.
        metadata: the cluster.
        guard: under which the metadata change.
        draw: chooses the partition for null keys where the producer uses the default rule.
        lane: the lane of a partition.
        forget_lanes: told which topics there are, when the metadata change.
        full_bytes: how many uncompressed bytes fill a topic's batch.
    """

    def __init__(
        self,
        *,
        path: StraightPath[RecordFuture],
        metadata: Metadata,
        guard: Guard,
        draw: Draw,
        lane: Callable[[TopicPartition], PartitionLane],
        forget_lanes: Callable[[Container[str]], None],
        full_bytes: Callable[[str], int],
    ) -> None:
        self._routes: dict[str, TopicRoute] = {}
        self._path = path
        self._metadata = metadata
        self._guard = guard
        self._draw = draw
        self._lane = lane
        self._full_bytes = full_bytes
        self._forget_lanes = forget_lanes
        metadata.on_change = self._forget

    def get(self, topic: str) -> TopicRoute | None:
        """The topic as the present metadata shows it; None where they do not, or have an error for it."""
        route = self._routes.get(topic)
        if route is not None and route.cluster is self._metadata.cluster:
            return route
        # So that the metadata cannot change between a look at them and the publication.
        return self._guard.run(self._refresh, topic, self._metadata.cluster)

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
        lanes = [self._lane(TopicPartition(topic, number)) for number in range(len(info.partitions))]
        route = self._routes[topic] = TopicRoute(
            lanes,
            [lanes[number] for number in cluster.available_partitions(topic)] or lanes,
            self._draw,
            cluster,
            full_bytes=self._full_bytes,
            before=self._routes.get(topic),
        )
        self._path.publish(topic, route)
        return route
