"""Sends for minutes while the broker is killed, stopped and restarted; then compares the log with the books.

Every record is numbered by stream and partition. Each acknowledged one has to be there once, in order, at
its offset; what certainly was not written must not be there; a transaction's records are seen by readers of
committed data all or not at all. Every future is resolved, memory is free again and flat, no descriptor and
no thread is left. Status 1 if anything is otherwise. Needs Linux (/proc).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from endurance.broker import Broker, BrokerDied
from endurance.checking import compare, empty_log, read_back
from endurance.memory import BROKER_MAY_GROW_BYTES, PRODUCERS_MAY_GROW_BYTES, Curve
from endurance.streams import FINISH_SECONDS
from endurance.trouble import Trouble

_PATIENCE_SECONDS = 3 * FINISH_SECONDS


class Producers:
    """The process of the producers, and what it says."""

    def __init__(self, address: str, folder: Path, options: argparse.Namespace) -> None:
        command = [sys.executable, "-m", "endurance.producers", "--address", address]
        command += ["--ledgers", str(folder), "--rate", str(options.rate), "--seed", str(options.seed)]
        self._errors = folder / "producers.log"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.last: dict[str, Any] = {}
        self.most: Counter[str] = Counter()
        self.curve = Curve("producers", PRODUCERS_MAY_GROW_BYTES)
        self._started_at = time.monotonic()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def finish(self) -> list[str]:
        """Lets them deliver what is left; what was wrong there."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return [f"the producers' process did not end; it wrote: {self._words()}"]
        self._reader.join()
        if status or "taken" not in self.last:
            return [f"the producers' process ended with status {status}: {self._words()}"]
        words = self._words()
        return self.last["violations"] + ([f"the producers' process wrote: {words}"] if words else [])

    def kill(self) -> None:
        """Whatever it does."""
        self._process.kill()
        self._process.wait()

    def _words(self) -> str:
        return self._errors.read_text()[-4000:]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last = json.loads(line)
            self.curve.add(time.monotonic() - self._started_at, self.last["rss"])
            self.most |= Counter({what: self.last[what] for what in ("threads", "descriptors")})


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
        producers = Producers(self._broker.address, self._folder, self._options)
        try:
            self._send(producers)
            self.violations += producers.finish()
            self._note(producers)
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
                told = producers.last.get("told", {}).get("ACKNOWLEDGED", 0)
                bar.update(
                    task, completed=now, now=f"{told:,} acknowledged, {trouble.counts['SIGKILL']} kills"
                )

            pause = (self._options.pause / 3, self._options.pause * 5 / 3)
            trouble = Trouble(self._broker, random.Random(self._options.seed), pause, step)
            trouble.run(seconds)
        self.facts += [(f"{name} of the broker", f"{count:,}") for name, count in trouble.counts.items()]

    def _note(self, producers: Producers) -> None:
        last = producers.last
        for fate, count in last.get("told", {}).items():
            self.facts.append((f"records {fate.lower().replace('_', ' ')}", f"{count:,}"))
        self.facts += [(name, f"{count:,}") for name, count in last.get("counts", {}).items()]
        self.facts.append(("memory of the producers", producers.curve.drawn()))
        self.facts.append(("memory of the broker", self._memory.drawn()))
        self.facts += [(f"most {what} of the producers", f"{most}") for what, most in producers.most.items()]

    def _check(self, taken: dict[str, list[int]]) -> None:
        total = sum(map(sum, taken.values()))
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        for isolation in ("read_committed", "read_uncommitted"):
            log = empty_log(taken)
            with Progress(*columns, console=self._console) as bar:
                task = bar.add_task(isolation, total=total)
                self.violations += read_back(
                    self._broker.address,
                    log,
                    isolation,
                    lambda count: bar.advance(task, count),  # noqa: B023
                )
            self.violations += compare(log, isolation, sorted(self._folder.glob("*.ledger")))
            found = sum(sum(each.times) for each in log.values())
            self.facts.append((f"records found, {isolation}", f"{found:,}"))
        status = self._broker.terminate()
        if status:
            self.violations.append(f"the broker ended with status {status} on SIGTERM")
        command = [sys.executable, "-m", "splashdam.cli", "verify-log", "--quiet", str(self._folder / "data")]
        verified = subprocess.run(command, capture_output=True, text=True, check=False)
        self.facts.append(("verify-log", verified.stdout.strip().splitlines()[-1]))
        if verified.returncode:
            self.violations.append(f"verify-log: {verified.stdout[-2000:]}{verified.stderr[-2000:]}")


def main() -> int:
    """The command; 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m endurance", description=__doc__)
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
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    console = Console()
    folder: AbstractContextManager[str] = (
        nullcontext(str(options.data))
        if options.data is not None
        else tempfile.TemporaryDirectory(prefix="splashdam-endurance-")
    )
    with folder as directory:
        run = Run(options, Path(directory), console)
        run.run()
    table = Table(show_header=False, box=None)
    for fact in run.facts:
        table.add_row(*fact)
    console.print(table)
    for violation in run.violations:
        console.print(f"violated: {violation}", markup=False, highlight=False, soft_wrap=True)
    print(f"endurance: {len(run.violations)} promises broken (seed {options.seed})")
    return int(bool(run.violations))


if __name__ == "__main__":
    raise SystemExit(main())
