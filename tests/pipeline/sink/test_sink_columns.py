"""What a DataFrame needs for the sink, and what its options may say: everything else is refused by name."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from hypothesis import given
from hypothesis import strategies as st
from support.pipeline.pipeline_sink_kit import options, schema

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.sink.duplicates import IDENTITY_HEADERS, with_identity
from splashdam.pipeline.sink.options import TRANSACTION_TIMEOUT_MS, sink_options
from splashdam.pipeline.sink.rows import sink_columns
from splashdam.pipeline.sink.tasks import TaskIdentity

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("ddl", "topic", "text"),
    [
        ("key binary", "t", "no column 'value', it has key"),
        ("valeu binary", "t", "'value'"),
        ("value bigint", "t", "column 'value' is bigint; the sink takes string or binary"),
        ("value binary, key int", "t", "column 'key' is int"),
        ("value binary", None, "set the option 'topic', or add a column 'topic'"),
        ("value binary, topic binary", "t", "column 'topic' is binary"),
        ("value binary, partition bigint", "t", "column 'partition' is bigint; the sink takes int"),
        ("value binary, timestamp bigint", "t", "column 'timestamp' is bigint; .* timestamp or double"),
        ("value binary, headers string", "t", "column 'headers' is string; .*array<struct<"),
    ],
)
def test_refused_columns(ddl: str, topic: str | None, text: str) -> None:
    """Before anything is sent."""
    with pytest.raises(KafkaConfigurationError, match=text):
        sink_columns(schema(ddl), topic)


def test_other_columns_are_left_out() -> None:
    """So what was read from a topic can be written as it is."""
    found = sink_columns(schema("value string, offset bigint, timestamp double"), "t")
    assert (found.names, found.in_seconds) == ({"value", "timestamp"}, True)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer cannot be set"),
        ({"kafka.interceptor.classes": "x"}, "cannot be set"),
        ({"kafka.transactional.id": "x"}, "set the option delivery to exactly_once"),
        ({"kafka.bootstrap.servers": "embedded:./data"}, "Spark's workers are other processes"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ({"delivery": "exactly-once"}, "exactly_once"),
        ({"delivery": "exactly_once", "kafka.enable.idempotence": "false"}, "enable.idempotence=true"),
        ({"delivery": "exactly_once", "kafka.acks": "1"}, "acks"),
        ({"topik": "x"}, "'topic'"),
        ({"kafka.linger": "x"}, "linger"),
    ],
)
def test_refused_options(more: dict[str, str], text: str) -> None:
    """Those of Spark's own sink, and those that contradict."""
    with pytest.raises(KafkaConfigurationError, match=text):
        sink_options({**options("h:1"), **more})


def test_passwords_are_not_shown() -> None:
    """The options' repr stood in tracebacks with all properties."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    given = {"kafka.sasl.jaas.config": f'{module} required username="u" password="hush";'}
    secret = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", **given}
    assert "hush" not in repr(sink_options({**options("h:1", topic="t"), **secret}))


def test_options_travel() -> None:
    """They pickle; transactions have the longest time that brokers accept, unless somebody says."""
    found = sink_options(options("h:1", delivery="exactly_once", CheckpointLocation="c"))
    assert pickle.loads(pickle.dumps(found)) == found
    assert found.transactional("x")["transaction_timeout_ms"] == TRANSACTION_TIMEOUT_MS
    shorter = sink_options({**options("h:1"), "kafka.transaction.timeout.ms": "5000"})
    assert shorter.transactional("x")["transaction_timeout_ms"] == 5000


headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}),
    max_size=3,
)


@given(st.lists(headers, max_size=6), st.integers(0, 5), st.integers(0, 2**40))
def test_identity_headers_follow_the_rows_own(rows: list[object], skip: int, first: int) -> None:
    """Also in a slice of a batch."""
    task = TaskIdentity("q", 3, 1)
    array = pa.array(rows, HEADERS).slice(skip)
    found = with_identity(array, task, first, len(array)).to_pylist()
    for number, (row, named) in enumerate(zip(rows[skip:], found, strict=True)):
        texts = (b"q", b"3", b"1", b"%d" % (first + number))
        own = [{"key": key, "value": value} for key, value in zip(IDENTITY_HEADERS, texts, strict=True)]
        assert named == [*(row or []), *own]
    bare = with_identity(None, task, first, len(array)).to_pylist()
    assert [each[-4:] for each in found] == bare
