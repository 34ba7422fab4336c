"""What other clients get wrong with any broker, on three of them; names begin with the requirement."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from splashdam.model.broker_errors import InvalidRecordError, MessageTooLargeError
from splashdam.model.errors import IllegalStateError

WAIT = 30


def test_r01_r03_a_poison_record_leaves_no_gap(judging_cluster: Any) -> None:
    """A compacted topic refuses a record without a key; those before and behind it arrive in order."""
    topic, other = judging_cluster.topic(cleanup_policy="compact"), judging_cluster.topic()
    with judging_cluster.producer(batch_size=0) as producer:
        before = [producer.send(topic, b"%d" % number, key=b"k%d" % number) for number in range(5)]
        poison = producer.send(topic, b"poison")
        behind = [producer.send(topic, b"%d" % number, key=b"k%d" % number) for number in range(5, 30)]
        assert [future.get(WAIT).offset for future in before + behind] == list(range(30))
        with pytest.raises(InvalidRecordError):
            poison.get(WAIT)
        assert producer.send(other, b"elsewhere").get(WAIT).offset == 0
    assert judging_cluster.values(topic) == [b"%d" % number for number in range(30)]


def test_r01_a_record_that_is_too_large_for_the_topic(judging_cluster: Any, topic_configs: Any) -> None:
    """It fails alone; with others in its batch, they are delivered."""
    topic = judging_cluster.topic(**topic_configs)
    with judging_cluster.producer(linger_ms=60_000) as producer:
        futures = [producer.send(topic, bytes(size)) for size in (100, 100, 3_000, 100)]
        assert producer.flush(WAIT).pending == 0
        assert [future.get(WAIT).offset for future in (futures[0], futures[1], futures[3])] == [0, 1, 2]
        with pytest.raises(MessageTooLargeError):
            futures[2].get(WAIT)
        following = producer.send(topic, b"next")
        producer.flush(WAIT)
        assert following.get(WAIT).offset == 3


def test_r08_flush_during_splits(judging_cluster: Any, topic_configs: Any) -> None:
    """A batch that the broker finds too large is divided as often as it takes, and flush follows."""
    topic = judging_cluster.topic(**topic_configs)
    with judging_cluster.producer(linger_ms=60_000) as producer:
        futures = [producer.send(topic, b"%03d" % number + bytes(500)) for number in range(40)]
        report = producer.flush(WAIT)
        assert (report.pending, [future.value.offset for future in futures]) == (0, list(range(40)))
    assert [value[:3] for value in judging_cluster.values(topic)] == [b"%03d" % n for n in range(40)]


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_r04_many_batches_in_flight_keep_their_order(cluster: Any, codec: str) -> None:
    """Five numbered batches under way at once: each record once, in order."""
    topic = cluster.topic()
    with cluster.producer(batch_size=500, linger_ms=0, compression_type=codec) as producer:
        futures = [producer.send(topic, b"%05d" % number * 4) for number in range(3_000)]
        assert [future.get(WAIT).offset for future in futures] == list(range(3_000))
    assert cluster.values(topic) == [b"%05d" % number * 4 for number in range(3_000)]


def test_r09_flush_cuts_linger(cluster: Any) -> None:
    """A minute of linger is not waited for."""
    topic = cluster.topic()
    with cluster.producer(linger_ms=60_000) as producer:
        future = producer.send(topic, b"v")
        assert producer.flush(WAIT).pending == 0
        assert future.value.offset == 0


def test_r10_close_0_closes(cluster: Any) -> None:
    """With a lingering record, whose future is done then; the producer is closed, a second call returns."""
    topic = cluster.topic()
    producer = cluster.producer(linger_ms=60_000)
    future = producer.send(topic, b"v")
    producer.close(timeout=0)
    assert future.is_done
    with pytest.raises(IllegalStateError):
        producer.send(topic, b"v")
    producer.close()


def test_r11_callbacks_send_and_do_not_wait(cluster: Any) -> None:
    """``send`` works there, ``flush`` says that it cannot, ``close`` returns."""
    topic, results, called = cluster.topic(), [], threading.Event()
    producer = cluster.producer(linger_ms=200)

    def callback(_metadata: Any) -> None:
        try:
            results.append(producer.send(topic, b"again"))
            with pytest.raises(IllegalStateError):
                producer.flush()
        except BaseException as error:
            results.append(error)
        called.set()

    producer.send(topic, b"v").add_callback(callback)
    assert called.wait(WAIT)
    assert results[0].get(WAIT).offset == 1
    closed = threading.Event()
    producer.send(topic, b"last").add_callback(lambda _metadata: (producer.close(), closed.set()))
    assert closed.wait(WAIT)


def test_r13_a_serializer_is_called_once(cluster: Any) -> None:
    """Its TypeError reaches the caller, and nothing is tried again."""
    calls = []

    def serialize(value: Any) -> bytes:
        calls.append(value)
        raise TypeError("not this one")

    topic = cluster.topic()
    with (
        cluster.producer(value_serializer=serialize) as producer,
        pytest.raises(TypeError, match="not this one"),
    ):
        producer.send(topic, b"v")
    assert calls == [b"v"]


@pytest.mark.parametrize(
    "given",
    [
        [("a", b"1"), ("b", None), ("a", b"2")],
        (("a", b"1"), ("b", None), ("a", bytearray(b"2"))),
        [["a", b"1"], ["b", None], ["a", memoryview(b"2")]],
    ],
    ids=["list", "tuple", "pairs as lists"],
)
def test_r14_headers_in_every_shape(cluster: Any, given: Any) -> None:
    """On every path: ``send``, ``send_nowait`` and bulk; None and repeated keys included."""
    topic = cluster.topic()
    with cluster.producer() as producer:
        producer.send(topic, b"v", headers=given).get(WAIT)
        producer.send_nowait(topic, b"v", headers=given).get(WAIT)
        producer.send_many(topic, [b"v", b"v"], headers=given)
        producer.send(topic, b"v", headers={"a": b"1", "b": None}).get(WAIT)
    headers = [record.headers for record in cluster.records(topic)]
    assert headers == [(("a", b"1"), ("b", None), ("a", b"2"))] * 4 + [(("a", b"1"), ("b", None))]


def test_r15_acks_0_has_no_offset(cluster: Any) -> None:
    """-1, and never a number that was made up."""
    topic = cluster.topic()
    with cluster.producer(acks=0, enable_idempotence=False) as producer:
        futures = [producer.send(topic, b"v") for _ in range(4)]
        assert [future.get(WAIT).offset for future in futures] == [-1] * 4


def test_r16_timestamps_are_the_records_own(judging_cluster: Any) -> None:
    """Within one batch, forwards and backwards. (The mock answers a time of its own for all.)"""
    topic, times = judging_cluster.topic(), [1_700_000_000_000, 1_700_000_000_001, 1_699_999_999_999]
    with judging_cluster.producer(linger_ms=60_000) as producer:
        futures = [producer.send(topic, b"v", timestamp_ms=time) for time in times]
        producer.flush(WAIT)
        assert [future.value.timestamp for future in futures] == times
    assert [record.timestamp_ms for record in judging_cluster.records(topic)] == times


def test_r20_no_logger_is_touched(cluster: Any) -> None:
    """Making, using, closing and losing a producer changes nobody's logger."""

    def loggers() -> dict[str, Any]:
        return {
            name: (each.level, each.disabled, tuple(each.handlers), each.propagate)
            for name, each in logging.root.manager.loggerDict.items()
            if isinstance(each, logging.Logger)
        }

    topic = cluster.topic()
    cluster.producer().close()
    before = loggers()
    with cluster.producer() as producer:
        producer.send(topic, b"v").get(WAIT)
    assert loggers() == before
