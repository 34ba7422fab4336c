"""``send_many`` of the trio producer, in virtual time: where records go and what comes back."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
from support.scripted.cluster import Trouble

from splashdam.client.partitioning.partitioners import RoundRobinPartitioner, hashed_partition
from splashdam.client.reports import BulkReport
from splashdam.model.errors import IllegalStateError, KafkaConfigurationError
from splashdam.wire.messages.produce import ProduceRequest

VALUES = [b"%d" % number for number in range(2_000)]


def logged(cluster: Any, topic: str) -> list[list[Any]]:
    """Keys and values of each partition, in order."""
    return [
        [(record.key, record.value) for record in cluster.scripted.logs[topic, number].records]
        for number in range({"one": 1, "two": 2, "six": 6}[topic])
    ]


@pytest.mark.parametrize("batch_size", [200, 16_384, 1_000_000])
async def test_without_keys(cluster: Any, batch_size: int, autojump_clock: Any) -> None:
    """All arrive, in order per partition, a batch after the other; each future tells its own offset."""
    async with cluster.producer(batch_size=batch_size) as producer:
        delivery = await producer.send_many("two", VALUES)
        report = await delivery
    assert report == delivery.get(timeout=0) == delivery.report()
    assert report
    assert (report.count, report.delivered, len(delivery)) == (2_000, 2_000, 2_000)
    partitions = logged(cluster, "two")
    assert sorted(itertools.chain(*partitions)) == sorted((None, value) for value in VALUES)
    for number, future in enumerate(delivery):
        metadata = future.value
        assert metadata is not None
        assert partitions[metadata.partition][metadata.offset] == (None, VALUES[number])
        assert metadata.timestamp > 0
        assert delivery[number - len(delivery)].value == metadata
    assert {delivery[number].value.partition for number in range(2_000)} == report.base_offsets.keys()
    for partition in partitions:
        numbers = [int(value) for _, value in partition]
        assert numbers == sorted(numbers)


async def test_with_keys(cluster: Any, autojump_clock: Any) -> None:
    """Each key has its partition, as with ``send``; records of a partition keep their order."""
    keys = [b"%d" % (number % 97) for number in range(2_000)]
    async with cluster.producer(batch_size=1_000) as producer:
        delivery = await producer.send_many("six", VALUES, keys=keys)
        assert await delivery
    expected: list[list[Any]] = [[] for _ in range(6)]
    for key, value in zip(keys, VALUES, strict=True):
        expected[hashed_partition(key, 6)].append((key, value))
    partitions = logged(cluster, "six")
    assert partitions == expected
    places = [(future.value.partition, future.value.offset) for future in delivery]
    assert places == [
        (delivery[number].value.partition, delivery[number].value.offset) for number in range(2_000)
    ]
    assert [partitions[partition][offset][1] for partition, offset in places] == VALUES
    assert delivery.report().base_offsets == dict.fromkeys(range(6), 0)
    assert [future.value.offset for future in delivery[5:8]] == [offset for _, offset in places[5:8]]


async def test_null_keys_among_others(cluster: Any, autojump_clock: Any) -> None:
    """They fill a batch of the sticky partition and go on with another; keys stay where they belong."""
    keys = [None if number % 3 else b"%d" % number for number in range(2_000)]
    async with cluster.producer(batch_size=1_000) as producer:
        delivery = await producer.send_many("six", VALUES, keys=keys)
        assert await delivery
    partitions = logged(cluster, "six")
    for future, key, value in zip(delivery, keys, VALUES, strict=True):
        metadata = future.value
        assert partitions[metadata.partition][metadata.offset] == (key, value)
        assert key is None or metadata.partition == hashed_partition(key, 6)
    nulls = [future.value.partition for future, key in zip(delivery, keys, strict=True) if key is None]
    runs = [len(list(run)) for _, run in itertools.groupby(nulls)]
    assert len(set(nulls)) > 1
    assert min(runs[:-1]) >= 10


async def test_headers_partition_and_timestamp(cluster: Any, autojump_clock: Any) -> None:
    """They are every record's."""
    async with cluster.producer() as producer:
        delivery = await producer.send_many(
            "six", [b"a", None], keys=[b"k", b"k"], headers={"h": b"1"}, partition=5, timestamp_ms=77
        )
        await delivery
    records = cluster.scripted.logs["six", 5].records
    assert [(record.key, record.value) for record in records] == [(b"k", b"a"), (b"k", None)]
    assert {(record.timestamp_ms, tuple(record.headers)) for record in records} == {(77, (("h", b"1"),))}
    assert [future.value.timestamp for future in delivery] == [77, 77]


async def test_odd_records_go_the_slow_way(cluster: Any, autojump_clock: Any) -> None:
    """Buffers are copied as ``send`` copies them, in their place."""
    values = [b"a", bytearray(b"b"), memoryview(b"c"), b"d"]
    async with cluster.producer() as producer:
        assert await (await producer.send_many("one", values))
        assert await (await producer.send_many("one", iter([b"e"])))
        assert await (await producer.send_many("one", (b"f",), keys=[bytearray(b"k")]))
    assert logged(cluster, "one") == [
        [(None, b"a"), (None, b"b"), (None, b"c"), (None, b"d"), (None, b"e"), (b"k", b"f")]
    ]


