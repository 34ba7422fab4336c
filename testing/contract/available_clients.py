"""The clients that the contract can run through here, and how each is created."""

from __future__ import annotations

import json
import runpy
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple, Protocol

from splashdam.testing.contract.clients.security import plain
from splashdam.testing.contract.vocabulary import Client, Listener, Refused

_CONTRACT = "splashdam.testing.contract"

PYTHON_CLIENTS: Mapping[str, tuple[str, str]] = {
    "splashdam": ("clients.splashdam_client", "SplashdamClient"),
    "splashdam-trio": ("clients.splashdam_tasks", "TrioClient"),
    "splashdam-asyncio": ("clients.splashdam_tasks", "AsyncioClient"),
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
"""Settings of checked brokers, embedded or real: the contract's waits would else take minutes."""

CHECKOUT = Path(__file__).resolve().parents[2]
"""The root of the checkout, if this module runs from one."""


class MakeClient(Protocol):
    """Creates a client for the cluster at an address, with options for TLS and SASL."""

    def __call__(self, bootstrap_servers: str, security: Mapping[str, Any] | None = None, /) -> Client: ...


class MissingToolError(Exception):
    """A driver cannot be built on this machine; the message says what is missing."""


class Driver(NamedTuple):
    """The command that starts a driver, and its working directory."""

    command: tuple[str, ...]
    directory: Path


def checkout_drivers(jars: Sequence[Path]) -> Mapping[str, Callable[[], Driver]]:
    """Return functions that build the clients in Go, Java and JavaScript, by name; empty outside a checkout.

    Their sources are in ``lab/drivers``, which is not installed. No module of the package imports ``lab``, so
    ``toolchains`` is run from its path.

    Args:
        jars: folders with Kafka's jars, one client ``java FOLDER`` each.
    """
    toolchains = CHECKOUT / "lab" / "drivers" / "toolchains.py"
    if not toolchains.is_file():
        return {}
    drivers: Mapping[str, Callable[[], Driver]] = runpy.run_path(str(toolchains))["all_drivers"](jars)
    return drivers


def available(
    names: Sequence[str],
    drivers: Mapping[str, Callable[[], Driver]],
    missing: Callable[[str, str], None],
) -> dict[str, MakeClient]:
    """Return functions that create these clients; build the drivers that are not built yet.

    Args:
        names: keys of `PYTHON_CLIENTS` and of ``drivers``.
        drivers: functions that build clients in other languages.
        missing: called with the name of a client that is not available, and the reason.
    """
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


def why_not(name: str, security: Mapping[str, Any]) -> str | None:
    """Return why a client cannot connect with these options for TLS and SASL; None if it can."""
    mechanism = Listener("", security).mechanism
    if name.startswith("splashdam") or name == "protocol":
        return None
    if mechanism not in (None, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        return f"with {mechanism} only splashdam's own clients connect"
    if name not in PYTHON_CLIENTS and "ssl_certfile" in security:
        return "its driver has no client certificate"
    return None


def _external(driver: Driver, bootstrap_servers: str, security: Mapping[str, Any] | None = None) -> Client:
    return ExternalClient(driver.command, bootstrap_servers, driver.directory, security)


@contextmanager
def opened(
    makers: Mapping[str, MakeClient], bootstrap_servers: str, security: Mapping[str, Any] | None = None
) -> Iterator[list[Client]]:
    """Create the clients, and close them at the end of the block.

    Args:
        makers: functions that create them, by name.
        bootstrap_servers: addresses of the cluster.
        security: options for TLS and SASL, as `Listener.security`.
    """
    with ExitStack() as stack:
        yield [stack.enter_context(make(bootstrap_servers, security)) for make in makers.values()]


ANSWER_SECONDS = 60.0
"""A process that does not answer for so long is killed."""


class ExternalClient(Client):
    """A client in another language: a process that answers each operation with a line of JSON.

    Args:
        command: starts the process.
        bootstrap_servers: addresses of the cluster.
        directory: where the process runs.
        security: options for TLS and SASL, as `Listener.security`. They go through the pipe, where nobody
            sees the passwords.

    Raises:
        Refused: the process did not start.
    """

    def __init__(
        self,
        command: Sequence[str],
        bootstrap_servers: str,
        directory: Path,
        security: Mapping[str, Any] | None = None,
    ) -> None:
        self._command, self._directory = command, directory
        self._listener = Listener(bootstrap_servers, security or {})
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
            found = self._open(self._listener)
        except BaseException:
            self.close()
            raise
        self.name, self.version, self.ops = found["name"], found["version"], frozenset(found["ops"])

    def _open(self, listener: Listener) -> Any:
        return self.call("open", bootstrap=listener.bootstrap_servers, security=plain(listener.security))

    def call(self, op: str, /, **args: Any) -> Any:
        request = json.dumps({"op": op, "args": args})
        timer = Timer(ANSWER_SECONDS, self._process.kill)
        timer.start()
        try:
            line = self._exchange(request)
        finally:
            timer.cancel()
        if not line:
            raise Refused("DRIVER_ENDED", f"{self._process.args!r} ended or was silent: {op} has no answer")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"], answer.get("text", ""))
        return answer.get("ok")

    def twin(self, listener: Listener | None = None) -> Client:
        bootstrap_servers, security = listener or self._listener
        return ExternalClient(self._command, bootstrap_servers, self._directory, security)

    @contextmanager
    def at(self, listener: Listener) -> Iterator[Client]:
        """Let the process connect elsewhere meanwhile: another one would take a second to start in Java."""
        try:
            self._open(listener)
            yield self
        finally:
            with suppress(Refused):  # a process that has ended says so to the next operation
                self._open(self._listener)

    def _exchange(self, request: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return ""
        return self._process.stdout.readline()

    def close(self) -> None:
        """End the process; kill it if it does not end by itself."""
        if self._process.poll() is None:
            self._exchange(json.dumps({"op": "close", "args": {}}))
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # a request that the dead process did not read
                    stream.close()
