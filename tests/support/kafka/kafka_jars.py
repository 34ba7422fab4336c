"""A real Kafka out of its published jars: a broker on loopback, and its command line tools.

`make kafka` fetches the jars and says where they are (``KAFKA_JARS``); without it, tests that ask for them
are skipped and say why, so that plain `make test` starts no JVM and needs no network.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from splashdam.storage.directories.partition_metadata import format_uuid, new_uuid
from support.running.ports import free_port

VERSIONS = tuple(os.environ.get("KAFKA_VERSIONS", "4.4.0 4.3.1 3.9.2").split())
MEASURE = "4.4.0"
"""The version whose ranges of versions and whose nulls are compared, key by key."""
START_SECONDS = 60
_ASK_SECONDS = 2
_LOOK_SECONDS = 0.1
TOOL_SECONDS = 120
_JVM = ("-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_DUMP_LOG = {"3": "kafka.tools.DumpLogSegments"}
_NEWER_DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"


def why_missing(version: str) -> str | None:
    """What one Kafka version is not here for; None where its broker can be started."""
    if "KAFKA_JARS" not in os.environ:
        return "needs a real Kafka, which `make kafka` fetches"
    jars = Path(os.environ["KAFKA_JARS"])
    if not (jars / version).is_dir():
        return f"Kafka {version} is not in {jars}: `make kafka` could not fetch it"
    return "Java is not installed" if shutil.which("java") is None else None


def classpath(version: str) -> str:
    """The jars of one Kafka version; skips the test where they or Java are missing."""
    why = why_missing(version)
    if why is not None:
        pytest.skip(why)
    return f"{os.environ['KAFKA_JARS']}/{version}/*"


def has_tools(version: str) -> bool:
    """Whether the command line tools are among the jars; `kafka-tools-api` alone does not count."""
    return any(Path(classpath(version)).parent.glob("kafka-tools-[0-9]*.jar"))


def run_tool(version: str, main_class: str, *arguments: str) -> str:
    """What a command line tool of Kafka prints; one that fails, fails the test with all it said."""
    done = subprocess.run(
        ["java", "-Xmx512m", *_JVM, "-cp", classpath(version), main_class, *arguments],
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def need_tools(version: str) -> None:
    """Skips the test where the command line tools of a version were not published."""
    if not has_tools(version):
        pytest.skip(f"Kafka {version} is there without its command line tools")


def newest_with_tools() -> str:
    """The newest version that is here with its command line tools; without one the test is skipped."""
    missing = []
    for version in VERSIONS:
        why = why_missing(version)
        if why is None and has_tools(version):
            return version
        missing.append(why or f"Kafka {version} is there without its command line tools")
    pytest.skip("; ".join(dict.fromkeys(missing)))


def config_command(version: str) -> str:
    """The main class of kafka-configs, which came to the other tools in 4.4."""
    major, minor = (int(number) for number in version.split(".")[:2])
    return "org.apache.kafka.tools.ConfigCommand" if (major, minor) >= (4, 4) else "kafka.admin.ConfigCommand"


def dump_log(version: str, *files: Path, options: tuple[str, ...] = ()) -> str:
    """What kafka-dump-log says of the files; skips the test where the tools were not published."""
    need_tools(version)
    main_class = _DUMP_LOG.get(version.partition(".")[0], _NEWER_DUMP_LOG)
    return run_tool(version, main_class, *options, "--files", ",".join(map(str, files)))


class KafkaBroker:
    """One node, broker and controller, whose data directory outlives it: it can be started again.

    Args:
        version: of Kafka.
        home: a directory of its own; the log directory is ``data`` in it.
        settings: of the broker, by Kafka's names, besides those that a single node needs.
        format_options: for the formatting of the directory, ``--add-scram`` for example.
        cluster_id: whose node it is; a cluster of its own by default.
        heap: of its JVM.
        jvm: other options of its JVM; those of the tests start soon and run slowly.
    """

    def __init__(
        self,
        version: str,
        home: Path,
        settings: Mapping[str, str] | None = None,
        format_options: Sequence[str] = (),
        cluster_id: str | None = None,
        *,
        heap: str = "512m",
        jvm: Sequence[str] = _JVM,
    ) -> None:
        self.version = version
        self.cluster_id = cluster_id or format_uuid(new_uuid())
        self.data = home / "data"
        self._home = home
        self._settings = dict(settings or {})
        self._format_options = format_options
        self._jvm = (f"-Xmx{heap}", *jvm)
        self._classpath = classpath(version)
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap_servers = ""

    def start(self) -> None:
        """Starts it, formatting the directory the first time, and waits until it answers."""
        self.launch()
        self.wait_until_it_answers()

    def launch(self) -> None:
        """Starts it, formatting the directory the first time."""
        properties = self.format()
        with (self._home / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["java", *self._jvm, "-cp", self._classpath, "kafka.Kafka", str(properties)],
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None
        return self._process.pid

    def format(self) -> Path:
        """Formats the directory, unless it is; where the settings are."""
        properties = self._write_properties()
        if not (self.data / "meta.properties").exists():
            self._format(properties)
        return properties

    def stop(self, *, kill: bool = False) -> None:
        """Ends it: in order, which leaves a clean directory, or at once, which does not."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            process.wait(START_SECONDS)

    def wait_log_start_on_disk(self, partition: str, offset: int) -> None:
        """Until the directory says where a log begins: a Kafka that runs writes it down once a minute, or as
        ``log.flush.start.offset.checkpoint.interval.ms`` says."""
        wanted = f"{partition.replace('-', ' ')} {offset}"
        path = self.data / "log-start-offset-checkpoint"
        deadline = time.monotonic() + START_SECONDS
        while not path.exists() or wanted not in path.read_text().splitlines():
            assert time.monotonic() < deadline, f"{path} does not say {wanted!r}"
            time.sleep(_LOOK_SECONDS)

    def _write_properties(self) -> Path:
        settings = {**self._properties(), **self._settings}
        self.bootstrap_servers = settings["advertised.listeners"].partition(",")[0].partition("//")[2]
        path = self._home / "server.properties"
        self._home.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _format(self, properties: Path) -> None:
        arguments = ("format", "-t", self.cluster_id, "-c", str(properties), *self._format_options)
        run_tool(self.version, "kafka.tools.StorageTool", *arguments)

    def _properties(self) -> dict[str, str]:
        broker, controller = free_port(), free_port()
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def wait_until_it_answers(self) -> None:
        """Waits until a client gets its metadata; the test fails if it ends before."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            with suppress(confluent_kafka.KafkaException):
                # The client tries again by itself until the time is up.
                admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
                if admin.list_topics(timeout=_ASK_SECONDS).brokers:
                    return
        self.stop(kill=True)
        raise AssertionError((self._home / "broker.log").read_text())


@contextmanager
def kafka_broker(
    version: str, home: Path, settings: Mapping[str, str] | None = None
) -> Iterator[KafkaBroker]:
    """A running broker; it is stopped in order at the end of the block."""
    broker = KafkaBroker(version, home, settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
