"""The queues of batches, one per TopicPartition, and the rules which of them may be sent."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Container, Iterator

from splashdam.accumulator.batch import BatchEvent, ProducerBatch
from splashdam.accumulator.results import DrainGate, ReadyCheck
from splashdam.accumulator.sequences import is_earlier
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.values import TopicPartition


class PartitionQueues:
    """Batches that wait to be sent. A partition is listed while its queue is not empty.

    The partitions stand in the order in which they were last drained, so that a node with more partitions
    than fit into a request serves each in turn, whatever other nodes do.
    """

    def __init__(self, *, linger_ms: float, delivery_timeout_ms: float, batch_bytes: int) -> None:
        self.linger_ms = linger_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self.batch_bytes = batch_bytes
        self.muted: set[TopicPartition] = set()
        self._queues: dict[TopicPartition, deque[ProducerBatch]] = {}

    def append(self, batch: ProducerBatch) -> None:
        """Queues a new batch behind all others of its partition."""
        self._queue_for(batch.topic_partition).append(batch)

    def insert(self, batch: ProducerBatch) -> None:
        """Queues a batch that was sent before: in sequence order, or in front where it has no sequence."""
        queue = self._queue_for(batch.topic_partition)
        position = 0
        if batch.sequenced:
            for position, other in enumerate(queue):  # noqa: B007 (the position is what is wanted)
                if not other.sequenced or is_earlier(batch.base_sequence, other.base_sequence):
                    break
            else:
                position = len(queue)
        queue.insert(position, batch)

    def clear(self) -> None:
        """Empties all queues."""
        self._queues.clear()

    def topics(self) -> set[str]:
        """Topics that have batches waiting."""
        return {topic_partition.topic for topic_partition in self._queues}

    def queued_batches(self, topic_partition: TopicPartition) -> int:
        """Length of one queue."""
        return len(self._queues.get(topic_partition, ()))

    def __iter__(self) -> Iterator[ProducerBatch]:
        for queue in self._queues.values():
            yield from queue

    def _queue_for(self, topic_partition: TopicPartition) -> deque[ProducerBatch]:
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues[topic_partition] = deque()
        return queue

    def ready(self, cluster: ClusterMetadata, now_ms: float, gate: DrainGate, *, at_once: bool) -> ReadyCheck:
        """Which nodes have something to send; ``at_once`` cuts linger, not backoff."""
        nodes: set[int] = set()
        unknown: set[str] = set()
        next_check_ms = math.inf
        for topic_partition, queue in self._queues.items():
            head = queue[0]
            next_check_ms = min(next_check_ms, head.created_ms + self.delivery_timeout_ms - now_ms)
            leader = cluster.leader_for(topic_partition)
            if leader < 0:
                unknown.add(topic_partition.topic)
            elif leader not in nodes and topic_partition not in self.muted and gate.admits(head):
                wait_ms = self._wait_ms(queue, cluster, now_ms, at_once=at_once)
                if wait_ms > 0:
                    next_check_ms = min(next_check_ms, wait_ms)
                else:
                    nodes.add(leader)
        return ReadyCheck(frozenset(nodes), max(next_check_ms, 0.0), frozenset(unknown))

    def drain(
        self,
        cluster: ClusterMetadata,
        nodes: Container[int],
        max_request_size: int,
        now_ms: float,
        gate: DrainGate,
    ) -> dict[int, list[ProducerBatch]]:
        """Takes at most one batch per partition for each of ``nodes``, up to ``max_request_size`` bytes each.

        A batch above that size goes alone. A partition that is held back never delays the others.
        """
        drained: dict[int, list[ProducerBatch]] = {}
        used: dict[int, int] = {}
        full: set[int] = set()
        for topic_partition in list(self._queues):
            leader = cluster.leader_for(topic_partition)
            if leader not in nodes or leader in full or topic_partition in self.muted:
                continue
            head = self._queues[topic_partition][0]
            if self._backoff_ms(head, cluster, now_ms) > 0 or not gate.admits(head):
                continue
            size_bytes = head.size_bytes
            if leader in used and used[leader] + size_bytes > max_request_size:
                full.add(leader)
                continue
            used[leader] = used.get(leader, 0) + size_bytes
            head.leader_epoch = cluster.leader_epoch(topic_partition)
            drained.setdefault(leader, []).append(self._take(topic_partition, gate))
        return drained

    def expire(self, now_ms: float) -> list[ProducerBatch]:
        """Takes out every batch whose delivery timeout has passed, from the head of each queue."""
        expired = []
        for topic_partition in list(self._queues):
            queue = self._queues[topic_partition]
            while queue and now_ms >= queue[0].created_ms + self.delivery_timeout_ms:
                batch = queue.popleft()
                batch.close()
                expired.append(batch)
            if not queue:
                del self._queues[topic_partition]
        return expired

    def take_unsent(self) -> list[ProducerBatch]:
        """Takes out every batch without a sequence number, in order."""
        taken = []
        for topic_partition, queue in list(self._queues.items()):
            taken += [batch for batch in queue if not batch.sequenced]
            kept = deque(batch for batch in queue if batch.sequenced)
            if kept:
                self._queues[topic_partition] = kept
            else:
                del self._queues[topic_partition]
        return taken

    def _take(self, topic_partition: TopicPartition, gate: DrainGate) -> ProducerBatch:
        queue = self._queues.pop(topic_partition)
        batch = queue.popleft()
        if queue:
            self._queues[topic_partition] = queue  # at the end of the order: the others come first next time
        batch.close()
        batch.advance(BatchEvent.DRAIN)
        gate.drained(batch)
        return batch

    def _wait_ms(
        self, queue: deque[ProducerBatch], cluster: ClusterMetadata, now_ms: float, *, at_once: bool
    ) -> float:
        head = queue[0]
        backoff_ms = self._backoff_ms(head, cluster, now_ms)
        if backoff_ms > 0:
            return backoff_ms
        if at_once or len(queue) > 1 or self.is_full(head):
            return 0
        return head.created_ms + self.linger_ms - now_ms

    def is_full(self, batch: ProducerBatch) -> bool:
        """Whether the batch gains nothing by waiting: closed for appends, or at its size limit."""
        return not batch.open or batch.size_bytes >= self.batch_bytes

    def _backoff_ms(self, batch: ProducerBatch, cluster: ClusterMetadata, now_ms: float) -> float:
        if batch.attempts == 0 or now_ms >= batch.retry_at_ms:
            return 0
        epoch = cluster.leader_epoch(batch.topic_partition)
        if epoch != batch.leader_epoch and epoch >= 0:
            return 0  # KIP-951: a new leader is tried without waiting
        return batch.retry_at_ms - now_ms