async def test_nothing_to_send(cluster: Any, autojump_clock: Any) -> None:
    """An empty call is done."""
    async with cluster.producer() as producer:
        for keys in (None, []):
            delivery = await producer.send_many("one", [], keys=keys)
            assert delivery.done()
            assert await delivery == delivery.get() == BulkReport()
            assert (list(delivery), delivery.failed, len(delivery)) == ([], [], 0)
            with pytest.raises(IndexError):
                _ = delivery[0]


async def test_serializers_are_asked_for_every_record(cluster: Any, autojump_clock: Any) -> None:
    """``send_arrow`` sends bytes as they are, and says so."""
    async with cluster.producer(value_serializer=lambda value: str(value).encode()) as producer:
        assert await (await producer.send_many("one", range(50)))
        with pytest.raises(KafkaConfigurationError, match=r"has a serializer: use send_many\(\)"):
            await producer.send_arrow("one", None)
    assert cluster.values("one") == [b"%d" % number for number in range(50)]


async def test_an_own_partitioner_is_asked_for_every_record(cluster: Any, autojump_clock: Any) -> None:
    """Its choice counts."""
    async with cluster.producer(partitioner=RoundRobinPartitioner()) as producer:
        delivery = await producer.send_many("six", VALUES[:60])
        assert await delivery
    assert [len(partition) for partition in logged(cluster, "six")] == [10] * 6
    partitions = logged(cluster, "six")
    for number, future in enumerate(delivery):
        assert partitions[future.value.partition][future.value.offset][1] == VALUES[number]


async def test_several_calls_and_sends_in_one_batch(cluster: Any, autojump_clock: Any) -> None:
    """Runs that begin in the middle of a batch."""
    async with cluster.producer(linger_ms=50) as producer:
        first = await producer.send("one", b"first")
        one = await producer.send_many("one", VALUES[:10])
        between = await producer.send("one", b"between")
        two = await producer.send_many("one", VALUES[:10], keys=[b"k"] * 10)
        assert not one.done()
        assert [(await future).offset for future in (first, *one, between, *two)] == list(range(22))
        assert one.done()
        assert one.report().base_offsets == {0: 1}
        assert two.report().base_offsets == {0: 12}
        assert repr(two) == "<BulkDelivery of 10 records, delivered>"


async def test_it_waits_for_memory_and_lets_the_sender_run(cluster: Any, autojump_clock: Any) -> None:
    """Far more than fits at once; the budget is whole in the end."""
    values = [bytes(1_000)] * 500
    async with cluster.producer(buffer_memory=20_000, batch_size=4_000) as producer:
        delivery = await producer.send_many("two", values)
        assert await delivery
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 20_000
    assert sum(map(len, logged(cluster, "two"))) == 500


async def test_cancelled_while_it_waits(cluster: Any, autojump_clock: Any) -> None:
    """What is queued by then is delivered, once, and nothing of the rest."""
    cluster.scripted.produce_script.append(Trouble(delay_ms=5_000))
    values = [b"%4d" % number + bytes(1_000) for number in range(100)]
    async with cluster.producer(buffer_memory=20_000, batch_size=4_000) as producer:
        with trio.move_on_after(1) as scope:
            await producer.send_many("one", values)
        assert scope.cancelled_caught
        assert await producer.flush()
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 20_000
        assert producer.metrics()["producer-metrics"]["waiting-threads"] == 0
    sent = cluster.values("one")
    assert 0 < len(sent) < 100
    assert sent == values[: len(sent)]


async def test_a_cancelled_wait_for_the_delivery(cluster: Any, autojump_clock: Any) -> None:
    """Leaves nobody behind in the line of a batch; others go on waiting."""
    cluster.scripted.trouble_for = lambda message: Trouble(
        delay_ms=2_000 if isinstance(message, ProduceRequest) else 0
    )
    reports: list[BulkReport] = []
    async with cluster.producer(batch_size=1_000) as producer, trio.open_nursery() as nursery:
        delivery = await producer.send_many("two", VALUES[:500])

        async def wait() -> None:
            reports.append(await delivery)

        nursery.start_soon(wait)
        with trio.move_on_after(0.5) as scope:
            await delivery
        assert scope.cancelled_caught
    assert [report.delivered for report in reports] == [500]


async def test_arguments(cluster: Any, autojump_clock: Any) -> None:
    """Wrong ones are refused before anything is queued."""
    async with cluster.producer() as producer:
        for problem, error, arguments in (
            ("values must be a list of bytes or other iterable, not bytes", TypeError, {"values": b"abc"}),
            ("values must be a list of bytes or other iterable, not int", TypeError, {"values": 1}),
            ("keys must be a list", TypeError, {"values": [b"a"], "keys": "k"}),
            ("2 values, but 1 keys", ValueError, {"values": [b"a", b"b"], "keys": [b"k"]}),
            ("partition must be 0 or more", ValueError, {"values": [b"a"], "partition": -1}),
            ("partition must be an int, not float", TypeError, {"values": [b"a"], "partition": 1.0}),
            ("timestamp_ms=.* does not fit", OverflowError, {"values": [b"a"], "timestamp_ms": -(2**63) - 1}),
            ("headers must be", TypeError, {"values": [b"a"], "headers": 1}),
        ):
            with pytest.raises(error, match=problem):
                await producer.send_many("one", **arguments)
        with pytest.raises(ValueError, match="topic"):
            await producer.send_many("not a topic", [b"a"])
    with pytest.raises(IllegalStateError, match="the producer is closed"):
        await producer.send_many("one", [b"a"])
    assert cluster.values("one") == []
