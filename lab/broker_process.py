"""Runs ``splashdam broker`` as a process that can be killed, stopped and started again."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.ledger import PARTITIONS
from lab.memory import resident_bytes

PROPERTIES = {
    "num.partitions": str(PARTITIONS),
    "log.segment.bytes": str(4 << 20),
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
}
_START_SECONDS = 300
"""A process that hangs at its start is killed."""
_END_SECONDS = 60


class BrokerDied(Exception):
    """The broker ended by itself, or did not start; the message has the end of its output."""


class Broker:
    """A broker with one data directory and one port, run by one process after the other.

    Args:
        data: the data directory. With ``log.dirs`` among the properties it is called ``data``, as the
            command's default is, because the command refuses both.
        log: file to which its processes write their standard error.
        properties: the broker's settings, by Kafka's names.

    Attributes:
        address: host and port, for ``bootstrap_servers``.
    """

    def __init__(self, data: Path, log: Path, properties: Mapping[str, str] = PROPERTIES) -> None:
        self._data = data.absolute()
        self._log = log
        self._properties = properties
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[str] | None = None

    @property
    def data(self) -> Path:
        return self._data

    @property
    def port(self) -> int:
        return self._port

    @property
    def status(self) -> int | None:
        """The status of the last process: None before its end, negative after a signal."""
        return None if self._process is None else self._process.poll()

    def start(self, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()) -> None:
        """Start a process, and return when the broker listens.

        Args:
            environment: of the process; this one's by default.
            prefix: a program and its arguments, which runs the command in its own place.

        Raises:
            BrokerDied: it ended instead.
        """
        command = [*prefix, sys.executable, "-m", "splashdam.cli", "broker", "--port", str(self._port)]
        if "log.dirs" not in self._properties:
            command += ["--data", str(self._data)]
        for name, value in self._properties.items():
            command += ["--property", f"{name}={value}"]
        with self._log.open("a") as log:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=self._data.parent
            )
        self._process = process
        assert process.stdout is not None
        hanging = threading.Timer(_START_SECONDS, process.kill)
        hanging.start()
        try:
            first_line = process.stdout.readline()
        finally:
            hanging.cancel()
        if not first_line.startswith("listening on"):
            self._ended()
            raise BrokerDied(self.last_output())

    def check(self) -> None:
        """Raise BrokerDied if the process has ended by itself."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise BrokerDied(self.last_output())

    def kill(self) -> None:
        """Kill the process with SIGKILL, and wait until it is gone; do nothing if it has ended."""
        if self._process is not None and self._process.poll() is None:
            self.signal(signal.SIGKILL)
            self._ended()

    def terminate(self) -> int:
        """Send SIGTERM, wait for the end, and return the status."""
        self.signal(signal.SIGTERM)
        return self._ended()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    def resident_bytes(self) -> int:
        """Return the resident memory of the process; 0 if there is no process."""
        return 0 if self._process is None else resident_bytes(self._process.pid)

    def output(self) -> str:
        """Return all that its processes have written to standard error."""
        return self._log.read_text() if self._log.exists() else ""

    def last_output(self) -> str:
        """Return the end of the processes' standard error."""
        return self.output()[-2000:]

    def _ended(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        with self._process.stdout:
            return self._process.wait(_END_SECONDS)


def free_port(count: int = 1) -> int:
    """Return a free port, or the first of ``count``, below the range from which the system takes local ports.

    While the broker is down its producers go on connecting. An attempt whose local port is the broker's port
    would connect to itself, and the broker could not listen there any more.
    """
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(100):
        port = random.randrange(max(1024, low // 2), low - count)
        if all(map(_is_free, range(port, port + count))):
            return port
    raise BrokerDied("there is no free port")


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
