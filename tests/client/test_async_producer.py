"""The trio producer against a scripted cluster, in virtual time: sending, waiting, giving up, closing."""

from __future__ import annotations

import gc
import math
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.partitioners import Partitioner, StickyPartitioner, hashed_partition
from splashdam.client.serializers import JsonSerializer
from splashdam.model.broker_errors import MessageTooLargeError, TopicAuthorizationFailedError
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import (
    BufferExhaustedError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    WouldBlock,
)
from splashdam.model.values import TopicPartition
from splashdam.testing.scripted_broker import Trouble
from splashdam.wire.messages.produce import ProduceRequest

SILENCE = Trouble(then="silence")


def silent_for_records(message: Any) -> Trouble:
    return SILENCE if isinstance(message, ProduceRequest) else Trouble()


async def test_send_await_flush(cluster: Any, autojump_clock: Any) -> None:
    """A record's whole way, with all of its parts."""
    async with cluster.producer() as producer:
        future = await producer.send("two", b"v", key=b"k", headers={"h": b"1", "n": None}, timestamp_ms=5)
        metadata = await future
        assert metadata.topic_partition == TopicPartition("two", hashed_partition(b"k", 2))
        assert (metadata.offset, metadata.timestamp) == (0, 5)
        assert metadata[-3:] == (1, 1, 3)
        futures = [await producer.send("one", b"%d" % number) for number in range(100)]
        report = await producer.flush()
        assert report
        assert (report.failed, report.pending) == (0, 0)
        assert [future.value.offset for future in futures] == list(range(100))
    record = cluster.scripted.logs[metadata.topic_partition].records[0]
    assert (record.key, record.value, tuple(record.headers)) == (b"k", b"v", (("h", b"1"), ("n", None)))
    assert cluster.values("one") == [b"%d" % number for number in range(100)]


async def test_the_end_of_the_block_delivers(cluster: Any, autojump_clock: Any) -> None:
    """Nothing needs to be flushed by hand, and closing twice is no mistake."""
    async with cluster.producer(linger_ms=60_000) as producer:
        future = await producer.send("one", b"v")
        assert not future.is_done
    assert future.succeeded()
    await producer.close()
    with pytest.raises(IllegalStateError, match="the producer is closed"):
        producer.send_nowait("one", b"late")
    assert (await producer.flush()).pending == 0


async def test_outside_of_the_block_nothing_is_sent(cluster: Any, autojump_clock: Any) -> None:
    """The message says what is missing."""
    producer = cluster.producer()
    with pytest.raises(IllegalStateError, match="use `async with`"):
        await producer.send("one", b"v")
    await producer.close()


