"""Starts the driver's process, reads its output, and kills it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.processes import Process, busiest_python_worker, kill_all, living
from splashdam.cli.exiting import interrupts_wait

_COMMIT_SECONDS = 180
_FINISH_SECONDS = 400
_END_SECONDS = 60
_STEP_SECONDS = 0.05


class DriverStuck(Exception):
    """The driver did not make progress in time; the message has the end of its log."""


class Driver:
    """Driver processes one after the other, each with the JVM and the workers of its session.

    Args:
        servers: addresses of the cluster.
        folder: of tables, checkpoints and the drivers' log.
    """

    def __init__(self, servers: str, folder: Path) -> None:
        self._servers = servers
        self._folder = folder
        self._log = folder / "driver.log"
        self._process: subprocess.Popen[str] | None = None
        self._commits: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def ingest(self, table_format: str) -> None:
        """Make the driver fill a table; start the driver if it does not run."""
        if self.is_running:
            self._tell(f"ingest {table_format}")
        else:
            self.start(table_format)

    def start(self, how: str) -> None:
        """Start a driver that fills a table; with ``FINISH`` one that fills all tables, and ends."""
        command = [sys.executable, "-m", "lab.pipeline_chaos.driver", self._servers, str(self._folder), how]
        self._commits = queue.SimpleQueue()
        # An interrupt between the start and the assignment would leave a process that nobody ends.
        with self._log.open("a") as log, interrupts_wait():
            self._process = subprocess.Popen(
                command,
                # For the sockets between Spark's JVM and Python: 15 seconds are too few on a busy machine.
                env={**os.environ, "SPARK_AUTH_SOCKET_TIMEOUT": "120"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # `_children` finds all of its processes by the session's number
            )
        threading.Thread(target=self._listen, args=(self._process, self._commits), daemon=True).start()

    @staticmethod
    def _listen(process: subprocess.Popen[str], commits: queue.SimpleQueue[dict[str, Any]]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):  # the JVM prints to this pipe as well
                commits.put(json.loads(line))

    def wait_for_commit(self, table_format: str) -> None:
        """Wait for the next commit to a table; commits reported before do not count.

        Raises:
            DriverStuck: the driver committed nothing in time, or it ended.
        """
        with suppress(queue.Empty):
            while True:
                self._commits.get_nowait()
        deadline = time.monotonic() + _COMMIT_SECONDS
        while time.monotonic() < deadline:
            try:
                if self._commits.get(timeout=_STEP_SECONDS)["format"] == table_format:
                    return
            except queue.Empty:
                if not self.is_running:
                    break
        raise DriverStuck(f"no commit to {table_format}: {self.last_words()}")

    def die_after_commit(self, table_format: str) -> None:
        """Make the driver kill itself between the next commit to this table and Spark's; wait for its end."""
        self._tell(f"die {table_format}")
        self.wait_for_end()

    def _tell(self, command: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the driver has just ended; the next wait reports it
            self._process.stdin.write(f"{command}\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """Kill the driver alone: its JVM and workers must notice, and end."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGKILL)
        self.wait_for_end()

    def wait_for_busy_worker(self) -> int:
        """Return the process id of a Python worker in the middle of a task.

        Raises:
            DriverStuck: no worker is busy for a minute.
        """
        busy = busiest_python_worker(self._children, _END_SECONDS)
        if busy is None:
            raise DriverStuck(f"no worker does anything: {self.last_words()}")
        return busy

    def wait_for_end(self) -> int:
        """Wait until the driver and all of its children are gone, and return the driver's status."""
        assert self._process is not None
        try:
            status = self._process.wait(_FINISH_SECONDS)
        except subprocess.TimeoutExpired:
            raise DriverStuck(f"it does not end: {self.last_words()}") from None
        deadline = time.monotonic() + _END_SECONDS
        while children := [each.pid for each in self._children()]:
            if time.monotonic() > deadline:
                raise DriverStuck(f"processes {children} outlive the driver")
            time.sleep(_STEP_SECONDS)
        self._close_pipes()
        return status

    def _close_pipes(self) -> None:
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _children(self) -> Iterator[Process]:
        """Yield every living process of the driver's session."""
        assert self._process is not None
        return living([self._process.pid])

    def last_words(self) -> str:
        """Return the end of the driver's log."""
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else ""

    def destroy(self) -> None:
        """Kill the driver and all of its children, whatever state they are in."""
        if self._process is None:
            return
        kill_all(self._children, _END_SECONDS)
        self._process.wait()
        self._close_pipes()
