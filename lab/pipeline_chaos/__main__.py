"""Kills a running ingest again and again, at random points, while a producer sends; then counts.

One driver process ingests a topic into a Parquet, a Delta and an Iceberg table. Three kinds of kills: a
Python worker in the middle of a task, the driver at any time, and the driver between the commit to a table
and Spark's own commit. In the end each table must have each record of the log exactly once; else the status
is 1. Needs Linux (/proc) and Java.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lab.arguments import positive_int
from lab.ledger import read_topic
from lab.pipeline_chaos.driver import FINISH, TOPIC
from lab.pipeline_chaos.driver_process import Driver, DriverStuck
from lab.pipeline_chaos.table_check import compare
from lab.trial import CANNOT_RUN, Verdict, need_linux, run_trial, trial_parser
from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.cli.exiting import interrupts_wait
from splashdam.pipeline.session import JavaMissingError, need_java
from splashdam.pipeline.tables import FORMATS
from splashdam.testing.topics import create_topic

KINDS = ("worker", "driver", "commit")
"""What is killed. The driver survives the death of a worker, and need not be started again."""
_STARTS = 3
PARTITIONS = 3
_SEND_PAUSE_SECONDS = 0.05


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

    def run(self) -> Verdict:
        """Send, kill as often as wanted, let the ingests finish, and compare."""
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
            self._sender.stop()
            return Verdict([str(stuck), *self._sender.violations()])
        finally:
            with interrupts_wait():
                self._driver.destroy()
                self._sender.stop()
        return self._verdict()

    def _bar(self) -> Progress:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        return Progress(*columns, console=self._console)

    def _plan(self) -> list[tuple[str, str]]:
        """Return kind and format of each kill: all take turns, so that none is left out."""
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
        return f"the driver, some time after a commit to {table_format}"

    def _wait_for_commit(self, table_format: str) -> None:
        """Start the ingest if necessary, restart a driver that has ended, and wait for the next commit."""
        for _ in range(_STARTS):
            self._driver.ingest(table_format)
            try:
                return self._driver.wait_for_commit(table_format)
            except DriverStuck:
                if self._driver.is_running:
                    raise
                self._driver.wait_for_end()
                self._console.print("the driver ended by itself; starting it again")
        raise DriverStuck(f"the driver ends by itself: {self._driver.last_words()}")

    def _kill_worker(self, table_format: str) -> str:
        victim = self._driver.wait_for_busy_worker()
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        self._wait_for_commit(table_format)
        return f"worker {victim}; the ingest into {table_format} continued"

    def _finish(self) -> None:
        if self._driver.is_running:
            self._driver.kill()
        for _ in range(_STARTS):
            self._driver.start(FINISH)
            if self._driver.wait_for_end() == 0:
                return
        raise DriverStuck(f"the last driver fails: {self._driver.last_words()}")

    def _verdict(self) -> Verdict:
        log = {
            (partition, record.offset): record.value
            for partition, records in read_topic(self._servers, TOPIC, PARTITIONS)
            for record in records
        }
        found = {each: compare(each, self._folder / each, log) for each in FORMATS}
        verdict = Verdict([f"{name}: {counts}" for name, counts in found.items() if not counts.is_good])
        verdict.violations += self._sender.violations()
        if len(log) != self._sender.sent:
            verdict.violations.append(f"{self._sender.sent} records were sent, and {len(log)} are in the log")
        gaps, twice = (sum(getattr(each, name) for each in found.values()) for name in ("gaps", "duplicates"))
        word = "violated" if verdict.violations else "verified"
        verdict.closing = (
            f"{word}: {len(log)} records, {gaps} gaps, {twice} duplicates after {self._options.kills} kills"
        )
        return verdict


class Sender:
    """A thread with a producer that sends to all partitions of the topic from ``start`` to ``stop``.

    Args:
        servers: addresses of the cluster.
        rate: records per second, approximately.

    Attributes:
        sent: records so far.
        failure: of the thread; None if it sent to the end.
    """

    def __init__(self, servers: str, rate: float) -> None:
        self.sent = 0
        self.failure: Exception | None = None
        self._per_turn = max(1, int(rate * _SEND_PAUSE_SECONDS))
        self._servers = servers
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name="sender")

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sending, and wait until every record is acknowledged."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def violations(self) -> list[str]:
        """Return what ended the thread before ``stop`` did."""
        if self.failure is None:
            return []
        return [f"the sender ended with {type(self.failure).__name__}: {self.failure}"]

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.failure = error

    def _run(self) -> None:
        with KafkaProducer(bootstrap_servers=self._servers) as producer:
            while True:
                for number in range(self.sent, self.sent + self._per_turn):
                    producer.send(
                        TOPIC,
                        b"record %d" % number,
                        key=b"%d" % (number % 100),
                        partition=number % PARTITIONS,
                    )
                self.sent += self._per_turn
                if self._ended.wait(_SEND_PAUSE_SECONDS):
                    break
            producer.flush()


def pipeline_chaos(options: argparse.Namespace, folder: Path, console: Console) -> Verdict:
    """Run the trial, from an empty folder to the verdict."""
    with EmbeddedBroker(folder / "data", port=0) as broker:
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        return Run(options, folder, broker.bootstrap_servers, console).run()


def main() -> int:
    """Run the command; return 1 if a table is wrong, 2 if it cannot run here."""
    parser = trial_parser(
        "pipeline_chaos",
        __doc__,
        rate=1000,
        pause=1.5,
        pause_help="longest pause between a commit and a kill, in seconds",
    )
    parser.add_argument("--kills", type=positive_int, default=20, help="number of kills (20)")
    options = parser.parse_args()
    need_linux(parser)
    try:
        need_java()
    except JavaMissingError as missing:
        print(missing)
        return CANNOT_RUN
    return run_trial("pipeline_chaos", pipeline_chaos, options, Console(stderr=True))


if __name__ == "__main__":
    raise SystemExit(main())
