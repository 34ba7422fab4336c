"""Which partition a record goes to. Interface and names are kafka-python's, the default's rule is Java's.

A keyed record always goes to ``(murmur2(key) & 0x7fffffff) % n`` with n = *all* partitions, so that a
partition without a leader does not move keys. Null keys: see ``DefaultPartitioner``.
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
from splashdam.model.values import Buffer
from splashdam.record.kernel import murmur2


class ClusterView:
    """What a partitioner may ask of the cluster; the method names are kafka-python's."""

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
"""What every accepted partitioner is turned into."""


class Partitioner(ABC):
    """Chooses a partition for each record that was sent without one. Called by several threads at once.

    A partitioner may also have ``on_new_batch(topic, cluster, prev_partition)``: it is called when a record
    with a null key would open a new batch on ``prev_partition``, and ``partition`` is then asked again.
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
        """The number of the partition.

        Args:
            topic: the topic of the record; the cluster knows it.
            key: the key as the application gave it.
            serialized_key: the key's bytes, ``None`` for a null key (``b""`` is a key).
            value: the value as the application gave it.
            serialized_value: the value's bytes.
            cluster: the partitions, and which of them have a leader.

        Raises:
            Exception: anything; it reaches the caller of ``send`` as it is, and nothing is queued.
        """


class DefaultPartitioner(Partitioner):
    """Java's default: murmur2 for keys, sticky for null keys (KIP-794).

    The producer keeps null-key records of a topic on one partition and moves on when at least ``batch_size``
    bytes went there and all its batches are full, at twice that in any case. The next partition is drawn from
    those with a leader: one where fewer batches wait is the more likely
    (``partitioner_adaptive_partitioning_enable``). Asked directly, ``partition`` draws for each null key.

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
        """One of ``candidates``: each equally likely, or by how many batches wait for each, in ``queues``."""
        if not queues or min(queues) == max(queues):
            return candidates[int(self._random() * len(candidates))]
        table = cumulative_weights(queues)
        return candidates[bisect_right(table, int(self._random() * table[-1]))]


class StickyPartitioner(DefaultPartitioner):
    """Null keys stay on one partition until a batch there is complete, then move to another one (KIP-480).

    Keys are placed as by ``DefaultPartitioner``. It has no lock: a race between two threads can only make
    both of them pick a new partition.
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
        """Any that has a leader."""
        return self.draw(_available(topic, cluster))

    def sticky_partition(self, topic: str, cluster: ClusterView) -> int:
        """Where records without a key go now."""
        candidates = _available(topic, cluster)
        sticky = self._sticky.get(topic)
        if sticky is None or sticky not in candidates:
            sticky = self._sticky[topic] = self.draw(candidates)
        return sticky

    def on_new_batch(self, topic: str, cluster: ClusterView, prev_partition: int) -> None:
        """Moves the topic off ``prev_partition``, unless another thread has done so already."""
        if self._sticky.get(topic) != prev_partition:
            return
        candidates = _available(topic, cluster)
        others = [partition for partition in candidates if partition != prev_partition]
        self._sticky[topic] = self.draw(others or candidates)


class RoundRobinPartitioner(Partitioner):
    """Each record goes to the next partition that has a leader, keys or not; starts at a random one.

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
        return candidates[next(counter) % len(candidates)]


def cumulative_weights(queues: Sequence[int]) -> list[int]:
    """The table of KIP-794: a draw below the sum of all weights belongs to the first entry above it.

    A partition weighs as many batches as its queue is shorter than the longest one, and one more: queues of
    0, 3 and 1 batches make 4, 5, 8.
    """
    most = max(queues) + 1
    return list(itertools.accumulate(most - length for length in queues))


def hashed_partition(serialized_key: Buffer, partition_count: int) -> int:
    """Where Kafka's own clients put this key."""
    return (murmur2(serialized_key) & 0x7FFFFFFF) % partition_count


def partition_function(partitioner: Any) -> PartitionFunction:
    """One calling convention for everything that is accepted as ``partitioner``.

    Accepted: a ``Partitioner`` or an object with its ``partition`` (six arguments, or kafka-python 2.x's
    ``topic, serialized_key, cluster``), and a plain callable
    ``f(serialized_key, all_partitions, available_partitions)`` with sorted lists.

    Raises:
        KafkaConfigurationError: it is none of these.
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
            f"partitioner={partitioner!r} is no partitioner; give an instance of Partitioner,"
            " or f(serialized_key, all_partitions, available_partitions) -> int"
        )
    return lambda topic, _key, key_bytes, _value, _bytes, cluster: partitioner(
        key_bytes, all_partitions(topic, cluster), sorted(cluster.available_partitions_for_topic(topic) or ())
    )


def all_partitions(topic: str, cluster: ClusterView) -> list[int]:
    """The numbers of all partitions, with a leader or not.

    Raises:
        ValueError: the topic is not known.
    """
    partitions = cluster.partitions_for_topic(topic)
    if not partitions:
        raise ValueError(f"topic {topic!r} is not in the cluster's metadata")
    return sorted(partitions)


def _available(topic: str, cluster: ClusterView) -> list[int]:
    """The partitions with a leader; all of them while none has one, so that records can wait for it."""
    return sorted(cluster.available_partitions_for_topic(topic) or ()) or all_partitions(topic, cluster)
