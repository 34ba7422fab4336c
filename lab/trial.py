"""A trial: a program that causes faults for a while, counts records afterwards, and ends with a verdict.

All trials of the laboratory share this: arguments, a folder, the wait between two faults, the handling of
interrupts, and the summary with the closing line.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lab import ROOT
from lab.arguments import positive
from splashdam.cli.exiting import exit_status, signals_interrupt

PROC = Path("/proc/self/statm")
CANNOT_RUN = 2
"""Status of a trial that is refused, as argparse ends with it."""

STEP_SECONDS = 0.1
"""How often a trial that waits shows its progress; memory is sampled once a second."""


class RefusedError(Exception):
    """The trial cannot be run like this; the message is one sentence for the user."""


@attrs.define
class Verdict:
    """The result of a trial.

    Attributes:
        violations: the promises that were broken.
        facts: names and figures for the summary.
        closing: the last line of the output; empty for the usual one.
    """

    violations: list[str] = attrs.field(factory=list)
    facts: list[tuple[str, str]] = attrs.field(factory=list)
    closing: str = ""

    def include(self, other: Verdict) -> None:
        """Add the result of a part of the trial."""
        self.violations += other.violations
        self.facts += other.facts


Trial = Callable[[argparse.Namespace, Path, Console], Verdict]
"""Takes the arguments, an empty folder and a console for progress."""


def trial_parser(
    name: str, doc: str | None, *, pause: float | None = None, pause_help: str = "", rate: float | None = None
) -> argparse.ArgumentParser:
    """Return a parser with the arguments of every trial; with a rate, also with ``--rate``."""
    parser = argparse.ArgumentParser(prog=f"python -m lab.{name}", description=doc)
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the random choices; timing differs between runs (0)"
    )
    if rate is not None:
        parser.add_argument(
            "--rate", type=positive, default=rate, help=f"records per second in all ({rate:g})"
        )
    if pause is not None:
        parser.add_argument("--pause", type=positive, default=pause, help=f"{pause_help} ({pause:g})")
    parser.add_argument("--data", type=Path, help="keep all files in this new folder")
    return parser


def add_minutes(parser: argparse.ArgumentParser, minutes: float) -> None:
    """Add ``--minutes``, for trials of any length."""
    parser.add_argument("--minutes", type=positive, default=minutes, help=f"minutes of sending ({minutes:g})")


def need_linux(parser: argparse.ArgumentParser, why: str = "it finds processes and ports in /proc") -> None:
    """End with a usage error if this is no Linux."""
    if not PROC.exists():
        parser.error(f"this needs Linux: {why}")


def run_trial(name: str, trial: Trial, options: argparse.Namespace, console: Console | None = None) -> int:
    """Run a trial in a folder of its own, print the summary, and return the status of the command.

    Args:
        name: of the trial, for its folder and its closing line.
        trial: what to run.
        options: of a `trial_parser`.
        console: shows progress; standard output without one.
    """
    os.environ["PYTHONPATH"] = str(ROOT)  # the trial's child processes import `lab`, too
    console = console or Console()
    try:
        with signals_interrupt(), _folder(name, options.data) as folder:
            verdict = trial(options, folder, console)
    except KeyboardInterrupt as interrupt:
        print("interrupted", file=sys.stderr)
        return exit_status(interrupt)
    except RefusedError as refused:
        print(f"python -m lab.{name}: error: {refused}", file=sys.stderr)
        return CANNOT_RUN
    if verdict.facts:
        table = Table(show_header=False, box=None)
        for fact in verdict.facts:
            table.add_row(*fact)
        console.print(table)
    for violation in verdict.violations:
        console.print(f"violated: {violation}", markup=False, highlight=False, soft_wrap=True)
    print(verdict.closing or f"{name}: {len(verdict.violations)} promises broken (seed {options.seed})")
    return int(bool(verdict.violations))


@contextmanager
def _folder(name: str, kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        try:
            kept.mkdir(parents=True)
        except OSError as error:
            raise RefusedError(f"--data {kept}: no new folder can be made there: {error.strerror}") from None
        yield kept.resolve()
        return
    prefix = f"splashdam-{name.replace('_', '-')}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@contextmanager
def shown_for(seconds: float, console: Console, status: Callable[[], str]) -> Iterator[Callable[[], None]]:
    """Show a bar over so many seconds; the yielded function moves it, and shows ``status()`` beside it."""
    columns = (TextColumn("sending"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[now]}"))
    began = time.monotonic()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("sending", total=seconds, now="")
        yield lambda: bar.update(task, completed=time.monotonic() - began, now=status())


def wait(seconds: float, on_step: Callable[[], None]) -> None:
    """Sleep, and call ``on_step`` every `STEP_SECONDS` meanwhile."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        on_step()
        time.sleep(min(left, STEP_SECONDS))


def pause_range(mean_seconds: float) -> tuple[float, float]:
    """Return the shortest and the longest pause between two faults."""
    return mean_seconds / 3, mean_seconds * 5 / 3


def verified_directory(path: Path) -> Verdict:
    """Run ``splashdam verify-log`` on a data directory that no broker has open."""
    command = [sys.executable, "-m", "splashdam.cli", "verify-log", "--quiet", str(path)]
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    found = Verdict(facts=[("verify-log", ["no output", *verified.stdout.strip().splitlines()][-1])])
    if verified.returncode:
        found.violations.append(f"verify-log: {verified.stdout[-2000:]}{verified.stderr[-2000:]}")
    return found
