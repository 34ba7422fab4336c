"""Makes each disk operation of a broker fail, one run per operation and kind: ``make every-write``.

A broker runs a workload with every kind of write: records, rolled segments, transactions, compaction,
retention, topics that are created and deleted, configs, committed offsets. For each write, rename, truncation
and sync of this workload, and each kind of failure, the workload runs again with that failure at that
operation: EIO or ENOSPC once or from that operation on, a short write, the end of the process, a power cut.
Then a new broker opens the directory, without any repair by hand. Every acknowledged record must be there
once and in order (after a power cut the end of a log may be missing, but nothing before it), each transaction
as a whole or not at all (committed ones after a power cut, too: their topic has ``flush.messages=1``), and
every topic must take new records.

In the first part the files are in memory; nothing is random, and every run is made. In the second part
``splashdam broker`` runs as a process with real files, and a library in C that is preloaded into it makes its
system calls fail. Such a run takes seconds, so runs are drawn at random for ten minutes; ``--all`` makes all
of them. Without a C compiler there is no second part, and the closing line says so. The exit status is 1 if a
promise is broken.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lab.arguments import positive, positive_int
from lab.every_write import in_memory, in_process
from lab.failing_calls.library import NoLibraryError, compiled
from lab.failing_calls.strace import Strace, why_not
from lab.trial import RefusedError, Verdict, run_trial

_Point = tuple[str, int]
"""A kind of failure, and the number of the operation that fails."""


def every_write(options: argparse.Namespace, folder: Path, console: Console) -> Verdict:
    """Make the runs, and return the verdict."""
    verdict, made, points = Verdict(), [], 0
    if options.only != "process":
        chosen = _memory_points(options)
        points += len(chosen)
        made.append(_in_memory(chosen, verdict, console))
    if options.only != "memory":
        try:
            library = compiled(folder)
        except NoLibraryError as error:
            made.append(f"none of a process ({error})")
        else:
            drawn, seen = _drawn(options, library, folder / "no-failure", verdict)
            points += len(drawn)
            made.append(
                _in_process(options, drawn, library=library, folder=folder, verdict=verdict, console=console)
                + f" ({seen})"
            )
    if not points and (options.at or options.kind):
        raise RefusedError(f"no operation is as --kind and --at say: {', '.join(made)}")
    broken = len(verdict.violations)
    verdict.closing = f"every-write: {', '.join(made)}, {broken} promises broken (seed {options.seed})"
    return verdict


def _is_wanted(options: argparse.Namespace, point: _Point) -> bool:
    return options.kind in (None, point[0]) and options.at in (None, point[1])


def _memory_points(options: argparse.Namespace) -> list[_Point]:
    numbers = range(1, in_memory.count_operations() + 1)
    points = [(kind, number) for kind in in_memory.KINDS for number in numbers]
    return [point for point in points if _is_wanted(options, point)]


def _in_memory(points: Sequence[_Point], verdict: Verdict, console: Console) -> str:
    for kind, number in _shown("in memory", points, verdict, console):
        found = in_memory.run_once(kind, number - 1)
        verdict.violations += [f"in memory, {kind} at operation {number}: {each}" for each in found]
    return f"{len(points):,} runs in memory"


def _drawn(
    options: argparse.Namespace, library: Path, folder: Path, verdict: Verdict
) -> tuple[list[_Point], str]:
    """Return the points of a process in random order, and the text of `_process_points`."""
    points, seen = _process_points(library, folder, verdict)
    drawn = [point for point in points if _is_wanted(options, point)]
    random.Random(options.seed).shuffle(drawn)
    return drawn, seen


def _in_process(
    options: argparse.Namespace,
    drawn: Sequence[_Point],
    *,
    library: Path,
    folder: Path,
    verdict: Verdict,
    console: Console,
) -> str:
    until = float("inf") if options.all or options.at else time.monotonic() + options.minutes * 60
    made = 0
    for kind, number in _shown("of a process", drawn, verdict, console, until):
        run_folder = folder / f"{kind.replace(' ', '-')}-{number}"
        run_folder.mkdir()
        failure = attrs.evolve(in_process.KINDS[kind], at=number)
        run = in_process.run_once(library, run_folder, failure)
        again = f"again: python -m lab.every_write --only process --kind '{kind}' --at {number}"
        verdict.violations += [
            f"{kind} at call {number}, {run.failed or 'not reached'}: {each} ({again})"
            for each in run.violations
        ]
        if not run.violations:
            shutil.rmtree(run_folder)
        made += 1
    return f"{made:,} of {len(drawn):,} runs of a process"


def _process_points(library: Path, folder: Path, verdict: Verdict) -> tuple[list[_Point], str]:
    """Run without a failure; return all points of failure, and a text: how many calls, and strace's count."""
    folder.mkdir()
    obstacle = why_not()
    strace = None if obstacle else Strace(folder, folder / "data")
    run = in_process.run_once(library, folder, None, strace)
    verdict.violations += [f"without a failure: {each}" for each in run.violations]
    verdict.violations += [f"the workload lacks {part}" for part in in_process.missing_parts(run.calls)]
    seen = f"{len(run.calls)} calls"
    if strace is None:
        return in_process.points_of(run.calls), f"{seen}, not counted again: {obstacle}"
    unseen = strace.unseen(run.calls)
    verdict.violations += [f"the library and strace do not see the same calls: {each}" for each in unseen]
    return in_process.points_of(run.calls), f"{seen}{'' if unseen else ', strace sees the same'}"


def _shown(
    what: str, points: Sequence[_Point], verdict: Verdict, console: Console, until: float = float("inf")
) -> Iterator[_Point]:
    """Yield points of failure until the time is up; show how many are done, and each violation at once."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[point]}"), console=console) as bar:
        task = bar.add_task(what, total=len(points), point="")
        for kind, number in points:
            if time.monotonic() > until:
                break
            bar.update(task, point=f"{kind} at {number}")
            known = len(verdict.violations)
            yield kind, number
            bar.advance(task)
            for violation in verdict.violations[known:]:
                bar.console.print(f"violated: {violation}", markup=False, highlight=False, soft_wrap=True)


def main() -> int:
    """Run the command; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m lab.every_write", description=__doc__)
    parser.add_argument("--only", choices=("memory", "process"), help="only these runs")
    kinds = sorted({*in_memory.KINDS, *in_process.KINDS})
    parser.add_argument("--kind", choices=kinds, help="only this kind of failure")
    parser.add_argument(
        "--at", type=positive_int, help="only the operation, or call, of this number, from 1 on"
    )
    parser.add_argument("--minutes", type=positive, default=10, help="time for the runs of a process (10)")
    parser.add_argument("--all", action="store_true", help="make all runs of a process, which takes hours")
    parser.add_argument("--seed", type=int, default=0, help="of the order of the runs of a process (0)")
    parser.add_argument("--data", type=Path, help="keep the files of broken runs in this new folder")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    return run_trial("every_write", every_write, options)


if __name__ == "__main__":
    raise SystemExit(main())
