"""CPU time and memory of the processes that a program has started, as Linux counts them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_GONE = (FileNotFoundError, ProcessLookupError)


def tree(pid: int) -> list[int]:
    """Return a process and all processes below it."""
    children: dict[int, list[int]] = {}
    for each, fields in _all():
        children.setdefault(int(fields[1]), []).append(each)
    found = [pid]
    for each in found:  # the list grows during the loop
        found += children.get(each, [])
    return found


def cpu_seconds_of_tree(pid: int) -> float:
    """Return the CPU time of a process and all below it so far, those that have ended included."""
    mine = set(tree(pid))
    ticks = (sum(map(int, fields[11:15])) for each, fields in _all() if each in mine)
    return sum(ticks) / _TICKS


def peak_of_workers(pid: int) -> int:
    """Return the peak resident memory, in bytes, of the largest of Spark's Python workers below a process."""
    return max((_peak(each) for each in tree(pid) if _is_worker(each)), default=0)


def _all() -> Iterator[tuple[int, list[str]]]:
    """Yield every process with the fields of its ``stat`` after the name: state, parent, …"""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(*_GONE):
            yield int(path.parent.name), path.read_text().rpartition(")")[2].split()


def _is_worker(pid: int) -> bool:
    with suppress(*_GONE):
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _peak(pid: int) -> int:
    with suppress(*_GONE):
        _, found, rest = Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")
        return int(rest.split()[0]) * 1024 if found else 0
    return 0
