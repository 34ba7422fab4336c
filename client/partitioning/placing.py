"""Which partition a record goes to: the one rule of the producer, and what it looks at for each topic.

A record comes here from the slow side of ``send``, from ``PendingSend``, ``send_many`` and ``send_arrow``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container
from typing import Any

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.client.partitioning.partitioners import ClusterView, DefaultPartitioner, hashed_partition
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.values import TopicPartition
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.kernel import BulkRecords, FastPath, PartitionLane, TopicLanes
from splashdam.record.kernel.bulk.bulk import NULL_KEY_SLOT
from splashdam.sender.metadata import Metadata

BATCHES_PER_STAY = 2
"""After so many full batches the sticky partition changes in any case, also within an open batch."""

Draw = Callable[[list[PartitionLane], ClusterMetadata], PartitionLane]
"""Chooses the next sticky partition among candidates; there is at least one."""


def place(
    lanes: TopicLanes, partition: int | None, key: bytes | None, ask: Callable[[], int] | None = None
) -> PartitionLane | None:
    """Return the lane of a record; None for the sticky partition's, which changes as records go there.

    This is the one rule for all ways into a batch:

    1. the partition that the application gave, which must exist;
    2. else the choice of the application's partitioner, if it has one;
    3. else, for a record with a key, the hash of the key modulo the number of all partitions;
    4. else the sticky partition of the topic (KIP-794).

    ``FastPath`` repeats 1, 3 and 4 in each twin, because a call costs as much there as a small record;
    ``tests/client/partitioning/test_placing.py`` compares the twins with this function.

    Args:
        lanes: the lanes of the topic.
        partition: the partition that the application gave, None for none.
        key: the serialized key.
        ask: calls the application's partitioner; None if the producer uses the default one.
    """
    if partition is not None:
        return lanes.lanes[partition]
    if ask is not None:
        return lanes.lanes[ask()]
    if key is None:
        return None
    missed, lanes.missed = lanes.missed, None
    if missed is not None and missed[0] is key:  # the fast path has hashed this key, and found no open batch
        return missed[1]
    return lanes.lanes[hashed_partition(key, len(lanes.lanes))]


def fill_slots(  # noqa: PLR0917 (once per 16 Ki records; the kernel's own arguments)
    records: BulkRecords,
    own: array[int] | None,
    partition_count: int,
    slots: bytearray,
    at: int,
    row: int,
    stop: int,
) -> None:
    """Do as ``place`` for many records: write their partitions, ``NULL_KEY_SLOT`` for the sticky one.

    Args:
        records: the records; the kernel hashes their keys.
        own: the partition given for each record, ``NULL_KEY_SLOT`` for none; None if no record has one.
        partition_count: number of partitions of the topic.
        slots: two bytes for each record of the call.
        at: the entry for the record in ``row``.
        row, stop: the first record, and the one after the last.
    """
    if own is None:
        records.hash_keys(partition_count, slots, at, row, stop)
        return
    window = own[row:stop]
    if records.keys is None or NULL_KEY_SLOT not in window:
        slots[2 * at : 2 * (at + len(window))] = window.tobytes()
        return
    records.hash_keys(partition_count, slots, at, row, stop)
    with memoryview(slots) as view, view.cast("H") as entries:
        for number, slot in enumerate(window, at):
            if slot != NULL_KEY_SLOT:
                entries[number] = slot


def lane_of_slot(lanes: TopicLanes, slot: int) -> PartitionLane | None:
    """Return the lane that ``fill_slots`` has chosen; None if the topic has no such partition."""
    if slot == NULL_KEY_SLOT:
        return lanes.sticky
    return lanes.lanes[slot] if slot < len(lanes.lanes) else None


def stay_is_over(lanes: TopicLanes, more_bytes: int) -> bool:
    """Whether the bytes of a full batch, with ``more_bytes``, went to the sticky partition: it may change."""
    return (lanes.sticky_bytes + more_bytes) * BATCHES_PER_STAY >= lanes.sticky_limit_bytes


class TopicRoute(TopicLanes):
    """The lanes and the sticky partition of a topic, for one metadata snapshot.

    Attributes:
        cluster: the snapshot; a route of an earlier one is stale.
        view: the snapshot as partitioners see it.
        count: number of partitions.
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
        # New metadata keep the sticky partition: another one would leave a batch that is not full.
        number = -1 if before is None else before.sticky.topic_partition.partition
        if before is not None and any(lane.topic_partition.partition == number for lane in candidates):
            sticky, sticky_bytes = lanes[number], before.sticky_bytes
        else:
            sticky, sticky_bytes = draw(candidates, cluster), HEADER_BYTES
        super().__init__(lanes, sticky, sticky_bytes, self._limit_bytes(sticky))

    def switch(self) -> None:
        """Draw the next sticky partition from those with a leader, or from all if none has one."""
        lane = self._draw(self._candidates, self.cluster)
        self.stick_to(lane, HEADER_BYTES)
        self.sticky_limit_bytes = self._limit_bytes(lane)

    def _limit_bytes(self, lane: PartitionLane) -> int:
        return BATCHES_PER_STAY * self._full_bytes(lane.topic_partition.topic)


