"""Compressed batches on their way into requests: estimates that were wrong, codecs that a broker lacks."""

from __future__ import annotations

import random

import pytest
from support.scripted.cluster import Trouble

from splashdam.model.broker_errors import UnsupportedCompressionTypeError
from splashdam.record.batch import Codec, parse_header
from splashdam.record.compression import Compression
from splashdam.wire.messages.produce import ProduceRequest

GZIP = Compression(Codec.GZIP)
LIMITS = {"compression": GZIP, "batch_bytes": 10_000, "max_request_size": 12_000, "linger_ms": 50}


def dense(number):
    """A thousand bytes that nothing compresses."""
    return random.Random(number).randbytes(1000)


def sent_batches(rig):
    """Topic and bytes of every batch that came in, by request."""
    return [
        [
            (topic.name, bytes(each.records or b""))
            for topic in request.topic_data
            for each in topic.partition_data
        ]
        for request in rig.cluster.requests(ProduceRequest)
    ]


async def learn(rig, topic="t", partition=0):
    """Sends until the estimate is low."""
    for _ in range(200):
        rig.accumulator.compressions.observe(topic, 1000, 100)
    assert await rig.send_and_wait(b"x" * 1000, topic=topic, partition=partition) == 0


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_batch_that_outgrew_a_request_is_split_unsent(make_rig, autojump_clock, idempotent):
    """The data stop compressing: no request exceeds ``max_request_size``, all arrives once and in order."""
    rig = make_rig(
        compression=GZIP,
        batch_bytes=10_000,
        max_request_size=12_000,
        linger_ms=50,
        enable_idempotence=idempotent,
    )
    async with rig.running():
        await learn(rig)
        assert rig.accumulator.limit_bytes("t") > 60_000
        futures = [rig.send(b"%03d" % number + dense(number)) for number in range(40)]
        assert [await rig.outcome(future) for future in futures] == list(range(1, 41))
        assert rig.sender.statistics().splits > 0
        assert rig.accumulator.compressions.ratio("t") >= 1.0
    assert all(len(batch) <= 12_000 for request in sent_batches(rig) for _, batch in request)
    assert [value[:3] for value in rig.values()[1:]] == [b"%03d" % number for number in range(40)]


async def test_a_batch_without_room_goes_with_the_next_request(make_rig, autojump_clock):
    """Two partitions, each expected to be small: they go one after the other, and no retry is counted."""
    rig = make_rig(
        cluster={"topics": {"t": 2}},
        compression=GZIP,
        batch_bytes=10_000,
        max_request_size=12_000,
        linger_ms=50,
    )
    async with rig.running():
        await learn(rig, partition=1)
        futures = [rig.send(dense(number), partition=number % 2) for number in range(18)]
        assert all(isinstance(outcome, int) for outcome in [await rig.outcome(each) for each in futures])
        assert (rig.sender.statistics().retries, rig.sender.statistics().splits) == (0, 0)
    requests = sent_batches(rig)
    assert [len(request) for request in requests] == [1, 1, 1]
    assert all(sum(len(batch) for _, batch in request) <= 12_000 for request in requests)


async def test_what_compresses_shares_a_request(make_rig, autojump_clock):
    """The estimate counts, not the bytes that were appended."""
    rig = make_rig(
        cluster={"topics": {"t": 4}},
        compression=GZIP,
        batch_bytes=10_000,
        max_request_size=12_000,
        linger_ms=50,
    )
    async with rig.running():
        await learn(rig)
        futures = [rig.send(b"x" * 1000, partition=number % 4) for number in range(32)]
        assert all(isinstance(outcome, int) for outcome in [await rig.outcome(each) for each in futures])
    assert [len(request) for request in sent_batches(rig)] == [1, 4]


async def test_a_broker_that_refuses_the_size_resets_the_estimate(make_rig, autojump_clock):
    """After MESSAGE_TOO_LARGE the batch is split, and the next batches are smaller again."""
    rig = make_rig(compression=GZIP, batch_bytes=10_000, linger_ms=50)
    async with rig.running():
        await learn(rig)
        rig.cluster.produce_script.append(Trouble(code=10))
        futures = [rig.send(b"x" * 1000) for _ in range(40)]
        assert [await rig.outcome(future) for future in futures] == list(range(1, 41))
        assert rig.accumulator.compressions.ratio("t") > 0.9
        assert rig.accumulator.limit_bytes("t") < 11_000


async def test_topics_with_codecs_of_their_own(make_rig, autojump_clock):
    """In one request: one compressed, one not."""
    rig = make_rig(
        cluster={"topics": {"t": 1, "u": 1}},
        topic_compression={"u": GZIP},
        linger_ms=50,
    )
    async with rig.running():
        futures = [rig.send(b"x" * 500, topic=topic) for topic in ("t", "u")]
        assert [await rig.outcome(future) for future in futures] == [0, 0]
    (request,) = sent_batches(rig)
    assert {topic: parse_header(batch).codec for topic, batch in request} == {
        "t": Codec.NONE,
        "u": Codec.GZIP,
    }


async def test_only_the_topic_with_zstd_fails_at_an_old_broker(make_rig, autojump_clock):
    """Its batch is refused here; the other one of the same request is sent."""
    rig = make_rig(
        cluster={"topics": {"t": 1, "u": 1}},
        topic_compression={"u": Compression(Codec.ZSTD)},
        linger_ms=50,
    )
    rig.cluster.spoken[ProduceRequest] = (0, 6)
    async with rig.running():
        futures = [rig.send(b"x", topic=topic) for topic in ("t", "u")]
        assert await rig.outcome(futures[0]) == 0
        error = await rig.outcome(futures[1])
        assert isinstance(error, UnsupportedCompressionTypeError)
        assert await rig.send_and_wait(b"y") == 1


async def test_small_batches_do_not_spoil_the_estimate(make_rig, autojump_clock):
    """A record alone compresses badly, which says nothing of a full batch."""
    rig = make_rig(**{**LIMITS, "linger_ms": 0})
    async with rig.running():
        await learn(rig)
        before = rig.accumulator.compressions.ratio("t")
        for number in range(10):
            await rig.send_and_wait(b"%d" % number)
        assert rig.accumulator.compressions.ratio("t") == before
