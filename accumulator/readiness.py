"""Queued batches, one queue per TopicPartition: which are ready, and when to check again.

Linger, full batches, backoff, expiry and muted partitions are decided here, by the rules of Kafka's
``RecordAccumulator.ready`` and ``drain``. Nothing here reads a clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple, Protocol, TypeAlias

from splashdam.accumulator.batch import BatchEvent, BatchState, ProducerBatch
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.values import TopicPartition
from splashdam.model.views.standing import Standing

_NO_LEADER, _MUTED = Standing.NO_LEADER, Standing.MUTED
_BACKS_OFF, _LINGERS = Standing.BACKS_OFF, Standing.LINGERS


class ReadyCheck(NamedTuple):
    """Which nodes can be sent to now, and when to check again.

    Attributes:
        nodes: node ids that lead a partition with a batch to send.
        next_check_ms: milliseconds until another batch becomes ready or expires; infinity if none does.
        unknown_leader_topics: topics with batches for partitions that have no known leader.
    """

    nodes: frozenset[int]
    next_check_ms: float
    unknown_leader_topics: frozenset[str]


class DrainGate(Protocol):
    """Numbers batches and holds back those that must not be sent yet, for idempotence and transactions."""

    def holds(self, batch: ProducerBatch) -> Standing | None:
        """Return what the head of a queue waits for; None if it may be sent now."""
        ...

    def drained(self, batch: ProducerBatch) -> None:
        """Number a batch that is about to leave its queue, if it has no numbers yet.

        If this raises, no batch has left its queue.
        """
        ...


class OpenGate:
    """The gate of a producer without idempotence."""

    def holds(self, batch: ProducerBatch) -> Standing | None:
        return None

    def drained(self, batch: ProducerBatch) -> None:
        """Leave the batch without numbers."""


Note: TypeAlias = Callable[[Sequence[ProducerBatch], int, Standing, float], None]
"""Told by a decision about a queue: its batches, the leader, how the first one stands, and for how long.

