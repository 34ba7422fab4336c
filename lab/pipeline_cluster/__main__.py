"""Runs pipelines on a standalone Spark cluster, kills executors and drivers in the middle, then counts.

The cluster is Spark's own master and two workers from the PySpark wheel; ``splashdam broker`` runs beside
them, all on loopback. ``splashdam pipeline`` ingests a topic into a table, counts it by windows, copies it
with the exactly-once sink, and audits the broker's directory. During the first three jobs, executors and
drivers are killed with SIGKILL. The package reaches the workers as an archive, and they may load no library
from elsewhere. Each record must be in each result once, else the status is 1. Needs Linux (/proc) and Java.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from lab.arguments import positive_int
from lab.broker_process import PROPERTIES, Broker
from lab.pipeline_cluster import books
from lab.pipeline_cluster.job_archive import NAME, packed, unpack
from lab.pipeline_cluster.jobs import Job, JobFailed
from lab.pipeline_cluster.spark_processes import ClusterStuck, SparkCluster
from lab.trial import CANNOT_RUN, Verdict, need_linux, run_trial, trial_parser
from splashdam.cli.exiting import interrupts_wait
from splashdam.pipeline.session import JavaMissingError, need_java
from splashdam.testing.topics import create_topic

EXECUTOR, DRIVER = "executor", "driver"
_STARTS = 3
_LOOK_SECONDS = 0.5
_BUSY = "this machine is busy"
"""Part of the commands' error when a Python process did not start within Spark's ten seconds."""
_BATCHES = 8
"""Approximate number of micro-batches of a job: enough for a kill between two of them."""


class Run:
    """One run, from an empty folder to the verdict."""

    def __init__(self, options: argparse.Namespace, folder: Path, broker: Broker, console: Console) -> None:
        self._options = options
        self._broker = broker
        self._console = console
        self._dice = random.Random(options.seed)
        self._folder = folder
        self._cluster = SparkCluster(folder)
        self._here = folder / "driver"
        self._archive = packed(self._say)
        self._kills = 0
        self._seconds: list[tuple[str, float]] = []
        self._strange: set[str] = set()
        self._loaded: set[str] = set()

    def run(self) -> Verdict:
        """Send, run the jobs with their kills, and count."""
        self._here.mkdir()
        unpack(self._archive, self._here)
        (self._here / "departures.ddl").write_text(books.SCHEMA)
        try:
            books.send(self._broker.address, self._options.records)
            self._cluster.start()
            for arguments, victims in self._jobs():
                self._run(arguments, victims[: self._options.kills - self._kills])
            self._broker.terminate()
            audit = self._run(["audit", str(self._folder / "data")], [])
        except (ClusterStuck, JobFailed) as failure:
            return Verdict([str(failure)])
        finally:
            with interrupts_wait():
                self._cluster.stop()
        return self._verdict(audit)

    def _jobs(self) -> list[tuple[list[str], list[str]]]:
        """Return each command, with the processes to kill while it runs."""
        limit = ["--max-records", str(max(1, self._options.records // _BATCHES))]
        topic = [books.TOPIC, "-b", self._broker.address, *limit]
        schema = ["--schema", "departures.ddl"]
        windows = [
            "--size",
            "1m",
            "--delay",
            "5m",
            "--close-all",
            "--table",
            "minutes",
            "--late-table",
            "late",
        ]
        outputs = ["--topic", books.COPY, "--dead-letter-table", "rejected"]
        by = ["--by", "carrier=decoded.carrier"]
        return [
            (["ingest", *topic, "raw", "--checkpoint", "c-ingest"], [EXECUTOR, DRIVER]),
            (["window", *topic, "--checkpoint", "c-window", *schema, *windows, *by], [DRIVER, EXECUTOR]),
            (["decode", *topic, "--checkpoint", "c-decode", *schema, *outputs], [EXECUTOR, DRIVER]),
        ]

    def _run(self, arguments: Sequence[str], victims: Sequence[str]) -> str:
        """Run a command to its end, with kills in the middle, and return its output."""
        began = time.monotonic()
        job = Job(self._cluster, self._archive, self._here, arguments)
        job.start()
        try:
            for victim in victims:
                self._kill(job, victim)
            said = self._finished(job)
        finally:
            with interrupts_wait():
                job.kill()
        self._seconds.append((job.name, time.monotonic() - began))
        return said

    def _finished(self, job: Job) -> str:
        """Wait for the end of a job, and return its output.

        A job that gives up because the machine is busy is started again, as an operator would do; it
        continues from its checkpoint.
        """
        for left in reversed(range(_STARTS)):
            while job.is_running:
                self._look()
                time.sleep(_LOOK_SECONDS)
            try:
                return job.wait()
            except JobFailed as failure:
                if not left or _BUSY not in str(failure):
                    raise
                self._say(f"the driver of {job.name} gave up on a busy machine; starting it again")
                job.start()
        raise AssertionError("the last attempt returns or raises")

    def _kill(self, job: Job, victim: str) -> None:
        """Kill the executor or the driver in the middle of a task.

        Raises:
            JobFailed: the job has ended by itself, so the kill would test nothing.
        """
        executor = self._cluster.busy_executor()
        self._look()
        time.sleep(self._dice.uniform(0, self._options.pause))
        if not job.is_running:
            raise JobFailed(
                f"{job.name} ended before its {victim} was killed: send more records, or {job.wait()}"
            )
        if victim == EXECUTOR:
            os.kill(executor.pid, signal.SIGKILL)
        else:
            job.kill()
            job.start()
        self._kills += 1
        self._say(f"kill {self._kills}: the {victim} of {job.name}")

    def _look(self) -> None:
        """Note the paths of the libraries that the executors' Python has loaded."""
        loaded = self._cluster.loaded_libraries()
        self._loaded |= loaded
        work = str(self._cluster.work_folder)
        self._strange |= {path for path in loaded if not path.startswith(work)}

    def _say(self, what: str) -> None:
        self._console.print(what, highlight=False, soft_wrap=True)

    def _verdict(self, audit: str) -> Verdict:
        self._broker.start()
        records = self._options.records
        counts = [
            books.ingested(self._broker.address, self._here / "raw"),
            books.windowed(records, self._here / "minutes", self._here / "late"),
            books.copied(self._broker.address, records, self._here / "rejected"),
        ]
        self._broker.terminate()
        verdict = Verdict([str(each) for each in counts if not each.is_good])
        verdict.facts = [(name, f"{seconds:.0f} s") for name, seconds in self._seconds]
        last = audit.strip().splitlines()[-1]
        if re.fullmatch(r"0 errors: [\d,]+ records, 0 gaps, 0 duplicates", last) is None:
            verdict.violations.append(f"audit: {audit}")
        own = sorted(path for path in self._loaded if f"/{NAME}/lib/" in path and "/splashdam/" in path)
        verdict.facts += [("audit", last), ("workers ran", own[0] if own else "no compiled module")]
        if self._strange:
            verdict.violations.append(
                f"workers loaded libraries from outside of the archive: {sorted(self._strange)}"
            )
        if not self._loaded:
            verdict.violations.append("no worker was seen to load a library of the archive")
        word = "violated" if verdict.violations else "verified"
        gaps, twice = sum(each.gaps for each in counts), sum(each.duplicates for each in counts)
        verdict.closing = (
            f"{word}: {records} records, {gaps} gaps, {twice} duplicates after {self._kills} kills"
        )
        return verdict


