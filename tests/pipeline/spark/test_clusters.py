"""Reading a cluster from threads that block, against an embedded broker on TCP."""

from __future__ import annotations

import os
import signal
import socket
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.pipeline.pipeline_kit import administer, rows_of

from splashdam import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.broker_errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from splashdam.model.errors import CannotConnectError, IllegalStateError
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.net.admin.topics import delete_records, delete_topic
from splashdam.pipeline.clusters import EARLIEST, LATEST, ClusterConfig, ClusterReader, reader_for
from splashdam.pipeline.schema import Columns

pytest.importorskip("pyarrow", reason="needs splashdam[spark]")

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


@pytest.fixture
def readers(kafka_broker: EmbeddedBroker) -> Iterator[Any]:
    """Makes readers of the broker, with small chunks, and closes them."""
    made: list[ClusterReader] = []

    def make(level: IsolationLevel = UNCOMMITTED, **properties: str) -> ClusterReader:
        given = {"bootstrap.servers": kafka_broker.bootstrap_servers, "max.partition.fetch.bytes": "300"}
        options = {name.replace("_", "."): text for name, text in properties.items()}
        made.append(ClusterReader(ClusterConfig.from_options({**given, **options}), level))
        return made[-1]

    yield make
    for reader in made:
        reader.close()


def fill(broker: EmbeddedBroker, topic: str, count: int) -> TopicPartition:
    """A topic with one partition of small batches."""
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, batch_size=100) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)
    return TopicPartition(topic, 0)


def offsets_read(
    reader: ClusterReader, where: TopicPartition, first: int, end: int, *, read_committed: bool = False
) -> tuple[list[int], int]:
    """The offsets of the records that a task would see, and how far it got."""
    from splashdam.pipeline.decoding import RecordDecoder

    decoder = RecordDecoder(
        where, Columns(("offset",)), first_offset=first, end_offset=end, read_committed=read_committed
    )
    batches = []
    for fetched in reader.read(where, first, end):
        batches += decoder.feed(fetched.batches, fetched.aborted)
    batches += decoder.finish()
    return [row["offset"] for row in rows_of(batches)], decoder.position


def test_topics_and_partitions(kafka_broker: EmbeddedBroker, readers: Any) -> None:
    """Topics without Kafka's own, partitions, first and last offsets, and those of a time."""
    where = fill(kafka_broker, "flights", 5)
    with KafkaProducer(
        bootstrap_servers=kafka_broker.bootstrap_servers, transactional_id="makes an internal topic"
    ) as producer:
        producer.init_transactions()
    reader = readers()
    assert reader.topics() == ["flights"]
    assert reader.partitions("flights") == [0]
    assert reader.offsets("flights", [0], EARLIEST) == {0: 0}
    assert reader.offsets("flights", [0], LATEST) == {0: 5}
    assert reader.offsets("flights", [0], 2**50) == {0: -1}
    assert offsets_read(reader, where, 0, 0) == ([], 0)


def test_ranges(kafka_broker: EmbeddedBroker, readers: Any) -> None:
    """Many chunks, from within a batch to within another."""
    where = fill(kafka_broker, "flights", 200)
    reader = readers()
    assert len(list(reader.read(where, 0, 200))) > 10
    for first, end in ((0, 200), (7, 8), (7, 131)):
        assert offsets_read(reader, where, first, end) == (list(range(first, end)), end)


def test_transactions(kafka_broker: EmbeddedBroker, readers: Any) -> None:
    """Aborted records are left out, markers move the position, and what is open ends the range early."""
    where = TopicPartition("flights", 0)
    with KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            producer.send("flights", b"%d" % number, partition=0).get()
            if number == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.begin_transaction()
        producer.send("flights", b"open", partition=0).get()
        reader = readers(COMMITTED)
        assert reader.offsets("flights", [0], LATEST) == {0: 6}
        assert readers(UNCOMMITTED).offsets("flights", [0], LATEST) == {0: 7}
        committed = partial(offsets_read, reader, where, read_committed=True)
        assert committed(0, 6) == ([0, 4], 6)
        assert committed(2, 4) == ([], 4)  # an aborted record and a marker
        assert committed(5, 6) == ([], 6)  # a marker alone
        assert committed(0, 7) == ([0, 4], 6)  # the open one is not waited for
        assert offsets_read(readers(UNCOMMITTED), where, 0, 7)[0] == [0, 2, 4, 6]
        producer.abort_transaction()


def test_lost_records(kafka_broker: EmbeddedBroker, readers: Any) -> None:
    """Deleted records, and a log that ends before the range, are distinguished from an end."""
    where = fill(kafka_broker, "flights", 50)
    administer(kafka_broker.bootstrap_servers, lambda client: delete_records(client, where, 40))
    reader = readers(default_api_timeout_ms="2000", fetch_max_wait_ms="1")
    with pytest.raises(OffsetOutOfRangeError, match="flights-0 at offset 3"):
        list(reader.read(where, 3, 50))
    with pytest.raises(OffsetOutOfRangeError, match=r"no record at offset 50 .* high watermark is 50"):
        list(reader.read(where, 45, 60))
    assert offsets_read(reader, where, 40, 50) == (list(range(40, 50)), 50)


