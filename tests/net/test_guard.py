"""The guard: one lock for many threads, and a holder who is told that he interrupted himself."""

from __future__ import annotations

import gc
import signal
import sys
import threading

import pytest

from splashdam.client.alive import AliveSet
from splashdam.client.guard import Guard, refuse_inside_a_send


def test_is_re_entrant() -> None:
    """Free only when its holder has left as often as he entered."""
    guard = Guard()
    with guard.lock:
        with guard.lock:
            assert guard.interrupted()
        assert guard.interrupted()
    assert not guard.interrupted()


def test_ctrl_c_on_the_way_in_or_out_of_the_guard_left_it_taken_for_ever() -> None:
    """It strikes wherever Python code can be interrupted; the lock is free after it each time."""
    guard = Guard()
    inside = 0

    def strike(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGVTALRM, strike)
    try:
        for number in range(300):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0002 + 0.00001 * (number % 20))
            try:
                while True:
                    with guard.lock:
                        inside += 1
            except KeyboardInterrupt:
                assert not guard.interrupted()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert inside


def test_is_free_after_an_exception() -> None:
    """An exception inside leaves the lock as it was."""
    guard = Guard()
    with pytest.raises(KeyError), guard.lock:
        {}["missing"]
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
    with guard.lock:
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
    with guard.lock:
        gc.collect()
    assert seen == [True]


def test_keeps_threads_apart() -> None:
    """Increments that are not atomic add up exactly."""
    guard = Guard()
    total = 0

    def add() -> None:
        nonlocal total
        for _ in range(2_000):
            with guard.lock:
                before = total
                total = before + 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total == 8_000


def test_making_producers_does_not_disturb_who_looks_for_an_interrupted_send() -> None:
    """Guards come and go in one thread while another asks all of them."""
    kept = [Guard() for _ in range(20)]
    stop = threading.Event()

    def make() -> None:
        while not stop.is_set():
            [Guard() for _ in range(5)]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=make)
    thread.start()
    try:
        for _ in range(3_000):
            refuse_inside_a_send("flush()")
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
    assert not any(guard.interrupted() for guard in kept)


def test_the_set_of_the_living() -> None:
    """Members are there until they are discarded or collected."""

    class Member:
        pass

    members = [Member() for _ in range(3)]
    alive: AliveSet[Member] = AliveSet()
    for member in members:
        alive.add(member)
    assert alive.snapshot() == members
    alive.discard(members[0])
    alive.discard(members[0])
    assert alive.snapshot() == members[1:]
    del members[1], member
    gc.collect()
    assert alive.snapshot() == members[1:]
    alive.clear()
    assert alive.snapshot() == []