The time is in milliseconds; infinity if an event has to come.
"""


class PartitionQueues:
    """Queued batches. A partition is listed while its queue is not empty.

    Partitions are ordered by their last drain, so that a node with more partitions than fit into a request
    serves each in turn.

    Args:
        linger_ms: how long a batch that is not full waits for more records.
        delivery_timeout_ms: from a batch's creation until it fails.
        backoff_ms: wait after a number of failed attempts.

    Attributes:
        by_partition: the queues that are not empty. Whether there is one may be asked without the guard.
        muted: partitions that are held back.
    """

    def __init__(
        self, *, linger_ms: float, delivery_timeout_ms: float, backoff_ms: Callable[[int], float]
    ) -> None:
        self._linger_ms = linger_ms
        self._delivery_timeout_ms = delivery_timeout_ms
        self._backoff_ms = backoff_ms
        self.muted: set[TopicPartition] = set()
        self.by_partition: dict[TopicPartition, deque[ProducerBatch]] = {}

    def append(self, batch: ProducerBatch) -> None:
        """Queue a new batch at the end."""
        queue = self.by_partition.get(batch.topic_partition)
        if queue is None:
            # In one step: a Ctrl-C in between would leave an empty queue, which ends the sender.
            self.by_partition[batch.topic_partition] = deque((batch,))
        else:
            queue.append(batch)

    def insert(self, batch: ProducerBatch) -> None:
        """Queue a batch again at its place in the order of records, and so of sequences."""
        queue = self.by_partition.get(batch.topic_partition)
        if queue is None:
            self.by_partition[batch.topic_partition] = deque((batch,))
            return
        # By place, and not in front as Java does without sequence numbers: two batches that
        # come back in the wrong order would be swapped.
        earlier = takewhile(lambda other: other.place < batch.place, queue)
        queue.insert(sum(1 for _ in earlier), batch)

    def clear(self) -> None:
        self.by_partition.clear()

    def topics(self) -> set[str]:
        return {topic_partition.topic for topic_partition in self.by_partition}

    def queued_batches(self, topic_partition: TopicPartition) -> int:
        return len(self.by_partition.get(topic_partition, ()))

    def __iter__(self) -> Iterator[ProducerBatch]:
        for queue in self.by_partition.values():
            yield from queue

    def retry_at_ms(self, batch: ProducerBatch, now_ms: float) -> float:
        """Return when the backoff of a batch ends whose attempt has failed now."""
        return now_ms + self._backoff_ms(batch.attempts)

    def ready(  # noqa: PLR0912 (one decision, in one place, without a call for each partition)
        self,
        cluster: ClusterMetadata,
        now_ms: float,
        gate: DrainGate,
        *,
        at_once: bool,
        note: Note | None = None,
    ) -> ReadyCheck:
        """Return ready nodes and the next check time.

        Args:
            cluster: the leaders.
            now_ms: the monotonic clock.
            gate: holds back partitions.
            at_once: skip linger, but not backoff.
            note: is told of every queue; without it a node that is ready already is not looked at again.
        """
        nodes: set[int] = set()
        unknown: set[str] = set()
        next_check_ms = math.inf
        for topic_partition, queue in self.by_partition.items():
            head = queue[0]
            # For held-back partitions, too: their batches must expire in time.
            next_check_ms = min(next_check_ms, self._expires_in_ms(head, now_ms))
            leader = cluster.leader_for(topic_partition)
            # No leader, muted, held by the gate: no time is known, but the answer that ends it makes a turn.
            wait_ms = math.inf
            if leader < 0:
                unknown.add(topic_partition.topic)
                standing: Standing | None = _NO_LEADER
            # The node is ready already, and `choose` asks gate and backoff for each partition again.
            elif leader in nodes and note is None:
                continue
            elif topic_partition in self.muted:
                standing = _MUTED
            else:
                standing = gate.holds(head)
                if standing is None:
                    wait_ms = self._backoff_left_ms(head, cluster, now_ms) if head.attempts else 0.0
                    if wait_ms > 0:
                        standing = _BACKS_OFF
                    elif at_once or head.state is not BatchState.OPEN or len(queue) > 1:
                        nodes.add(leader)
                    else:
                        wait_ms = head.created_ms + self._linger_ms - now_ms
                        if wait_ms > 0:
                            standing = _LINGERS
                        else:
                            nodes.add(leader)
                    if standing is not None:
                        next_check_ms = min(next_check_ms, wait_ms)
            if note is not None:
                note(queue, leader, standing or self._why_ready(queue, at_once=at_once), wait_ms)
        return ReadyCheck(frozenset(nodes), max(next_check_ms, 0.0), frozenset(unknown))

    def _why_ready(self, queue: Sequence[ProducerBatch], *, at_once: bool) -> Standing:
        head = queue[0]
        if len(queue) > 1:
            return Standing.FOLLOWED
        if head.state is not BatchState.OPEN:
            return Standing.CLOSED if head.attempts or at_once else Standing.FULL
        return Standing.HURRIED if at_once else Standing.LINGERED

    def lone(self, now_ms: float, *, at_once: bool) -> ProducerBatch | None:
        """Return the only batch that is queued, if `ready` would find it ready and it was never sent.

        The caller checks its leader and the gate. None does not mean that no batch is ready.
        """
        if len(self.by_partition) != 1:
            return None
        ((topic_partition, queue),) = self.by_partition.items()
        head = queue[0]
        # A retry has a backoff and perhaps a new leader: the whole decision looks at both.
        if len(queue) != 1 or head.attempts or topic_partition in self.muted:
            return None
        if at_once or head.state is not BatchState.OPEN or head.created_ms + self._linger_ms <= now_ms:
            return head
        return None

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
        """Choose at most one batch per partition for each of ``nodes``, up to ``max_request_size`` bytes.

        A larger batch goes alone. A partition that is held back never delays the others. Batches stay queued
        until ``take``.
        """
        chosen: dict[int, list[ProducerBatch]] = {}
        used: dict[int, int] = {}
        full: set[int] = set()
        for topic_partition, queue in self.by_partition.items():
            # A partition that is held back is passed over. Java stops there and starts there again, so one
            # blocked partition stops its whole node (docs/decisions/batch-ownership.md).
            leader = cluster.leader_for(topic_partition)
            if leader not in nodes or leader in full or topic_partition in self.muted:
                continue
            head = queue[0]
            backs_off = head.attempts and self._backoff_left_ms(head, cluster, now_ms) > 0
            if backs_off or gate.holds(head) is not None:
                continue
            used_bytes = used.get(leader, 0)
            # The first batch of a request goes whatever its size, or a large one would never be sent.
            left_bytes = max_request_size - used_bytes if used_bytes else math.inf
            if not used_bytes or head.size_bytes <= left_bytes:
                close(head)
            # Asked again: other threads append without the guard until the batch is closed. One that has
            # outgrown the request meanwhile stays queued, closed.
            size_bytes = head.size_bytes
            if size_bytes > left_bytes:
                full.add(leader)
                continue
            used[leader] = used_bytes + size_bytes
            chosen.setdefault(leader, []).append(head)
        return chosen

    def take(self, batches: Iterable[ProducerBatch], cluster: ClusterMetadata) -> None:
        """Take the chosen batches out; they are in flight to the leaders in ``cluster``."""
        for batch in batches:
            topic_partition = batch.topic_partition
            queue = self.by_partition.pop(topic_partition)
            queue.popleft()
            if queue:
                self.by_partition[topic_partition] = queue  # last: the others come first next time
            batch.leader_epoch = cluster.leader_epoch(topic_partition)
            batch.advance(BatchEvent.DRAIN)

    def expire(self, now_ms: float) -> list[ProducerBatch]:
        """Take out all batches past their delivery timeout, from the head of each queue."""
        # Batches keep the order of their records, so the oldest one is always at the head.
        expired = []
        for topic_partition in list(self.by_partition):
            queue = self.by_partition[topic_partition]
            while queue and self._expires_in_ms(queue[0], now_ms) <= 0:
                expired.append(queue.popleft())
            if not queue:
                del self.by_partition[topic_partition]
        return expired

    def take_unnumbered(self, also: Callable[[ProducerBatch], bool] | None = None) -> list[ProducerBatch]:
        """Take out all batches without sequence numbers, in order, and those for which ``also`` is true."""
        taken: list[ProducerBatch] = []
        for topic_partition, queue in list(self.by_partition.items()):
            kept: deque[ProducerBatch] = deque()
            for batch in queue:
                goes = not batch.sequenced or (also is not None and also(batch))
                (taken if goes else kept).append(batch)
            if kept:
                self.by_partition[topic_partition] = kept
            else:
                del self.by_partition[topic_partition]
        return taken

    def _backoff_left_ms(self, batch: ProducerBatch, cluster: ClusterMetadata, now_ms: float) -> float:
        """Return what is left of the backoff; 0 if the leader has changed since (KIP-951)."""
        if batch.attempts == 0 or now_ms >= batch.retry_at_ms:
            return 0
        epoch = cluster.leader_epoch(batch.topic_partition)
        if epoch != batch.leader_epoch and epoch >= 0:
            return 0
        return batch.retry_at_ms - now_ms

    def _expires_in_ms(self, batch: ProducerBatch, now_ms: float) -> float:
        """Return milliseconds until a queued batch expires; 0 or less: now."""
        return batch.created_ms + self._delivery_timeout_ms - now_ms


class NodeAvailability:
    """Nodes whose connection could not take a request for longer than a limit (KIP-794).

    Args:
        timeout_ms: the limit (Kafka: ``partitioner.availability.timeout.ms``); 0 switches this off.
    """

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        self._ready_ms: dict[int, float] = {}
        self._drained_ms: dict[int, float] = {}

    def note(self, node_id: int, now_ms: float, *, writable: bool) -> None:
        """Record that a node has ready batches, and whether its connection can take them."""
        self._ready_ms[node_id] = now_ms
        # For a node that was never written to, the time counts from its first ready batch.
        if writable or node_id not in self._drained_ms:
            self._drained_ms[node_id] = now_ms

    def lags(self, node_id: int) -> bool:
        """Return whether records without a key should avoid this node."""
        if not self.timeout_ms:
            return False
        drained_ms = self._drained_ms.get(node_id, 0.0)
        return self._ready_ms.get(node_id, drained_ms) - drained_ms > self.timeout_ms
