"""librdkafka's partitioners, and all partitioners by their names in Java and librdkafka.

``DefaultPartitioner`` is what librdkafka calls ``murmur2_random``: the two agree on every key.
"""

from __future__ import annotations

import random as _random
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from splashdam.client.partitioning.partitioners import (
    ClusterView,
    DefaultPartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    all_partitions,
)
from splashdam.model.values import Buffer
from splashdam.record.kernel import murmur2

_FNV_OFFSET, _FNV_PRIME, _UINT32 = 0x811C9DC5, 0x01000193, 0xFFFFFFFF


class KeyHashPartitioner(StickyPartitioner):
    """Keys go to ``hash(key) % n``, with n = all partitions; null keys are sticky.

    Args:
        hash: non-negative hash of a key's bytes.
        spreads_empty: ``b""`` goes to a random partition.
        spreads_none: null keys are sticky; if False, they are placed like ``b""``.
        random: draws a float in [0, 1); default ``random.random``.
    """

    def __init__(
        self,
        hash: Callable[[Buffer], int],
        *,
        spreads_empty: bool = False,
        spreads_none: bool = True,
        random: Callable[[], float] = _random.random,
    ) -> None:
        super().__init__(random)
        self._hash = hash
        self._spreads_empty = spreads_empty
        self._spreads_none = spreads_none

    def partition(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        key: Any,
        serialized_key: Buffer | None,
        value: Any,
        serialized_value: Buffer | None,
        cluster: ClusterView,
    ) -> int:
        if serialized_key is None and not self._spreads_none:
            serialized_key = b""
        if serialized_key is None:
            return self.sticky_partition(topic, cluster)
        if self._spreads_empty and not serialized_key:
            return self.random_partition(topic, cluster)
        return self._hash(serialized_key) % len(all_partitions(topic, cluster))


class RandomPartitioner(StickyPartitioner):
    """Each record with a key goes to a random partition; null keys are sticky."""

    def partition(  # noqa: PLR0917 (kafka-python's signature)
        self,
        topic: str,
        key: Any,
        serialized_key: Buffer | None,
        value: Any,
        serialized_value: Buffer | None,
        cluster: ClusterView,
    ) -> int:
        if serialized_key is None:
            return self.sticky_partition(topic, cluster)
        return self.random_partition(topic, cluster)


def crc32_hash(key: Buffer) -> int:
    """Hash a key as librdkafka's ``consistent`` partitioner does."""
    return zlib.crc32(key)


def murmur2_hash(key: Buffer) -> int:
    """Hash a key as Java's producer does, as a positive number."""
    return murmur2(key) & 0x7FFFFFFF


def fnv1a_hash(key: Buffer) -> int:
    """FNV-1a, 32 bits; the absolute value of the signed hash, as in Sarama and librdkafka."""
    state = _FNV_OFFSET
    for byte in bytes(key):
        state = (state ^ byte) * _FNV_PRIME & _UINT32
    return state if state < 1 << 31 else (1 << 32) - state


BY_NAME: Mapping[str, Callable[[], Any]] = {
    "DefaultPartitioner": DefaultPartitioner,
    "BuiltInPartitioner": DefaultPartitioner,
    "UniformStickyPartitioner": StickyPartitioner,
    "StickyPartitioner": StickyPartitioner,
    "RoundRobinPartitioner": RoundRobinPartitioner,
    "random": RandomPartitioner,
    "consistent": partial(KeyHashPartitioner, crc32_hash, spreads_none=False),
    "consistent_random": partial(KeyHashPartitioner, crc32_hash, spreads_empty=True),
    "murmur2": partial(KeyHashPartitioner, murmur2_hash, spreads_none=False),
    "murmur2_random": DefaultPartitioner,
    "fnv1a": partial(KeyHashPartitioner, fnv1a_hash, spreads_none=False),
    "fnv1a_random": partial(KeyHashPartitioner, fnv1a_hash),
}
"""Java's classes, by their last name, and librdkafka's names."""
