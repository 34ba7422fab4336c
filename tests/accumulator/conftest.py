"""Accumulators with plain settings, and a cluster to drain them to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from splashdam.accumulator.accumulator import Exhausted, RecordAccumulator
from splashdam.accumulator.open_batches import Appended
from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.values import TopicPartition
from splashdam.record.compression import NO_COMPRESSION
from splashdam.record.kernel import FutureCell


class Bench:
    """An accumulator, its cluster, and short names for what tests do."""

    def __init__(self, **options: Any) -> None:
        defaults = {
            "batch_bytes": 1000,
            "linger_ms": 5,
            "buffer_memory": 1_000_000,
            "compression": NO_COMPRESSION,
            "delivery_timeout_ms": 1000,
            "retry_backoff_ms": 100,
            "retry_backoff_max_ms": 1000,
            "random": lambda: 0.5,
        }
        self.accumulator = RecordAccumulator(**{**defaults, **options})

    def append(
        self, partition: int = 0, now_ms: float = 0, value: bytes | None = b"v" * 100, **more: Any
    ) -> Any:
        """Appends one record to a partition of topic ``t``."""
        key, headers = more.pop("key", None), more.pop("headers", None)
        return self.accumulator.append(
            TopicPartition("t", partition), now_ms, int(now_ms), key, value, headers, **more
        )

    def future(self, partition: int = 0, now_ms: float = 0, value: bytes = b"v" * 100) -> FutureCell:
        """The future of a record that fits."""
        answer = self.append(partition, now_ms, value)
        assert isinstance(answer, Appended)
        return answer.future

    def exhausted(self, **record: Any) -> Exhausted:
        """Appends a record for which there is no memory."""
        answer = self.append(**record)
        assert isinstance(answer, Exhausted)
        return answer

    def ready(self, cluster: ClusterMetadata, now_ms: float) -> Any:
        """Asks what is ready."""
        return self.accumulator.ready(cluster, now_ms)

    def drain(
        self,
        cluster: ClusterMetadata,
        now_ms: float = 0,
        nodes: Any = (1,),
        max_request_size: int = 1_000_000,
    ) -> Any:
        """Drains, and seals as the sender does."""
        drained = self.accumulator.drain(cluster, set(nodes), max_request_size, now_ms)
        for batches in drained.values():
            for batch in batches:
                batch.seal(NO_COMPRESSION)
        return drained


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    """Makes accumulators: options by name over small defaults."""
    return Bench


@pytest.fixture
def make_cluster() -> Callable[..., ClusterMetadata]:
    """Makes a snapshot with topic ``t``: leaders by partition number, nodes 1 and 2, leader epochs."""

    def make(*leaders: int, epoch: int = 0, topic: str = "t") -> ClusterMetadata:
        partitions = tuple(
            PartitionInfo(topic, number, leader, epoch) for number, leader in enumerate(leaders)
        )
        return ClusterMetadata(
            nodes={1: Node(1, "a", 1), 2: Node(2, "b", 2)}, topics={topic: TopicInfo(topic, partitions)}
        )

    return make
