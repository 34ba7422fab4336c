"""SIGTERM and SIGHUP end a command as Ctrl-C does: it finishes what it has begun, and says which it was."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Sent by service managers and by terminals that close."""


class EndedBySignal(KeyboardInterrupt):
    """Raised in the main thread where Python raises KeyboardInterrupt for Ctrl-C.

    Attributes:
        number: the signal's.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def exit_status(interrupt: KeyboardInterrupt) -> int:
    """What a shell reports for a process ended by the signal: 128 and its number, 130 for Ctrl-C."""
    return 128 + (interrupt.number if isinstance(interrupt, EndedBySignal) else signal.SIGINT)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `EndedBySignal` inside; one that is ignored, as under nohup, stays ignored."""
    before = {number: signal.getsignal(number) for number in ENDING}
    caught = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    try:
        for number in caught:
            signal.signal(number, _interrupt)
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number])


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Ctrl-C and the other endings take effect behind the block: the step in it is not left half done."""
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}
    caught = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    try:
        for number in caught:
            signal.signal(number, lambda number, _frame: came.append(number))
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number])
    if came:
        raise KeyboardInterrupt if came[0] == signal.SIGINT else EndedBySignal(came[0])


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise EndedBySignal(number)
