"""Runs the steps of a generator that may take several turns, in one."""

from __future__ import annotations

from typing import TypeVar

from splashdam.embedded_broker.execution.turns import Steps

T = TypeVar("T")


def finished(steps: Steps[T]) -> T:
    """Return what a generator returns whose steps are units, without work beside the loop."""
    while True:
        try:
            units = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        assert isinstance(units, int)
