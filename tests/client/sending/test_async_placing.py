"""The trio producer's partitioners and serializers: which record goes where, and as which bytes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from splashdam.client.partitioning.partitioners import Partitioner, StickyPartitioner, hashed_partition
from splashdam.client.serializers import JsonSerializer


async def test_null_keys_stick_to_a_partition_for_a_batch(cluster: Any, autojump_clock: Any) -> None:
    """KIP-794: runs of about a batch, over all partitions."""
    async with cluster.producer(batch_size=2_000) as producer:
        futures = [await producer.send("six", bytes(100)) for _ in range(2_000)]
        await producer.flush()
        partitions = [future.value.partition for future in futures if future.value]
    changes = sum(before != after for before, after in pairwise(partitions))
    assert 70 <= changes <= 130  # 111 batches of 18 records, one in six to the same partition again
    counts = Counter(partitions)
    assert set(counts) == set(range(6))
    assert max(counts.values()) < 700  # a sixth and five standard deviations


async def test_batch_size_0_makes_batches_of_one(cluster: Any, autojump_clock: Any) -> None:
    """As Java has it."""
    async with cluster.producer(batch_size=0) as producer:
        for number in range(5):
            await producer.send("one", b"%d" % number)
    assert [header.record_count for header in cluster.scripted.logs["one", 0].headers] == [1] * 5
    assert cluster.values("one") == [b"0", b"1", b"2", b"3", b"4"]


async def test_keys_stay_where_they_are(cluster: Any, autojump_clock: Any) -> None:
    """Over all partitions, also while one has no leader."""
    async with cluster.producer() as producer:
        for key in (b"kafka", b"user-1", b"order:42", b""):
            metadata = await (await producer.send("six", b"v", key=key))
            assert metadata.partition == hashed_partition(key, 6)


async def test_a_partitioner_of_ones_own(cluster: Any, autojump_clock: Any) -> None:
    """It sees key and value in both forms."""
    seen: list[Any] = []

    class ByLength(Partitioner):
        def partition(self, topic, *record: Any) -> int:  # type: ignore[no-untyped-def]
            key, serialized_key, value, serialized_value, cluster = record
            seen.append(
                (topic, key, serialized_key, value, serialized_value, cluster.partitions_for_topic(topic))
            )
            return len(serialized_value) % 6

    async with cluster.producer(partitioner=ByLength(), value_serializer=JsonSerializer()) as producer:
        assert (await (await producer.send("six", [1], key=b"k"))).partition == 3
    assert seen == [("six", b"k", b"k", [1], b"[1]", frozenset(range(6)))]


@pytest.mark.parametrize("chosen", [-1, 6, None])
async def test_a_partitioner_that_chooses_nothing(cluster: Any, autojump_clock: Any, chosen: Any) -> None:
    """The caller gets an error, and nothing is queued."""
    async with cluster.producer(partitioner=lambda *_arguments: chosen) as producer:
        with pytest.raises(
            ValueError,
            match=f"chose partition {chosen}: topic 'six' has no partition {chosen}; it has 6.* 0 to 5",
        ):
            await producer.send("six", b"v")


async def test_on_new_batch_is_asked_before_a_batch_is_opened(cluster: Any, autojump_clock: Any) -> None:
    """kafka-python's hook: the record that needs a new batch goes to the next partition."""
    partitioner = StickyPartitioner()
    async with cluster.producer(partitioner=partitioner, batch_size=1_000) as producer:
        await producer.prepare("two")
        futures = [producer.send_nowait("two", bytes(400)) for _ in range(8)]
        await producer.flush()
        partitions = [future.value.partition for future in futures if future.value]
    first = partitions[0]
    assert partitions[::2] == partitions[1::2]
    assert partitions == [first, first, 1 - first, 1 - first] * 2


async def test_a_serializers_error_reaches_the_caller_once(cluster: Any, autojump_clock: Any) -> None:
    """The next record is sent."""
    calls: list[Any] = []

    def serialize(data: Any) -> bytes:
        calls.append(data)
        if data == "bad":
            raise TypeError("no")
        return str(data).encode()

    async with cluster.producer(value_serializer=serialize) as producer:
        with pytest.raises(TypeError, match="no"):
            await producer.send("one", "bad")
        assert (await (await producer.send("one", "good"))).offset == 0
    assert calls == ["bad", "good"]


async def test_serializers_are_closed(cluster: Any, autojump_clock: Any) -> None:
    """Once, with the producer."""
    closed: list[str] = []

    class Noting(JsonSerializer):
        def close(self) -> None:
            closed.append("closed")

    serializer = Noting()
    async with cluster.producer(value_serializer=serializer) as producer:
        await producer.send("one", {"a": 1})
    await producer.close()
    assert closed == ["closed"]