async def test_the_blocks_own_exception_comes_out_as_it_is(cluster: Any, autojump_clock: Any) -> None:
    """Not wrapped into a group by the nursery inside, and what was sent is delivered."""
    futures = []

    async def fail_in_the_block() -> None:
        async with cluster.producer() as producer:
            futures.append(await producer.send("one", b"v"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_in_the_block()
    assert futures[0].succeeded()


async def test_a_cancelled_block_fails_what_is_left(cluster: Any, autojump_clock: Any) -> None:
    """At once; there is nobody to wait for it."""
    cluster.scripted.trouble_for = silent_for_records
    with trio.move_on_after(3):
        async with cluster.producer() as producer:
            future = await producer.send("one", b"v")
            await future
    assert trio.current_time() == pytest.approx(3)
    with pytest.raises(KafkaError, match="before this record was acknowledged"):
        await future


async def test_send_nowait_says_what_it_would_wait_for(cluster: Any, autojump_clock: Any) -> None:
    """Metadata first, which the call itself asks for; later memory."""
    async with cluster.producer(buffer_memory=2_000, max_block_ms=0) as producer:
        with pytest.raises(WouldBlock, match="topic 'one' would have to wait for metadata") as raised:
            producer.send_nowait("one", b"v")
        assert raised.value.what == "metadata"
        await trio.sleep(1)
        cluster.scripted.trouble_for = lambda _message: SILENCE
        producer.send_nowait("one", bytes(1_000))
        with pytest.raises(WouldBlock) as raised:
            producer.send_nowait("one", bytes(1_500))
        assert raised.value.what == "memory"
        assert producer.metrics()["producer-metrics"]["waiting-threads"] == 0
        await producer.close(0)


async def test_prepare_warms_a_topic(cluster: Any, autojump_clock: Any) -> None:
    """The first record does not wait, and the partitions are known."""
    async with cluster.producer() as producer:
        await producer.prepare("six")
        assert producer.send_nowait("six", b"v")
        assert await producer.partitions_for("six") == {0, 1, 2, 3, 4, 5}
        assert producer.bootstrap_connected()


async def test_an_unknown_topic_is_waited_for(cluster: Any, autojump_clock: Any) -> None:
    """It may be created meanwhile."""
    async with cluster.producer() as producer, trio.open_nursery() as nursery:

        async def create_later() -> None:
            await trio.sleep(20)
            cluster.scripted.create_topic("late", 1)

        nursery.start_soon(create_later)
        future = await producer.send("late", b"v")
        assert 20 <= trio.current_time() < 25
        assert (await future).offset == 0


@pytest.mark.parametrize("method", ["send", "prepare", "partitions_for"])
async def test_a_metadata_timeout_names_topic_time_and_cause(
    cluster: Any, autojump_clock: Any, method: str
) -> None:
    """The broker's own complaint is in the text."""
    async with cluster.producer(max_block_ms=3_000) as producer:
        arguments = ("nowhere", b"v") if method == "send" else ("nowhere",)
        with pytest.raises(KafkaTimeoutError, match=r"'nowhere'.*within 3000 ms.*does not host the topic"):
            await getattr(producer, method)(*arguments)
        assert trio.current_time() == pytest.approx(3, abs=0.01)


async def test_a_metadata_timeout_names_the_refused_connection(away: Any, autojump_clock: Any) -> None:
    """With the address."""
    async with away.producer(max_block_ms=3_000) as producer:
        with pytest.raises(KafkaTimeoutError, match=r"topic 'one' .*node-1:9092"):
            await producer.send("one", b"v")


async def test_a_refused_topic_fails_the_record_only(cluster: Any, autojump_clock: Any) -> None:
    """As in kafka-python: a failed future, and the next send works."""
    cluster.scripted.topic_errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with cluster.producer() as producer:
        future = await producer.send("secret", b"v")
        assert future.failed()
        assert isinstance(future.exception, TopicAuthorizationFailedError)
        with pytest.raises(TopicAuthorizationFailedError, match="topic 'secret'"):
            await producer.partitions_for("secret")
        assert (await (await producer.send("one", b"v"))).offset == 0


async def test_a_partition_above_the_count_is_waited_for(cluster: Any, autojump_clock: Any) -> None:
    """It may be added meanwhile; else the message says how many there are."""
    async with cluster.producer(max_block_ms=5_000) as producer, trio.open_nursery() as nursery:
        await producer.prepare("one")

        async def grow_later() -> None:
            await trio.sleep(2)
            cluster.scripted.create_topic("one", 4)

        nursery.start_soon(grow_later)
        assert (await (await producer.send("one", b"v", partition=3))).partition == 3
        with pytest.raises(
            KafkaTimeoutError, match=r"partition 9 of topic 'one'.*the topic has 4 partitions"
        ):
            await producer.send("one", b"v", partition=9)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"topic": "one"}, ValueError, "Need at least one: key or value"),
        ({"topic": "one", "value": b"v", "headers": "h"}, TypeError, "headers must be"),
        ({"topic": "one", "value": "text"}, TypeError, "the value must be bytes-like.*value_serializer"),
        ({"topic": "one", "value": b"v", "key": 7}, TypeError, "the key must be bytes-like"),
        ({"topic": b"one", "value": b"v"}, TypeError, "topic must be str"),
        ({"topic": "a b", "value": b"v"}, ValueError, "no legal topic name"),
        ({"topic": "one", "value": b"v", "partition": -1}, ValueError, "partition must be 0 or more"),
        ({"topic": "one", "value": b"v", "partition": "0"}, TypeError, "integer"),
        ({"topic": "one", "value": bytes(2_000_000)}, MessageTooLargeError, "max_request_size is 1048576"),
        ({"topic": "one", "value": b"v", "timestamp_ms": 1.5}, TypeError, "integer"),
    ],
)
async def test_send_checks_its_arguments(
    cluster: Any, autojump_clock: Any, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    """Before anything is queued, in words that help."""
    async with cluster.producer() as producer:
        with pytest.raises(error, match=words):
            await producer.send(**arguments)
        assert producer.metrics()["producer-metrics"]["batches-incomplete"] == 0


@pytest.mark.parametrize("topic", ["one", "not yet known"])
async def test_a_record_that_is_too_large_never_waits(cluster: Any, autojump_clock: Any, topic: str) -> None:
    """The limit counts key, value and headers, uncompressed."""
    async with cluster.producer(max_request_size=1_000) as producer:
        await producer.prepare("one")
        for record in (
            {"value": bytes(990)},
            {"key": bytes(990)},
            {"value": b"", "headers": {"h": bytes(990)}},
        ):
            with pytest.raises(MessageTooLargeError, match="max_request_size is 1000"):
                await producer.send("one", **record)
        assert (await (await producer.send("one", bytes(850)))).serialized_value_size == 850


async def test_timestamps_may_be_zero_and_negative(cluster: Any, autojump_clock: Any) -> None:
    """As in kafka-python; each record keeps its own."""
    async with cluster.producer() as producer:
        futures = [await producer.send("one", b"v", timestamp_ms=ms) for ms in (0, -5, 7)]
        assert [(await future).timestamp for future in futures] == [0, -5, 7]
        now_ms = cluster.clock.wall_ms()
        assert (await (await producer.send("one", b"v"))).timestamp >= now_ms


async def test_full_memory_blocks_and_then_says_why(away: Any, autojump_clock: Any) -> None:
    """Exactly ``max_block_ms``, with what is pending in the text; nothing is leaked."""
    async with away.producer(buffer_memory=4_000, max_block_ms=2_000, retry_backoff_ms=10) as producer:
        await fill(away, producer)
        started = trio.current_time()
        with pytest.raises(
            BufferExhaustedError, match=r"buffer_memory of 4000 bytes was full for 2000 ms: \d"
        ):
            await producer.send("one", bytes(3_000))
        assert trio.current_time() - started == pytest.approx(2, abs=0.01)
        figures = producer.metrics()["producer-metrics"]
        assert figures["waiting-threads"] == 0
        assert 0 <= figures["buffer-available-bytes"] < 4_000
        await producer.close(0)
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 4_000


async def fill(away: Any, producer: AsyncKafkaProducer) -> None:
    """Makes the cluster known and then silent, with most of 4,000 bytes in flight."""
    async with trio.open_nursery() as nursery:
        await nursery.start(away.scripted.run)
        await producer.prepare("one")
        nursery.cancel_scope.cancel()
    producer.send_nowait("one", bytes(3_000))


async def test_memory_that_comes_back_lets_the_next_one_in(cluster: Any, autojump_clock: Any) -> None:
    """In the order of asking."""
    cluster.scripted.produce_script.append(Trouble(delay_ms=1_000))
    order: list[int] = []
    async with cluster.producer(buffer_memory=4_000) as producer, trio.open_nursery() as nursery:
        await producer.prepare("one")
        producer.send_nowait("one", bytes(3_000))

        async def send(number: int) -> None:
            await (await producer.send("one", bytes(2_000)))
            order.append(number)

        for number in range(4):
            nursery.start_soon(send, number)
            await trio.testing.wait_all_tasks_blocked()
        assert producer.metrics()["producer-metrics"]["waiting-threads"] == 4
    assert order == [0, 1, 2, 3]


async def test_a_cancelled_wait_leaks_nothing(away: Any, autojump_clock: Any) -> None:
    """Neither for metadata nor for memory, and nothing is queued."""
    async with away.producer(buffer_memory=4_000) as producer:
        with trio.move_on_after(1) as scope:
            await producer.send("one", b"v")
        assert scope.cancelled_caught
        await fill(away, producer)
        before = producer.metrics()["producer-metrics"]
        with trio.move_on_after(1) as scope:
            await producer.send("one", bytes(3_000))
        assert scope.cancelled_caught
        after = producer.metrics()["producer-metrics"]
        for name in ("buffer-available-bytes", "waiting-threads", "batches-incomplete"):
            assert after[name] == before[name]
        await producer.close(0)


async def test_closing_ends_every_wait(away: Any, autojump_clock: Any) -> None:
    """Who waits for metadata or memory learns at once that it is over."""
    ends: list[str] = []
    async with away.producer(buffer_memory=4_000) as producer:
        await fill(away, producer)

        async def send(topic: str) -> None:
            try:
                await producer.send(topic, bytes(3_000))
            except IllegalStateError as error:
                ends.append(f"{topic}: {error}")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, "one")
            nursery.start_soon(send, "unheard-of")
            await trio.testing.wait_all_tasks_blocked()
            started = trio.current_time()
            await producer.close(0)
        assert trio.current_time() == started
    assert sorted(ends) == ["one: the producer is closed", "unheard-of: the producer is closed"]


