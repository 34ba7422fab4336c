"""Partitioners. Interface and names are kafka-python's, the default's rule is Java's.

A record with a key goes to partition ``(murmur2(key) & 0x7fffffff) % n``, where n counts *all* partitions, so
that a partition without a leader does not move keys. For null keys see ``DefaultPartitioner``.
"""

from __future__ import annotations

import itertools
import random as _random
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from splashdam.client.sending.arguments import positional_count
from splashdam.model.cluster import ClusterMetadata
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.log_text import shown
from splashdam.model.values import Buffer
from splashdam.record.kernel import murmur2


class ClusterView:
    """The cluster as partitioners see it; the method names are kafka-python's."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: ClusterMetadata) -> None:
        self._cluster = cluster

    def topics(self) -> frozenset[str]:
        """Names of the topics this client knows."""
        return frozenset(self._cluster.topics)

    def partitions_for_topic(self, topic: str) -> frozenset[int] | None:
        """Numbers of all partitions, None for a topic that is not known."""
        count = self._cluster.partition_count(topic)
        return frozenset(range(count)) if count else None

    def available_partitions_for_topic(self, topic: str) -> frozenset[int] | None:
        """Numbers of the partitions that have a leader now, None for a topic that is not known."""
        count = self._cluster.partition_count(topic)
        return frozenset(self._cluster.available_partitions(topic)) if count else None


PartitionFunction: TypeAlias = Callable[
    [str, Any, Buffer | None, Any, Buffer | None, ClusterView], int | None
]
"""The calling convention of adapted partitioners."""


class Partitioner(ABC):
    """Chooses a partition for records without a given one. Called by several threads at once.

    A partitioner may also have ``on_new_batch(topic, cluster, prev_partition)``. It is called when a record
    with a null key would open a new batch on ``prev_partition``; ``partition`` is then called again.
    """

    @abstractmethod
    def partition(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        key: Any,
        serialized_key: Buffer | None,
        value: Any,
        serialized_value: Buffer | None,
        cluster: ClusterView,
    ) -> int:
        """Return the partition number.

        Args:
            topic: the topic of the record; the cluster knows it.
            key: the key as the application gave it.
            serialized_key: the key's bytes, ``None`` for a null key (``b""`` is a key).
            value: the value as the application gave it.
            serialized_value: the value's bytes.
            cluster: the partitions, and which of them have a leader.

        Raises:
            Exception: any; it propagates to the caller of ``send``, and nothing is queued.
        """


class DefaultPartitioner(Partitioner):
    """Java's default: murmur2 for keys, sticky for null keys (KIP-794).

    Null-key records of a topic go to one sticky partition, which changes once ``batch_size`` bytes went there
    and all its batches are full, and after twice that in any case. The next one is drawn from the partitions
    with a leader; those with fewer queued batches are more likely
    (``partitioner_adaptive_partitioning_enable``). A direct call of ``partition`` draws for each null key.

    Args:
        random: draws a float in [0, 1); default ``random.random``.
    """

    def __init__(self, random: Callable[[], float] = _random.random) -> None:
        self._random = random

    def partition(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        key: Any,
        serialized_key: Buffer | None,
        value: Any,
        serialized_value: Buffer | None,
        cluster: ClusterView,
    ) -> int:
        if serialized_key is not None:
            return hashed_partition(serialized_key, len(all_partitions(topic, cluster)))
        return self.draw(_available(topic, cluster))

    def draw(self, candidates: Sequence[int], queues: Sequence[int] = ()) -> int:
        """Draw one of ``candidates``, uniformly or weighted by their queue lengths in ``queues``."""
        if not queues or min(queues) == max(queues):
            return candidates[int(self._random() * len(candidates))]
        table = cumulative_weights(queues)
        return candidates[bisect_right(table, int(self._random() * table[-1]))]


class StickyPartitioner(DefaultPartitioner):
    """Null keys stay on one partition until a batch there is complete, then move to another one (KIP-480).

    Keys are placed as by ``DefaultPartitioner``. It has no lock: in a race, two threads may both switch the
    partition, which does no harm.
    """

    def __init__(self, random: Callable[[], float] = _random.random) -> None:
        super().__init__(random)
        self._sticky: dict[str, int] = {}

    def partition(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        key: Any,
        serialized_key: Buffer | None,
        value: Any,
        serialized_value: Buffer | None,
        cluster: ClusterView,
    ) -> int:
        if serialized_key is not None:
            return hashed_partition(serialized_key, len(all_partitions(topic, cluster)))
        return self.sticky_partition(topic, cluster)

    def random_partition(self, topic: str, cluster: ClusterView) -> int:
        """Draw one of the partitions with a leader."""
        return self.draw(_available(topic, cluster))

    def sticky_partition(self, topic: str, cluster: ClusterView) -> int:
        """The current sticky partition."""
        candidates = _available(topic, cluster)
        sticky = self._sticky.get(topic)
        if sticky is None or sticky not in candidates:
            sticky = self._sticky[topic] = self.draw(candidates)
        return sticky

    def on_new_batch(self, topic: str, cluster: ClusterView, prev_partition: int) -> None:
        """Switch the sticky partition, unless another thread has done so already."""
        if self._sticky.get(topic) != prev_partition:
            return
        candidates = _available(topic, cluster)
        others = [partition for partition in candidates if partition != prev_partition]
        self._sticky[topic] = self.draw(others or candidates)


class RoundRobinPartitioner(Partitioner):
    """Cycles through the partitions with a leader, for all records; starts at a random one.

    Args:
        random: draws a float in [0, 1); default ``random.random``.
    """

    def __init__(self, random: Callable[[], float] = _random.random) -> None:
        self._random = random
        self._next: dict[str, Iterator[int]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_random": self._random, "_next": {}}

    def partition(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        key: Any,
        serialized_key: Buffer | None,
        value: Any,
        serialized_value: Buffer | None,
        cluster: ClusterView,
    ) -> int:
        candidates = _available(topic, cluster)
        counter = self._next.get(topic)
        if counter is None:
            start = int(self._random() * len(candidates))
            counter = self._next.setdefault(topic, itertools.count(start))
        # `next` of a count is one step under the GIL, so threads need no lock.
        return candidates[next(counter) % len(candidates)]


def cumulative_weights(queues: Sequence[int]) -> list[int]:
    """The cumulative weights of KIP-794; a draw belongs to the first entry above it.

    The weight of a partition is the longest queue length minus its own, plus 1: queues of 0, 3 and 1 batches
    make 4, 5, 8.
    """
    most = max(queues) + 1
    return list(itertools.accumulate(most - length for length in queues))


def hashed_partition(serialized_key: Buffer, partition_count: int) -> int:
    """The partition of a key, as in Kafka's Java client."""
    return (murmur2(serialized_key) & 0x7FFFFFFF) % partition_count


