"""Bulk records with partitions, timestamps and headers of their own: as one ``send`` for each."""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.clients import foreign_clients

from splashdam.client.bulk.sending import row_parts
from splashdam.client.partitioning.partitioners import RoundRobinPartitioner
from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import BulkSendError, IllegalArgumentError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel.bulk.bulk import NULL_KEY_SLOT, ODD_KEY_SLOT

PARTS = st.one_of(st.none(), st.binary(max_size=100))
PAIRS = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=4), PARTS), max_size=3)
ROWS = st.lists(
    st.tuples(
        PARTS,
        PARTS,
        st.one_of(st.none(), PAIRS),
        st.integers(0, 2),
        st.integers(0, 1 << 40),
    ).filter(lambda row: row[:2] != (None, None)),
    min_size=1,
    max_size=60,
)
"""Key, value, headers, partition and timestamp."""

topics = map("rows-{}".format, itertools.count())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A whole broker, for all examples."""
    folder: Path = tmp_path_factory.mktemp("rows")
    with EmbeddedBroker(folder, fsync=False, num_partitions=3) as started:
        yield started


def in_bulk(producer: KafkaProducer, topic: str, rows: Any, arrow: bool) -> Any:
    """All rows in one call."""
    keys, values, headers, partitions, timestamps = (list(column) for column in zip(*rows, strict=True))
    if not arrow:
        return producer.send_many(
            topic, values, keys=keys, headers=headers, partition=partitions, timestamp_ms=timestamps
        )
    pa = pytest.importorskip("pyarrow")
    table = pa.table(
        {
            "value": pa.array(values, pa.binary()),
            "key": pa.array(keys, pa.binary()),
            "h": pa.array(headers, pa.map_(pa.string(), pa.binary())),
            "p": pa.array(partitions, pa.int32()),
            "ts": pa.array(timestamps, pa.timestamp("ms")),
        }
    )
    return producer.send_arrow(topic, table, headers="h", partition="p", timestamp_ms="ts")


@settings(
    max_examples=8,  # each is a producer and two consumers
    deadline=None,
    phases=[Phase.generate],  # shrinking would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rows=ROWS, arrow=st.booleans(), batch_size=st.sampled_from([300, 16_384]))
def test_kafka_python_reads_what_single_sends_would_have_sent(
    broker: EmbeddedBroker, rows: Any, arrow: bool, batch_size: int
) -> None:
    """The same bytes at the same offsets, whatever keys, values, nulls, headers, partitions and times."""
    alone, bulk = next(topics), next(topics)
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, batch_size=batch_size) as producer:
        for key, value, headers, partition, timestamp_ms in rows:
            producer.send(alone, value, key, headers, partition, timestamp_ms)
        delivery = in_bulk(producer, bulk, rows, arrow)
        assert delivery.get(timeout=300).delivered == len(rows)
        producer.flush()
        for row, future in zip(rows, delivery, strict=True):
            assert (future.value.partition, future.value.timestamp) == row[3:]
    found = [
        foreign_clients.kafka_python_read(broker.bootstrap_servers, topic, len(rows))
        for topic in (alone, bulk)
    ]
    assert found[0] == found[1]


@given(
    partitions=st.lists(
        st.one_of(
            st.none(), st.integers(0, 3), st.sampled_from([0xFFFD, 0xFFFE, 0xFFFF, 0x10000, (1 << 31) - 1])
        )
    ),
    timestamps=st.lists(st.one_of(st.none(), st.integers(0, (1 << 63) - 1))),
)
def test_numbers_as_the_kernels_take_them(partitions: Any, timestamps: Any) -> None:
    """Nulls apart from partitions whose numbers are what the kernels write for a null or odd key."""
    rows = row_parts(None, partitions, timestamps, 5)
    assert rows.slots == array(
        "H", [NULL_KEY_SLOT if each is None else min(each, ODD_KEY_SLOT) for each in partitions]
    )
    assert rows.timestamps == array("q", [5 if each is None else each for each in timestamps])


def stored(cluster: Any, topic: str, count: int) -> list[list[Any]]:
    """Key, value, headers and timestamp of each record, by partition."""
    return [
        [
            (each.key, each.value, list(each.headers), each.timestamp_ms)
            for each in cluster.scripted.logs[TopicPartition(topic, number)].records
        ]
        for number in range(count)
    ]


async def test_some_of_their_own(cluster: Any, autojump_clock: Any) -> None:
    """Nulls go by key and by the clock, and have no headers; one list of pairs or dict is for all."""
    async with cluster.producer() as producer:
        delivery = await producer.send_many(
            "two",
            [b"a", b"b", b"c"],
            keys=[None, b"k", b"k"],
            partition=(1, None, 0),
            timestamp_ms=[5, None, 7],
        )
        assert await delivery
        places = [future.value for future in delivery]
        assert [place.partition for place in places][::2] == [1, 0]
        assert [place.timestamp for place in places][::2] == [5, 7]
        assert places[1].timestamp > 1000
        for headers, expected in (
            ([("h", b"1")], [[("h", b"1")]] * 2),
            ({"h": b"1"}, [[("h", b"1")]] * 2),
            ([["h", b"1"]], [[("h", b"1")]] * 2),
            ([None, {"x": None}], [[], [("x", None)]]),
            ([(("a", b"1"), ("b", bytearray(b"2"))), []], [[("a", b"1"), ("b", b"2")], []]),
            (iter([[("a", b"1")], None]), [[("a", b"1")], []]),
        ):
            before = len(stored(cluster, "one", 1)[0])
            assert await (await producer.send_many("one", [b"1", b"2"], headers=headers))
            assert [each[2] for each in stored(cluster, "one", 1)[0][before:]] == expected


@pytest.mark.parametrize("options", [{"value_serializer": bytes}, {"partitioner": RoundRobinPartitioner()}])
async def test_record_by_record(cluster: Any, autojump_clock: Any, options: Any) -> None:
    """The same where each record takes the slow way."""
    async with cluster.producer(**options) as producer:
        assert await (
            await producer.send_many(
                "two",
                [b"a", b"b", b"c"],
                partition=[1, 0, 1],
                timestamp_ms=[1, 2, 3],
                headers=[None, {"h": b""}, None],
            )
        )
    assert stored(cluster, "two", 2) == [
        [(None, b"b", [("h", b"")], 2)],
        [(None, b"a", [], 1), (None, b"c", [], 3)],
    ]


async def test_more_than_fits_into_memory(cluster: Any, autojump_clock: Any) -> None:
    """A call of ten times buffer_memory flows through, each record in its place."""
    count = 600
    async with cluster.producer(buffer_memory=60_000, batch_size=4_000) as producer:
        delivery = await producer.send_many(
            "six",
            [b"%d" % number + bytes(1_000) for number in range(count)],
            partition=[number % 6 for number in range(count)],
            timestamp_ms=range(count),
            headers=[[("n", b"%d" % number)] for number in range(count)],
        )
        assert (await delivery).delivered == count
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 60_000
    partitions = stored(cluster, "six", 6)
    for number, future in enumerate(delivery):
        _, value, headers, timestamp_ms = partitions[number % 6][future.value.offset]
        assert value.startswith(b"%d\0" % number)
        assert (headers, timestamp_ms, future.value.timestamp) == ([("n", b"%d" % number)], number, number)


async def test_a_partition_that_is_not_there(cluster: Any, autojump_clock: Any) -> None:
    """The call ends at that record, once the cluster was asked; also for numbers beyond the kernel's."""
    for partition in (9, 70_000):
        async with cluster.producer() as producer:
            with pytest.raises(
                BulkSendError, match=rf"record 1: topic 'two' has no partition {partition};"
            ) as raised:
                await producer.send_many("two", [b"a", b"b", b"c"], partition=[1, partition, 0])
            assert isinstance(raised.value.__cause__, IllegalArgumentError)
            assert raised.value.delivery is not None
            assert (await raised.value.delivery).delivered == 1


