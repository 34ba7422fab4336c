"""``metrics()``: the names of kafka-python, and the right values."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
import trio
from kafka.metrics.metrics_reporter import AbstractMetricsReporter
from support.running.house_tree import ROOT
from support.scripted.cluster import Trouble

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.client.observing.metric_table import NODE, OWN, PRODUCER, TOPIC
from splashdam.model.errors import BufferExhaustedError, KafkaConfigurationError

BOOTSTRAP = {"node-bootstrap-0": "node--1"}
"""kafka-python's name of the first address, and Java's, which is ours."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path, fsync=False) as broker:
        yield broker


def test_every_metric_of_kafka_python_is_there(broker: EmbeddedBroker) -> None:
    """Both send to the same broker, and answer the same groups with the same names; we have some more."""
    with kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as theirs:
        theirs.send("t", b"value").get(300)
        expected = theirs.metrics()
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as ours:
        ours.send("t", b"value").get(300)
        found = ours.metrics()
    for group, names in expected.items():
        if not group.endswith("node-bootstrap-0"):  # whose connection serves on as that of node 1 here
            assert names.keys() <= found[group].keys()
    assert expected.keys() - found.keys() <= {"producer-node-metrics.node-bootstrap-0"}
    assert found.keys() <= expected.keys()


def test_raw_metrics_have_kafka_pythons_shape(broker: EmbeddedBroker) -> None:
    """Objects with a name, a group and tags, which can be read again."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="me") as producer:
        raw = producer.metrics(raw=True)
        producer.send("t", b"value").get(300)
        by_name = {(name.group, name.name): metric for name, metric in raw.items()}
        sent = by_name["producer-metrics", "record-send-total"]
        assert sent.value() == 1
        assert sent.metric_name.tags == {"client-id": "me"}
        assert raw[sent.metric_name] is sent
        flat = {(group, name) for group, names in producer.metrics().items() for name in names}
        assert {(each.group, each.name) for each in producer.metrics(raw=True)} == flat
        assert producer.metrics()["kafka-metrics-count"]["count"] == len(flat)


def test_names_stand_once_in_the_table() -> None:
    for rows in ((*PRODUCER, *OWN), NODE, TOPIC):
        names = [row.name for row in rows]
        assert len(names) == len(set(names))


def test_the_page_shows_the_table() -> None:
    """``python tools/metrics_page.py`` writes it anew."""
    as_markdown = runpy.run_path(str(ROOT / "tools/metrics_page.py"))["as_markdown"]
    assert (ROOT / "docs/reference/metrics.md").read_text().endswith(as_markdown())


async def test_values_of_some_batches(cluster: Any, autojump_clock: Any) -> None:
    """Ten records in two batches of one request: everything that follows from that."""
    async with cluster.producer(linger_ms=50, batch_size=10_000) as producer:
        await producer.prepare("two")
        before = producer.metrics()["producer-metrics"]
        for number in range(10):
            await producer.send("two", b"x" * 93, partition=number % 2)
        assert producer.metrics()["producer-metrics"]["batches-queued"] == 2
        await producer.flush()
        groups = producer.metrics()
    values = groups["producer-metrics"]
    assert values["record-send-total"] == values["record-ack-total"] == 10
    assert values["batch-send-total"] == 2
    assert values["produce-request-total"] == 1
    assert values["records-per-request-avg"] == 10
    assert values["compression-rate-avg"] == 1
    assert values["batch-size-avg"] == values["batch-size-max"] == values["byte-total"] / 2
    assert values["record-size-avg"] == values["batch-size-avg"] / 5
    assert values["record-send-rate"] == pytest.approx(10 / 30, rel=0.1)
    assert values["request-total"] - before["request-total"] in (1, 2)  # the batches, perhaps a producer id
    assert values["outgoing-byte-total"] > values["byte-total"]
    assert values["incoming-byte-total"] > 0
    assert values["network-io-total"] == values["request-total"] + values["response-total"]
    assert values["connection-creation-total"] - values["connection-close-total"] == 1
    assert values["metadata-wait-time-ns-total"] >= 0
    assert groups["producer-topic-metrics.two"]["record-send-total"] == 10
    assert groups["producer-topic-metrics.two"]["byte-total"] == values["byte-total"]
    assert groups["producer-node-metrics.node-1"]["request-total"] == values["request-total"]


async def test_windows_are_those_of_the_options(cluster: Any, autojump_clock: Any) -> None:
    """What was sent three windows ago is in the total and in no rate."""
    async with cluster.producer(metrics_num_samples=3, metrics_sample_window_ms=1_000) as producer:
        await (await producer.send("one", b"value"))
        assert producer.metrics()["producer-topic-metrics.one"]["record-send-rate"] > 0
        await trio.sleep(2)
        assert producer.metrics()["producer-topic-metrics.one"]["record-send-rate"] > 0
        await trio.sleep(2)
        topic = producer.metrics()["producer-topic-metrics.one"]
        assert (topic["record-send-rate"], topic["record-send-total"]) == (0, 1)
        assert producer.metrics()["producer-metrics"]["batch-size-max"] == 0


async def test_waiting_for_memory_is_counted(cluster: Any, autojump_clock: Any) -> None:
    """The broker asks to be left alone: the next record waits for memory until its time is up."""
    cluster.scripted.produce_script.append(Trouble(throttle_ms=2_000_000_000))
    async with cluster.producer(buffer_memory=4_000, max_block_ms=3_000) as producer:
        await (await producer.send("one", b"x"))
        producer.send_nowait("one", bytes(3_000))
        with pytest.raises(BufferExhaustedError):
            await producer.send("one", bytes(3_000))
        values = producer.metrics()["producer-metrics"]
        assert values["buffer-exhausted-total"] == 1
        assert values["bufferpool-wait-time-ns-total"] == pytest.approx(3e9)
        assert values["bufferpool-wait-ratio"] == pytest.approx(3 / 33, rel=0.01)
        assert values["produce-throttle-time-max"] == values["throttle-time-max"] == 2_000_000_000
        await producer.close(0)


class Reporter(AbstractMetricsReporter):  # type: ignore[misc]  # kafka-python has no types
    """One of kafka-python's own."""

    made: list[Reporter] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []
        self.closed = 0
        self.made.append(self)

    def init(self, metrics: Any) -> None:
        for metric in metrics:
            self.metric_change(metric)

    def metric_change(self, metric: Any) -> None:
        self.names.append((metric.metric_name.group, metric.metric_name.name))
        assert metric.value() >= 0

    def metric_removal(self, metric: Any) -> None:
        self.names.remove((metric.metric_name.group, metric.metric_name.name))

    def configure(self, configs: Any) -> None: ...

    def close(self) -> None:
        self.closed += 1


