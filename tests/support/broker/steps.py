"""Runs the steps of a generator that may take several turns, in one."""

from __future__ import annotations

from typing import Any, TypeVar

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES

T = TypeVar("T")


def at_once(steps: Steps[T]) -> T:
    """Take all steps of a generator in one turn, with the works that it yields; return its result."""
    done: Any = None
    try:
        while True:
            came = steps.send(done)
            done = None if isinstance(came, int) else came.do(MAX_DECOMPRESSED_BYTES)
    except StopIteration as end:
        result: T = end.value
        return result
