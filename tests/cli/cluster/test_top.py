"""``splashdam top``: the looks that scripts get, and the picture that people get."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest
from click.testing import CliRunner
from rich.console import Console

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.cli.cluster.top import Look, picture
from splashdam.cli.commands import splashdam
from splashdam.console.sampling import Moment, Seen
from splashdam.model.errors import KafkaTimeoutError
from splashdam.model.values import TopicPartition
from splashdam.model.views.cluster import (
    BrokerView,
    GroupPartitionView,
    GroupView,
    Overview,
    PartitionView,
    TopicView,
)
from splashdam.net.inspector import Inspector


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """The address of a broker."""
    config = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with EmbeddedBroker(tmp_path / "data", fsync=False, config=config, topics={"orders": 2}) as broker:
        yield broker.bootstrap_servers


def test_one_look_as_json(servers: str) -> None:
    """Topics with their rates, and groups with their lag."""
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(10):
            producer.send("orders", b"x", partition=number % 2)
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, group_id="billing")
    where = kafka.TopicPartition("orders", 1)
    consumer.assign([where])
    consumer.commit({where: kafka.structs.OffsetAndMetadata(2, "", -1)})
    consumer.close()
    arguments = ["top", "-b", servers, "--once", "--json", "--interval", "0.2"]
    result = CliRunner().invoke(splashdam, arguments)
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    look = json.loads(line)
    (topic,) = look["topics"]
    assert (topic["topic"], topic["records"], topic["records_per_second"]) == ("orders", 10, 0)
    (group,) = look["groups"]
    assert (group["group"], group["state"], group["members"], group["lag"]) == ("billing", "Empty", 0, 3)
    assert group["worst"] == {"topic": "orders", "partition": 1, "lag": 3}


def test_a_pipe_gets_one_look(servers: str) -> None:
    """As with --once: nobody can press a key there."""
    result = CliRunner().invoke(splashdam, ["top", "-b", servers, "--interval", "0.2"])
    assert result.exit_code == 0, result.output
    assert "1 broker, " in result.stdout
    assert "orders" in result.stdout
    assert "no group" in result.stdout


def test_a_broker_that_goes_between_two_questions_ended_the_command(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topics were answered and the groups were not: the look says so, and the next one comes."""

    async def groups(*_: object) -> list[GroupView]:
        raise KafkaTimeoutError("no answer in time")

    monkeypatch.setattr(Inspector, "groups", groups)
    result = CliRunner().invoke(splashdam, ["top", "-b", servers, "--interval", "0.2"])
    assert result.exit_code == 0, result.output
    assert "not shown: no answer in time" in result.stdout


def test_a_dead_cluster_is_an_error() -> None:
    """With the address."""
    result = CliRunner().invoke(splashdam, ["top", "-b", "127.0.0.1:1", "--once", "--timeout", "1"])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output


def drawn(look: Look, height: int) -> str:
    """What a terminal of 80 columns shows."""
    console = Console(width=80, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(picture(look, "kafka:9092", height=height))
    return capture.get()


def test_the_busiest_come_first_and_all_fits() -> None:
    """Of a hundred topics those that fit; the others are counted. Names are text, not markup."""
    names = ["[bold]loud[/bold]", *(f"t{number}" for number in range(99))]
    topics = [
        TopicView(
            name=name,
            partitions=(
                PartitionView(
                    topic_partition=TopicPartition(name, 0), leader=1, first_offset=0, end_offset=5
                ),
            ),
        )
        for name in names
    ]
    overview = Overview(
        taken_ms=0, cluster_id="c", brokers=[BrokerView(node_id=1, host="b", port=1)], topics=topics
    )
    before, after = dict.fromkeys(names, 0), {**dict.fromkeys(names, 0), "[bold]loud[/bold]": 50}
    moments = (Moment(0, before, {}), Moment(1000, after, {}))
    seen = Seen(overview=overview, failure=None, failing_since_ms=None, moments=moments)
    behind = GroupPartitionView(topic_partition=TopicPartition("t1", 0), committed_offset=3, end_offset=10)
    group = GroupView(group_id="billing", state="Stable", group_type="classic", partitions=(behind,))
    lines = drawn(Look(seen=seen, groups=(group,)), height=24).splitlines()
    assert len(lines) <= 24
    assert lines[2].split() == ["[bold]loud[/bold]", "1", "5", "0", "B", "50", "-"]
    assert any("more" in line for line in lines)
    assert any("billing" in line and "t1-0: 7" in line for line in lines)
