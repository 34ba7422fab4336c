"""``splashdam topics`` and ``splashdam groups``, in a process's own broker and over TCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import kafka
import pytest
from click.testing import CliRunner, Result

from splashdam import EmbeddedBroker
from splashdam.cli.commands import splashdam

Invoke = Callable[..., Result]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """The address of a broker."""
    config = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with EmbeddedBroker(tmp_path / "data", fsync=False, config=config) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def invoke(servers: str) -> Invoke:
    """Runs a command against it."""
    return lambda *arguments: CliRunner().invoke(splashdam, [*arguments, "-b", servers])


def rows(result: Result) -> list[list[str]]:
    """The cells of what was printed."""
    assert result.exit_code == 0, result.output
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_the_life_of_a_topic(invoke: Invoke) -> None:
    """Created, listed, described, altered, deleted."""
    created = invoke("topics", "create", "t", "--partitions", "2", "-c", "retention.ms=100000")
    assert created.output == "created t\n"
    assert invoke("topics", "create", "t", "--if-not-exists").output == "t exists\n"
    assert invoke("topics", "list", "--names").output == "t\n"
    assert rows(invoke("topics", "list")) == [
        ["topic", "partitions", "records", "bytes", "newest"],
        ["t", "2", "0", "0", "-"],
    ]
    described = rows(invoke("topics", "describe", "t"))
    assert described[0][0].endswith(", 2 partitions")
    assert described[1:] == [
        [
            *("partition", "earliest", "latest", "bytes", "newest"),
            *("leader", "leader epoch", "replicas", "in sync"),
        ],
        ["0", "0", "0", "0", "-", "1", "0", "1", "1"],
        ["1", "0", "0", "0", "-", "1", "0", "1", "1"],
        ["retention.ms=100000"],
    ]
    changes = ("--partitions", "3", "--unset", "retention.ms", "-c", "segment.bytes=2000000")
    assert invoke("topics", "alter", "t", *changes).output == "altered t\n"
    described = rows(invoke("topics", "describe", "t"))
    assert described[0][0].endswith(", 3 partitions")
    assert described[5:] == [["segment.bytes=2000000"]]
    assert ["cleanup.policy=delete"] in rows(invoke("topics", "describe", "t", "--all-configs"))
    assert invoke("topics", "delete", "t", "--yes").output == "deleted t\n"
    assert not invoke("topics", "list", "--names").output


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (("topics", "create", "t"), 1, "topic 't' exists"),
        (("topics", "create", "u", "-c", "retention.ms=soon"), 1, "retention.ms"),
        (("topics", "create", "u", "-c", "retention"), 2, "'retention' is not NAME=VALUE"),
        (("topics", "create", "u", "--replication-factor", "9"), 1, "InvalidReplicationFactor"),
        (("topics", "create", "u", "-X", "retention.ms=1"), 2, "--topic-config retention.ms=1"),
        (("topics", "create", "u", "-X", "retention.sm=1"), 2, "unknown client property"),
        (("topics", "alter", "t", "--partitions", "1"), 1, "InvalidPartitions"),
        (("topics", "alter", "t"), 2, "nothing to alter"),
        (("topics", "describe", "u"), 1, "topic 'u'"),
        (("topics", "delete", "u", "--yes"), 1, "UnknownTopicOrPartition"),
        (("groups", "describe", "g"), 1, "group 'g'"),
        (("groups", "delete", "g", "--yes"), 1, "group 'g'"),
        (("groups", "reset", "g"), 2, "say where to, once"),
        (("groups", "reset", "g", "--to-latest"), 1, "'g' has no committed offsets; name the topics"),
        (("groups", "reset", "g", "--to-latest", "--to-offset", "1"), 2, "latest contradicts --to-offset"),
        (("groups", "reset", "g", "--to-latest", "--topic", "t:5"), 1, "t has no partition 5; it has 1"),
        (("groups", "reset", "g", "--to-latest", "--topic", "t:x"), 2, "'t:x' is not TOPIC"),
    ],
)
def test_refusals_are_explained(invoke: Invoke, command: tuple[str, ...], status: int, said: str) -> None:
    """One message, and a status that scripts can use."""
    invoke("topics", "create", "t", "--partitions", "1")
    result = invoke(*command)
    assert (result.exit_code, said in result.output) == (status, True), result.output


def test_deleting_asks_first(invoke: Invoke) -> None:
    """Unless it is told not to."""
    invoke("topics", "create", "t")
    asked = invoke("topics", "delete", "t")
    assert (asked.exit_code, "Delete t and all its records?" in asked.output) == (1, True)
    assert invoke("topics", "list", "--names").output == "t\n"


def test_the_life_of_a_group(invoke: Invoke, servers: str) -> None:
    """Its member is shown with what it reads; once it has left, the group is reset and deleted."""
    invoke("topics", "create", "t", "--partitions", "1")
    with kafka.KafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(5):
            producer.send("t", b"%d" % number, timestamp_ms=1_700_000_000_000 + number)
    consumer = kafka.KafkaConsumer(
        "t", group_id="g", bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    for _, record in zip(range(3), consumer, strict=False):
        consumer.commit({kafka.TopicPartition("t", 0): kafka.OffsetAndMetadata(record.offset + 1, "", -1)})
    described = rows(invoke("groups", "describe", "g"))
    assert described[0] == ["g: Stable, classic, 1 member"]
    assert described[2][:5] == ["t", "0", "3", "5", "2"]
    assert described[2][5].startswith("kafka-python")
    refused = invoke("groups", "reset", "g", "--to-earliest")
    assert (refused.exit_code, "stop its consumers, then reset it" in refused.output) == (1, True)
    consumer.close()
    assert rows(invoke("groups", "list")) == [["group", "state", "type"], ["g", "Empty", "classic"]]
    for where, offset in (
        (("--to-earliest",), "0"),
        (("--to-latest",), "5"),
        (("--to-offset", "2"), "2"),
        (("--to-offset", "99"), "5"),
        (("--shift-by", "-2"), "3"),
        (("--to-datetime", "2000-01-01"), "0"),
        (("--to-datetime", "2100-01-01"), "5"),
    ):
        assert rows(invoke("groups", "reset", "g", *where))[1][3] == offset, where
    assert rows(invoke("groups", "reset", "g", "--to-earliest", "--dry-run"))[1][2:] == ["5", "0"]
    assert rows(invoke("groups", "describe", "g"))[2][2] == "5"
    assert invoke("groups", "delete", "g", "--yes").output == "deleted g\n"
    assert rows(invoke("groups", "list")) == [["group", "state", "type"]]


def test_a_directory_without_a_broker(tmp_path: Path) -> None:
    """``embedded:DIR`` opens one for the length of the command."""
    where = ("-b", f"embedded:{tmp_path / 'data'}")
    assert CliRunner().invoke(splashdam, ["topics", "create", "t", *where]).output == "created t\n"
    assert CliRunner().invoke(splashdam, ["topics", "list", "--names", *where]).output == "t\n"


@pytest.mark.parametrize("command", [("topics", "list"), ("topics", "delete", "t", "--yes"), ("tail", "t")])
def test_a_directory_that_is_mistyped_was_made(tmp_path: Path, command: tuple[str, ...]) -> None:
    """It looked like an empty cluster; only what makes a topic makes the directory."""
    done = CliRunner().invoke(splashdam, [*command, "-b", f"embedded:{tmp_path / 'nothere'}"])
    assert done.exit_code == 2
    assert f"there is no directory {tmp_path / 'nothere'}" in done.output
    assert not (tmp_path / "nothere").exists()
