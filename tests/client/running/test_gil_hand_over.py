"""Application threads that are too far ahead of the sender give it a turn."""

from __future__ import annotations

import threading

import pytest

from splashdam.client.waiters import SENDER_THREADS
from splashdam.sender.wakeup import HAND_OVER_BATCHES, HAND_OVER_BYTES, GilHandOver


class Ahead:
    """An accumulator's memory and a sender's wake-up, both by hand."""

    def __init__(self) -> None:
        self.free_bytes = 32 * HAND_OVER_BYTES
        self.woken = threading.Semaphore(0)

    def wake(self) -> None:
        """Counts."""
        self.woken.release()


@pytest.fixture
def ahead() -> Ahead:
    """Nothing is reserved."""
    return Ahead()


@pytest.fixture
def hand_over(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> GilHandOver:
    """One that waits as long as it takes, so that a test sees the wait."""
    monkeypatch.setattr("splashdam.sender.wakeup.LONGEST_WAIT_SECONDS", 600)
    return GilHandOver(ahead, ahead, 16_384, in_sender_thread=SENDER_THREADS.here)


def test_who_is_not_far_ahead_does_not_wait(ahead: Ahead, hand_over: GilHandOver) -> None:
    """It only wakes the sender."""
    ahead.free_bytes -= HAND_OVER_BYTES - 1
    hand_over.wake()
    assert ahead.woken.acquire(blocking=False)


def test_who_is_too_far_ahead_waits_for_a_drain(ahead: Ahead, hand_over: GilHandOver) -> None:
    """Every thread that does; and the count starts anew then."""
    ahead.free_bytes -= HAND_OVER_BYTES
    threads = [threading.Thread(target=hand_over.wake, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
        assert ahead.woken.acquire(timeout=300)
    assert all(thread.is_alive() for thread in threads)
    hand_over.drained()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    hand_over.wake()
    assert ahead.woken.acquire(blocking=False)


def test_large_batches(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of them may be opened before somebody waits."""
    monkeypatch.setattr("splashdam.sender.wakeup.LONGEST_WAIT_SECONDS", 600)
    hand_over = GilHandOver(ahead, ahead, HAND_OVER_BYTES, in_sender_thread=SENDER_THREADS.here)
    ahead.free_bytes -= HAND_OVER_BATCHES * HAND_OVER_BYTES - 1
    hand_over.wake()
    assert ahead.woken.acquire(blocking=False)
    ahead.free_bytes -= 1
    thread = threading.Thread(target=hand_over.wake, daemon=True)
    thread.start()
    assert ahead.woken.acquire(timeout=300)
    assert thread.is_alive()
    hand_over.drained()
    thread.join(300)
    assert not thread.is_alive()


def test_the_senders_own_thread_never_waits(ahead: Ahead, hand_over: GilHandOver) -> None:
    """A callback that sends, and everybody under the loop of an AsyncKafkaProducer."""
    ahead.free_bytes -= 2 * HAND_OVER_BYTES
    SENDER_THREADS.enter()
    try:
        hand_over.wake()
    finally:
        SENDER_THREADS.leave()
    assert ahead.woken.acquire(blocking=False)


def test_a_sender_without_turns_keeps_nobody(ahead: Ahead) -> None:
    """A callback may block the sender, or it has ended: every caller's wait is short."""
    hand_over = GilHandOver(ahead, ahead, 16_384, in_sender_thread=SENDER_THREADS.here)
    ahead.free_bytes -= HAND_OVER_BYTES
    hand_over.wake()
    hand_over.wake()
    hand_over.drained()
    hand_over.wake()
