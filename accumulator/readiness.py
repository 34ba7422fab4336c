"""When a batch may be sent, when to look again, and when it is too late: linger, full, backoff, expiry.

The rules are those of Kafka's ``RecordAccumulator.ready``. Nothing here keeps a batch or reads a clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Protocol

from splashdam.accumulator.batch import BatchState, ProducerBatch
from splashdam.accumulator.results import DrainGate, ReadyCheck
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.values import TopicPartition


class Queues(Protocol):
    """The batches that wait."""

    @property
    def muted(self) -> Set[TopicPartition]:
        """Partitions of which nothing is sent now."""
        ...

    def items(self) -> Iterable[tuple[TopicPartition, Sequence[ProducerBatch]]]:
        """The partitions with batches, each with its queue, which is not empty."""
        ...


class Readiness:
    """The rules which batches wait.

    Args:
        linger_ms: how long a batch that is not full waits for more records.
        delivery_timeout_ms: from a batch's creation until it fails.
        backoff_ms: how long a batch waits that has failed so often.
    """

    def __init__(
        self, *, linger_ms: float, delivery_timeout_ms: float, backoff_ms: Callable[[int], float]
    ) -> None:
        self._linger_ms = linger_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._backoff_ms = backoff_ms

    def check(
        self, queues: Queues, cluster: ClusterMetadata, now_ms: float, gate: DrainGate, *, at_once: bool
    ) -> ReadyCheck:
        """Which nodes have something to send, and when to ask again; ``at_once`` cuts linger, not backoff."""
        nodes: set[int] = set()
        unknown: set[str] = set()
        next_check_ms = math.inf
        for topic_partition, queue in queues.items():
            head = queue[0]
            next_check_ms = min(next_check_ms, self.expires_in_ms(head, now_ms))
            leader = cluster.leader_for(topic_partition)
            if leader < 0:
                unknown.add(topic_partition.topic)
            elif leader not in nodes and topic_partition not in queues.muted and gate.admits(head):
                wait_ms = self._wait_ms(queue, cluster, now_ms, at_once=at_once)
                if wait_ms > 0:
                    next_check_ms = min(next_check_ms, wait_ms)
                else:
                    nodes.add(leader)
        return ReadyCheck(frozenset(nodes), max(next_check_ms, 0.0), frozenset(unknown))

    def _wait_ms(
        self, queue: Sequence[ProducerBatch], cluster: ClusterMetadata, now_ms: float, *, at_once: bool
    ) -> float:
        head = queue[0]
        if head.attempts:
            backoff_ms = self.backoff_left_ms(head, cluster, now_ms)
            if backoff_ms > 0:
                return backoff_ms
        is_full = head.state is not BatchState.OPEN  # or closed early, as by a flush
        if at_once or is_full or len(queue) > 1:
            return 0
        return head.created_ms + self._linger_ms - now_ms

    def backoff_left_ms(self, batch: ProducerBatch, cluster: ClusterMetadata, now_ms: float) -> float:
        """How long a batch still waits after a failure; a new leader is tried without waiting (KIP-951)."""
        if batch.attempts == 0 or now_ms >= batch.retry_at_ms:
            return 0
        epoch = cluster.leader_epoch(batch.topic_partition)
        if epoch != batch.leader_epoch and epoch >= 0:
            return 0
        return batch.retry_at_ms - now_ms

    def retry_at_ms(self, batch: ProducerBatch, now_ms: float) -> float:
        """When a batch that has failed now, as often as it says, may be sent again."""
        return now_ms + self._backoff_ms(batch.attempts)

    def expires_in_ms(self, batch: ProducerBatch, now_ms: float) -> float:
        """How long until a batch in a queue fails; 0 or less: now."""
        return batch.created_ms + self._delivery_timeout_ms - now_ms


class NodeAvailability:
    """Nodes that lag: their connection could not take a request for longer than the limit (KIP-794).

    Args:
        timeout_ms: the limit (Kafka: ``partitioner.availability.timeout.ms``); 0 switches this off.
    """

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self._ready_ms: dict[int, float] = {}
        self._drained_ms: dict[int, float] = {}

    def note(self, node_id: int, now_ms: float, *, writable: bool) -> None:
        """There is something to send to this node, and its connection takes it now, or does not."""
        self._ready_ms[node_id] = now_ms
        if writable or node_id not in self._drained_ms:
            self._drained_ms[node_id] = now_ms

    def lags(self, node_id: int) -> bool:
        """Whether null keys should rather go elsewhere."""
        if not self.timeout_ms:
            return False
        drained_ms = self._drained_ms.get(node_id, 0.0)
        return self._ready_ms.get(node_id, drained_ms) - drained_ms > self.timeout_ms
