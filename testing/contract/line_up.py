"""Which clients can be held against a cluster here, and how each is made.

Clients of other languages: a process each, and a line of JSON for every operation.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import Any

from splashdam.testing.contract.toolchains import Driver, MissingToolError, all_drivers
from splashdam.testing.contract.vocabulary import Client, Refused

_CONTRACT = "splashdam.testing.contract"

PYTHON_CLIENTS: Mapping[str, tuple[str, str]] = {
    "splashdam": ("clients.splashdam_client", "SplashdamClient"),
    "kafka-python": ("clients.kafka_python", "KafkaPythonClient"),
    "confluent-kafka": ("clients.confluent", "ConfluentClient"),
    "aiokafka": ("clients.aiokafka_client", "AiokafkaClient"),
    "protocol": ("raw_connection", "ProtocolClient"),
}
"""The clients that run in this process: module and class. Those that are not installed are left out."""

EMBEDDED_CONFIG: Mapping[str, str] = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "100",
}
"""What an embedded broker under contract is set to; the real ones beside it are set to the same."""

MakeClient = Callable[[str], Client]
"""Makes a client for the cluster at an address."""


def available(
    names: Sequence[str], jars: Sequence[Path], missing: Callable[[str, str], None]
) -> dict[str, MakeClient]:
    """What makes each of these clients; drivers of other languages are fetched and built where needed.

    Args:
        names: as in `PYTHON_CLIENTS` and `toolchains.all_drivers`.
        jars: folders with Kafka's jars, for its own clients.
        missing: hears a client's name and why it is not to be had.
    """
    drivers = all_drivers(jars)
    found: dict[str, MakeClient] = {}
    for name in names:
        try:
            if name in PYTHON_CLIENTS:
                module, cls = PYTHON_CLIENTS[name]
                found[name] = getattr(import_module(f"{_CONTRACT}.{module}"), cls)
            else:
                found[name] = partial(_external, drivers[name]())
        except ImportError as error:
            missing(name, f"{error.name} is not installed")
        except MissingToolError as error:
            missing(name, str(error))
    return found


def _external(driver: Driver, bootstrap_servers: str) -> Client:
    return ExternalClient(driver.command, bootstrap_servers, driver.directory)


@contextmanager
def lined_up(makers: Mapping[str, MakeClient], bootstrap_servers: str) -> Iterator[list[Client]]:
    """The clients, for as long as the block lasts."""
    with ExitStack() as stack:
        yield [stack.enter_context(make(bootstrap_servers)) for make in makers.values()]


ANSWER_SECONDS = 60.0
"""A driver that says nothing for so long is killed."""


class ExternalClient(Client):
    """A driver that runs as a process.

    Args:
        command: starts it.
        bootstrap_servers: of the cluster.
        directory: where it runs.

    Raises:
        Refused: it did not start.
    """

    def __init__(self, command: Sequence[str], bootstrap_servers: str, directory: Path) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        try:
            found = self.call("open", bootstrap=bootstrap_servers)
        except BaseException:
            self.close()
            raise
        self.name, self.version, self.ops = found["name"], found["version"], frozenset(found["ops"])

    def call(self, op: str, /, **args: Any) -> Any:
        request = json.dumps({"op": op, "args": args})
        timer = Timer(ANSWER_SECONDS, self._process.kill)
        timer.start()
        try:
            line = self._talk(request)
        finally:
            timer.cancel()
        if not line:
            raise Refused("DRIVER_ENDED", f"{self._process.args!r} said nothing to {op}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"], answer.get("text", ""))
        return answer.get("ok")

    def _talk(self, request: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self._process.stdout.readline()

    def close(self) -> None:
        """Ends the process, kindly at first."""
        if self._process.poll() is None:
            self._talk(json.dumps({"op": "close", "args": {}}))
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # of a request that a dead process did not take
                    stream.close()
