"""Where Spark's own log goes: what its JVM and workers write on standard error, kept out of a terminal."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_STANDARD_ERROR = 2


@contextmanager
def children_log_into(target: str | int) -> Iterator[None]:
    """Processes that are started inside write their standard error into a file, for as long as they live.

    A JVM writes there before it has read any setting, so that none silences it; log4j and Spark's workers
    follow. This process goes on writing where it did.

    Args:
        target: path of a file, which is appended to, or a descriptor, which stays the caller's.

    Raises:
        OSError: the file cannot be opened.
    """
    sys.stderr.flush()
    if isinstance(target, int):
        log = os.dup(target)
    else:
        log = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        before = os.dup(_STANDARD_ERROR)
    except OSError:  # was closed by whoever started us: nothing to keep
        os.close(log)
        yield
        return
    os.dup2(log, _STANDARD_ERROR)
    os.close(log)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, _STANDARD_ERROR)
        os.close(before)


@contextmanager
def interrupts_unlogged() -> Iterator[None]:
    """The bridge to the JVM logs no traceback for Ctrl-C inside; what it logs else is logged."""
    root = logging.getLogger()
    root.addFilter(_is_no_interrupt)
    try:
        yield
    finally:
        root.removeFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("KeyboardInterrupt while sending command")
