"""Types of the programs' arguments: a run of no length, or without a single request, would check nothing.

argparse prints the message of an `argparse.ArgumentTypeError` as one sentence, and ends with status 2.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

N = TypeVar("N", int, float)


def positive(text: str) -> float:
    """Return a number that is finite and above zero."""
    value = _number(float, text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is no number above zero")
    return value


def positive_int(text: str) -> int:
    """Return an integer above zero."""
    return _at_least(1, text)


def not_negative(text: str) -> int:
    """Return an integer that is zero or more."""
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    value = _number(int, text)
    if value < least:
        raise argparse.ArgumentTypeError(f"{text} is less than {least}")
    return value


def _number(kind: Callable[[str], N], text: str) -> N:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of this kind") from None
