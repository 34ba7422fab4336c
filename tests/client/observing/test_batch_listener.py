"""``on_batch``: whole batches, once each, whatever becomes of them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio.testing
from support.scripted.cluster import Trouble

from splashdam.client.producer import KafkaProducer
from splashdam.model.broker_errors import ErrorCode, InvalidRecordError
from splashdam.model.errors import KafkaConfigurationError, KafkaError
from splashdam.model.values import BatchMetadata, TopicPartition

ONE = TopicPartition("one", 0)


async def test_delivered_and_failed(cluster: Any, autojump_clock: Any) -> None:
    """Offsets, counts, timestamps and errors; after the callbacks of the records."""
    cluster.scripted.produce_script += [Trouble(), Trouble(code=ErrorCode.INVALID_RECORD)]
    heard: list[Any] = []
    async with cluster.producer(on_batch=heard.append, linger_ms=100) as producer:
        for timestamp_ms in (20, 10, 30):
            (await producer.send("one", b"v", timestamp_ms=timestamp_ms)).add_callback(
                lambda metadata: heard.append(metadata.offset)
            )
        await producer.flush()
        assert heard == [0, 1, 2, BatchMetadata(ONE, 0, 3, 20, 30, None)]
        await producer.send("one", b"v", timestamp_ms=40)
        await producer.flush()
    assert heard[4][:5] == (ONE, -1, 1, 40, 40)
    assert type(heard[4].error) is InvalidRecordError


async def test_bulk_purged_expired_split_and_closed(cluster: Any, autojump_clock: Any) -> None:
    """Each record is in exactly one of them; of a batch that was split its parts are told."""
    cluster.scripted.produce_script += [Trouble(code=ErrorCode.MESSAGE_TOO_LARGE)]
    heard: list[BatchMetadata] = []
    async with cluster.producer(on_batch=heard.append, linger_ms=1_000, batch_size=2_000) as producer:
        assert await (await producer.send_many("one", [bytes(100)] * 100))
        assert sum(batch.record_count for batch in heard) == 100
        assert sorted(batch.base_offset for batch in heard)[0] == 0
        heard.clear()
        await producer.send_many("one", [bytes(100)] * 5)
        assert producer.purge() == 5
        await trio.testing.wait_all_tasks_blocked()
        assert [(batch.record_count, batch.base_offset) for batch in heard] == [(5, -1)]
        heard.clear()
        await producer.send_many("one", [bytes(100)] * 5)
        await producer.close(0)
        assert [(batch.record_count, type(batch.error)) for batch in heard] == [(5, KafkaError)]


def test_what_it_raises_is_logged(tcp_cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The listener is called for the next batch all the same, and it may send."""
    heard: list[BatchMetadata] = []

    def on_batch(batch: BatchMetadata) -> None:
        heard.append(batch)
        if batch.topic_partition == ONE:
            producer.send("two", b"v", partition=1)
        raise ZeroDivisionError("planted")

    with (
        caplog.at_level(logging.ERROR, "splashdam.client"),
        KafkaProducer(bootstrap_servers=tcp_cluster.address, on_batch=on_batch) as producer,
    ):
        producer.send("one", b"v")
        producer.flush()
        producer.flush()
    assert {batch.topic_partition for batch in heard} == {ONE, TopicPartition("two", 1)}
    assert "planted" in caplog.text


def test_it_must_be_callable() -> None:
    """Said when the producer is made."""
    with pytest.raises(KafkaConfigurationError, match="on_batch=1: must be callable, not int"):
        KafkaProducer(on_batch=1)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(KafkaConfigurationError, match=r"on\.batch='f': is a function"):
        KafkaProducer.from_properties({"on.batch": "f"})
