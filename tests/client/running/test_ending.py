"""How producers end when something is in the way: callbacks, crashes, cancelled blocks, constructors."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import trio
from support.clients.holding import holding
from support.clients.preparing import prepare
from support.scripted.cluster import Trouble
from trio.testing import MockClock

from splashdam.client import local
from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.producer import KafkaProducer
from splashdam.client.waiters import wait_in_thread
from splashdam.model.errors import BufferExhaustedError, IllegalStateError


@pytest.mark.parametrize("call", ["close", "flush"])
@pytest.mark.parametrize("end", ["crash", "force"])
def test_an_errback_that_runs_when_the_loop_has_ended_may_not_wait_for_it(
    tcp_cluster: Any, call: str, end: str
) -> None:
    """It would wait for the thread it runs on: ``close`` returns, ``flush`` raises, and the thread ends."""
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address)
    core = producer._core
    core.deferred.pump = lambda: float("inf")  # type: ignore[method-assign]  # the record stays where it is
    with holding(core.guard):  # as in a signal handler
        future = producer.send("one", b"v")
    raised: list[BaseException] = []

    def wait_for_the_end(_error: BaseException) -> None:
        try:
            getattr(producer, call)()
        except IllegalStateError as error:
            raised.append(error)

    future.add_errback(wait_for_the_end)
    if end == "force":
        producer.close(0)
    else:

        def crash(*_arguments: Any) -> None:
            raise ZeroDivisionError("planted")

        core.metadata.due_in_ms = crash  # type: ignore[assignment]
        core._wakeup.wake()
    producer._loop.thread.join(300)
    assert not producer._loop.thread.is_alive()
    assert core.finished.opened
    assert future.failed()
    assert len(raised) == (call == "flush")
    producer.close()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_callback_that_exits_does_not_end_the_producer(
    tcp_cluster: Any, undelivered: Any, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged as any other error of a callback."""

    def leave(_metadata: Any) -> None:
        raise error

    with KafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
        with undelivered(producer):
            producer.send("one", b"v").add_callback(leave)
        producer.flush()
        assert producer.send("one", b"w").get(timeout=300).offset == 1
    assert "a delivery callback raised" in caplog.text


async def test_ctrl_c_in_a_callback_ends_the_program(cluster: Any, autojump_clock: Any) -> None:
    """In the main thread it is the program's; what is left fails, with the reason."""

    def interrupt(_metadata: Any) -> None:
        raise KeyboardInterrupt

    producer = cluster.producer()

    async def program() -> None:
        async with producer:
            future = await producer.send("one", b"v")
            future.add_callback(interrupt)
            await trio.sleep(10)

    with pytest.raises(BaseExceptionGroup) as caught:
        await program()
    assert caught.value.subgroup(KeyboardInterrupt) is not None
    assert producer._core.finished.opened
    with pytest.raises(IllegalStateError, match=r"has stopped: .*KeyboardInterrupt"):
        producer.send_nowait("one", b"w")


def test_full_memory_is_explained_and_what_is_left_counted_under_the_guard(
    tcp_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads change what is counted for the message."""
    tcp_cluster.scripted.produce_script.append(Trouble(delay_ms=60_000))
    producer = KafkaProducer(
        bootstrap_servers=tcp_cluster.address, buffer_memory=4_000, linger_ms=0, max_block_ms=1_000
    )
    prepare(producer, "one")
    core = producer._core
    statistics = core.accumulator.statistics
    held: list[bool] = []

    def watched() -> Any:
        held.append(core.guard.interrupted())
        return statistics()

    monkeypatch.setattr(type(core.accumulator), "statistics", lambda _self: watched())
    producer.send("one", bytes(3_000))
    with pytest.raises(BufferExhaustedError):
        producer.send("one", bytes(3_000))
    count = core._records_left

    def counted() -> int:
        held.append(core.guard.interrupted())
        return count()

    monkeypatch.setattr(core, "_records_left", counted)
    core._give_up("in a test")
    assert held == [True, True]
    producer.close(0)


def test_closing_takes_the_waiters_for_metadata_under_the_guard(
    tcp_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``send`` in another thread may be adding one."""
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address)
    core = producer._core
    take_waiters = core.metadata.take_waiters
    held: list[bool] = []

    def watched() -> Any:
        held.append(core.guard.interrupted())
        return take_waiters()

    monkeypatch.setattr(core.metadata, "take_waiters", watched)
    producer.close()
    assert held
    assert all(held)


