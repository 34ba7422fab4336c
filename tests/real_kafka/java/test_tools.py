"""Kafka's command line tools say the same of the embedded broker as of a real Kafka, step by step."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from support.kafka.kafka_jars import TOOL_SECONDS, classpath, config_command, kafka_broker, newest_with_tools

from splashdam import EmbeddedBroker
from splashdam.testing.contract.available_clients import EMBEDDED_CONFIG

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

_JVM = (
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
)
_TOOLS = "org.apache.kafka.tools"
_CLASSES = {
    "topics": f"{_TOOLS}.TopicCommand",
    "groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "producer": f"{_TOOLS}.ConsoleProducer",
    "consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "verifiable-producer": f"{_TOOLS}.VerifiableProducer",
    "verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "producer-perf": f"{_TOOLS}.ProducerPerformance",
    "transactions": f"{_TOOLS}.TransactionsCommand",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "delete-records": f"{_TOOLS}.DeleteRecordsCommand",
    "log-dirs": f"{_TOOLS}.LogDirsCommand",
}


class Step(NamedTuple):
    """A tool, what it is told, and what stands on its standard input; BROKER stands for the address."""

    tool: str
    arguments: str
    lines: str = ""

    @property
    def title(self) -> str:
        """Its name in the report."""
        return f"{self.tool} {self.arguments}".replace("BROKER", "").strip()


TOPIC = "--topic t"
STEPS = (
    Step("topics", f"--create {TOPIC} --config retention.ms=1000000"),
    Step("topics", f"--create {TOPIC}"),
    Step("topics", f"--alter {TOPIC} --partitions 2"),
    Step("topics", f"--alter {TOPIC} --partitions 1"),
    Step("topics", f"--describe {TOPIC}"),
    Step("topics", "--create --topic v"),
    Step("topics", "--list --exclude-internal"),
    Step("configs", "--entity-type topics --entity-name t --alter --add-config max.message.bytes=2000"),
    Step("configs", "--entity-type topics --entity-name t --alter --add-config max.message.bytes=none"),
    Step("configs", "--entity-type topics --entity-name t --describe"),
    Step("configs", "--entity-type topics --entity-name t --alter --delete-config max.message.bytes"),
    Step("configs", "--entity-type topics --entity-name t --describe"),
    Step("producer", "--topic v --property parse.key=true --property key.separator=:", "a:1\nb:2\nc:3\n"),
    Step(
        "consumer",
        "--topic v --from-beginning --max-messages 3 --group g"
        " --property print.key=true --property print.offset=true --property print.partition=true",
    ),
    Step("producer", "--topic v", "4\n5\n"),
    Step(
        "consumer",
        "--topic v --from-beginning --max-messages 5 --group h --consumer-property group.protocol=consumer",
    ),
    Step("groups", "--list"),
    Step("groups", "--list --state"),
    Step("groups", "--describe --group g"),
    Step("groups", "--describe --group h --state"),
    Step("groups", "--group g --reset-offsets --to-earliest --topic v --execute"),
    Step("groups", "--describe --group g"),
    Step("groups", "--group g --delete-offsets --topic v:0"),
    Step("groups", "--delete --group g --group h"),
    Step("groups", "--describe --group nobody"),
    Step("get-offsets", "--topic v"),
    Step("get-offsets", "--topic v --time earliest"),
    Step("get-offsets", "--topic nothing"),
    Step("verifiable-producer", "--topic v --max-messages 5 --repeating-keys 2"),
    Step("verifiable-consumer", "--topic v --group-id w --max-messages 5 --reset-policy earliest"),
    Step(
        "verifiable-consumer",
        "--topic v --group-id x --max-messages 5 --reset-policy earliest --group-protocol consumer",
    ),
    Step(
        "producer-perf",
        "--topic t --num-records 1000 --record-size 100 --throughput -1"
        " --producer-props bootstrap.servers=BROKER",
    ),
    Step(
        "producer-perf",
        "--topic v --num-records 100 --record-size 100 --throughput -1"
        " --producer-props bootstrap.servers=BROKER --transactional-id perf --transaction-duration-ms 60000",
    ),
    Step("transactions", "list"),
    Step("transactions", "describe --transactional-id perf"),
    Step("transactions", "describe-producers --topic v --partition 0"),
    Step("transactions", "find-hanging --broker-id 1"),
    Step("delete-records", "--offset-json-file before.json"),
    Step("get-offsets", "--topic v --time earliest"),
    Step("log-dirs", "--describe --topic-list v"),
    Step("topics", f"--delete {TOPIC}"),
    Step("topics", f"--describe {TOPIC}"),
    Step("topics", "--list --exclude-internal"),
)
BEFORE = '{"partitions": [{"topic": "v", "partition": 0, "offset": 3}], "version": 1}'
"""For kafka-delete-records."""

WITHOUT_ADDRESS = ("producer-perf",)
"""Those that are told the address in another way."""

VARIES = (
    (r"127\.0\.0\.1:\d+|localhost:\d+", "ADDRESS"),
    (r"TopicId: \S+", "TopicId: ID"),
    (r'"timestamp":\d+', '"timestamp":TIME'),
    (r'"avg_throughput":[\d.E]+', '"avg_throughput":RATE'),
    (r"records sent, .*", "records sent"),
    (r'"logDir":"[^"]*"', '"logDir":"DIRECTORY"'),
    (r'"size":\d+', '"size":BYTES'),
    (r"\d{13}", "TIME"),
    (r"(TIME\s+)\d+", r"\1MILLISECONDS"),
    (r"(topic command : |InvalidConfigurationException: ).*", r"\1"),  # brokers say it in their own words
    (r"Configs: min\.insync\.replicas=1,", "Configs: "),  # a cluster's own, once it has eligible replicas
    (r"\tat .*\n|Caused by: .*\n", ""),
)
"""What is another one each time, wherever it runs."""


def said_by(step: Step, version: str, servers: str, directory: Path) -> str:
    """Exit status and output of a tool, without what is another one each time."""
    address = () if step.tool in WITHOUT_ADDRESS else ("--bootstrap-server", servers)
    told = (*address, *step.arguments.replace("BROKER", servers).split())
    main_class = config_command(version) if step.tool == "configs" else _CLASSES[step.tool]
    done = subprocess.run(
        ["java", *_JVM, "-cp", classpath(version), main_class, *told],
        input=step.lines,
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
        cwd=directory,
    )
    assert "Could not find or load main class" not in done.stderr, done.stderr
    text = f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return text


def all_said(version: str, servers: str, directory: Path) -> Mapping[int, str]:
    """What each step says, in their order."""
    (directory / "before.json").write_text(BEFORE)
    return {number: said_by(step, version, servers, directory) for number, step in enumerate(STEPS)}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Mapping[int, str], Mapping[int, str]]:
    """By the embedded broker, and by the newest Kafka whose tools were published."""
    version = newest_with_tools()
    home = tmp_path_factory.mktemp("tools")
    with EmbeddedBroker(home / "embedded", config=EMBEDDED_CONFIG, fsync=False) as embedded:
        ours = all_said(version, embedded.bootstrap_servers, home)
    with kafka_broker(version, home / "kafka", EMBEDDED_CONFIG) as real:
        theirs = all_said(version, real.bootstrap_servers, home)
    return ours, theirs


@pytest.mark.parametrize("number", range(len(STEPS)), ids=lambda number: f"{number}: {STEPS[number].title}")
def test_a_tool(number: int, said: tuple[Mapping[int, str], Mapping[int, str]]) -> None:
    """Status and output are the same."""
    ours, theirs = said
    assert ours[number] == theirs[number]