async def test_what_is_wrong_is_refused_before_anything_is_queued(cluster: Any, autojump_clock: Any) -> None:
    """With the number of the record."""
    async with cluster.producer() as producer:
        for kind, problem, arguments in (
            (ValueError, "2 values, but 1 partitions", {"partition": [1]}),
            (ValueError, "2 values, but 3 timestamps", {"timestamp_ms": [1, 2, 3]}),
            (ValueError, "2 values, but 1 headers", {"headers": [None]}),
            (ValueError, "record 1: partition must be 0 or more, not -1", {"partition": [0, -1]}),
            (TypeError, "record 0: partition must be an int, not str", {"partition": ["0", 1]}),
            (TypeError, "record 0: partition must be an int, not bool", {"partition": [True, False]}),
            (TypeError, "partition must be an int, not bool", {"partition": True}),
            (TypeError, "timestamp_ms must be an int, not bool", {"timestamp_ms": True}),
            (TypeError, "record 1: timestamp_ms must be an int, not float", {"timestamp_ms": [1, 1.5]}),
            (OverflowError, "record 1: timestamp_ms=", {"timestamp_ms": [1, 1 << 63]}),
            (ValueError, "record 1: timestamp_ms=-5 is negative", {"timestamp_ms": [1, -5]}),
            (ValueError, "record 1: timestamp_ms=-5 is negative", {"timestamp_ms": [None, -5]}),
            (ValueError, "record 0: timestamp_ms=-1 is negative", {"timestamp_ms": array("q", [-1, 2])}),
            (ValueError, "timestamp_ms=-1 is negative", {"timestamp_ms": -1}),
            (TypeError, "record 1: headers must be (str, bytes or None) pairs", {"headers": [None, 7]}),
            (
                ValueError,
                r"record 0: a header's key cannot be sent: '\ud800'",
                {"headers": [[("\ud800", b"")], None]},
            ),
        ):
            with pytest.raises(kind, match=re.escape(problem)):
                await producer.send_many("two", [b"a", b"b"], **arguments)
        assert await producer.flush()
    assert stored(cluster, "two", 2) == [[], []]


