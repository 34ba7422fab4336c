"""Spark's own master and two workers, from the PySpark wheel, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from lab.broker_process import free_port
from lab.processes import Process, busiest_python_worker, kill_all, living

SPARK_HOME = Path(pyspark.__file__).parent
WORKERS = 2
_START_SECONDS = 300
_BUSY_SECONDS = 600
_END_SECONDS = 120
_STEP_SECONDS = 0.1
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class ClusterStuck(Exception):
    """A process of the cluster ended, or nothing happened in time; the message has the ends of the logs."""


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of every process of the cluster, and of the drivers."""
    return {
        **{name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _QUICK,
        # For the sockets between a JVM and Python: 15 seconds are too few on a busy machine.
        "SPARK_AUTH_SOCKET_TIMEOUT": "120",
    }


class SparkCluster:
    """A master and its workers, each a process of its own with its executors below it.

    Args:
        folder: for logs and working directories.

    Attributes:
        master: URL of the master.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = environment(folder)
        self._port = free_port()
        self.master = f"spark://127.0.0.1:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start master and workers, and return when the master listens.

        Raises:
            ClusterStuck: the master does not listen in time.
        """
        (self._folder / "local").mkdir()
        here = ["--host", "127.0.0.1", "--webui-port", "0"]
        self._launch("master", "org.apache.spark.deploy.master.Master", *here, "--port", str(self._port))
        self._wait_for_master()
        for number in range(WORKERS):
            name = f"worker-{number}"
            worker = [
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(self.work_folder / name),
                self.master,
            ]
            self._launch(name, "org.apache.spark.deploy.worker.Worker", *here, *worker)

    @property
    def work_folder(self) -> Path:
        """The folder with the working directories of all executors."""
        return self._folder / "work"

    def busy_executor(self) -> Process:
        """Wait for a task in Python, and return the process of the executor that runs it.

        Raises:
            ClusterStuck: no executor got a task.
        """
        deadline = time.monotonic() + _BUSY_SECONDS
        while time.monotonic() < deadline:
            worker = busiest_python_worker(self.processes, _STEP_SECONDS * 10)
            known = {each.pid: each for each in self.processes()}
            at = None if worker is None else known.get(worker)
            while at is not None:
                if "CoarseGrainedExecutorBackend" in at.words:
                    return at
                at = known.get(at.parent)
        raise ClusterStuck(f"no executor does anything: {self._last_words()}")

    def loaded_libraries(self) -> set[str]:
        """Return the paths of the compiled modules that the executors' Python processes have loaded."""
        found: set[str] = set()
        for each in self.processes():
            if "pyspark" in each.words and "java" not in each.words.partition("\0")[0]:
                with suppress(OSError):  # it has ended by now
                    lines = Path(f"/proc/{each.pid}/maps").read_text().splitlines()
                    paths = (line.split(maxsplit=5)[5] for line in lines if line.endswith(".so"))
                    found |= {path for path in paths if "site-packages" in path or "splashdam" in path}
        return found

    def processes(self) -> Iterator[Process]:
        """Yield the master, the workers, and every process below them."""
        return living(each.pid for each in self._processes)

    def executors(self) -> list[int]:
        """Return the process ids of the executors."""
        return [each.pid for each in self.processes() if "CoarseGrainedExecutorBackend" in each.words]

    def stop(self) -> None:
        """End all of its processes."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        kill_all(self.processes, _END_SECONDS)
        for process in self._processes:
            process.wait(_END_SECONDS)

    def _launch(self, name: str, main_class: str, *arguments: str) -> None:
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), main_class, *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # `living` finds its children by the session's number
            )
        self._processes.append(process)

    def _wait_for_master(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._processes[0].poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
                return
            time.sleep(_STEP_SECONDS)
        raise ClusterStuck(f"the master does not listen: {self._last_words()}")

    def _last_words(self) -> str:
        return "\n".join(
            path.read_text(errors="replace")[-1000:] for path in sorted(self._folder.glob("*.log"))
        )


def driver_settings(archive: Path) -> Mapping[str, str]:
    """Return the settings of every driver: small executors, and the archive for them."""
    return {
        "spark.archives": f"{archive}#job",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": _QUICK,
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": _QUICK,
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.shuffle.partitions": str(WORKERS),
        "spark.ui.enabled": "false",
    }
