"""``send_many`` and ``send_arrow`` of the blocking producer over real sockets, read back by kafka-python."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.clients import foreign_clients
from support.scripted.cluster import Trouble

from splashdam.client.partitioning.partitioners import hashed_partition
from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import BulkSendError, IllegalStateError, KafkaTimeoutError
from splashdam.wire.messages.produce import ProduceRequest

PARTS = st.one_of(st.none(), st.binary(max_size=300))
PAIRS = st.lists(st.tuples(PARTS, PARTS).filter(lambda pair: pair != (None, None)), max_size=120)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A whole broker, for all examples."""
    folder: Path = tmp_path_factory.mktemp("bulk")
    with EmbeddedBroker(folder, fsync=False, num_partitions=3) as started:
        yield started


topics = map("bulk-{}".format, itertools.count())


@settings(
    max_examples=8,  # each is a producer and a consumer
    deadline=None,
    phases=[Phase.generate],  # shrinking would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    pairs=PAIRS, keyed=st.booleans(), arrow=st.booleans(), batch_size=st.sampled_from([300, 2_000, 16_384])
)
def test_kafka_python_reads_the_same_records(
    broker: EmbeddedBroker, pairs: Any, keyed: bool, arrow: bool, batch_size: int
) -> None:
    """Exactly those, in order per partition, whatever keys, values, nulls and sizes."""
    if not keyed:
        pairs = [(None, b"" if value is None else value) for _, value in pairs]
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    topic = next(topics)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, batch_size=batch_size) as producer:
        if arrow:
            pa = pytest.importorskip("pyarrow")
            columns = {
                "value": pa.array(values, pa.binary()),
                **({"key": pa.array(keys, pa.binary())} if keyed else {}),
            }
            delivery = producer.send_arrow(topic, pa.table(columns))
        else:
            delivery = producer.send_many(topic, values, keys=keys if keyed else None)
        assert delivery.get(timeout=300).delivered == len(pairs)
        placed: list[list[Any]] = [[] for _ in range(3)]
        for pair, future in zip(pairs, delivery, strict=True):
            metadata = future.value
            assert metadata is not None
            assert metadata.offset == len(placed[metadata.partition])
            assert pair[0] is None or metadata.partition == hashed_partition(pair[0], 3)
            placed[metadata.partition].append(pair)
    read = foreign_clients.kafka_python_read(broker.bootstrap_servers, topic, len(pairs)) if pairs else {}
    found = {number: [(each.key, each.value) for each in records] for number, records in read.items()}
    assert [found.get(number, []) for number in range(3)] == placed


def test_arrow_tables(tcp_cluster: Any) -> None:
    """Columns by name, chunk by chunk; errors name the record in the whole table."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"id": ["k1", "k2", None], "body": [b"a", None, b"c"]})
    table = pa.concat_tables([table] * 100)
    with KafkaProducer(bootstrap_servers=tcp_cluster.address, batch_size=500) as producer:
        report = producer.send_arrow(
            "two", table, value="body", key="id", partition=1, headers=[("h", b"")]
        ).get(300)
        assert report.base_offsets == {1: 0}
        array = pa.chunked_array([["x"], ["y", "z"]])
        assert producer.send_arrow("one", array).get(timeout=300).delivered == 3
        broken = pa.table({"value": pa.chunked_array([[b"a"], [b"b", None]])})
        with pytest.raises(BulkSendError, match="record 2: Need at least one: key or value") as caught:
            producer.send_arrow("one", broken)
        assert caught.value.delivery is not None
        assert caught.value.delivery.get(timeout=300).delivered == 2
        assert producer.send_arrow("one", table[:0], value="body").get(timeout=0).count == 0
        with pytest.raises(ValueError, match="no column 'value' among 'id', 'body'"):
            producer.send_arrow("one", table)
        with pytest.raises(TypeError, match=r"Arrow data .*: send them with send_arrow\(\)"):
            producer.send_many("one", table["body"])
    assert tcp_cluster.values("one") == [b"x", b"y", b"z", b"a", b"b"]
    assert tcp_cluster.values("two", 1) == [b"a", None, b"c"] * 100


def test_a_row_with_neither_value_nor_key(tcp_cluster: Any) -> None:
    """With ``may_be_empty`` it is a record, between others and alone."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"value": [b"a", None, b"c"], "key": pa.array([None, None, b"k"], pa.binary())})
    with KafkaProducer(bootstrap_servers=tcp_cluster.address) as producer:
        for data in (table, table[1:2]):
            producer.send_arrow("one", data, may_be_empty=True).get(300)
    assert tcp_cluster.values("one") == [b"a", None, b"c", None]