class RouteTable:
    """The routes of a producer's topics, published in its fast path.

    They are dropped when the metadata change, and made again on demand.

    Args:
        path: where they are published.
        metadata: of the cluster.
        guard: held while the metadata change.
        draw: draws the sticky partition.
        lane: returns the lane of a partition.
        forget_lanes: called with the known topics when the metadata change.
        full_bytes: returns the uncompressed size of a full batch of a topic.
    """

    def __init__(
        self,
        *,
        path: FastPath[Any],
        metadata: Metadata,
        guard: ReentrantLock,
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
        """Return the route of a topic in the current metadata; None if it is missing or has an error."""
        route = self._routes.get(topic)
        if route is not None and route.cluster is self._metadata.cluster:
            return route
        # Under the guard, so that the metadata cannot change before the route is published.
        return self._guard.run(self._refresh, topic, self._metadata.cluster)

    def _forget(self) -> None:
        topics = self._metadata.cluster.topics
        self._path.clear()
        # Stale routes are kept: the next route of a topic continues their sticky partition.
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
            # If no partition has a leader, records wait in the queues until one is elected.
            [lanes[number] for number in cluster.available_partitions(topic)] or lanes,
            self._draw,
            cluster,
            full_bytes=self._full_bytes,
            before=self._routes.get(topic),
        )
        self._path.publish(topic, route)
        return route


class LoadAwareDraw:
    """Draws the next sticky partition by queue length (KIP-794); called under the guard, about once a batch.

    Partitions whose node has not taken a request for ``partitioner_availability_timeout_ms`` are left out, as
    long as there are others.

    Args:
        partitioner: draws.
        accumulator: its queues are compared.
        adaptive: False: all candidates are equally likely.
    """

    def __init__(
        self, partitioner: DefaultPartitioner, accumulator: RecordAccumulator, *, adaptive: bool
    ) -> None:
        self._partitioner = partitioner
        self._accumulator = accumulator
        self._adaptive = adaptive

    def __call__(self, candidates: list[PartitionLane], cluster: ClusterMetadata) -> PartitionLane:
        accumulator = self._accumulator
        if not self._adaptive or not accumulator.has_queued:
            return candidates[self._partitioner.draw(range(len(candidates)))]
        lags = accumulator.availability.lags
        if accumulator.availability.timeout_ms:
            candidates = [
                lane for lane in candidates if not lags(cluster.leader_for(lane.topic_partition))
            ] or candidates
        queues = [accumulator.queued_batches(lane.topic_partition) for lane in candidates]
        return candidates[self._partitioner.draw(range(len(candidates)), queues)]
