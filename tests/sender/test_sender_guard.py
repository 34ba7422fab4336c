"""What the sender does with the guard and without it, while an application's threads send."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator

import pytest
import trio
from support.scripted.cluster import Trouble

from splashdam.accumulator.readiness import PartitionQueues
from splashdam.model.errors import KafkaTimeoutError

TOPICS = [f"t{number}" for number in range(60)]


@pytest.fixture
def eager_threads() -> Iterator[None]:
    """Threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


async def test_settled_request_does_not_walk_the_queues_of_other_threads(
    make_rig, autojump_clock, monkeypatch, eager_threads
):
    """Threads open new queues while requests are settled: nobody iterates over them without the guard."""
    rig = make_rig(cluster={"topics": dict.fromkeys(TOPICS, 1)}, batch_bytes=0, buffer_memory=100_000_000)
    unguarded: list[str] = []
    usual = PartitionQueues.topics

    def topics(queues):
        if not rig.guard.interrupted():
            unguarded.append(threading.current_thread().name)
        return usual(queues)

    monkeypatch.setattr(PartitionQueues, "topics", topics)

    def send(first: int) -> None:
        for number in range(150):
            rig.send(b"x", topic=TOPICS[(first + number) % len(TOPICS)])

    async with rig.running():
        async with trio.open_nursery() as nursery:
            for first in (0, 20, 40):
                nursery.start_soon(trio.to_thread.run_sync, send, first)
        for future in rig.futures:
            assert isinstance(await rig.outcome(future), int)
    assert not unguarded


async def test_late_success_is_logged_without_the_guard(make_rig, autojump_clock, caplog):
    """A log handler has a lock, which a thread may hold while it sends.

    Logging with the guard held would deadlock.
    """
    rig = make_rig(delivery_timeout_ms=3000, request_timeout_ms=10_000)
    owned: list[bool] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            owned.append(rig.guard.interrupted())

    logger, handler = logging.getLogger("splashdam.sender"), Handler()
    logger.addHandler(handler)
    caplog.set_level(logging.INFO, "splashdam.sender")
    try:
        async with rig.running():
            await rig.send_and_wait(b"warm")
            rig.cluster.produce_script.append(Trouble(delay_ms=5000))
            assert isinstance(await rig.send_and_wait(b"late"), KafkaTimeoutError)
            await trio.sleep(5)
    finally:
        logger.removeHandler(handler)
    assert owned == [False]
    assert "t-0 accepted a batch of 1 records after the producer had failed it" in caplog.text


@pytest.mark.parametrize("code", [31, 90])
async def test_aborted_records_are_counted_as_failed(make_rig, autojump_clock, code):
    """Those that fail with the producer, sent or not, count as those that a broker refused."""
    rig = make_rig()
    async with rig.running():
        rig.cluster.produce_script.append(Trouble(code=code))
        await rig.send_and_wait(b"refused")
        await rig.send_and_wait(b"after")
        assert rig.sender.statistics().records_failed == 2


async def test_records_in_flight_at_a_forced_close_are_counted_once(make_rig, autojump_clock):
    """They fail for the application first and are given up later."""
    rig = make_rig(delivery_timeout_ms=3000, request_timeout_ms=2000)
    async with rig.running():
        await rig.send_and_wait(b"warm")
        rig.cluster.produce_script.append(Trouble(then="silence"))
        future = rig.send(b"x")
        await trio.sleep(0.1)
        rig.sender.force_close(ValueError("enough"))
        assert isinstance(await rig.outcome(future), ValueError)
    assert rig.sender.statistics().records_failed == 1


async def test_records_without_a_producer_id_are_counted_as_failed(make_rig, autojump_clock):
    """A refused InitProducerId fails what waits for it."""
    rig = make_rig()
    rig.cluster.id_script.append(Trouble(code=31))
    async with rig.running():
        await rig.send_and_wait(b"x")
        assert rig.sender.statistics().records_failed == 1


async def test_an_interrupted_waiter_leaves_nobody_waiting(make_rig, autojump_clock):
    """Ctrl-C in a callback ends the sender; the waiters of other batches settled in that turn run still."""
    rig = make_rig(cluster={"topics": {"t": 3}})
    told: list[int] = []

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def run() -> None:
        async with rig.running():
            for number, waiter in enumerate((interrupt, lambda: told.append(1), lambda: told.append(2))):
                future = rig.send(b"x", partition=number)
                future.outcome.add_waiter(waiter, future.index)
            await trio.sleep(1)

    with pytest.raises(BaseExceptionGroup) as raised:
        await run()
    assert raised.group_contains(KeyboardInterrupt)
    assert told == [1, 2]
