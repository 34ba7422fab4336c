"""Tasks read ranges of a broker on TCP; what is gone is an error, or passed over."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.model.values import TopicPartition
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.net.admin import topics
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import open_cluster_client
from splashdam.net.connect import TcpConnect
from splashdam.pipeline.local_source import reading as reading_module
from splashdam.pipeline.local_source.options import source_options
from splashdam.pipeline.local_source.planning import DataLossError, OffsetRange
from splashdam.pipeline.local_source.reading import Reading
from splashdam.pipeline.schema import Columns, all_columns

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")

COUNT = 1000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One for all; each test has topics of its own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("reading"), fsync=False) as broker:
        yield broker


def fill(broker: EmbeddedBroker, topic: str, *, count: int = COUNT) -> None:
    """Numbered records in partition 0."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, batch_size=2000) as producer:
        for number in range(count):
            producer.send(topic, b"v%d" % number, key=b"k%d" % number, headers=[("n", b"%d" % number)])


def administer(broker: EmbeddedBroker, task: Any, *arguments: Any) -> None:
    """Has a topic changed."""

    async def run() -> None:
        addresses = parse_bootstrap_servers(broker.bootstrap_servers)
        async with open_cluster_client(addresses, connect=TcpConnect(), clock=SystemClock()) as client:
            await task(client, *arguments)

    trio.run(run)


def reading(broker: EmbeddedBroker, columns: Columns, **given: str) -> Reading:
    """As tasks do it."""
    given = {"subscribe": "t", "kafka.bootstrap.servers": broker.bootstrap_servers, **given}
    return Reading.of(source_options(given, streaming=False), columns)


def offsets(read: Reading, topic: str, first: int, end: int) -> list[int]:
    """Those of the records of a range."""
    batches = read.read(OffsetRange(TopicPartition(topic, 0), first, end))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_range_is_read_exactly(broker: EmbeddedBroker) -> None:
    """From its first offset up to its end, with every column as Spark wants it."""
    fill(broker, "exact")
    read = pickle.loads(pickle.dumps(reading(broker, all_columns(True))))
    batches = list(read.read(OffsetRange(TopicPartition("exact", 0), 10, 990)))
    assert all(batch.schema == all_columns(True).arrow for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(10, 990))
    assert (rows[0]["key"], rows[0]["value"], rows[0]["topic"]) == (b"k10", b"v10", "exact")
    assert rows[0]["headers"] == [{"key": "n", "value": b"10"}]


def test_trap_5_only_the_columns_asked_for(broker: EmbeddedBroker) -> None:
    """Trap 5: a user's schema reaches the decoder."""
    fill(broker, "columns", count=3)
    chosen = Columns(("offset", "key"))
    (batch,) = reading(broker, chosen).read(OffsetRange(TopicPartition("columns", 0), 0, 3))
    assert batch.schema == chosen.arrow
    assert batch.to_pydict() == {"offset": [0, 1, 2], "key": [b"k0", b"k1", b"k2"]}


def test_records_deleted_between_plan_and_task(broker: EmbeddedBroker) -> None:
    """An error that names what is gone, or the rest."""
    fill(broker, "deleted")
    administer(broker, topics.delete_records, TopicPartition("deleted", 0), 400)
    chosen = Columns(("offset",))
    with pytest.raises(DataLossError, match="deleted-0 starts at 400; offsets 100 to 399 were not read"):
        offsets(reading(broker, chosen), "deleted", 100, COUNT)
    lenient = reading(broker, chosen, failOnDataLoss="false")
    assert offsets(lenient, "deleted", 100, COUNT) == list(range(400, COUNT))
    assert offsets(lenient, "deleted", 100, 300) == []


def test_a_topic_deleted_between_plan_and_task(broker: EmbeddedBroker) -> None:
    """An error, or no rows."""
    fill(broker, "gone", count=3)
    administer(broker, topics.delete_topic, "gone")
    chosen = Columns(("offset",))
    with pytest.raises(DataLossError, match="gone-0 is no longer there; offsets 0 to 2 were not read"):
        offsets(reading(broker, chosen), "gone", 0, 3)
    assert offsets(reading(broker, chosen, failOnDataLoss="false"), "gone", 0, 3) == []


def test_a_log_that_ends_before(broker: EmbeddedBroker) -> None:
    """As a topic does that was deleted and made anew."""
    fill(broker, "short", count=3)
    chosen, given = (
        Columns(("offset",)),
        {"kafkaConsumer.pollTimeoutMs": "2000", "kafka.fetch.max.wait.ms": "1"},
    )
    with pytest.raises(DataLossError, match="short-0 ends at 3; offsets 3 to 8 were not read"):
        offsets(reading(broker, chosen, **given), "short", 0, 9)
    lenient = reading(broker, chosen, failOnDataLoss="false", **given)
    assert offsets(lenient, "short", 0, 9) == [0, 1, 2]
    with pytest.raises(DataLossError, match="short-0 ends at 3; offsets 5 to 8 were not read"):
        offsets(reading(broker, chosen, **given), "short", 5, 9)


def test_a_topic_created_again_between_plan_and_task(broker: EmbeddedBroker) -> None:
    """Its records are not those that were asked for, although it has all the offsets."""
    fill(broker, "anew", count=5)
    read = reading(broker, Columns(("offset",)))
    planned = OffsetRange(TopicPartition("anew", 0), 0, 5, read.cluster().topic_id("anew"))
    assert sum(batch.num_rows for batch in read.read(planned)) == 5
    administer(broker, topics.delete_topic, "anew")
    fill(broker, "anew", count=9)
    with pytest.raises(DataLossError, match=r"offsets 0 to 4 were not read .*another was created"):
        list(read.read(planned))
    lenient = reading(broker, Columns(("offset",)), failOnDataLoss="false")
    assert list(lenient.read(planned)) == []
    assert offsets(read, "anew", 0, 9) == list(range(9))


def test_a_topic_deleted_while_its_edges_are_asked_for(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First its records go, then the topic: still a loss, not an error of its own."""
    fill(broker, "going", count=5)
    administer(broker, topics.delete_records, TopicPartition("going", 0), 4)
    edge, present = reading_module._edge, ["going"]

    def delete_first(*arguments: Any) -> int:
        if present:
            administer(broker, topics.delete_topic, present.pop())
        return edge(*arguments)

    monkeypatch.setattr(reading_module, "_edge", delete_first)
    assert offsets(reading(broker, Columns(("offset",)), failOnDataLoss="false"), "going", 0, 5) == []


def test_transactions(broker: EmbeddedBroker) -> None:
    """With read_committed what was aborted is passed over, and its markers as with either level."""
    options = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": "a"}
    with KafkaProducer(**options) as producer:
        producer.init_transactions()
        for number, commits in enumerate((True, False, True)):
            producer.begin_transaction()
            producer.send("txn", b"%d" % number)
            producer.flush()
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    chosen = Columns(("offset",))
    assert offsets(reading(broker, chosen), "txn", 0, 6) == [0, 2, 4]
    committed = reading(broker, chosen, **{"kafka.isolation.level": "read_committed"})
    assert offsets(committed, "txn", 0, 6) == [0, 4]