def test_lost_topic(kafka_broker: EmbeddedBroker, readers: Any) -> None:
    """While it is read, or before."""
    where = fill(kafka_broker, "flights", 200)
    reader = readers()
    reading = reader.read(where, 0, 200)
    next(reading)
    administer(kafka_broker.bootstrap_servers, lambda client: delete_topic(client, "flights"))
    with pytest.raises(UnknownTopicOrPartitionError, match="flights"):
        list(reading)
    with pytest.raises(UnknownTopicOrPartitionError, match="flights"):
        reader.partitions("flights")


def test_a_topic_created_again_while_it_is_read(kafka_broker: EmbeddedBroker, readers: Any) -> None:
    """The records that follow are another topic's, at the same offsets."""
    where = fill(kafka_broker, "flights", 200)
    reader = readers()
    reading = reader.read(where, 0, 200)
    next(reading)
    administer(kafka_broker.bootstrap_servers, lambda client: delete_topic(client, "flights"))
    fill(kafka_broker, "flights", 300)
    with pytest.raises(UnknownTopicOrPartitionError, match="another was created under its name"):
        list(reading)
    assert offsets_read(reader, where, 0, 300)[1] == 300


def test_a_broker_that_dies_within_a_range_and_comes_back(tmp_path: Path) -> None:
    """The range goes on where it was, each record once."""
    with EmbeddedBroker(tmp_path, port=0) as broker:
        where, servers = fill(broker, "flights", 200), broker.bootstrap_servers
        properties = {"bootstrap.servers": servers, "max.partition.fetch.bytes": "300"}
        reader = ClusterReader(ClusterConfig.from_options(properties), UNCOMMITTED)
        chunks = reader.read(where, 0, 200)
        fetched = [next(chunks)]
    with EmbeddedBroker(tmp_path, port=int(servers.rpartition(":")[2])):
        fetched += chunks
    reader.close()
    starts = [0, *(each.next_offset for each in fetched)]
    assert starts[-1] == 200
    assert starts == sorted(set(starts))


def test_stopping_early(kafka_broker: EmbeddedBroker, readers: Any) -> None:
    """The reader goes on to serve others, two at once, too."""
    where = fill(kafka_broker, "flights", 200)
    reader = readers()
    first, second = reader.read(where, 0, 200), reader.read(where, 0, 200)
    assert next(first).next_offset == next(second).next_offset
    first.close()
    assert [each.next_offset for each in second][-1] == 200
    assert offsets_read(reader, where, 190, 200)[1] == 200


def test_nobody_listens() -> None:
    """An address where no broker is is told at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
    reader = ClusterReader(ClusterConfig.from_options({"bootstrap.servers": address}), COMMITTED)
    with pytest.raises(CannotConnectError, match=address):
        reader.topics()
    reader.close()


def test_a_closed_reader(kafka_broker: EmbeddedBroker, readers: Any) -> None:
    """A waiting caller gets the error, and so does a later one."""
    where = fill(kafka_broker, "flights", 200)
    reader = readers()
    reading = reader.read(where, 0, 200)
    next(reading)
    reader.close()
    with pytest.raises(IllegalStateError, match="closed"):
        list(reading)
    with pytest.raises(IllegalStateError, match="is closed"):
        reader.partitions("flights")
    with pytest.raises(IllegalStateError, match="is closed"):
        list(reader.read(where, 0, 1))


def test_a_fork_gets_a_fresh_reader(kafka_broker: EmbeddedBroker) -> None:
    """Trap 17: readers are kept per process; one from before the fork says so, and its parent's goes on."""
    where = fill(kafka_broker, "flights", 10)
    config = ClusterConfig.from_options({"bootstrap.servers": kafka_broker.bootstrap_servers})
    reader = reader_for(config, UNCOMMITTED)
    assert reader_for(config, UNCOMMITTED) is reader
    assert reader_for(config, COMMITTED) is not reader
    assert offsets_read(reader, where, 0, 10)[1] == 10
    with warnings.catch_warnings():  # Python 3.12 warns of threads, which the fork hook is there for
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(60)
            with pytest.raises(IllegalStateError, match="ask for a reader in the worker"):
                reader.topics()
            fresh = reader_for(config, UNCOMMITTED)
            assert fresh is not reader
            assert offsets_read(fresh, where, 0, 10)[1] == 10
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert offsets_read(reader, where, 0, 10)[1] == 10
    reader.close()
    assert reader_for(config, UNCOMMITTED) is not reader
    for level in (COMMITTED, UNCOMMITTED):
        reader_for(config, level).close()
