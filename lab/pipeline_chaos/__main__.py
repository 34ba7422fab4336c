"""Kills a running ingest again and again, at random points, while records keep coming; then counts.

One driver process ingests a topic into a Parquet, a Delta and an Iceberg table. Killed are Python
workers in the middle of their tasks, the driver at any time, and the driver between the commit to one of the
tables and Spark's own. In the end each table has each record of the log exactly once. Status 1 if not. Needs
Linux (/proc) and Java.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lab import ROOT
from lab.pipeline_chaos.checking import compare, read_log
from lab.pipeline_chaos.driver import FINISH, TOPIC
from lab.pipeline_chaos.driving import Driver, DriverStuck
from lab.pipeline_chaos.sending import PARTITIONS, Sender
from splashdam import EmbeddedBroker
from splashdam.cli.endings import exit_status, interrupts_wait, signals_interrupt
from splashdam.pipeline.session import JavaMissingError, need_java
from splashdam.pipeline.tables import FORMATS
from splashdam.testing.topics import create_topic

KINDS = ("worker", "driver", "commit")
"""The first is survived by the driver, which then need not be started again."""
CANNOT_RUN = 2
_STARTS = 3


class Run:
    """One run, from an empty folder to the verdict."""

    def __init__(self, options: argparse.Namespace, folder: Path, servers: str, console: Console) -> None:
        self._options = options
        self._folder = folder
        self._servers = servers
        self._console = console
        self._dice = random.Random(options.seed)
        self._driver = Driver(servers, folder)
        self._sender = Sender(servers, options.rate)

    def run(self) -> int:
        """Everything, in order; the status of the command."""
        self._sender.start()
        try:
            with self._bar() as bar:
                task = bar.add_task("kills", total=self._options.kills)
                for number, (kind, table_format) in enumerate(self._plan(), 1):
                    self._say(number, self._kill(kind, table_format))
                    bar.advance(task)
            self._sender.stop()
            self._finish()
        except DriverStuck as stuck:
            self._console.print(f"violated: {stuck}", markup=False)
            return 1
        finally:
            with interrupts_wait():
                self._driver.destroy()
                self._sender.stop()
        return self._verdict()

    def _bar(self) -> Progress:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self._console)

    def _plan(self) -> list[tuple[str, str]]:
        """Each kind and each format in turn, so that none is left out; the dice say which table is first."""
        formats = list(FORMATS)
        self._dice.shuffle(formats)
        turns = range(self._options.kills)
        return [(KINDS[turn % 3], formats[(turn + turn // 3) % 3]) for turn in turns]

    def _say(self, number: int, what: str) -> None:
        self._console.print(
            f"kill {number}: {what}, {self._sender.sent:,} records sent", highlight=False, soft_wrap=True
        )

    def _kill(self, kind: str, table_format: str) -> str:
        self._wait_for_commit(table_format)
        time.sleep(self._dice.uniform(0, self._options.pause))
        if kind == "worker":
            return self._kill_worker(table_format)
        if kind == "commit":
            self._driver.die_after_commit(table_format)
            return f"the driver between the commit to {table_format} and Spark's"
        self._driver.kill()
        return f"the driver, somewhere behind a commit to {table_format}"

    def _wait_for_commit(self, table_format: str) -> None:
        """Starts the ingest where it has to be; a driver that ends by itself is started again."""
        for _ in range(_STARTS):
            self._driver.ingest(table_format)
            try:
                return self._driver.wait_for_commit(table_format)
            except DriverStuck:
                if self._driver.is_running:
                    raise
                self._driver.wait_for_end()
                self._console.print("the driver ended by itself, and is started again")
        raise DriverStuck(f"it ends by itself: {self._driver.last_words()}")

    def _kill_worker(self, table_format: str) -> str:
        victim = self._driver.wait_for_busy_worker()
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        self._wait_for_commit(table_format)
        return f"worker {victim}, and {table_format} went on"

    def _finish(self) -> None:
        if self._driver.is_running:
            self._driver.kill()
        for _ in range(_STARTS):
            self._driver.start(FINISH)
            if self._driver.wait_for_end() == 0:
                return
        raise DriverStuck(f"the last driver fails: {self._driver.last_words()}")

    def _verdict(self) -> int:
        log = read_log(self._servers, PARTITIONS)
        verdicts = {each: compare(each, self._folder / each, log) for each in FORMATS}
        for table_format, verdict in verdicts.items():
            if not verdict.is_good:
                self._console.print(f"violated: {table_format}: {verdict}", markup=False)
        gaps, twice = (
            sum(getattr(each, name) for each in verdicts.values()) for name in ("gaps", "duplicates")
        )
        is_good = all(verdict.is_good for verdict in verdicts.values()) and len(log) == self._sender.sent
        word = "verified" if is_good else "violated"
        print(
            f"{word}: {len(log)} records, {gaps} gaps, {twice} duplicates after {self._options.kills} kills"
        )
        return int(not is_good)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m lab.pipeline_chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="in all (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the dice; time is not repeated (0)")
    parser.add_argument("--rate", type=int, default=1000, help="records per second (1000)")
    parser.add_argument("--pause", type=float, default=1.5, help="most seconds from a commit to a kill (1.5)")
    options = parser.parse_args()
    if not Path("/proc/self/stat").exists():
        parser.error("this needs Linux: it finds processes in /proc")
    try:
        need_java()
    except JavaMissingError as missing:
        print(missing)
        return CANNOT_RUN
    try:
        with signals_interrupt():
            return _run(options)
    except KeyboardInterrupt as interrupt:
        print("interrupted", file=sys.stderr)
        return exit_status(interrupt)


def _run(options: argparse.Namespace) -> int:
    # The processes started here import this package from where this one did.
    os.environ["PYTHONPATH"] = str(ROOT)
    with (
        tempfile.TemporaryDirectory(prefix="splashdam-chaos-", ignore_cleanup_errors=True) as folder,
        EmbeddedBroker(Path(folder) / "data", port=0) as broker,
    ):
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        return Run(options, Path(folder), broker.bootstrap_servers, Console(stderr=True)).run()


if __name__ == "__main__":
    raise SystemExit(main())
