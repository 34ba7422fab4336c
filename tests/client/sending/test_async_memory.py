"""The trio producer when memory is full: how long it waits, in which order, and that nothing leaks."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from support.scripted.cluster import Trouble

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.model.errors import BufferExhaustedError, IllegalStateError, KafkaTimeoutError


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


async def test_full_memory_and_a_topic_in_vain_name_the_throttling(cluster: Any, autojump_clock: Any) -> None:
    """A broker's throttling is obeyed, and timeouts name it."""
    cluster.scripted.produce_script.append(Trouble(throttle_ms=2_000_000_000))
    async with cluster.producer(buffer_memory=4_000, max_block_ms=2_000) as producer:
        await (await producer.send("one", b"x"))
        producer.send_nowait("one", bytes(3_000))
        with pytest.raises(BufferExhaustedError, match="node-1:9092 throttles this client for another"):
            await producer.send("one", bytes(3_000))
        with pytest.raises(
            KafkaTimeoutError, match=r"'two' .*node-1:9092 throttles this client for another .* s"
        ):
            await producer.send("two", b"x")
        await producer.close(0)


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
    """Callers that wait for metadata or memory raise at once."""
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


async def test_ctrl_c_while_the_sender_is_woken_leaves_no_place_in_the_line(
    away: Any, autojump_clock: Any
) -> None:
    """Waking may wait for the sender's turn, so that is where an interrupt comes when memory is full."""
    async with away.producer(buffer_memory=4_000) as producer:
        await fill(away, producer)
        intake = producer._core.intake
        wake = intake.wake

        def interrupted() -> None:
            wake()
            raise KeyboardInterrupt

        intake.wake = interrupted
        with pytest.raises(KeyboardInterrupt):
            await producer.send("one", bytes(3_000))
        intake.wake = wake
        assert producer.metrics()["producer-metrics"]["waiting-threads"] == 0
        await producer.close(0)
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 4_000
