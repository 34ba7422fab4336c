"""The guard: one lock for many threads, and a holder who is told that he interrupted himself."""

from __future__ import annotations

import gc
import threading

import pytest

from splashdam.client.guard import Guard


def test_counts_how_often_its_holder_is_inside() -> None:
    """Re-entrant, and the depth returns to 0."""
    guard = Guard()
    with guard:
        assert guard.depth == 1
        with guard:
            assert guard.depth == 2
        assert guard.depth == 1
    assert guard.depth == 0


def test_is_free_after_an_exception() -> None:
    """An exception inside leaves lock and depth as they were."""
    guard = Guard()
    with pytest.raises(KeyError), guard:
        {}["missing"]
    assert guard.depth == 0
    entered = []
    thread = threading.Thread(target=lambda: entered.append(guard.lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    assert entered == [True]


def test_tells_an_interruption_from_another_thread() -> None:
    """Only the holder's own thread is interrupted; another one simply has to wait."""
    guard = Guard()
    assert not guard.interrupted()
    seen = []
    with guard:
        assert guard.interrupted()
        thread = threading.Thread(target=lambda: seen.append(guard.interrupted()))
        thread.start()
        thread.join()
    assert seen == [False]
    assert not guard.interrupted()


def test_a_finalizer_inside_is_an_interruption() -> None:
    """What the collector calls while the guard is held sees that it is nested."""
    guard = Guard()
    seen = []

    class Cycle:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            seen.append(guard.interrupted())

    Cycle()
    with guard:
        gc.collect()
    assert seen == [True]


def test_keeps_threads_apart() -> None:
    """Increments that are not atomic add up exactly."""
    guard = Guard()
    total = 0

    def add() -> None:
        nonlocal total
        for _ in range(2_000):
            with guard:
                before = total
                total = before + 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total == 8_000
