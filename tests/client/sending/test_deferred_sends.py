"""Late records: what a sender that must not wait has sent is brought in by the loop, or fails."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
from support.clients.holding import holding
from support.scripted.cluster import Trouble

from splashdam.client.future import RecordFuture
from splashdam.client.producer import KafkaProducer
from splashdam.client.sending.deferred_sends import DEFERRED_BYTES_LIMIT
from splashdam.model.broker_errors import MessageTooLargeError
from splashdam.model.errors import BufferExhaustedError, IllegalStateError, KafkaError, KafkaTimeoutError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import BatchOutcome
from splashdam.wire.messages.produce import ProduceRequest


async def send_late(producer: Any, *arguments: Any, **options: Any) -> Any:
    """As a signal handler that interrupts the holder of the guard."""
    with holding(producer._core.guard):
        return await producer.send(*arguments, **options)


async def test_deferred_records_keep_their_order(cluster: Any, autojump_clock: Any) -> None:
    """The order holds also if the first of them has to wait for its topic."""
    async with cluster.producer() as producer:
        futures = [await send_late(producer, "one", b"%d" % number) for number in range(5)]
        assert not any(future.is_done for future in futures)
        assert repr(futures[0]) == "<RecordFuture one--1 pending>"
        assert [(await future).offset for future in futures] == [0, 1, 2, 3, 4]
        assert repr(futures[0]) == "<RecordFuture one--1 delivered>"
        assert producer._core.deferred.waiting == 0


async def test_a_record_that_came_as_the_queue_was_empty_could_be_overtaken(
    cluster: Any, autojump_clock: Any
) -> None:
    """Its thread set the detour for those to come between the look at the queue and the end of the detour."""

    class Interrupted:
        """An intake whose detour ends a moment late."""

        def __init__(self, intake: Any) -> None:
            self.intake = intake
            self.late: Any = None

        @property
        def detour(self) -> bool:
            return bool(self.intake.detour)

        @detour.setter
        def detour(self, detour: bool) -> None:
            if self.late is None and not detour:
                with holding(producer._core.guard):
                    self.late = producer.send_nowait("one", b"v")
            self.intake.detour = detour

    async with cluster.producer() as producer:
        await producer.prepare("one")
        deferred = producer._core.deferred
        deferred._intake = between = Interrupted(deferred._intake)
        deferred.pump()
        assert (deferred.waiting, between.detour) == (0, False)
        assert (await between.late).offset == 0


async def test_flush_waits_for_deferred_records(cluster: Any, autojump_clock: Any) -> None:
    """They were sent before it."""
    async with cluster.producer(linger_ms=60_000) as producer:
        future = await send_late(producer, "one", b"v", headers={"h": b"1"}, timestamp_ms=7)
        calls: list[Any] = []
        future.add_callback(calls.append)
        assert await producer.flush()
        assert calls == [future.value]
        assert (calls[0].timestamp, calls[0].serialized_header_size) == (7, 2)


async def test_a_deferred_record_waits_for_memory(cluster: Any, autojump_clock: Any) -> None:
    """In the same line as everybody else."""
    cluster.scripted.produce_script.append(Trouble(delay_ms=3_000))
    async with cluster.producer(buffer_memory=4_000) as producer:
        await producer.prepare("one")
        first = producer.send_nowait("one", bytes(3_000))
        late = await send_late(producer, "one", bytes(3_001))
        await trio.sleep(1)
        assert producer.metrics()["producer-metrics"]["waiting-threads"] == 1
        assert (await late).offset == 1
        assert first.succeeded()


async def test_a_deferred_record_that_cannot_be_sent_fails(cluster: Any, autojump_clock: Any) -> None:
    """With the error that ``send`` would have raised, and without holding up the others."""
    async with cluster.producer(max_request_size=1_000) as producer:
        bad = await send_late(producer, "one", bytes(2_000))
        good = await send_late(producer, "one", b"v")
        with pytest.raises(MessageTooLargeError):
            await bad
        assert (await good).offset == 0


async def test_a_deferred_record_has_the_outcome_of_its_batch(cluster: Any, autojump_clock: Any) -> None:
    """Errors too."""
    cluster.scripted.produce_script.append(Trouble(code=87))
    async with cluster.producer() as producer:
        late = await send_late(producer, "one", b"v")
        with pytest.raises(KafkaError, match="InvalidRecordError"):
            await late


async def test_deferred_records_are_limited(away: Any, autojump_clock: Any) -> None:
    """They are held beside ``buffer_memory``; there is room again when they are gone."""
    async with away.producer(max_block_ms=1_000) as producer:
        for _ in range(DEFERRED_BYTES_LIMIT // 100_000):
            await send_late(producer, "one", bytes(100_000))
        with pytest.raises(
            BufferExhaustedError,
            match="10 records from callbacks, signal handlers or __del__ are queued already",
        ):
            await send_late(producer, "one", bytes(100_000))
        await trio.sleep(2)
        assert producer._core.deferred.waiting == 0
        late = await send_late(producer, "one", bytes(100_000))
        await producer.close(0)
        assert late.failed()


@pytest.mark.parametrize("timeout", [0, 5])
async def test_closing_ends_deferred_records(away: Any, autojump_clock: Any, timeout: float) -> None:
    """They were taken, so they have the time that ``close`` has, and no more."""
    async with away.producer() as producer:
        late = await send_late(producer, "one", b"v")
        await trio.sleep(1)
        await producer.close(timeout)
        assert trio.current_time() == pytest.approx(1 + timeout)
        with pytest.raises((IllegalStateError, KafkaError), match="closed"):
            await late


async def test_records_of_callbacks_do_not_overtake(cluster: Any, autojump_clock: Any) -> None:
    """While a deferred record waits, those that the sender's thread sends afterwards queue behind it."""
    cluster.scripted.trouble_for = lambda message: Trouble(
        delay_ms=100 if isinstance(message, ProduceRequest) else 0
    )
    async with cluster.producer(buffer_memory=5_000) as producer:
        await producer.prepare("one")
        producer.send_nowait("one", bytes(3_000))
        late = await send_late(producer, "one", bytes(4_000))
        behind = await send_late(producer, "one", b"small")
        assert (await late).offset == 1
        assert (await behind).offset == 2