class Broken:
    """Raises wherever it is asked."""

    def init(self, metrics: Any) -> None: ...

    def metric_change(self, metric: Any) -> None:
        raise ValueError("no")

    metric_removal = metric_change

    def close(self) -> None: ...


def test_reporters_hear_of_new_topics(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    """A class is called, an object taken as it is; one that raises keeps the others from nothing."""
    Reporter.made.clear()
    given = Reporter()
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, metric_reporters=[Broken(), Reporter, given]
    )
    with producer:
        assert ("producer-metrics", "record-send-total") in given.names
        producer.send("fresh", b"value").get(300)
    for reporter in Reporter.made:
        assert ("producer-topic-metrics.fresh", "byte-rate") in reporter.names
        assert reporter.closed == 1
    assert len(Reporter.made) == 2
    assert "a metric reporter raised in metric_change" in caplog.text


def test_metrics_can_be_switched_off(broker: EmbeddedBroker) -> None:
    """As kafka-python's: None, and no reporter is made."""
    Reporter.made.clear()
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, metrics_enabled=False, metric_reporters=[Reporter]
    ) as producer:
        assert producer.metrics() is None
        assert Reporter.made == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"metric_reporters": [object()]}, "has no init and no metric_change"),
        ({"metric_reporters": Reporter}, "must be a list"),
        ({"metrics_num_samples": 0}, "must be at least 1"),
        ({"metrics_sample_window_ms": 0}, "must be at least 1"),
    ],
)
def test_illegal_options(options: dict[str, Any], text: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=text):
        KafkaProducer(**options)
