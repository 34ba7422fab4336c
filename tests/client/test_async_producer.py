"""The trio producer against a scripted cluster, in virtual time: sending, waiting, giving up, closing."""

from __future__ import annotations

import gc
import math
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from support.clients.local_cluster import LocalCluster
from support.running.patches import guard
from support.scripted.cluster import Trouble

from splashdam.accumulator.batch import BatchEvent, ProducerBatch
from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.partitioning.partitioners import hashed_partition
from splashdam.model.broker_errors import ErrorCode, MessageTooLargeError, TopicAuthorizationFailedError
from splashdam.model.errors import (
    IllegalArgumentError,
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    WouldBlock,
)
from splashdam.model.values import TopicPartition
from splashdam.sender.broker_links import BrokerLink
from splashdam.sender.sender import Sender
from splashdam.sender.shipping import Shipping
from splashdam.wire.messages.produce import ProduceRequest

SILENCE = Trouble(then="silence")


def silent_for_records(message: Any) -> Trouble:
    return SILENCE if isinstance(message, ProduceRequest) else Trouble()


def run_with_ctrl_c(main: Callable[[], Awaitable[None]], clock: trio.testing.MockClock) -> None:
    """Run a program in which SIGINT is Python's Ctrl-C, as trio asks for."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        trio.run(main, clock=clock)
    finally:
        signal.signal(signal.SIGINT, before)


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


async def test_an_awaited_record_wakes_no_task_through_the_system(
    cluster: Any, autojump_clock: Any, monkeypatch: Any
) -> None:
    """Application, sender and reader share a loop: they reschedule each other, without a descriptor."""
    async with cluster.producer(linger_ms=0) as producer:
        await (await producer.send("one", b"the first opens connections"))
        with monkeypatch.context() as patch:
            for owner, name in ((trio.lowlevel.TrioToken, "run_sync_soon"), (os, "write")):
                patch.setattr(owner, name, guard(f"{name} on the way of an awaited record"))
            for number in range(20):
                await (await producer.send("one", b"%d" % number))


async def test_an_awaited_record_waited_for_the_senders_task(cluster: Any, autojump_clock: Any) -> None:
    """Nothing is in flight, so the task that sends it has written its request when `send` returns."""
    async with cluster.producer(linger_ms=0) as producer:
        await (await producer.send("one", b"the first opens connections"))
        first = await producer.send("one", b"1")
        (link,) = (link for link in producer._core.sender.links() if link.busy)
        behind = [await producer.send("one", b"%d" % number) for number in range(2, 5)]
        # What follows fills the next batch until the answer comes.
        assert link.in_flight == 1
        assert [future.outcome for future in behind] == [behind[0].outcome] * 3
        assert behind[0].outcome is not first.outcome
        await producer.flush()
    assert cluster.values("one")[1:] == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"linger_ms": 5}, "the record lingers"),
        ({"linger_ms": 0, "acks": 0}, "without answers, each record of a loop would go alone"),
    ],
)
async def test_a_record_is_left_to_the_senders_task(
    cluster: Any, autojump_clock: Any, options: dict[str, Any], why: str
) -> None:
    """All records of a loop without a pause share a batch."""
    async with cluster.producer(**options) as producer:
        await (await producer.send("one", b"the first opens connections"))
        futures = [await producer.send("one", b"x") for _ in range(10)]
        assert len({id(future.outcome) for future in futures}) == 1, why


async def test_the_first_of_many_tasks_sent_its_record_alone(cluster: Any, autojump_clock: Any) -> None:
    """Their records share a request, as long as they send in the same pass of the loop."""
    rounds, tasks = 20, 10
    async with cluster.producer(linger_ms=0) as producer:

        async def send_one_by_one() -> None:
            for _ in range(rounds):
                await (await producer.send("one", b"x"))

        await (await producer.send("one", b"the first opens connections"))
        # Only where the last request had one record a caller may be alone.
        producer.send_nowait("one", b"x")
        await producer.send_nowait("one", b"x")
        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(send_one_by_one)
    assert len(cluster.scripted.logs[TopicPartition("one", 0)].headers) == 2 + rounds


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Sender, "_decide_shortly"),
        (Shipping, "drain_lone"),
        (Shipping, "ship"),
        (BrokerLink, "submit_filled"),
        (Sender, "_set_alarm"),
    ],
)
def test_ctrl_c_inside_a_send_lost_the_batch_that_it_was_writing(
    monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str
) -> None:
    """Wherever in the sender's steps it comes, the batch is written; the next checkpoint raises."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    away, original = LocalCluster(clock), getattr(owner, name)

    def interrupted(*arguments: Any, **named: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return original(*arguments, **named)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(away.scripted.run)
            async with away.producer(linger_ms=0) as producer:
                for _ in range(2):  # the second request for a partition makes its form
                    await (await producer.send("one", b"opens connections"))
                with monkeypatch.context() as patch:
                    patch.setattr(owner, name, interrupted)
                    future = await producer.send("one", b"v")
                assert any(link.busy for link in producer._core.sender.links())
                with pytest.raises(KeyboardInterrupt):
                    await trio.lowlevel.checkpoint()
                assert (await future).offset == 2
            nursery.cancel_scope.cancel()

    run_with_ctrl_c(main, clock)


def test_ctrl_c_in_a_task_of_the_producer_left_records_undecided_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It came between the state of a batch and its outcome. The program's main task has it instead."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    away, advance = LocalCluster(clock), ProducerBatch.advance
    futures: list[Any] = []

    def interrupted(batch: ProducerBatch, event: BatchEvent) -> None:
        advance(batch, event)
        if event is BatchEvent.SUCCEED:
            monkeypatch.undo()
            signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(away.scripted.run)
            async with away.producer(linger_ms=0) as producer:
                await (await producer.send("two", b"opens connections"))
                monkeypatch.setattr(ProducerBatch, "advance", interrupted)
                futures.extend([await producer.send("two", b"v", partition=number) for number in (0, 1)])
                with pytest.raises(KeyboardInterrupt):
                    await trio.sleep(5)
            nursery.cancel_scope.cancel()

    run_with_ctrl_c(main, clock)
    assert [future.succeeded() for future in futures] == [True, True]


async def test_a_bug_inside_a_send_left_its_batch_in_flight_for_ever(
    cluster: Any, autojump_clock: Any, monkeypatch: Any
) -> None:
    """It ends the producer, as in the sender's own task; `close` had waited for the batch."""
    async with cluster.producer(linger_ms=0) as producer:
        await (await producer.send("one", b"the first opens connections"))
        monkeypatch.setattr(Shipping, "ship", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await producer.send("one", b"v")
    assert not producer._core.accumulator.has_incomplete


async def test_a_waiting_task_goes_on_once_the_step_that_told_it_has_ended(
    cluster: Any, autojump_clock: Any
) -> None:
    """All records of one answer are done by then, callbacks have run, and their memory is free again."""
    async with cluster.producer(linger_ms=0) as producer:
        await (await producer.send("two", b"the first opens connections", partition=0))
        await (await producer.send("two", b"of each partition", partition=1))
        first, second = [producer.send_nowait("two", b"x", partition=number) for number in (0, 1)]
        called: list[int] = []
        second.add_callback(lambda _metadata: called.append(1))
        await first
        assert second.is_done
        assert called == [1]
        accumulator = producer._core.accumulator
        assert accumulator.free_bytes == accumulator.buffer_memory


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
    """The inner nursery does not wrap it into a group, and records sent before are delivered."""
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


async def test_a_console_was_opened_in_the_applications_loop(away: Any, autojump_clock: Any) -> None:
    """Imports and the wait for its thread held the loop for 0.1 s."""
    producer, opened_by = away.producer(console_port=0), []
    producer._core.open_console = lambda: opened_by.append(threading.get_ident())
    async with producer:
        assert len(opened_by) == 1
        assert threading.get_ident() not in opened_by


async def test_ctrl_c_in_the_block_waited_for_the_delivery_timeout(cluster: Any, autojump_clock: Any) -> None:
    """It waits for ``exit_timeout_ms``, as the blocking producer does and the option says."""
    cluster.scripted.trouble_for = silent_for_records

    async def interrupted() -> None:
        async with cluster.producer(exit_timeout_ms=2_000) as producer:
            await producer.send("one", b"v")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await interrupted()
    assert trio.current_time() == pytest.approx(2)


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


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"topic": "one"}, ValueError, "Need at least one: key or value"),
        ({"topic": "one", "value": b"v", "headers": "h"}, TypeError, "headers must be"),
        ({"topic": "one", "value": "text"}, TypeError, "the value must be bytes-like.*value_serializer"),
        ({"topic": "one", "value": b"v", "key": 7}, TypeError, "the key must be bytes-like"),
        ({"topic": b"one", "value": b"v"}, TypeError, "topic must be str"),
        ({"topic": "a b", "value": b"v"}, ValueError, "not a legal topic name"),
        ({"topic": "one", "value": b"v", "partition": -1}, ValueError, "partition must be 0 or more"),
        ({"topic": "one", "value": b"v", "partition": "0"}, TypeError, "partition must be an int, not str"),
        (
            {"topic": "one", "value": b"v", "partition": 2**31},
            ValueError,
            "partition must be at most 2147483647",
        ),
        ({"topic": "one", "value": bytes(2_000_000)}, MessageTooLargeError, "max_request_size is 1048576"),
        (
            {"topic": "one", "value": b"v", "timestamp_ms": 1.5},
            TypeError,
            "timestamp_ms must be an int, not float",
        ),
        (
            {"topic": "one", "value": b"v", "timestamp_ms": 2**63},
            OverflowError,
            "timestamp_ms=.* fit 64 bits",
        ),
        *(
            (
                {"topic": "one", "value": b"v", "timestamp_ms": negative},
                IllegalArgumentError,
                f"timestamp_ms={negative} is negative; give milliseconds since 1970",
            )
            for negative in (-1, -5, -(2**63))
        ),
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


