"""Runs three embedded brokers in a process of their own, with commands on standard input: ``kill 1``.

The first line on standard output has the addresses; each command is answered by a line. The process ends when
its standard input ends.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lab.broker_process import free_port
from splashdam import EmbeddedCluster
from splashdam.model.broker_errors import BrokerResponseError

BROKERS = 3
SMALL = 1 << 20
CONFIG = {
    "num.partitions": 2,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 3_000,
    "replica.fetch.backoff.ms": 200,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "auto.create.topics.enable": "false",
    # A small disk: segments of a MiB, and a few of them.
    "log.segment.bytes": SMALL,
    "log.index.size.max.bytes": 64 << 10,
    "log.retention.bytes": 3 * SMALL,
    "log.retention.check.interval.ms": 2_000,
    "log.segment.delete.delay.ms": 1_000,
    "log.cleaner.backoff.ms": 1_000,
    "log.cleaner.min.cleanable.ratio": 0.2,
    "log.cleaner.delete.retention.ms": 10_000,
    "log.cleaner.dedupe.buffer.size": 4 << 20,
    # Offsets and producer ids expire after a minute, not after days.
    "offsets.topic.segment.bytes": SMALL,
    "transaction.state.log.segment.bytes": SMALL,
    "offsets.retention.minutes": 1,
    "offsets.retention.check.interval.ms": 10_000,
    "producer.id.expiration.ms": 60_000,
    "producer.id.expiration.check.interval.ms": 10_000,
}


class ClusterEndedError(ChildProcessError):
    """The process has ended; the message has the end of its log.

    Attributes:
        status: of the process, negative after a signal.
    """

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"the cluster's process has ended with status {status}: {words}")
        self.status = status


class ClusterProcess:
    """The process, from outside.

    Args:
        data: its directory.
        log: file for its standard error.
        port: of the first broker; a free one by default.
        environment: of the process; this one's by default.

    Raises:
        ClusterEndedError: it ended instead of starting.
    """

    def __init__(
        self, data: Path, log: Path, port: int | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        command = [
            sys.executable,
            "-m",
            "lab.soak.cluster_process",
            str(data),
            str(port or free_port(BROKERS)),
        ]
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
        self._log = log
        self._lock = threading.Lock()
        self.address = self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, command: str) -> str:
        """Send a command, and return its answer.

        Raises:
            ClusterEndedError: the process has ended.
        """
        with self._lock:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended, and does not answer
                self._process.stdin.write(f"{command}\n")
                self._process.stdin.flush()
            return self._answer()

    def close(self) -> int:
        """Stop the brokers in order, and return the status of the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        status = self._process.wait(120)
        self._process.stdout.close()
        return status

    @property
    def status(self) -> int | None:
        """The status of the process: None before its end, negative after a signal."""
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()

    def last_words(self) -> str:
        return self._log.read_text()[-2000:]

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self.kill()  # closes the pipes
            raise ClusterEndedError(status, self.last_words())
        return line.strip()


def main() -> None:
    """Serve until standard input ends."""
    with EmbeddedCluster(sys.argv[1], BROKERS, port=int(sys.argv[2]), config=CONFIG) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        for line in sys.stdin:
            print(_obey(cluster, *line.split()), flush=True)


def _obey(cluster: EmbeddedCluster, command: str, *arguments: str) -> str:
    if command == "kill":
        cluster.kill(int(arguments[0]))
    elif command == "stop":
        cluster.stop(int(arguments[0]))
    elif command == "start":
        cluster.start(int(arguments[0]))
    elif command == "move":
        topic, partition, node = arguments
        try:
            cluster.move_leader(topic, int(partition), int(node))
        except BrokerResponseError as error:
            return type(error).__name__
    elif command == "sync":
        cluster.wait_in_sync(120)
    return "done"


if __name__ == "__main__":
    main()