def test_a_loop_call_that_raises_index_error_is_not_swallowed(tcp_cluster: Any) -> None:
    """The caller sees the error, and later calls still run: the queue's own IndexError is not meant."""
    core = KafkaProducer(bootstrap_servers=tcp_cluster.address)._core
    core.begin_close()
    assert wait_in_thread(core.finished, 30)
    done: list[int] = []
    with pytest.raises(IndexError):
        core.in_loop(list[int]().pop)
    core.in_loop(lambda: done.append(1))
    assert done == [1]


def test_a_constructor_that_fails_gives_the_broker_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Nobody else would ever stop it."""

    def refuse(_lease: Any) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(local.Lease, "connect", refuse)
    with pytest.raises(ZeroDivisionError):
        KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}")
    assert not local._running


@pytest.mark.parametrize("kind", ["embedded", "tcp"])
@pytest.mark.parametrize("checkpoints", range(5))
async def test_a_block_that_is_cancelled_while_it_is_entered_leaves_nothing(
    tcp_cluster: Any, tmp_path: Any, kind: str, checkpoints: int
) -> None:
    """Neither a broker nor a nursery out of place, wherever in ``__aenter__`` the cancellation comes."""
    servers = tcp_cluster.address if kind == "tcp" else f"embedded:{tmp_path}"
    producer = AsyncKafkaProducer(bootstrap_servers=servers)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def cancel_soon() -> None:
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                scope.cancel()

            nursery.start_soon(cancel_soon)
            async with producer:
                await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not local._running
    await producer.close()
    assert producer.embedded_broker is None


@pytest.mark.parametrize("kind", ["embedded", "tcp"])
async def test_a_block_that_is_cancelled_before_it_is_entered_leaves_nothing(
    tcp_cluster: Any, tmp_path: Any, kind: str
) -> None:
    """The first checkpoint inside raises."""
    servers = tcp_cluster.address if kind == "tcp" else f"embedded:{tmp_path}"
    with trio.CancelScope() as scope:
        scope.cancel()
        async with AsyncKafkaProducer(bootstrap_servers=servers):
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not local._running


async def test_a_producer_is_entered_once(tmp_path: Any) -> None:
    """Again, inside itself and after close it is refused, before a broker is started."""
    producer = AsyncKafkaProducer(bootstrap_servers=f"embedded:{tmp_path}")
    async with producer:
        with pytest.raises(IllegalStateError, match="starts once; this one is running"):
            await producer.__aenter__()
        assert (await (await producer.send("t", b"v"))).offset == 0
    with pytest.raises(IllegalStateError, match="starts once; this one is closed"):
        await producer.__aenter__()
    unused = AsyncKafkaProducer(bootstrap_servers=f"embedded:{tmp_path}")
    await unused.close()
    with pytest.raises(IllegalStateError, match="starts once; this one is closed"):
        await unused.__aenter__()
    assert not local._running


def test_ctrl_c_in_the_block_waits_for_the_exit_timeout_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent broker would otherwise delay Ctrl-C until ``delivery_timeout_ms``."""
    limits: list[float | None] = []
    monkeypatch.setattr(KafkaProducer, "close", lambda _producer, timeout=None: limits.append(timeout))
    for interruption in (KeyboardInterrupt, ValueError):
        producer = KafkaProducer(bootstrap_servers="127.0.0.1:1", exit_timeout_ms=1500)
        with pytest.raises(interruption), producer:
            raise interruption
    assert limits == [1.5, None]


def test_under_asyncio_the_trio_producer_says_what_to_use() -> None:
    """It is the first mistake of users who come from asyncio."""

    async def enter() -> None:
        async with AsyncKafkaProducer(bootstrap_servers="127.0.0.1:1"):
            pass

    with pytest.raises(IllegalStateError, match=r"under asyncio use splashdam\.aio\.AsyncioKafkaProducer"):
        asyncio.run(enter())


async def test_close_0_has_delivered_what_lingered(autojump_clock: MockClock, cluster: Any) -> None:
    """It began an ordinary close, so that the sender could be faster than the order to end."""
    async with cluster.producer(linger_ms=60_000) as producer:
        future = await producer.send("one", b"x")
        await trio.sleep(1)
        await producer.close(timeout=0)
        assert future.failed()
    assert cluster.values("one") == []


def test_ctrl_c_while_the_thread_starts_ends_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """``Thread.start`` waits until the thread has begun; interrupted there, it ran on without a producer."""
    start = threading.Thread.start
    begun: list[threading.Thread] = []

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        begun.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        KafkaProducer(bootstrap_servers="127.0.0.1:1")
    begun[0].join(300)
    assert not begun[0].is_alive()
