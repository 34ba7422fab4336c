"""Waking the sender from anywhere."""

from __future__ import annotations

import os
import sys
import threading

import pytest
import trio

from splashdam.sender import wakeup as module
from splashdam.sender.wakeup import ParkedTask, SharedLoopWakeup, Wakeup


@pytest.fixture(params=[Wakeup, SharedLoopWakeup])
def wakeup(request):
    made = request.param()
    yield made
    made.close()


async def sleep_at_most_a_second(wakeup):
    with trio.move_on_after(1):
        await wakeup.sleep()


async def test_wake_before_sleep_is_kept(autojump_clock, wakeup):
    """A wake while no task sleeps ends the next sleep at once, and only that one."""
    wakeup.wake()
    await sleep_at_most_a_second(wakeup)
    assert trio.current_time() == 0
    await sleep_at_most_a_second(wakeup)
    assert trio.current_time() == 1


async def test_a_task_of_the_same_loop_wakes_the_sleeper(autojump_clock, wakeup):
    """Several wakes during one sleep end that sleep only."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleep_at_most_a_second, wakeup)
        await trio.testing.wait_all_tasks_blocked()
        wakeup.wake()
        wakeup.wake()
    assert trio.current_time() == 0
    await sleep_at_most_a_second(wakeup)
    assert trio.current_time() == 1


async def test_threads_wake_a_sleeper(wakeup):
    """Many wakes from threads end one sleep each, and no wake is lost."""
    with trio.fail_after(300):
        for _ in range(200):
            thread = threading.Thread(target=wakeup.wake)
            thread.start()
            await wakeup.sleep()
            thread.join()


async def test_a_cancelled_sleep_leaves_nothing_behind(autojump_clock, wakeup):
    """A wake after the cancellation belongs to the next sleep."""
    await sleep_at_most_a_second(wakeup)
    wakeup.wake()
    await sleep_at_most_a_second(wakeup)
    assert trio.current_time() == 1


def test_wake_after_the_loop_has_ended_does_nothing(wakeup):
    """A producer may be used, wrongly, after its end; a wake never raises."""
    wakeup.wake()
    armed = []

    async def sleep() -> None:
        with trio.move_on_after(0):
            await wakeup.sleep()
        armed.append(ParkedTask())

    trio.run(sleep)
    if isinstance(wakeup, SharedLoopWakeup):
        wakeup._sleeper = armed.pop()
    else:
        wakeup._armed = True
    wakeup.wake()


async def test_a_wake_that_interrupts_the_task_before_it_parks(autojump_clock):
    """A signal handler or finalizer in the task's own code must not reschedule that running task."""
    waiting = ParkedTask()
    waiting.wake()
    with trio.move_on_after(1):
        await waiting.park()
    assert trio.current_time() == 0


async def test_a_wake_for_a_task_that_does_not_park_is_ignored(autojump_clock):
    """The loop may still have to run a thread's wake then."""
    waiting = ParkedTask()
    waiting.wake()
    waiting.give_up()
    await trio.testing.wait_all_tasks_blocked()
    await sleep_at_most_a_second(SharedLoopWakeup())
    assert trio.current_time() == 1


async def test_a_task_and_a_thread_wake_the_same_wait(autojump_clock):
    """The second wake does not reschedule the task again, which would end the loop."""

    async def wait() -> None:
        nonlocal waiting
        waiting = ParkedTask()
        await waiting.park()
        await trio.sleep(1)

    waiting: ParkedTask | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert waiting is not None
        thread = threading.Thread(target=waiting.wake)
        thread.start()
        thread.join()  # its wake is in the loop's queue now
        waiting.wake()
    assert trio.current_time() == 1


async def test_a_late_write_wakes_once(autojump_clock, monkeypatch):
    """A thread that took the flag and was held up before its write ends one later sleep, not all of them."""
    wakeup = Wakeup()
    held_up = []
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", lambda *args: held_up.append(args))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep_at_most_a_second, wakeup)
            await trio.testing.wait_all_tasks_blocked()
            wakeup.wake()
    assert trio.current_time() == 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleep_at_most_a_second, wakeup)
        await trio.testing.wait_all_tasks_blocked()
        os.write(*held_up.pop())
    assert trio.current_time() == 1
    await sleep_at_most_a_second(wakeup)
    assert trio.current_time() == 2


