"""Writers without a JVM: what tasks write, what drivers commit, and that all of it travels."""

from __future__ import annotations

import pickle
from collections import Counter

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from support.pipeline.pipeline_sink_kit import Tasks, options, read, rows, schema

from splashdam import EmbeddedBroker
from splashdam.model.errors import BulkSendError, KafkaConfigurationError, KafkaError
from splashdam.pipeline.sink.sending import CACHE
from splashdam.pipeline.sink.writers import batch_writer, stream_writer

EVERYTHING = "value binary, key string, topic string, headers headers, partition int, timestamp timestamp"


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Tasks:
    """Runs tasks as Spark would."""
    return Tasks(monkeypatch)


def test_every_column(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """Topics of one batch are told apart; what is null is left to the producer."""
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "value": pa.array([b"1", b"2", b"3"], pa.binary()),
            "key": pa.array(["k", None, "k"], pa.string()),
            "topic": pa.array(["a", "b", "a"], pa.string()),
            "headers": pa.array([[{"key": "h", "value": b"x"}], None, []], header),
            "partition": pa.array([0, None, 0], pa.int32()),
            "timestamp": pa.array([5_000, 7_000, 9_999], pa.timestamp("us", tz="UTC")),
        }
    )
    writer = batch_writer(schema(EVERYTHING), options(kafka_broker.bootstrap_servers), False)
    message = tasks.run(writer, [batch])
    writer.commit([message])
    assert message.outcome.records == 3
    first, third = read(kafka_broker.bootstrap_servers, "a")
    (second,) = read(kafka_broker.bootstrap_servers, "b")
    assert [bytes(each.value) for each in (first, second, third)] == [b"1", b"2", b"3"]
    assert (bytes(first.key), second.key) == (b"k", None)
    assert [each.timestamp_ms for each in (first, second, third)] == [5, 7, 9]
    assert [list(each.headers) for each in (first, second, third)] == [[("h", b"x")], [], []]


def test_the_option_wins_and_seconds_are_numbers(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """As in Spark's own sink."""
    columns = {"value": ["v", "v"], "topic": ["column"] * 2, "timestamp": [1.5, 0.0025]}
    given = options(kafka_broker.bootstrap_servers, topic="option")
    writer = batch_writer(schema("value string, topic string, timestamp double"), given, False)
    tasks.run(writer, [pa.record_batch(columns)])
    first, second = read(kafka_broker.bootstrap_servers, "option")
    assert (bytes(first.value), first.timestamp_ms) == (b"v", 1500)
    assert second.timestamp_ms == 2


def test_a_row_with_neither_value_nor_key(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """Spark's own sink writes it; ours failed the task."""
    writer = batch_writer(schema("value binary"), options(kafka_broker.bootstrap_servers, topic="t"), False)
    tasks.run(writer, [pa.record_batch({"value": pa.array([b"a", None], pa.binary())})])
    assert [each.value and bytes(each.value) for each in read(kafka_broker.bootstrap_servers, "t")] == [
        b"a",
        None,
    ]


def test_a_row_without_topic(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """Is named, and fails the task."""
    writer = batch_writer(
        schema("value string, topic string"), options(kafka_broker.bootstrap_servers), False
    )
    good = pa.record_batch({"value": ["v", "v"], "topic": ["a", "a"]})
    bad = pa.record_batch({"value": ["v", "v"], "topic": pa.array(["a", None], pa.string())})
    with pytest.raises(KafkaConfigurationError, match="row 3 of the task has no topic"):
        tasks.run(writer, [good, bad])


def test_overwriting_a_topic_is_refused() -> None:
    """Trap 12: Spark offers append and overwrite; of a topic the one alone makes sense."""
    with pytest.raises(KafkaConfigurationError, match=r'mode\("append"\)'):
        batch_writer(schema("value binary"), options("h:1", topic="t"), True)
    assert stream_writer(schema("value binary"), options("h:1", topic="t"), True)


def test_writers_and_messages_pickle(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """Trap 15: an open producer of this process is not pickled with them."""
    given = options(kafka_broker.bootstrap_servers, topic="t", delivery="exactly_once")
    for writer in (
        batch_writer(schema("value binary"), given, False),
        stream_writer(schema("value binary"), given, False),
    ):
        message = tasks.run(writer, rows([b"1"]), query="q", batch=0)
        assert pickle.loads(pickle.dumps(message)).outcome == message.outcome


def test_a_failed_record_fails_the_task(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """Its producer is not used again."""
    given = options(kafka_broker.bootstrap_servers, topic="t")
    writer = batch_writer(schema("value binary"), given, False)
    tasks.run(writer, rows([b"1"]))
    before = CACHE._kept[writer._options.properties].producer
    with pytest.raises((KafkaError, BulkSendError)):
        tasks.run(writer, rows([b"2", bytes(2_000_000)]))
    tasks.run(writer, rows([b"3"]))
    assert CACHE._kept[writer._options.properties].producer is not before
    values = [bytes(each.value) for each in read(kafka_broker.bootstrap_servers, "t")]
    assert [values[0], values[-1]] == [b"1", b"3"]


def test_dedup_names_every_row(kafka_broker: EmbeddedBroker, tasks: Tasks) -> None:
    """A second attempt writes the same names, so that a reader knows the row again."""
    given = options(kafka_broker.bootstrap_servers, topic="t", delivery="dedup")
    writer = stream_writer(schema("value binary"), given, False)
    for _attempt in range(2):
        tasks.run(writer, rows([b"a", b"b"]) + rows([b"c"]), partition=4, query="q", batch=7)
    found = [tuple(each.headers) for each in read(kafka_broker.bootstrap_servers, "t")]
    named = {
        (
            ("splashdam.query", b"q"),
            ("splashdam.batch", b"7"),
            ("splashdam.partition", b"4"),
            ("splashdam.row", b"%d" % row),
        ): 2
        for row in range(3)
    }
    assert Counter(found) == named
