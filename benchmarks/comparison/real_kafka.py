"""Rows with a real Kafka: clients beside its own load tool, and a record's way through brokers to consumers.

Each broker is started when the first measurement needs it, and serves the rest of the run. Its JVM gets
faster as it runs, so the first turn of a scenario at each broker is made twice, and counted once.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType

import attrs
from broker.running import Address, Running, await_answer, our_broker, real_broker, why_no_kafka

from comparison import end_to_end, kafka_tool
from splashdam.cli.connecting import Cluster
from splashdam.cli.measuring import scenarios as table
from splashdam.cli.measuring.clock import WARM_UP_RECORDS
from splashdam.cli.measuring.cluster import BenchTopic, bench_topic
from splashdam.cli.measuring.scenarios import OURS, Contender, Scenario
from splashdam.cli.measuring.turns import MeasurementError, Run, Turn, measure_client, run_process
from splashdam.net.connect import TcpConnect

VERSION = "4.4.0"
KAFKA = "kafka"
"""In place of a client: the broker of a real Kafka."""

TIMEOUT_MS = 30_000
END_TO_END_RECORDS = 700
"""Records of a full run: three and a half seconds, after the warm-up three."""

HEAP = "1g"
SETTINGS = {"log.segment.delete.delay.ms": "1000"}
"""Of the real broker: a topic is deleted after each measurement, and its disk space must be free soon."""

_STARTED_BY = ("confluent_kafka", "pytest")
"""Modules of the tests' code that starts a real Kafka."""

TOOL = Contender("Kafka's producer-perf-test", "kafka-producer-perf-test", "tool", 3_000_000)
_NOTE = f"one broker of Kafka {VERSION}, warm, on the same processors; end offsets are the count"


def _consumed_by(client: str, needs: tuple[str, ...]) -> Scenario:
    return Scenario(
        name=f"end-to-end-{client}",
        title=f"latency from send() to the poll() of {client}'s consumer, linger 0",
        contenders=(
            Contender("splashdam broker", OURS, client, END_TO_END_RECORDS, needs),
            Contender(f"Kafka {VERSION}", KAFKA, client, END_TO_END_RECORDS, needs),
        ),
        kind="latency",
        linger_ms=0,
        per_second=200,
        note="200 records a second; splashdam's producer, broker and consumer are three processes",
    )


SENDING = Scenario(
    name="kafka-100",
    title=f"send() into Kafka {VERSION}, 100 B",
    contenders=(*table.ONE_BY_ONE, TOOL),
    note=f"{_NOTE}; the tool reports its own rate, without the start of its JVM",
)
WAITING = Scenario(
    name="kafka-wait",
    title=f"latency into Kafka {VERSION}, waiting for each record, linger 0",
    contenders=table.WAITING,
    kind="latency",
    linger_ms=0,
    note=f"{table.PACE}; {_NOTE}",
)
END_TO_END = (
    _consumed_by("kafka-python", table.KAFKA_PYTHON),
    _consumed_by("confluent-kafka", table.CONFLUENT),
)
SCENARIOS = (SENDING, WAITING, *END_TO_END)
INTO_KAFKA = (SENDING.name, WAITING.name)
NAMES = frozenset(each.name for each in SCENARIOS)


def on_this_machine(scenario: Scenario) -> Scenario:
    """Return the scenario with the reason at each contender that lacks a real Kafka here."""

    def marked(contender: Contender) -> Contender:
        if scenario.name not in INTO_KAFKA and contender.client != KAFKA:
            return contender
        why = why_no_kafka(VERSION, tools=contender.client == TOOL.client)
        return attrs.evolve(contender, absent=why, needs=(*contender.needs, *_STARTED_BY))

    return attrs.evolve(scenario, contenders=tuple(map(marked, scenario.contenders)))


def _kafka(home: Path) -> AbstractContextManager[Running]:
    """A real Kafka with the heap and the options of its own start script."""
    return real_broker(VERSION, home, settings=SETTINGS, heap=HEAP, jvm=kafka_tool.JVM)


STARTS: dict[str, Callable[[Path], AbstractContextManager[Running]]] = {OURS: our_broker, KAFKA: _kafka}


class Brokers:
    """The brokers of a run, with their data in a folder; all are stopped at the end of the block."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._running: dict[str, Address] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Brokers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def measure(self, turn: Turn, scale: float) -> Run:
        """Make one measurement.

        Raises:
            MeasurementError: it failed, or a record is missing.
        """
        if turn.round == 0 and (turn.contender.ours or turn.contender.client == KAFKA):
            self._measured(turn, scale)
        return self._measured(turn, scale)

    def _measured(self, turn: Turn, scale: float) -> Run:
        scenario, contender = turn.scenario, turn.contender
        if scenario.name not in INTO_KAFKA:
            return self._end_to_end(turn, scale)
        opened = partial(self._topic, KAFKA, scenario.partitions)
        if contender.client != TOOL.client:
            return measure_client(turn, opened, scale)
        with opened() as topic:
            return kafka_tool.measure(VERSION, scenario, topic, max(2, int(contender.records * scale)))

    def _end_to_end(self, turn: Turn, scale: float) -> Run:
        count = max(2 * WARM_UP_RECORDS, int(turn.contender.records * scale))
        with self._topic(turn.contender.client, end_to_end.PARTITIONS) as topic:
            script = [sys.executable, end_to_end.__file__, turn.contender.call]
            pace = str(turn.scenario.per_second)
            figures = run_process([*script, topic.bootstrap, topic.topic, str(count), pace], turn)
            arrived = topic.counts()["records"]
        sent = count + end_to_end.PARTITIONS  # and a first one in each partition
        if arrived != sent or figures["received"] != count:
            what = f"{turn.contender.label} ({turn.scenario.title})"
            raise MeasurementError(f"{what} has {arrived:,} records, {sent:,} were sent")
        return {"count": count, "records": arrived, **figures}

    @contextmanager
    def _topic(self, broker: str, partitions: int) -> Iterator[BenchTopic]:
        """Yield a new topic of a broker, which is deleted at the end."""
        address = self._address(broker)
        cluster = Cluster([address], TcpConnect(), None, TIMEOUT_MS)
        with bench_topic(cluster, f"{address[0]}:{address[1]}", partitions, 1) as topic:
            yield topic

    def _address(self, broker: str) -> Address:
        """Return the address of a broker, which is started if it does not run yet."""
        if broker not in self._running:
            folder = tempfile.TemporaryDirectory(prefix="splashdam-bench-", dir=self._folder)
            home = Path(self._stack.enter_context(folder))
            try:
                running = self._stack.enter_context(STARTS[broker](home))
            except AssertionError as error:
                raise MeasurementError(f"Kafka {VERSION} did not start:\n{str(error)[-3000:]}") from error
            await_answer(running.address)
            self._running[broker] = running.address
        return self._running[broker]