def pipeline_cluster(options: argparse.Namespace, folder: Path, console: Console) -> Verdict:
    """Run the trial, from an empty folder to the verdict."""
    kept = {**PROPERTIES, "log.retention.ms": "-1"}  # the records' timestamps are old; keep the records
    broker = Broker(folder / "data", folder / "broker.log", kept)
    broker.start()
    try:
        for topic in (books.TOPIC, books.COPY):
            create_topic(broker.address, topic, books.PARTITIONS)
        return Run(options, folder, broker, console).run()
    finally:
        with interrupts_wait():
            broker.kill()


def main() -> int:
    """Run the command; return 1 if a result is wrong, 2 if it cannot run here."""
    parser = trial_parser(
        "pipeline_cluster",
        __doc__,
        pause=1.0,
        pause_help="longest pause between finding a busy executor and the kill, in seconds",
    )
    parser.add_argument("--records", type=positive_int, default=60_000, help="records in the topic (60000)")
    parser.add_argument(
        "--kills",
        type=positive_int,
        default=6,
        help="number of kills, at most two in each of the three jobs (6)",
    )
    options = parser.parse_args()
    need_linux(parser)
    try:
        need_java()
    except JavaMissingError as missing:
        print(missing)
        return CANNOT_RUN
    return run_trial("pipeline_cluster", pipeline_cluster, options, Console(stderr=True))


if __name__ == "__main__":
    raise SystemExit(main())
