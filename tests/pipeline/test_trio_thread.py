"""A loop for callers that block, and the clients that are kept in it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from splashdam.model.errors import IllegalStateError
from splashdam.pipeline.trio_thread import ClientPool, TrioThread


@pytest.fixture
def thread() -> Iterator[TrioThread]:
    """Closed after the test."""
    thread = TrioThread("the loop")
    yield thread
    thread.close()


def test_results_and_failures(thread: TrioThread) -> None:
    """A task's result comes back, as does what it raises; the loop goes on."""

    async def divide(number: int, by: int) -> float:
        await trio.lowlevel.checkpoint()
        return number / by

    with pytest.raises(ZeroDivisionError):
        thread.call(divide, 1, 0)
    assert thread.call(divide, 6, 3) == 2
    assert not thread.is_closed


def test_a_waiter_at_the_end_gets_an_error(thread: TrioThread) -> None:
    """A later waiter gets it, too."""
    waiting = threading.Event()
    told: list[str] = []

    async def wait() -> None:
        waiting.set()
        await trio.sleep_forever()

    def call() -> None:
        with pytest.raises(IllegalStateError) as caught:
            thread.call(wait)
        told.append(str(caught.value))

    caller = threading.Thread(target=call)
    caller.start()
    waiting.wait()
    thread.close()
    caller.join()
    assert told == ["the loop is closed"]
    assert thread.is_closed
    with pytest.raises(IllegalStateError, match="the loop is closed"):
        thread.call(wait)
    thread.close()


async def test_clients_are_kept() -> None:
    """One at a time each; one that failed, or was interrupted, ends."""
    opened, closed = [], []

    @asynccontextmanager
    async def open_client() -> AsyncIterator[int]:
        opened.append(len(opened))
        try:
            yield opened[-1]
        finally:
            closed.append(opened[-1])

    async with trio.open_nursery() as nursery:
        pool = ClientPool(nursery, open_client)
        for _ in range(2):
            async with pool.borrow() as first:
                assert first == 0
        async with pool.borrow() as first, pool.borrow() as second:
            assert (first, second) == (0, 1)
        with pytest.raises(ZeroDivisionError):
            async with pool.borrow():
                raise ZeroDivisionError
        await trio.testing.wait_all_tasks_blocked()
        assert len(closed) == 1
        with trio.CancelScope() as scope:
            async with pool.borrow():
                scope.cancel()
                await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert len(closed) == 2
        async with pool.borrow() as third:
            assert third == 2
        nursery.cancel_scope.cancel()
    assert len(closed) == 3
