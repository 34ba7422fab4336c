"""Standard streams, which a shell can close (``<&-``)."""

from __future__ import annotations

import sys
from typing import BinaryIO, TextIO

import click


def standard_input() -> BinaryIO:
    """Standard input as bytes.

    Raises:
        click.ClickException: it is closed.
    """
    return _open(sys.stdin, "standard input").buffer


def standard_output() -> BinaryIO:
    """Standard output as bytes.

    Raises:
        click.ClickException: it is closed.
    """
    return _open(sys.stdout, "standard output").buffer


def _open(stream: TextIO | None, name: str) -> TextIO:
    if stream is None:  # Python's sign for a descriptor that was closed when it started
        raise click.ClickException(f"{name} is closed")
    return stream


def is_terminal(stream: TextIO | None) -> bool:
    """Whether somebody sits before it; not if it is closed."""
    return stream is not None and stream.isatty()