def partition_function(partitioner: Any) -> PartitionFunction:
    """Adapt the option ``partitioner`` to one calling convention.

    Accepted are a ``Partitioner`` or an object with its ``partition`` (six arguments, or kafka-python 2.x's
    ``topic, serialized_key, cluster``), and a plain callable
    ``f(serialized_key, all_partitions, available_partitions)`` with sorted lists.

    Raises:
        KafkaConfigurationError: it is something else.
    """
    method: Any = None if isinstance(partitioner, type) else getattr(partitioner, "partition", None)
    arguments = 0 if method is None else positional_count(method)
    if arguments == 3:
        return lambda topic, _key, key_bytes, _value, _bytes, cluster: method(topic, key_bytes, cluster)
    if arguments >= 6:
        function: PartitionFunction = method
        return function
    if isinstance(partitioner, type) or not callable(partitioner):
        raise KafkaConfigurationError(
            f"partitioner={shown(partitioner)} is not a partitioner; give an instance of Partitioner,"
            " or f(serialized_key, all_partitions, available_partitions) -> int"
        )
    return lambda topic, _key, key_bytes, _value, _bytes, cluster: partitioner(
        key_bytes, all_partitions(topic, cluster), sorted(cluster.available_partitions_for_topic(topic) or ())
    )


def all_partitions(topic: str, cluster: ClusterView) -> list[int]:
    """The numbers of all partitions, with or without a leader.

    Raises:
        ValueError: the topic is unknown.
    """
    partitions = cluster.partitions_for_topic(topic)
    if not partitions:
        raise ValueError(f"topic {topic!r} is not in the cluster's metadata")
    return sorted(partitions)


def _available(topic: str, cluster: ClusterView) -> list[int]:
    """The partitions with a leader; all partitions if none has one, so that records wait for it."""
    return sorted(cluster.available_partitions_for_topic(topic) or ()) or all_partitions(topic, cluster)
