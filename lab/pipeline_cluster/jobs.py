"""Runs ``splashdam pipeline …`` as a driver of the cluster; it can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lab.pipeline_cluster.job_archive import PYTHON
from lab.pipeline_cluster.spark_processes import SPARK_HOME, SparkCluster, driver_settings, environment
from lab.processes import kill_all, living
from splashdam.cli.exiting import interrupts_wait

_FINISH_SECONDS = 1800
_END_SECONDS = 120


class JobFailed(Exception):
    """A driver ended with a status other than 0, or did not end; the message has its output."""


class Job:
    """One command, run by one driver after the other.

    The driver runs the Python of the unpacked archive in its working folder, and takes PySpark from the
    Spark that every node has, as a driver of a real cluster does.

    Args:
        cluster: the cluster that runs the command.
        archive: the executors' environment.
        folder: the driver's working folder, with the unpacked archive.
        arguments: of ``splashdam pipeline``.
    """

    def __init__(self, cluster: SparkCluster, archive: Path, folder: Path, arguments: Sequence[str]) -> None:
        self.name = arguments[0]
        settings = [f"--conf={name}={value}" for name, value in driver_settings(archive).items()]
        spark = ["--master", cluster.master, "--memory", "600m", "--spark-log", f"{self.name}-spark.log"]
        self._command = [PYTHON, "-m", "splashdam.cli", "pipeline", *arguments, *spark, *settings]
        self._folder = folder
        self._output = folder / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._begins_at = 0

    def start(self) -> None:
        """Start a driver."""
        libraries = sorted((SPARK_HOME / "python" / "lib").glob("*.zip"))
        variables: Mapping[str, str] = {
            **environment(self._folder.parent),
            "PYTHONPATH": os.pathsep.join(map(str, libraries)),
            "PYSPARK_PYTHON": PYTHON,
        }
        with self._output.open("ab") as output, interrupts_wait():
            self._begins_at = output.tell()
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill the driver and its JVM at once: like a machine that fails, it does not tell the master."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_END_SECONDS)
            pid = self._process.pid
            kill_all(lambda: living([pid]), _END_SECONDS)

    def wait(self) -> str:
        """Wait for the end, and return the command's output.

        Raises:
            JobFailed: its status is not 0, or it does not end.
        """
        assert self._process is not None
        try:
            status = self._process.wait(_FINISH_SECONDS)
        except subprocess.TimeoutExpired:
            raise JobFailed(f"{self.name} does not end: {self._said()}") from None
        if status:
            raise JobFailed(f"{self.name} ended with status {status}: {self._said()}")
        return self._said()

    def _said(self) -> str:
        """Return the end of this driver's output, without the output of the drivers before it."""
        return self._output.read_bytes()[self._begins_at :].decode(errors="replace")[-3000:]
