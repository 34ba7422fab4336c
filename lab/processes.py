"""Finds processes in Linux's /proc: all of a session, and Spark's busy Python workers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_STEP_SECONDS = 0.05


class Process(NamedTuple):
    """A living process.

    Attributes:
        pid: process id.
        parent: process id of the process that started it.
        session: session id: the process id of the process that was started with ``start_new_session``.
        words: command line, with NUL between the words.
    """

    pid: int
    parent: int
    session: int
    words: str


def living(sessions: Iterable[int]) -> Iterator[Process]:
    """Yield the living processes of some sessions."""
    wanted = set(sessions)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            words = (entry / "cmdline").read_text()
        except OSError:  # it has ended by now
            continue
        if int(session) in wanted and state != "Z":
            yield Process(int(entry.name), int(parent), int(session), words)


def python_worker_ticks(processes: Iterable[Process]) -> dict[int, int]:
    """Return the CPU time, in clock ticks, of the workers that Spark's Python daemons have forked."""
    known = list(processes)
    daemons = {each.pid for each in known if "pyspark.daemon" in each.words}
    found = {}
    for each in known:
        if each.parent in daemons:
            with suppress(OSError):  # it has ended by now
                fields = Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split()
                found[each.pid] = int(fields[11]) + int(fields[12])
    return found


def busiest_python_worker(processes: Callable[[], Iterable[Process]], seconds: float) -> int | None:
    """Return the process id of a Python worker in the middle of a task; None if none has one in time."""
    deadline = time.monotonic() + seconds
    before: Mapping[int, int] = python_worker_ticks(processes())
    while time.monotonic() < deadline:
        time.sleep(_STEP_SECONDS)
        now = python_worker_ticks(processes())
        busy = [pid for pid, ticks in now.items() if ticks > before.get(pid, 0)]
        if busy:
            return max(busy, key=lambda pid: now[pid] - before.get(pid, 0))
        before = now
    return None


def kill_all(processes: Callable[[], Iterable[Process]], seconds: float) -> list[int]:
    """Kill processes until none is left, and return those that are left when the time is up."""
    deadline = time.monotonic() + seconds
    while left := [each.pid for each in processes()]:
        if time.monotonic() > deadline:
            return left
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_STEP_SECONDS)
    return []
