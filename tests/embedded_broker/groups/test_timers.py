"""One queue for all timers: each is called once, when it is due, however often it was put off."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st
from support.broker.loop_watch import StepCount
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.groups.timers import NEVER, Timers

keys = st.integers(0, 4).map(lambda number: ("g", str(number)))
steps = st.lists(
    st.tuples(st.just("set"), keys, st.integers(0, 50))
    | st.tuples(st.just("cancel"), keys, st.just(0))
    | st.tuples(st.just("wait"), keys, st.integers(0, 30)),
    max_size=40,
)


PUT_OFF = [("set", ("g", "0"), 0), ("set", ("g", "0"), 1), ("set", ("g", "1"), 0), ("wait", ("g", "0"), 1)]


@given(steps)
@example(PUT_OFF)  # what was put off came before what was due earlier, where the step came late
def test_they_are_called_when_they_are_due(todo: list[tuple[str, tuple[str, ...], int]]) -> None:
    """As a plain dictionary says; nothing is due before ``next_ms``."""
    timers, model, now_ms = Timers(), dict[tuple[str, ...], int](), 0
    called: list[tuple[str, ...]] = []
    for what, key, number in todo:
        if what == "set":
            timers.set(key, now_ms + number, partial(called.append, key))
            model[key] = now_ms + number
        elif what == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            now_ms += number
            timers.step(now_ms)
            due = {each for each, at_ms in model.items() if at_ms <= now_ms}
            assert sorted(called) == sorted(due)
            assert [model[each] for each in called] == sorted(model[each] for each in called)
            for each in due:
                del model[each]
            called.clear()
        assert len(timers) == len(model)
        assert timers.next_ms <= min(model.values(), default=NEVER)


def test_heartbeats_leave_the_queue_alone() -> None:
    """A timer that is put off is in it once, and wakes nobody; one that is due sooner does."""
    woken: list[str] = []
    timers = Timers(partial(woken.append, "now"))
    for number in range(100):
        timers.set(("g", "session"), 1000 + number, woken.clear)
    assert (len(woken), timers.next_ms) == (1, 1000)
    timers.set(("g", "join"), 500, woken.clear)
    assert (len(woken), timers.next_ms) == (2, 500)


async def test_timers_that_are_due_together_take_several_turns(
    broker: Broker, autojump_clock: MockClock
) -> None:
    """Thousands of members whose sessions ended together held the loop while each wrote its record."""
    count, at = StepCount(), list[int]()
    trio.lowlevel.add_instrument(count)
    timers, due_ms = broker.groups.timers, broker.groups.now_ms() + 1000
    for number in range(100):
        timers.set(("g", str(number)), due_ms, lambda: at.append(count.steps))
    await trio.sleep(2)
    trio.lowlevel.remove_instrument(count)
    assert len(at) == 100
    assert max(Counter(at).values()) == 32


class _HeldLoop(BaseException):
    """Ends a loop that no `Exception` ends."""


async def test_a_timer_whose_time_is_no_round_number_of_seconds_held_the_loop_for_ever(
    broker: Broker, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """130010 ms are 130.01 s, which are 130009.99999999999 ms: in virtual time the timer was never due."""
    timers, looks = broker.groups.timers, 0
    step, called = timers.step, trio.Event()

    def counted(now_ms: float, *, most: float) -> None:
        nonlocal looks
        looks += 1
        if looks > 20:
            raise _HeldLoop
        step(now_ms, most=most)

    monkeypatch.setattr(timers, "step", counted)
    autojump_clock.jump(130 - trio.current_time())
    timers.set(("g", "session"), 130_010, called.set)
    await called.wait()
    assert trio.current_time() == 130.01
