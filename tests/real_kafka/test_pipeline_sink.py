"""The sink's ``exactly_once`` on a real Kafka: tasks that die, drivers and brokers that start again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from support.clients.prepared_scenarios import ask
from support.kafka.kafka_jars import VERSIONS, KafkaBroker, kafka_broker
from support.kafka.kafka_reading import served
from support.pipeline.connector_topics import create
from support.pipeline.pipeline_sink_kit import Tasks, options, rows, schema
from support.pipeline.pipeline_sink_streams import add_file, deadly, forget_commits, send_files

from splashdam.model.errors import KafkaError
from splashdam.net.admin.transactions import open_transactions
from splashdam.pipeline.local_source.options import NAME
from splashdam.pipeline.sink import committing
from splashdam.pipeline.sink.decisions import transactions_prefix
from splashdam.pipeline.sink.writers import StreamWriter, stream_writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

ROWS = 400


@pytest.fixture(scope="session", autouse=True)
def _kafka_is_there() -> None:
    """Before a session is started in vain."""
    if "KAFKA_JARS" not in os.environ:
        pytest.skip("needs a real Kafka, which `make kafka` fetches")


@pytest.fixture(scope="module", params=VERSIONS)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    """One for all tests of a version."""
    with kafka_broker(request.param, tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def values(broker: KafkaBroker, topic: str) -> list[int]:
    """The records that read_committed consumers see."""
    return sorted(
        int(each.value or b"-1") for each in served(broker.bootstrap_servers, topic, committed=True)
    )


def left_open(broker: KafkaBroker, query: str) -> list[str]:
    """The transactions of a query that are open. A Kafka that has just started may not know of them yet."""
    prefix = transactions_prefix(query)
    return ask(broker.bootstrap_servers, lambda client: open_transactions(client, prefix))


@pytest.mark.parametrize("how", ["fails", "killed"])
def test_a_task_is_lost(spark: SparkSession, running: KafkaBroker, tmp_path: Path, how: str) -> None:
    """Its rows were sent by halves; each is seen once, and nothing is left open."""
    servers, topic = running.bootstrap_servers, f"task-{how}"
    create(servers, {topic: 1})
    add_file(tmp_path, 0, ROWS)
    send_files(spark, tmp_path, deadly(spark, tmp_path / "done", how), servers, topic)
    assert (tmp_path / "done").exists()
    assert values(running, topic) == list(range(ROWS))
    assert ask(servers, open_transactions) == []


def test_the_driver_dies_after_the_commit(spark: SparkSession, running: KafkaBroker, tmp_path: Path) -> None:
    """Spark writes the batch again; it is known, nothing is written, and the query goes on."""
    servers, topic = running.bootstrap_servers, "driver"
    create(servers, {topic: 1})
    add_file(tmp_path, 0, ROWS // 2)
    send_files(spark, tmp_path, NAME, servers, topic)
    forget_commits(tmp_path)
    add_file(tmp_path, ROWS // 2, ROWS // 2)
    send_files(spark, tmp_path, NAME, servers, topic)
    assert values(running, topic) == list(range(ROWS))


@pytest.mark.parametrize("kill", [None, False, True], ids=["driver", "broker stops", "broker killed"])
def test_restarts_between_decision_and_commit(
    running: KafkaBroker, monkeypatch: pytest.MonkeyPatch, kill: bool | None
) -> None:
    """What is decided is committed by the next driver; the tasks of the replay write nothing."""
    topic = query = f"restart-{kill}"
    create(running.bootstrap_servers, {topic: 1})
    tasks = Tasks(monkeypatch)

    def writer() -> StreamWriter:
        given = options(running.bootstrap_servers, topic=topic, delivery="exactly_once")
        return stream_writer(schema("value binary"), given, False)

    def dies(*_: object) -> None:
        raise KafkaError("the driver dies")

    messages = [tasks.run(writer(), rows([b"%d" % number]), number, query, 0) for number in range(3)]
    with monkeypatch.context() as patched:
        patched.setattr(committing, "_commit_all", dies)
        with pytest.raises(KafkaError, match="the driver dies"):
            writer().commit(messages, 0)
    assert values(running, topic) == []
    assert len(left_open(running, query)) == len(messages)  # decided, and not committed
    if kill is not None:
        running.stop(kill=kill)
        running.start()
    replayed = tasks.run(writer(), rows([b"99"]), query=query, batch=0)
    assert replayed.outcome.was_decided
    writer().commit([replayed], 0)
    writer().commit([replayed], 0)
    assert values(running, topic) == [0, 1, 2]
    assert left_open(running, query) == []
