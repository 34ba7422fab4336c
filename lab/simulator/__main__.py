"""``python -m lab.simulator``: runs many seeds in several processes, or one seed with its trace."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from lab.arguments import not_negative, positive_int
from lab.simulator.simulation import simulate

_CHUNK = 10
_SLOWEST_S = 60
"""Limit of CPU time for one seed: a run that takes longer spins without virtual time passing."""


class Run(NamedTuple):
    """A seed, and whether its brokers replicate."""

    seed: int
    replicated: bool

    def __str__(self) -> str:
        return f"seed {self.seed}{' replicated' if self.replicated else ''}"


class Failure(NamedTuple):
    """A failed run, and the first promise that it broke."""

    run: Run
    violation: str


def main() -> int:
    """Run the command; return 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m lab.simulator", description=__doc__)
    parser.add_argument("--first", type=not_negative, default=0, metavar="SEED", help="the first seed (0)")
    parser.add_argument(
        "--seeds", type=positive_int, default=1000, metavar="N", help="number of seeds (1000)"
    )
    parser.add_argument(
        "--processes",
        type=positive_int,
        default=os.cpu_count(),
        metavar="N",
        help="number of processes (one per core)",
    )
    parser.add_argument(
        "--replay", type=not_negative, metavar="SEED", help="run one seed, and print its trace"
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--replicated", action="store_true", help="only brokers that replicate")
    kind.add_argument("--single-replicas", action="store_true", help="only brokers without replication")
    options = parser.parse_args()
    if options.replay is not None:
        return replay(Run(options.replay, options.replicated))
    seeds = range(options.first, options.first + options.seeds)
    kinds = [True] * (not options.single_replicas) + [False] * (not options.replicated)
    return run_all([Run(seed, kind) for seed in seeds for kind in kinds], options.processes)


def replay(run: Run) -> int:
    """Run one seed, and print its trace and violations."""
    outcome = simulate(run.seed, replicated=run.replicated)
    print(outcome.trace)
    for violation in outcome.violations:
        print(f"violated: {violation}")
    return int(bool(outcome.violations))


def run_all(runs: Sequence[Run], processes: int) -> int:
    """Run seeds in several processes; show the progress, and print what was exercised."""
    counts: Counter[str] = Counter()
    failures: list[Failure] = []
    chunks = [runs[at : at + _CHUNK] for at in range(0, len(runs), _CHUNK)]
    with ProcessPoolExecutor(processes) as pool, _progress(len(runs)) as advance:
        for done in as_completed([pool.submit(run_chunk, chunk) for chunk in chunks]):
            size, found, counted = done.result()
            counts += counted
            failures += found
            advance(size, [f"{each.run}: {each.violation}\n{replay_line(each.run)}" for each in found])
    for what, times in sorted(counts.items()):
        print(f"{times:>12,} {what}")
    print(f"{len(runs):,} runs from {runs[0]} to {runs[-1]}: {len(failures)} failed")
    for failure in sorted(failures):
        print(replay_line(failure.run))
    return int(bool(failures))


def replay_line(run: Run) -> str:
    """Return the command that repeats a run."""
    line = f"{sys.executable} -m lab.simulator --replay {run.seed}"
    return f"{line} --replicated" if run.replicated else line


def run_chunk(runs: Iterable[Run]) -> tuple[int, list[Failure], Counter[str]]:
    """Run some seeds in a process of the pool; return their number, the failures, and the counts."""
    signal.signal(signal.SIGPROF, _too_slow)
    size, failures, counts = 0, [], Counter[str]()
    for run in runs:
        signal.setitimer(signal.ITIMER_PROF, _SLOWEST_S)
        outcome = simulate(run.seed, replicated=run.replicated)
        signal.setitimer(signal.ITIMER_PROF, 0)
        size += 1
        counts += outcome.counts
        if outcome.violations:
            failures.append(Failure(run, outcome.violations[0]))
    return size, failures, counts


def _too_slow(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"the run has used {_SLOWEST_S} s of CPU time")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, list[str]], None]]:
    """Show a bar; the yielded function adds finished runs, and prints their failures above it."""
    failed_column = TextColumn("{task.fields[failed]} failed")
    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), failed_column)
    failed = 0

    def advance(runs: int, failures: list[str]) -> None:
        nonlocal failed
        failed += len(failures)
        for text in failures:
            bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        bar.update(task, advance=runs, failed=failed)

    with Progress(*columns) as bar:
        task = bar.add_task("runs", total=total, failed=0)
        yield advance


if __name__ == "__main__":
    raise SystemExit(main())