def test_in_a_delivery_callback(tcp_cluster: Any, undelivered: Any) -> None:
    """It never waits there: what cannot go in at once goes in soon after, in order."""
    ends: list[Any] = []
    values = [b"%d" % number for number in range(300)]

    def send_more(_metadata: object) -> None:
        ends.append(producer.send_many("two", values, partition=0))
        with pytest.raises(IllegalStateError, match=r"get\(\) would wait for ever here"):
            ends[0].get()

    with KafkaProducer(bootstrap_servers=tcp_cluster.address, batch_size=500) as producer:
        with undelivered(producer):
            first = producer.send("one", b"v")
            first.add_callback(send_more)
        first.get(timeout=300)
        producer.flush()
        (delivery,) = ends
        assert delivery.get(timeout=300).delivered == 300
        assert [future.value.offset for future in delivery] == list(range(300))
    assert tcp_cluster.values("two", 0) == values


def test_many_threads(tcp_cluster: Any) -> None:
    """Each call keeps its order, and every delivery tells its own offsets."""
    deliveries: dict[int, Any] = {}

    def send(number: int) -> None:
        values = [b"%d-%d" % (number, each) for each in range(3_000)]
        keys = None if number % 2 else [b"%d" % (each % 7) for each in range(3_000)]
        deliveries[number] = producer.send_many("two", values, keys=keys)

    with KafkaProducer(bootstrap_servers=tcp_cluster.address, batch_size=2_000) as producer:
        threads = [threading.Thread(target=send, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for number in range(2_000):
            producer.send("two", b"single-%d" % number)
        for thread in threads:
            thread.join()
        assert producer.flush()
        logs = [tcp_cluster.values("two", partition) for partition in range(2)]
        for number, delivery in deliveries.items():
            assert delivery.get(timeout=300).delivered == 3_000
            for each, future in enumerate(delivery):
                assert logs[future.value.partition][future.value.offset] == b"%d-%d" % (number, each)
            for partition in range(2):
                mine = [
                    int(value.partition(b"-")[2])
                    for value in logs[partition]
                    if value.startswith(b"%d-" % number)
                ]
                assert mine == sorted(mine)
    assert sum(map(len, logs)) == 6 * 3_000 + 2_000


def test_waiting_has_an_end(tcp_cluster: Any) -> None:
    """``get(timeout)`` says how many are still on their way; asyncio waits as well."""
    tcp_cluster.scripted.trouble_for = lambda message: Trouble(
        then="silence" if isinstance(message, ProduceRequest) else "answer"
    )
    producer = KafkaProducer(bootstrap_servers=tcp_cluster.address)
    delivery = producer.send_many("one", [b"v"] * 10)
    for timeout in (0, 0.05):
        with pytest.raises(
            KafkaTimeoutError, match=f"10 of 10 records were not acknowledged within {timeout} s"
        ):
            delivery.get(timeout=timeout)

    async def wait() -> None:
        await asyncio.wait_for(delivery, 0.05)

    with pytest.raises(TimeoutError):
        asyncio.run(wait())
    producer.close(timeout=0)
    assert delivery.done()
    assert delivery.report().failed == 10
    assert repr(delivery) == "<BulkDelivery of 10 records, done, with failures>"