async def test_closing_delivers_records_sent_in_a_signal_handler(cluster: Any, autojump_clock: Any) -> None:
    """Their ``send`` has returned a future: ``close`` refuses new records, not these."""
    async with cluster.producer() as producer:
        late = [await send_late(producer, "one", b"%d" % number) for number in range(3)]
    assert [future.value and future.value.offset for future in late] == [0, 1, 2]


async def test_closing_waits_for_a_deferred_record_no_longer_than_max_block_ms(
    away: Any, autojump_clock: Any
) -> None:
    """It fails with the reason why it could not be brought in."""
    async with away.producer(max_block_ms=3_000) as producer:
        late = await send_late(producer, "one", b"v")
        await producer.close()
        assert trio.current_time() == pytest.approx(3, abs=0.1)
    assert isinstance(late.exception, KafkaTimeoutError)


async def test_closing_inside_the_guard_delivers_deferred_records(cluster: Any, autojump_clock: Any) -> None:
    """A signal handler that sends and begins to close has interrupted the guard's holder both times."""
    async with cluster.producer() as producer:
        with holding(producer._core.guard):
            late = await producer.send("one", b"v")
            producer._core.begin_close()
    assert late.succeeded()


def test_closing_in_time_fails_deferred_records_while_a_callback_keeps_the_loop(
    tcp_cluster: Any, undelivered: Any
) -> None:
    """The loop cannot do it, so ``close`` does; the callback ends later and finds nothing left to do."""
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address, linger_ms=0)
    producer.prepare("one")
    late: list[Any] = []
    sent, go_on = threading.Event(), threading.Event()

    def keep_the_loop(_metadata: Any) -> None:
        late.append(producer.send("not-looked-up-yet", b"v"))
        sent.set()
        go_on.wait(300)

    try:
        with undelivered(producer):
            producer.send("one", b"v").add_callback(keep_the_loop)
        assert sent.wait(300)
        producer.close(0.1)
        with pytest.raises(KafkaError, match=r"closed with timeout=0\.1"):
            late[0].get(timeout=0)
    finally:
        go_on.set()
    producer._loop.thread.join(300)
    assert not producer._loop.thread.is_alive()
    assert late[0].failed()


async def test_two_threads_that_end_the_same_deferred_record(away: Any, autojump_clock: Any) -> None:
    """``close`` fails it while the loop is bringing it in: one of the two does it, and neither raises."""
    async with away.producer() as producer:
        future = await send_late(producer, "one", b"v")
        deferred = producer._core.deferred
        pending = deferred._queue[0][0]

        class Meanwhile:
            def step(self) -> None:
                deferred.fail_all(KafkaError("by the other one"))
                raise ZeroDivisionError("after it was over")

            def __getattr__(self, name: str) -> Any:
                return getattr(pending, name)

        deferred._queue[0] = (Meanwhile(), deferred._queue[0][1])
        assert deferred.pump() == float("inf")
        with pytest.raises(KafkaError, match="by the other one"):
            await future


async def test_a_record_that_is_deferred_after_the_end_fails(away: Any, autojump_clock: Any) -> None:
    """A thread may be let in before the end and defer its record after it; its future was never done."""
    async with away.producer() as producer:
        pending = producer._core.intake.submit("orders", b"v", None, None, None, None)
        await producer.close(0)
        future = producer._core.deferred.add(pending)
        assert isinstance(future.exception, KafkaError)


async def test_send_nowait_in_a_callback_does_not_overtake(cluster: Any, autojump_clock: Any) -> None:
    """It queues behind the deferred records of the same callback, on a topic that is known, too."""
    cluster.scripted.trouble_for = lambda message: Trouble(
        delay_ms=100 if isinstance(message, ProduceRequest) else 0
    )
    futures: list[Any] = []
    async with cluster.producer(buffer_memory=5_000, linger_ms=0) as producer:
        await producer.prepare("one")

        async def fill() -> None:
            producer.send_nowait("one", bytes(3_000))
            futures.append(await send_late(producer, "one", bytes(4_000)))

        await fill()
        await trio.sleep(0.01)

        def send_more(_metadata: Any) -> None:
            futures.append(producer.send_nowait("one", b"small"))

        done = RecordFuture(BatchOutcome(TopicPartition("one", 0)), 0, 0, 0, 0, 0)
        done.outcome.succeed(0, -1)
        done.add_callback(send_more)
        assert [(await future).offset for future in futures] == [1, 2]
