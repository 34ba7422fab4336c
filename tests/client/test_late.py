"""Late records: what a sender that must not wait has sent is brought in by the loop, or fails."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from splashdam.client.late import LATE_BYTES_LIMIT
from splashdam.model.broker_errors import MessageTooLargeError
from splashdam.model.errors import BufferExhaustedError, IllegalStateError, KafkaError
from splashdam.testing.scripted_broker import Trouble
from splashdam.wire.messages.produce import ProduceRequest


async def send_late(producer: Any, *arguments: Any, **options: Any) -> Any:
    """As a signal handler that interrupts the holder of the guard."""
    with producer._core.guard:
        return await producer.send(*arguments, **options)


async def test_late_records_keep_their_order(cluster: Any, autojump_clock: Any) -> None:
    """Also where the first of them has to wait for its topic."""
    async with cluster.producer() as producer:
        futures = [await send_late(producer, "one", b"%d" % number) for number in range(5)]
        assert not any(future.is_done for future in futures)
        assert repr(futures[0]) == "<RecordFuture one--1 pending>"
        assert [(await future).offset for future in futures] == [0, 1, 2, 3, 4]
        assert repr(futures[0]) == "<RecordFuture one--1 delivered>"
        assert producer._core.late.waiting == 0


async def test_flush_waits_for_late_records(cluster: Any, autojump_clock: Any) -> None:
    """They were sent before it."""
    async with cluster.producer(linger_ms=60_000) as producer:
        future = await send_late(producer, "one", b"v", headers={"h": b"1"}, timestamp_ms=7)
        calls: list[Any] = []
        future.add_callback(calls.append)
        assert await producer.flush()
        assert calls == [future.value]
        assert (calls[0].timestamp, calls[0].serialized_header_size) == (7, 2)


async def test_a_late_record_waits_for_memory(cluster: Any, autojump_clock: Any) -> None:
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


async def test_a_late_record_that_cannot_be_sent_fails(cluster: Any, autojump_clock: Any) -> None:
    """With the error that ``send`` would have raised, and without holding up the others."""
    async with cluster.producer(max_request_size=1_000) as producer:
        bad = await send_late(producer, "one", bytes(2_000))
        good = await send_late(producer, "one", b"v")
        with pytest.raises(MessageTooLargeError):
            await bad
        assert (await good).offset == 0


async def test_a_late_record_shares_the_fate_of_its_batch(cluster: Any, autojump_clock: Any) -> None:
    """Errors too."""
    cluster.scripted.produce_script.append(Trouble(code=87))
    async with cluster.producer() as producer:
        late = await send_late(producer, "one", b"v")
        with pytest.raises(KafkaError, match="InvalidRecordError"):
            await late


async def test_late_records_are_limited(away: Any, autojump_clock: Any) -> None:
    """They are held beside ``buffer_memory``; there is room again when they are gone."""
    async with away.producer(max_block_ms=1_000) as producer:
        for _ in range(LATE_BYTES_LIMIT // 100_000):
            await send_late(producer, "one", bytes(100_000))
        with pytest.raises(BufferExhaustedError, match="10 records sent from callbacks, signal handlers"):
            await send_late(producer, "one", bytes(100_000))
        await trio.sleep(2)
        assert producer._core.late.waiting == 0
        late = await send_late(producer, "one", bytes(100_000))
        await producer.close(0)
        assert late.failed()


@pytest.mark.parametrize("timeout", [0, 5])
async def test_closing_ends_late_records(away: Any, autojump_clock: Any, timeout: float) -> None:
    """No more records are taken, so what waits outside fails at once."""
    async with away.producer() as producer:
        late = await send_late(producer, "one", b"v")
        await trio.sleep(1)
        await producer.close(timeout)
        assert trio.current_time() < 2
        with pytest.raises((IllegalStateError, KafkaError), match="closed"):
            await late


async def test_records_of_callbacks_do_not_overtake(cluster: Any, autojump_clock: Any) -> None:
    """While a late record waits, those that the sender's thread sends afterwards queue behind it."""
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
