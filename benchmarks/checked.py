"""Types of the benchmarks' arguments: what cannot be used is refused before anything is measured."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path


def rounds(text: str) -> int:
    """Return a number of rounds, 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} rounds measure nothing: give 1 or more")
    return number


def scale(text: str) -> float:
    """Return a factor on the number of records, above 0."""
    factor = float(text)
    if not 0 < factor < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no factor: give a number above 0, such as 0.5")
    return factor


def output_file(text: str) -> Path:
    """Return the path of a file that can be written, in a folder that is there."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write to {text}: there is no folder {path.parent}")
    is_new = not path.exists()
    try:
        path.open("a").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"cannot write to {text}: {error.strerror}") from None
    if is_new:
        path.unlink()
    return path


def folder(text: str) -> Path:
    """Return the path of a folder that can be written."""
    path = Path(text)
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} is no folder that this user may write to")
    return path
