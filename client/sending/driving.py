"""Whoever waits between the steps of an ``Admission`` or a ``TopicLookup``: a thread, or a trio task."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import trio

from splashdam.client.observing.timings import CallerTally
from splashdam.client.sending.admission import Wait
from splashdam.client.waiters import wait_in_thread, wait_in_trio
from splashdam.net.clock import Clock

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Stepper(Protocol[T_co]):
    """Something that decides step by step and never waits itself."""

    @property
    def waits_for(self) -> Wait | None:
        """What has to happen before the next step."""

    @property
    def deadline_ms(self) -> float:
        """When the next step is due in any case; it raises then, if it would have to wait again."""

    def step(self) -> T_co | None:
        """One step; None: wait and try again."""

    def cancel(self) -> None:
        """Gives back what it holds while it waits."""


class Deadline:
    """The end of a time-out in seconds, None for no limit.

    Raises:
        TypeError: the time-out is no number.
        ValueError: the time-out is negative.
    """

    __slots__ = ("_clock", "_end_ms")

    def __init__(self, clock: Clock, timeout: float | None) -> None:
        if timeout is not None and not isinstance(timeout, int | float):
            raise TypeError(f"timeout={timeout!r} is no number of seconds, nor None")
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout must not be negative: {timeout}")
        self._clock = clock
        self._end_ms = None if timeout is None else clock.now_ms() + timeout * 1000

    def left(self) -> float | None:
        """Seconds left, at least 0; None for no limit."""
        return None if self._end_ms is None else max(self._end_ms - self._clock.now_ms(), 0.0) / 1000

    def left_or_infinite(self) -> float:
        """As ``left``, with infinity for no limit."""
        left = self.left()
        return math.inf if left is None else left


def drive_in_thread(stepper: Stepper[T], clock: Clock, tally: CallerTally) -> T:
    """Blocks the calling thread until there is a result. An interrupted wait gives its place back."""
    try:
        while (result := stepper.step()) is None:
            if stepper.waits_for is not None:
                with _waiting(stepper.waits_for, clock, tally):
                    wait_in_thread(stepper.waits_for, _seconds_left(stepper, clock))
    except BaseException:
        stepper.cancel()
        raise
    return result


async def drive_in_trio(stepper: Stepper[T], clock: Clock, tally: CallerTally) -> T:
    """As ``drive_in_thread``, in a trio task: a checkpoint if it has to wait."""
    try:
        while (result := stepper.step()) is None:
            if stepper.waits_for is not None:
                with (
                    _waiting(stepper.waits_for, clock, tally),
                    trio.move_on_after(_seconds_left(stepper, clock)),
                ):
                    await wait_in_trio(stepper.waits_for)
    except BaseException:
        stepper.cancel()
        raise
    return result


@contextmanager
def _waiting(what: Wait, clock: Clock, tally: CallerTally) -> Iterator[None]:
    since_ms = clock.now_ms()
    try:
        yield
    finally:
        tally.add(f"{what.what}_ns", (clock.now_ms() - since_ms) * 1e6)


def _seconds_left(stepper: Stepper[object], clock: Clock) -> float:
    return max(stepper.deadline_ms - clock.now_ms(), 0.0) / 1000
