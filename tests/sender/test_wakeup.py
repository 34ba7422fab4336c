"""Waking the sender from anywhere."""

from __future__ import annotations

import os
import sys
import threading

import pytest
import trio

from splashdam.sender import wakeup as module
from splashdam.sender.wakeup import Wakeup


async def test_wake_before_wait_is_kept(autojump_clock):
    """A wake while nobody sleeps makes the next wait return at once, and only that one."""
    wakeup = Wakeup()
    wakeup.wake()
    await wakeup.wait(1000)
    assert trio.current_time() == 0
    await wakeup.wait(1000)
    assert trio.current_time() == 1


async def test_notify_from_the_same_loop(autojump_clock):
    """A task wakes the sleeper without the detour through the loop's wake-up socket."""
    wakeup = Wakeup()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wakeup.wait, 1000)
        await trio.testing.wait_all_tasks_blocked()
        wakeup.wake()
    assert trio.current_time() == 0


async def test_threads_wake_a_sleeper():
    """Many wakes from threads end one sleep each time, and none is lost."""
    wakeup = Wakeup()
    with trio.fail_after(30):
        for _ in range(200):
            thread = threading.Thread(target=wakeup.wake)
            thread.start()
            await wakeup.wait(60_000)
            thread.join()


def test_wake_after_the_loop_is_gone_does_nothing():
    """Producers may be used, wrongly, after the end; a wake never raises."""
    wakeup = Wakeup()
    wakeup.wake()

    async def sleep_armed() -> None:
        with trio.move_on_after(0):
            await wakeup.wait(60_000)
        wakeup._armed = True

    trio.run(sleep_armed)
    wakeup.wake()


async def test_a_late_write_wakes_once(autojump_clock, monkeypatch):
    """A thread that took the flag and was held up before its write ends one later sleep, not all of them."""
    wakeup = Wakeup()
    held_up = []
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", lambda *args: held_up.append(args))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wakeup.wait, 1000)
            await trio.testing.wait_all_tasks_blocked()
            wakeup.wake()
    assert trio.current_time() == 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wakeup.wait, 1000)
        await trio.testing.wait_all_tasks_blocked()
        os.write(*held_up.pop())
    assert trio.current_time() == 1
    await wakeup.wait(1000)
    assert trio.current_time() == 2


async def test_an_interrupted_wake_does_not_lose_the_next_ones(autojump_clock):
    """Ctrl-C is raised where Python code begins: none does between taking the flag and the write."""
    wakeup = Wakeup()

    def interrupt(frame, event, _argument):
        if event == "call" and frame.f_code is not Wakeup.wake.__code__:
            raise KeyboardInterrupt

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wakeup.wait, 1000)
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
    await wakeup.wait(1000)
    reader, writer = wakeup._ends.reader, wakeup._ends.writer
    wakeup.close()
    for descriptor in (reader, writer):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    wakeup._armed = True
    wakeup.wake()
    await wakeup.wait(1000)
    assert trio.current_time() == 1
    wakeup.close()


async def test_a_wake_in_the_middle_of_close_keeps_its_descriptor(autojump_clock, monkeypatch):
    """A thread held up before its write writes into what was the wakeup's, and is nobody else's by then."""
    wakeup = Wakeup()
    await wakeup.wait(1000)
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