async def test_flush_cuts_linger_and_waits_for_callbacks(cluster: Any, autojump_clock: Any) -> None:
    """It returns after the callbacks of what it waited for."""
    done: list[int] = []
    async with cluster.producer(linger_ms=60_000) as producer:
        future = await producer.send("one", b"v")
        future.add_callback(lambda metadata: done.append(metadata.offset))
        started = trio.current_time()
        await producer.flush()
        assert done == [0]
        assert trio.current_time() - started < 1


async def test_flush_reports_instead_of_raising(cluster: Any, autojump_clock: Any) -> None:
    """What failed and why, and what is pending when the time is up."""
    cluster.scripted.produce_script.append(Trouble(code=ErrorCode.INVALID_RECORD))
    async with cluster.producer() as producer:
        future = await producer.send("one", b"bad")
        report = await producer.flush()
        assert not report
        assert (report.delivered, report.failed, report.pending) == (0, 1, 0)
        assert type(report.errors[0]) is type(future.exception)
        cluster.scripted.trouble_for = lambda _message: SILENCE
        await producer.send("one", b"v")
        started = trio.current_time()
        report = await producer.flush(timeout=2)
        assert trio.current_time() - started == pytest.approx(2)
        assert (report.delivered, report.failed, report.pending) == (0, 0, 1)
        await producer.close(0)


