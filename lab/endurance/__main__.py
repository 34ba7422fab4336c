"""Sends for minutes while the broker is killed, stopped and restarted; then compares the log with the books.

Every record is numbered by stream and partition. Each acknowledged one has to be there once, in order, at
its offset; what certainly was not written must not be there; a transaction's records are seen by readers of
committed data all or not at all. Every future is resolved, memory is free again and flat, no descriptor and
no thread is left. Status 1 if anything is otherwise. Needs Linux (/proc).
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from lab import ROOT
from lab.endurance.broker import Broker, BrokerDied
from lab.endurance.memory import BROKER_MAY_GROW_BYTES, Curve
from lab.endurance.producing import Producers
from lab.endurance.trouble import Trouble
from lab.endurance.verdict import ISOLATIONS, Verdict, compared_with_log, summary, verified_directory


class Run:
    """One run, from an empty directory to the verdict.

    Attributes:
        violations: promises that were broken.
        facts: name and figure, for the summary.
    """

    def __init__(self, options: argparse.Namespace, folder: Path, console: Console) -> None:
        self._options = options
        self._folder = folder
        self._console = console
        self.violations: list[str] = []
        self.facts: list[tuple[str, str]] = []
        self._broker = Broker(folder / "data", folder / "broker.log")
        self._memory = Curve("broker", BROKER_MAY_GROW_BYTES)

    def run(self) -> None:
        """Everything, in order."""
        self._broker.start()
        producers = Producers(
            self._broker.address, self._folder, rate=self._options.rate, seed=self._options.seed
        )
        try:
            self._send(producers)
            self.violations += producers.finish()
            self.facts += [*producers.facts, ("memory of the broker", self._memory.drawn())]
            if "taken" in producers.last:
                self._check(producers.last["taken"])
        except BrokerDied as error:
            self.violations.append(f"the broker ended by itself: {error}")
        finally:
            producers.kill()
            self._broker.kill()
        words = self._broker.last_words()
        if words:
            self.violations.append(f"the broker wrote: {words}")
        self.violations += producers.curve.violations() + self._memory.violations()

    def _send(self, producers: Producers) -> None:
        seconds = self._options.minutes * 60
        columns = (
            TextColumn("sending"),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[now]}"),
        )
        started_at, sampled_at = time.monotonic(), 0.0
        with Progress(*columns, console=self._console) as bar:
            task = bar.add_task("sending", total=seconds, now="")

            def step() -> None:
                nonlocal sampled_at
                now = time.monotonic() - started_at
                if now - sampled_at >= 1:
                    sampled_at = now
                    self._memory.add(now, self._broker.resident_bytes())
                said = f"{producers.acknowledged:,} acknowledged, {trouble.counts['SIGKILL']} kills"
                bar.update(task, completed=now, now=said)

            pause = (self._options.pause / 3, self._options.pause * 5 / 3)
            trouble = Trouble(self._broker, random.Random(self._options.seed), pause, step)
            trouble.run(seconds)
        self.facts += [(f"{name} of the broker", f"{count:,}") for name, count in trouble.counts.items()]

    def _check(self, taken: dict[str, list[int]]) -> None:
        for isolation in ISOLATIONS:
            compared = compared_with_log(self._broker.address, taken, self._folder, isolation, self._console)
            self.violations += compared.violations
            self.facts += compared.facts
        status = self._broker.terminate()
        if status:
            self.violations.append(f"the broker ended with status {status} on SIGTERM")
        verified = verified_directory(self._folder / "data")
        self.violations += verified.violations
        self.facts += verified.facts


def main() -> int:
    """The command; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m lab.endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="of sending (10)")
    parser.add_argument("--seed", type=int, default=0, help="of the dice; time is not repeated (0)")
    parser.add_argument("--rate", type=float, default=2000, help="records per second in all (2000)")
    parser.add_argument("--pause", type=float, default=3, help="mean seconds between two troubles (3)")
    parser.add_argument("--data", type=Path, help="keep everything here; the folder must not exist yet")
    options = parser.parse_args()
    if not Path("/proc/self/statm").exists():
        parser.error("this needs Linux: it reads memory and descriptors from /proc")
    if options.data is not None:
        options.data.mkdir(parents=True)
    # The processes started here import this package from where this one did.
    os.environ["PYTHONPATH"] = str(ROOT)
    console = Console()
    folder: AbstractContextManager[str] = (
        nullcontext(str(options.data))
        if options.data is not None
        else tempfile.TemporaryDirectory(prefix="splashdam-endurance-")
    )
    with folder as directory:
        run = Run(options, Path(directory), console)
        run.run()
    return summary("endurance", options.seed, Verdict(run.violations, run.facts), console)


if __name__ == "__main__":
    raise SystemExit(main())
