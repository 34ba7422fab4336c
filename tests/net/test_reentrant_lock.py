"""The guard: one lock for many threads, which knows when a signal handler has interrupted its holder."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from coverage import Coverage

from splashdam.model.values import TopicPartition
from splashdam.net.reentrant_lock import ReentrantLock
from splashdam.record.kernel import _kernel_py as kernel


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[float], None]]:
    """Raises KeyboardInterrupt once this thread has used so many seconds of the processor."""

    def strike(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if Coverage.current() is not None:
        pytest.skip("coverage's own tracer does not survive Ctrl-C")
    before = signal.signal(signal.SIGVTALRM, strike)
    yield partial(signal.setitimer, signal.ITIMER_VIRTUAL)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    signal.signal(signal.SIGVTALRM, before)


class Entrance:
    """One of the three ways into a guard: ``run``, and its body where a call of it would cost too much."""

    def __init__(self, way: str) -> None:
        self.guard = ReentrantLock()
        lane = kernel.PartitionLane(TopicPartition("t", 0))
        self._batch = kernel.BatchBuffer(1 << 20)
        lane.open(self._batch, kernel.BatchOutcome(lane.topic_partition))
        path: Any = kernel.FastPath(
            wall_ns=lambda: 0, future_type=kernel.FutureCell, fits_bytes=100, guard=self.guard
        )
        path.publish("t", kernel.TopicLanes([lane], lane, 0, 1 << 30))
        self.enter: Callable[[], object] = {
            "run": partial(self.guard.run, lane.try_append, 0, None, b"v", None, kernel.FutureCell),
            "try_send": partial(path.try_send, "t", b"v"),
            "try_value": partial(path._try_value, "t", b"v"),
        }[way]

    def __call__(self) -> None:
        """Goes in, appends a record while there is room, and comes out."""
        self.enter()

    @property
    def was_used(self) -> bool:
        """Whether the body ran."""
        return bool(self._batch.record_count)


@pytest.fixture(params=["run", "try_send", "try_value"])
def entrance(request: pytest.FixtureRequest) -> Entrance:
    """Each of the ways into a guard of its own."""
    return Entrance(request.param)


def is_free(guard: ReentrantLock) -> bool:
    """Whether another thread gets the lock at once."""
    got: list[bool] = []

    def take() -> None:
        got.append(guard.acquire(blocking=False))
        if got[0]:
            guard.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    return got[0]


def test_is_re_entrant() -> None:
    """Free only when its holder has left as often as he entered."""
    guard = ReentrantLock()

    def outer() -> None:
        assert guard.run(guard.interrupted)
        assert guard.interrupted()
        assert not is_free(guard)

    guard.run(outer)
    assert not guard.interrupted()
    assert is_free(guard)


def test_ctrl_c_on_the_way_in_or_out_of_the_guard_left_it_taken_for_ever(
    entrance: Entrance, ctrl_c: Callable[[float], None]
) -> None:
    """Ctrl-C comes at every place where Python code can be interrupted; the lock is free afterwards."""
    guard = entrance.guard
    for number in range(150):
        ctrl_c(0.0002 + 0.00001 * (number % 20))
        try:
            while True:
                entrance()
        except KeyboardInterrupt:
            assert not guard.interrupted()
            assert is_free(guard)
    assert entrance.was_used


def test_ctrl_c_inside_a_function_that_is_in_the_guard_twice(ctrl_c: Callable[[float], None]) -> None:
    """What is taken twice is given back twice, wherever it strikes."""
    guard = ReentrantLock()
    for number in range(150):
        ctrl_c(0.0002 + 0.00001 * (number % 20))
        try:
            while True:
                guard.run(guard.run, guard.run, guard.interrupted)
        except KeyboardInterrupt:
            assert not guard.interrupted()
            assert is_free(guard)


@pytest.mark.parametrize("strikes", ["while it waits", "when it has the lock", "when it has let go"])
def test_ctrl_c_that_comes_with_a_call_of_the_lock(entrance: Entrance, strikes: str) -> None:
    """Each is a place where Python looks for signals; it is Ctrl-C that comes out, and the lock is free."""
    guard = entrance.guard
    take, give_back = guard.acquire, guard.release

    def acquire() -> bool:
        if strikes != "while it waits":
            take()
        if strikes != "when it has let go":
            raise KeyboardInterrupt
        return True

    def release() -> None:
        give_back()
        if strikes == "when it has let go":
            raise KeyboardInterrupt

    guard.acquire, guard.release = acquire, release
    with pytest.raises(KeyboardInterrupt):
        entrance()
    guard.acquire, guard.release = take, give_back
    assert not guard.interrupted()
    assert is_free(guard)


def test_a_handler_that_sends_when_the_lock_is_taken_and_nothing_is_changed_yet() -> None:
    """It gets in, since nothing is half done, and leaves the lock to whom it has interrupted."""
    guard = ReentrantLock()
    take = guard.acquire
    nested: list[bool] = []

    def acquire() -> bool:
        take()
        if not nested:
            nested.append(guard.interrupted())
            nested.append(guard.run(guard.interrupted))
        return True

    guard.acquire = acquire
    assert guard.run(lambda: guard.interrupted() and not is_free_of(guard, take))
    assert nested == [False, True]


def is_free_of(guard: ReentrantLock, take: Callable[[], bool]) -> bool:
    guard.acquire = take
    return is_free(guard)


def test_ctrl_c_of_one_who_waits_leaves_the_holder_alone(entrance: Entrance) -> None:
    """It comes while another thread is in there: that one stays the holder."""
    guard = entrance.guard
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        entered.set()
        leave.wait()
        still.append(guard.interrupted())

    still: list[bool] = []
    thread = threading.Thread(target=guard.run, args=(stay,))
    thread.start()
    entered.wait()
    take = guard.acquire

    def interrupted() -> bool:
        raise KeyboardInterrupt

    guard.acquire = interrupted
    with pytest.raises(KeyboardInterrupt):
        entrance()
    guard.acquire = take
    assert not is_free(guard)
    leave.set()
    thread.join()
    assert still == [True]
    assert is_free(guard)


def test_is_free_after_an_exception() -> None:
    """An exception inside leaves the lock as it was."""
    guard = ReentrantLock()
    with pytest.raises(KeyError):
        guard.run({}.pop, "missing")
    assert is_free(guard)


def test_tells_an_interruption_from_another_thread() -> None:
    """Only the holder's own thread is interrupted; another one simply has to wait."""
    guard = ReentrantLock()
    assert not guard.interrupted()
    seen = []

    def look() -> None:
        assert guard.interrupted()
        thread = threading.Thread(target=lambda: seen.append(guard.interrupted()))
        thread.start()
        thread.join()

    guard.run(look)
    assert seen == [False]
    assert not guard.interrupted()


def test_a_finalizer_inside_is_an_interruption() -> None:
    """What the collector calls while the guard is held sees that it is nested."""
    guard = ReentrantLock()
    seen = []

    class Cycle:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            seen.append(guard.interrupted())

    Cycle()
    guard.run(gc.collect)
    assert seen == [True]


def test_keeps_threads_apart() -> None:
    """Increments that are not atomic add up exactly."""
    guard = ReentrantLock()
    total = 0

    def increment() -> None:
        nonlocal total
        before = total
        total = before + 1

    def add() -> None:
        for _ in range(2_000):
            guard.run(increment)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total == 8_000