async def test_flush_follows_a_split(cluster: Any, autojump_clock: Any) -> None:
    """A batch that the broker found too large is delivered in parts, and flush waits for them."""
    cluster.scripted.produce_script.append(Trouble(code=ErrorCode.MESSAGE_TOO_LARGE))
    async with cluster.producer(batch_size=2_000, linger_ms=60_000) as producer:
        await producer.prepare("one")
        futures = [producer.send_nowait("one", bytes(100)) for _ in range(10)]
        report = await producer.flush()
        assert report.pending == report.failed == 0
        assert report.delivered >= 1
        assert [future.value.offset for future in futures if future.value] == list(range(10))


@pytest.mark.parametrize("timeout", [0, 1.5])
async def test_close_ends_in_time_and_fails_the_rest(
    cluster: Any, autojump_clock: Any, timeout: float
) -> None:
    """Every future is done afterwards, with an error that says what happened."""
    cluster.scripted.trouble_for = silent_for_records
    async with cluster.producer() as producer:
        future = await producer.send("one", b"v")
        await trio.sleep(1)
        started = trio.current_time()
        await producer.close(timeout)
        assert trio.current_time() - started == pytest.approx(timeout)
        with pytest.raises(KafkaError, match=f"closed with timeout={timeout}, before"):
            await future
        figures = producer.metrics()["producer-metrics"]
        assert figures["buffer-available-bytes"] == figures["buffer-total-bytes"]


