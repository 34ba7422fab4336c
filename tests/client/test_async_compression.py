"""Compression through the whole producer: null keys stay until a batch is full as the broker sees it."""

from __future__ import annotations

import pytest
import trio

from splashdam.record.batch import Codec, parse_header
from splashdam.wire.messages.produce import ProduceRequest


def batches(cluster):
    """Topic, partition and bytes of all that came in."""
    return [
        (topic.name, each.index, bytes(each.records))
        for request in cluster.scripted.requests(ProduceRequest)
        for topic in request.topic_data
        for each in topic.partition_data
    ]


async def test_null_keys_fill_batches_after_compression(cluster, autojump_clock):
    """Six partitions: each stay ends with a batch that is well filled, compressed.

    How many batches of one record there are is chance: those that were taken along with a full one.
    """
    options = {"compression_type": "gzip", "batch_size": 4000, "buffer_memory": 1 << 20}
    async with cluster.producer(**options) as producer:
        await producer.prepare("six")
        compressions = producer._core.accumulator.compressions
        for _ in range(300):
            compressions.observe("six", 1000, 90)
        for number in range(5000):
            await producer.send("six", b'{"number": %06d, "padding": "................"}' % number)
        await producer.flush()
    sent = [(len(records), parse_header(records).record_count) for _, _, records in batches(cluster)]
    assert max(size for size, _ in sent) <= 4000
    assert sum(count for size, count in sent if size > 2000) > 0.7 * 5000
    assert len({partition for _, partition, _ in batches(cluster)}) > 1


@pytest.mark.parametrize("many", [False, True])
async def test_codecs_by_topic(cluster, autojump_clock, many):
    """``topic_compression`` decides, for ``send`` and for ``send_many``."""
    options = {"compression_type": "gzip", "topic_compression": {"one": "none", "two": "zstd:1"}}
    async with cluster.producer(**options) as producer:
        for topic in ("one", "two", "six"):
            if many:
                await producer.send_many(topic, [b"x" * 100] * 5)
            else:
                await producer.send(topic, b"x" * 100)
        with trio.fail_after(10):
            await producer.flush()
    found = {topic: parse_header(records).codec for topic, _, records in batches(cluster)}
    assert found == {"one": Codec.NONE, "two": Codec.ZSTD, "six": Codec.GZIP}