async def test_arrow_errors_name_the_record_of_all_chunks(cluster: Any, autojump_clock: Any) -> None:
    """Earlier chunks are queued by then."""
    pa = pytest.importorskip("pyarrow")
    chunks = [pa.table({"value": [b"v"] * 2, "p": [0, 1]}), pa.table({"value": [b"v"] * 2, "p": [1, -1]})]
    async with cluster.producer() as producer:
        with pytest.raises(
            BulkSendError, match="record 2: its chunk's row 1: partition must be 0 or more"
        ) as raised:
            await producer.send_arrow("two", pa.concat_tables(chunks), partition="p")
        assert raised.value.index == 2
        times = pa.table({"value": [b"v"] * 2, "t": pa.array([0, -7], pa.int64())})
        with pytest.raises(BulkSendError, match="record 0: its chunk's row 1: timestamp_ms=-7 is negative"):
            await producer.send_arrow("two", times, timestamp_ms="t")
        with pytest.raises(ValueError, match="no column 'p' among 'value'"):
            await producer.send_arrow("two", chunks[0].select(["value"]), partition="p")


async def test_arrow_headers_that_cannot_be_sent(cluster: Any, autojump_clock: Any) -> None:
    """The call ends at their record, as with everything else that only its own look can find."""
    pa = pytest.importorskip("pyarrow")
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    rows = [[("a", b"1")], None, [("k", b"n")] * 300, [], [(b"\xff", b"")], [("b", None)]]
    headers = [each and [{"key": key, "value": value} for key, value in each] for each in rows]
    table = pa.table({"value": [b"v"] * len(rows), "h": pa.array(headers, kind)})
    chunks = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    async with cluster.producer() as producer:
        with pytest.raises(
            BulkSendError, match="record 4: column 'h': a header's key is not UTF-8"
        ) as raised:
            await producer.send_arrow("one", chunks, headers="h")
        assert raised.value.index == 4
        assert raised.value.delivery is not None
        assert (await raised.value.delivery).delivered == 4
        assert await (await producer.send_arrow("one", table.slice(5), headers="h"))
    expected = [*([] if each is None else each for each in rows[:4]), rows[5]]
    assert [each[2] for each in stored(cluster, "one", 1)[0]] == expected


@given(
    times=st.lists(st.one_of(st.none(), st.integers(0, (1 << 63) - 1))),
    negative=st.integers(-(1 << 63), -1),
    data=st.data(),
)
def test_a_negative_timestamp_is_found_wherever_it_is(times: Any, negative: int, data: Any) -> None:
    """It was once stored as it was given; now the signs of a whole column are checked at once."""
    place = data.draw(st.integers(0, len(times)))
    times.insert(place, negative)
    with pytest.raises(IllegalArgumentError, match=f"record {place}: timestamp_ms={negative} is negative"):
        row_parts(None, None, times, 5)
