"""The next partition for null keys, by how busy each one is (KIP-794)."""

from __future__ import annotations

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.client.partitioning.partitioners import DefaultPartitioner
from splashdam.model.cluster import ClusterMetadata
from splashdam.record.kernel import PartitionLane


class LoadAwareDraw:
    """Draws among partitions; called with the guard held, once for about a batch of records.

    Partitions whose node has not taken anything for longer than ``partitioner_availability_timeout_ms`` are
    left out, as long as there are others.

    Args:
        partitioner: draws.
        accumulator: whose queues are looked at.
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
