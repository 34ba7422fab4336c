"""A partition that a topic does not have is refused as soon as the cluster says so, in every way to send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
import trio

from splashdam.client.producer import KafkaProducer
from splashdam.client.sending.lookup import MISSING_PARTITION_MS
from splashdam.model.errors import BulkSendError, IllegalArgumentError, WouldBlock
from splashdam.wire.messages.metadata import MetadataRequest

REFUSED = "topic 'two' has no partition 9; it has 2. What to do: choose one from 0 to 1, or give the topic"


def questions(cluster: Any) -> int:
    """How often the cluster was asked for metadata."""
    return len(cluster.scripted.requests(MetadataRequest))


@pytest.mark.parametrize("prepared", [False, True])
async def test_a_missing_partition_is_refused_after_one_question(
    cluster: Any, autojump_clock: Any, prepared: bool
) -> None:
    """It does not take ``max_block_ms`` (60 s); the error is a ``ValueError``, as kafka-python's."""
    async with cluster.producer() as producer:
        if prepared:
            await producer.prepare("two")
        asked, started = questions(cluster), trio.current_time()
        with pytest.raises(IllegalArgumentError, match=REFUSED):
            await producer.send("two", b"v", partition=9)
        assert questions(cluster) == asked + 1
        assert trio.current_time() - started < 1
        assert (await (await producer.send("two", b"v", partition=1))).partition == 1


async def test_a_partition_that_was_added_is_found(cluster: Any, autojump_clock: Any) -> None:
    """What the producer knew is out of date, so it asks before it refuses."""
    async with cluster.producer() as producer:
        await producer.prepare("two")
        cluster.scripted.create_topic("two", 10)
        assert (await (await producer.send("two", b"v", partition=9))).partition == 9


async def test_an_answer_to_an_older_question_does_not_count(cluster: Any, autojump_clock: Any) -> None:
    """A question is on its way when the partition is asked for; its answer was made before that."""
    async with cluster.producer() as producer:
        await producer.prepare("two")
        lookup_done = []
        metadata = producer._core.metadata

        async def send() -> None:
            future = await producer.send("two", b"v", partition=9)
            lookup_done.append((await future).partition)

        metadata._requested = frozenset({"two"})  # on its way
        metadata.requests += 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            cluster.scripted.create_topic("two", 10)
            metadata.apply(metadata.cluster, producer._core.clock.now_ms())
            for handle in metadata.take_waiters():
                handle.waiter()
        assert lookup_done == [9]


async def test_a_custom_partitioner_cannot_choose_a_missing_partition(
    cluster: Any, autojump_clock: Any
) -> None:
    """It was shown how many there are, so nobody has to ask."""
    async with cluster.producer(partitioner=lambda _key, _all, _available: 9) as producer:
        await producer.prepare("two")
        asked = questions(cluster)
        with pytest.raises(IllegalArgumentError, match=f"chose partition 9: {REFUSED}"):
            await producer.send("two", b"v", key=b"k")
        assert questions(cluster) == asked


async def test_send_nowait_refuses_once_the_answer_is_there(cluster: Any, autojump_clock: Any) -> None:
    """It cannot wait for the answer, so the first call says ``WouldBlock``, and the next one knows."""
    async with cluster.producer() as producer:
        await producer.prepare("two")
        for _ in range(2):  # each refusal rests on a question of its own
            asked = questions(cluster)
            with pytest.raises(WouldBlock, match="metadata"):
                producer.send_nowait("two", b"v", partition=9)
            await trio.sleep(2)
            with pytest.raises(IllegalArgumentError, match=REFUSED):
                producer.send_nowait("two", b"v", partition=9)
            assert questions(cluster) == asked + 1
        with pytest.raises(WouldBlock):
            producer.send_nowait("two", b"v", partition=9)
        await trio.sleep(2)
        cluster.scripted.create_topic("two", 10)
        await trio.sleep(MISSING_PARTITION_MS / 1000)
        with pytest.raises(WouldBlock):  # that answer is too old to refuse by
            producer.send_nowait("two", b"v", partition=9)
        await trio.sleep(2)
        assert (await producer.send_nowait("two", b"v", partition=9)).partition == 9


async def test_send_many_and_send_arrow_refuse_the_record(cluster: Any, autojump_clock: Any) -> None:
    """Those before it are queued."""
    async with cluster.producer() as producer:
        await producer.prepare("two")
        started = trio.current_time()
        with pytest.raises(BulkSendError, match="record 0: " + REFUSED.split(". ", maxsplit=1)[0]) as caught:
            await producer.send_many("two", [b"a", b"b"], partition=9)
        assert isinstance(caught.value.__cause__, IllegalArgumentError)
        with pytest.raises(BulkSendError, match="record 2: topic 'two' has no partition 9") as caught:
            await producer.send_many("two", [b"a", b"b", b"c"], partition=[0, 1, 9])
        delivery = caught.value.delivery
        assert delivery is not None
        assert len(delivery) == 2
        table = pa.table({"value": [b"a", b"b"], "partition": pa.array([0, 9], pa.int32())})
        with pytest.raises(BulkSendError, match="record 1: topic 'two' has no partition 9"):
            await producer.send_arrow("two", table, partition="partition")
        assert trio.current_time() - started < 4


async def test_a_transaction_goes_on_after_a_missing_partition(
    transactional: Callable[..., Any], cluster: Any, autojump_clock: Any
) -> None:
    """The record was never in it."""
    async with transactional() as producer:
        await producer.init_transactions()
        async with producer.transaction():
            with pytest.raises(IllegalArgumentError, match=REFUSED):
                await producer.send("two", b"v", partition=9)
            await producer.send("two", b"w", partition=1)
    assert cluster.values("two", 1)[0] == b"w"


def test_threads_are_refused_at_once(tcp_cluster: Any) -> None:
    """The blocking producer, and its callbacks, whose records come in late."""
    with KafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
        with pytest.raises(IllegalArgumentError, match=REFUSED):
            producer.send("two", b"v", partition=9)
        late: list[Any] = []
        first = producer.send("two", b"v", partition=0)
        first.add_callback(lambda _: late.append(producer.send("two", b"v", partition=9)))
        first.get(300)
        producer.flush()
        with pytest.raises(IllegalArgumentError, match=REFUSED):
            late[0].get(300)