async def test_an_interrupted_wake_does_not_lose_the_next_ones(autojump_clock):
    """Ctrl-C is raised where Python code begins: none does between taking the flag and the write."""
    wakeup = Wakeup()

    def interrupt(frame, event, _argument):
        if event == "call" and frame.f_code is not Wakeup.wake.__code__:
            raise KeyboardInterrupt

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleep_at_most_a_second, wakeup)
        await trio.testing.wait_all_tasks_blocked()
        sys.setprofile(interrupt)
        try:
            wakeup.wake()
        except KeyboardInterrupt:
            wakeup.wake()
        finally:
            sys.setprofile(None)
    assert trio.current_time() == 0


async def test_a_closed_wakeup_leaves_no_descriptor(autojump_clock):
    """`close` closes the descriptor; later wakes do nothing, and the next sleep opens another descriptor."""
    wakeup = Wakeup()
    await sleep_at_most_a_second(wakeup)
    reader, writer = wakeup._ends.reader, wakeup._ends.writer
    wakeup.close()
    for descriptor in (reader, writer):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    wakeup._armed = True
    wakeup.wake()
    await sleep_at_most_a_second(wakeup)
    assert trio.current_time() == 1
    wakeup.close()


async def test_a_wake_in_the_middle_of_close_keeps_its_descriptor(autojump_clock, monkeypatch):
    """A thread held up before its write writes into what was the wakeup's, and is nobody else's by then."""
    wakeup = Wakeup()
    await sleep_at_most_a_second(wakeup)
    writer = wakeup._ends.writer
    write, written = os.write, []

    def close_and_write(descriptor, data):
        wakeup.close()
        os.fstat(descriptor)
        written.append((descriptor, write(descriptor, data)))

    wakeup._armed = True
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", close_and_write)
        wakeup.wake()
    assert written == [(writer, 8)]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writer)


def test_a_wake_that_came_is_found_without_a_wait() -> None:
    """It is found once; the next look finds nothing."""
    wakeup = Wakeup()
    wakeup.wake()
    assert wakeup.is_woken_soon()
    assert not wakeup.is_woken_soon()
    wakeup.close()


def test_a_wake_that_comes_during_the_wait(monkeypatch):
    """Another thread's ends the wait, and leaves nothing behind for the next one."""
    wakeup = Wakeup()
    monkeypatch.setattr(module, "NEXT_RECORD_US", 60e6)
    for _ in range(20):
        thread = threading.Thread(target=wakeup.wake)
        thread.start()
        assert wakeup.is_woken_soon()
        thread.join()
    monkeypatch.setattr(module, "NEXT_RECORD_US", 50.0)
    assert not wakeup.is_woken_soon()
    wakeup.close()


def test_a_thread_that_sends_at_once_finds_the_sender_awake(monkeypatch):
    """Waiting without sleep goes on while it succeeds; each miss in a row doubles the waits with sleep."""
    wakeup, spins, elapsed = Wakeup(), [], [0.0]

    def read_soon(_descriptor, _into, _patience_us, spin_us, _grace_us):
        spins.append(spin_us > 0)
        elapsed[0] += took_us / 1e6
        return 8 if took_us < module.NEXT_RECORD_US else None

    monkeypatch.setattr(module, "read_soon", read_soon)
    monkeypatch.setattr(module.time, "perf_counter", lambda: elapsed[0])
    for took_us, expected in [
        (40.0, [True] * 8),
        (700.0, [True, False, True, False, False, False, True, False]),
    ]:
        spins.clear()
        for _ in range(8):
            wakeup.is_woken_soon()
        assert spins == expected, took_us
    wakeup.close()


async def test_a_wake_right_after_the_wait_belongs_to_the_next_sleep(autojump_clock, monkeypatch):
    """A thread that took the flag and was held up before its write: the sleep ends, and only that one."""
    wakeup = Wakeup()
    held_up = []
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", lambda *args: held_up.append(args))
        patch.setattr(module, "read_soon", lambda *_args: wakeup.wake())
        assert wakeup.is_woken_soon()
    os.write(*held_up.pop())
    await sleep_at_most_a_second(wakeup)
    assert trio.current_time() == 1
    wakeup.wake()
    await sleep_at_most_a_second(wakeup)
    assert trio.current_time() == 1
    wakeup.close()


async def test_a_wake_at_the_very_end_of_the_wait_was_lost(autojump_clock, monkeypatch):
    """Another thread had its turn between the look at the flag and its clearing."""

    class Late(Wakeup):
        looks = 0
        value = False

        @property
        def _signalled(self):
            found = self.value
            self.looks += 1
            if self.looks == 2:
                self.wake()
            return found

        @_signalled.setter
        def _signalled(self, value):
            self.value = value

    monkeypatch.setattr(module, "NEXT_RECORD_US", 0.0)
    wakeup = Late()
    assert not wakeup.is_woken_soon()
    await sleep_at_most_a_second(wakeup)
    assert trio.current_time() == 0
    wakeup.close()
