"""Runs a trio program from code that is not one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run_in_trio(main: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Run a coroutine function in a trio loop; Ctrl-C is raised in it alone, and only where it waits.

    By default trio raises KeyboardInterrupt between any two instructions of any task. In the middle of an
    ``async with`` that leaves a nursery open, and the loop ends with an internal error, or never.
    """
    return trio.run(main, *args, restrict_keyboard_interrupt_to_checkpoints=True)
