"""Runs of trio in a program whose signals interrupt it."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar, TypeVarTuple

import trio
from trio.abc import Clock

from splashdam.cli.exiting import ENDING, interrupts_wait

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_SIGNALS = (signal.SIGINT, *ENDING)


def run_interruptible(main: Callable[[*Ts], Awaitable[T]], *arguments: *Ts, clock: Clock) -> T:
    """Run a coroutine function in a trio loop; a signal cancels it, and interrupts the program afterwards.

    The handler of a trial raises at any place: within trio's loop that is an internal error, which looks like
    a broken promise, or a loop that never ends. An interrupt that is raised in a task may be lost: a broker
    whose disk fails at the same time ends with the error of the disk. So the signal is noted, and goes before
    whatever the loop ends with.
    """
    came: list[int] = []
    results: list[T] = []

    async def run() -> None:
        token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as scope:

            def cancel(number: int, _frame: FrameType | None) -> None:
                came.append(number)
                token.run_sync_soon(scope.cancel)

            with _handled_by(cancel):
                results.append(await main(*arguments))

    failure: BaseException | None = None
    with interrupts_wait():
        try:
            trio.run(run, clock=clock)
        except BaseException as error:
            failure = error
        for number in came:
            signal.raise_signal(number)
    if failure is not None:
        raise failure
    return results[0]


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Set a handler for the signals that interrupt; those that are ignored (nohup) stay ignored."""
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def first_of(error: BaseException) -> BaseException:
    """Return the first error of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