async def test_negative_timeouts_are_mistakes(cluster: Any, autojump_clock: Any) -> None:
    """For flush and close."""
    async with cluster.producer() as producer:
        with pytest.raises(ValueError, match="must not be negative"):
            await producer.flush(-1)
        with pytest.raises(ValueError, match="must not be negative"):
            await producer.close(-1)
        assert (await (await producer.send("one", b"v"))).offset == 0


async def test_callbacks_may_send(cluster: Any, autojump_clock: Any) -> None:
    """With ``send_nowait``; order is kept."""
    async with cluster.producer() as producer:

        def send_next(metadata: Any) -> None:
            if metadata.offset < 5:
                producer.send_nowait("one", b"%d" % (metadata.offset + 1)).add_callback(send_next)

        (await producer.send("one", b"0")).add_callback(send_next)
        await trio.sleep(1)
    assert cluster.values("one") == [b"0", b"1", b"2", b"3", b"4", b"5"]


async def test_get_beside_the_sender_is_refused(cluster: Any, autojump_clock: Any) -> None:
    """It would stop the loop that it waits for."""
    async with cluster.producer() as producer:
        future = await producer.send("one", b"v")
        with pytest.raises(IllegalStateError, match="or await"):
            future.get(timeout=1)


async def test_a_tight_loop_lets_the_sender_run(cluster: Any, autojump_clock: Any) -> None:
    """One checkpoint per batch: records leave while the application goes on sending."""
    async with cluster.producer(batch_size=4_096, buffer_memory=64 * 1024) as producer:
        for _ in range(5_000):
            await producer.send("one", bytes(100))
        assert len(cluster.values("one")) > 3_000


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
    assert max(counts.values()) < 2 * min(counts.values()) + 200


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
    """Is an error of the caller's, and nothing is queued."""
    async with cluster.producer(partitioner=lambda *_arguments: chosen) as producer:
        with pytest.raises(ValueError, match=f"chose partition {chosen} for topic 'six'.* 0 to 5"):
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
    """And the next record is sent."""
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


async def test_acks_0_completes_without_offset(cluster: Any, autojump_clock: Any) -> None:
    """-1 for every record, as documented."""
    async with cluster.producer(acks=0) as producer:
        futures = [await producer.send("one", b"v") for _ in range(3)]
        assert [(await future).offset for future in futures] == [-1, -1, -1]


async def test_a_finalizer_inside_the_guard_may_send(cluster: Any, autojump_clock: Any) -> None:
    """It is queued and delivered a little later; its future is an ordinary one."""
    sent: list[Any] = []
    async with cluster.producer() as producer:
        await producer.prepare("two")

        class Dying:
            def __init__(self) -> None:
                self.itself = self

            def __del__(self) -> None:
                sent.append(producer.send_nowait("two", b"from the grave", key=b"k"))

        Dying()
        with producer._core.guard:
            gc.collect()
        assert len(sent) == 1
        assert not sent[0].is_done
        metadata = await sent[0]
        assert metadata.topic_partition == TopicPartition("two", hashed_partition(b"k", 2))
    assert cluster.values(*metadata.topic_partition) == [b"from the grave"]


async def test_metrics_have_kafkas_names(cluster: Any, autojump_clock: Any) -> None:
    """Totals since the start, and the memory."""
    async with cluster.producer() as producer:
        for _ in range(10):
            await producer.send("one", b"v")
        await producer.flush()
        figures = producer.metrics()["producer-metrics"]
        assert figures["record-send-total"] == 10
        assert figures["record-error-total"] == 0
        assert figures["batch-size-avg"] > 61
        assert figures["buffer-total-bytes"] == figures["buffer-available-bytes"] == 32 * 1024 * 1024
        assert all(math.isfinite(value) for group in producer.metrics().values() for value in group.values())


async def test_the_constructor_refuses_wrong_addresses() -> None:
    """Before anything runs."""
    with pytest.raises(KafkaConfigurationError, match="port 'x'"):
        AsyncKafkaProducer(bootstrap_servers="h:x")
