"""The queues of batches, one per TopicPartition; what is sent of them next, and what is taken out."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import takewhile

from splashdam.accumulator.batch import BatchEvent, ProducerBatch
from splashdam.accumulator.readiness import Readiness
from splashdam.accumulator.results import DrainGate
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.values import TopicPartition


class PartitionQueues:
    """Batches that wait to be sent. A partition is listed while its queue is not empty.

    The partitions stand in the order in which they were last drained, so that a node with more partitions
    than fit into a request serves each in turn, whatever other nodes do.

    Args:
        readiness: the rules which batches wait, and which have waited too long.

    Attributes:
        muted: partitions of which nothing is sent.
    """

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self.muted: set[TopicPartition] = set()
        self._queues: dict[TopicPartition, deque[ProducerBatch]] = {}

    def append(self, batch: ProducerBatch) -> None:
        """Queues a new batch behind all others of its partition."""
        self._queue_for(batch.topic_partition).append(batch)

    def insert(self, batch: ProducerBatch) -> None:
        """Queues a batch that was sent before where it stood: in the order of records, and so of sequences.

        Sequences themselves would not do, since a producer without idempotence has none.
        """
        queue = self._queue_for(batch.topic_partition)
        earlier = takewhile(lambda other: other.place < batch.place, queue)
        queue.insert(sum(1 for _ in earlier), batch)

    def clear(self) -> None:
        """Empties all queues."""
        self._queues.clear()

    @property
    def any_waiting(self) -> bool:
        """Whether any queue has a batch. One look at the dictionary, so it is safe from any thread."""
        return bool(self._queues)

    def topics(self) -> set[str]:
        """Topics that have batches waiting."""
        return {topic_partition.topic for topic_partition in self._queues}

    def queued_batches(self, topic_partition: TopicPartition) -> int:
        """Length of one queue."""
        return len(self._queues.get(topic_partition, ()))

    def __iter__(self) -> Iterator[ProducerBatch]:
        for queue in self._queues.values():
            yield from queue

    def items(self) -> Iterable[tuple[TopicPartition, Sequence[ProducerBatch]]]:
        """The partitions that are not empty, each with its queue."""
        return self._queues.items()

    def _queue_for(self, topic_partition: TopicPartition) -> deque[ProducerBatch]:
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues[topic_partition] = deque()
        return queue

    def choose(
        self,
        cluster: ClusterMetadata,
        nodes: Container[int],
        max_request_size: int,
        now_ms: float,
        gate: DrainGate,
        *,
        close: Callable[[ProducerBatch], None],
    ) -> dict[int, list[ProducerBatch]]:
        """At most one batch per partition for each of ``nodes``, up to ``max_request_size`` bytes each.

        A batch above that size goes alone. A partition that is held back never delays the others. All stay
        where they are until ``take``. What is chosen is closed with ``close`` first, since its size grows
        until then; one that has outgrown the request meanwhile stays behind, closed.
        """
        chosen: dict[int, list[ProducerBatch]] = {}
        used: dict[int, int] = {}
        full: set[int] = set()
        for topic_partition, queue in self._queues.items():
            leader = cluster.leader_for(topic_partition)
            if leader not in nodes or leader in full or topic_partition in self.muted:
                continue
            head = queue[0]
            backs_off = head.attempts and self._readiness.backoff_left_ms(head, cluster, now_ms) > 0
            if backs_off or not gate.admits(head):
                continue
            used_bytes = used.get(leader, 0)
            left_bytes = max_request_size - used_bytes if used_bytes else math.inf
            if not used_bytes or head.size_bytes <= left_bytes:
                close(head)
            size_bytes = head.size_bytes
            if size_bytes > left_bytes:
                full.add(leader)
                continue
            used[leader] = used_bytes + size_bytes
            chosen.setdefault(leader, []).append(head)
        return chosen

    def take(self, batches: Iterable[ProducerBatch], cluster: ClusterMetadata) -> None:
        """Takes out what was chosen; it is in flight to the leaders that ``cluster`` names."""
        for batch in batches:
            topic_partition = batch.topic_partition
            queue = self._queues.pop(topic_partition)
            queue.popleft()
            if queue:
                self._queues[topic_partition] = queue  # last in order: the others come first next time
            batch.leader_epoch = cluster.leader_epoch(topic_partition)
            batch.advance(BatchEvent.DRAIN)

    def expire(self, now_ms: float) -> list[ProducerBatch]:
        """Takes out every batch whose delivery timeout has passed, from the head of each queue."""
        expired = []
        for topic_partition in list(self._queues):
            queue = self._queues[topic_partition]
            while queue and self._readiness.expires_in_ms(queue[0], now_ms) <= 0:
                expired.append(queue.popleft())
            if not queue:
                del self._queues[topic_partition]
        return expired

    def take_unnumbered(self, also: Callable[[ProducerBatch], bool] | None = None) -> list[ProducerBatch]:
        """Takes out every batch without a sequence number, in order, and those of which ``also`` says so."""
        taken: list[ProducerBatch] = []
        for topic_partition, queue in list(self._queues.items()):
            kept: deque[ProducerBatch] = deque()
            for batch in queue:
                goes = not batch.sequenced or (also is not None and also(batch))
                (taken if goes else kept).append(batch)
            if kept:
                self._queues[topic_partition] = kept
            else:
                del self._queues[topic_partition]
        return taken