async def test_timestamps_may_be_zero_and_go_back(cluster: Any, autojump_clock: Any) -> None:
    """Each record keeps its own."""
    async with cluster.producer() as producer:
        futures = [await producer.send("one", b"v", timestamp_ms=ms) for ms in (5, 0, 7)]
        assert [(await future).timestamp for future in futures] == [5, 0, 7]
        now_ms = cluster.clock.wall_ms()
        assert (await (await producer.send("one", b"v"))).timestamp >= now_ms


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
        assert [(each.topic_partition, each.count) for each in report.failures] == [(("one", 0), 1)]
        assert str(report).startswith(
            "0 delivered, 1 failed, 0 pending\n  1 failed: [87 InvalidRecordError] one-0: "
        )
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
        assert report.delivered == 10
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
        with pytest.raises(TypeError, match="timeout must be a number of seconds or None, not '5'"):
            await producer.flush("5")  # type: ignore[arg-type]
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


async def test_acks_0_completes_without_offset(cluster: Any, autojump_clock: Any) -> None:
    """-1 for every record, as documented."""
    async with cluster.producer(acks=0) as producer:
        futures = [await producer.send("one", b"v") for _ in range(3)]
        assert [(await future).offset for future in futures] == [-1, -1, -1]


async def test_a_finalizer_inside_the_guard_may_send(cluster: Any, autojump_clock: Any) -> None:
    """Its record is queued and delivered a little later; the future is an ordinary one."""
    sent: list[Any] = []
    async with cluster.producer() as producer:
        await producer.prepare("two")

        class Dying:
            def __init__(self) -> None:
                self.itself = self

            def __del__(self) -> None:
                sent.append(producer.send_nowait("two", b"from the grave", key=b"k"))

        Dying()
        producer._core.guard.run(gc.collect)
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
