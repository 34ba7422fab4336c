"""How much a codec is expected to leave, and how batches fill up by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.accumulator.compressions import BatchCompressions
from splashdam.model.values import TopicPartition
from splashdam.record.batch import HEADER_BYTES, Codec
from splashdam.record.compression import NO_COMPRESSION, Compression

GZIP = Compression(Codec.GZIP)


def test_the_estimate_follows_what_is_observed():
    """From 1.0 by 0.005 for better, by 0.05 for worse, never past what was seen, and per topic."""
    compressions = BatchCompressions(GZIP, {})
    assert compressions.ratio("t") == 1.0
    compressions.observe("t", 1000, 300)
    assert compressions.ratio("t") == pytest.approx(0.995)
    compressions.observe("t", 1000, 993)
    assert compressions.ratio("t") == pytest.approx(0.993)
    for _ in range(1000):
        compressions.observe("t", 1000, 300)
    assert compressions.ratio("t") == pytest.approx(0.3)
    compressions.observe("t", 1000, 310)
    assert compressions.ratio("t") == pytest.approx(0.35)
    compressions.observe("t", 1000, 900)
    assert compressions.ratio("t") == pytest.approx(0.9)
    assert compressions.ratio("u") == 1.0


@given(st.lists(st.floats(0.01, 1.3), max_size=200))
def test_the_estimate_is_never_below_what_was_seen_last(ratios):
    """It rises no further than the new ratio asks for."""
    compressions, before = BatchCompressions(GZIP, {}), 1.0
    for ratio in ratios:
        compressions.observe("t", 1_000_000, int(ratio * 1_000_000))
        seen, now = int(ratio * 1_000_000) / 1_000_000, compressions.ratio("t")
        assert now >= seen
        assert now == before or (now < before and now >= before - 0.0051) or now <= max(before + 0.0501, seen)
        before = now


def test_a_division_starts_over():
    """At 1.0, or above where a batch has become larger by its codec."""
    compressions = BatchCompressions(GZIP, {})
    compressions.observe("t", 1000, 100)
    compressions.start_over("t", 1000, 100)
    assert compressions.ratio("t") == 1.0
    compressions.start_over("t", 1000, 1100)
    assert compressions.ratio("t") == pytest.approx(1.1)


def test_limits():
    """What compresses to a batch, within bounds; without a codec a batch is what it is."""
    compressions = BatchCompressions(GZIP, {"plain": NO_COMPRESSION})
    for _ in range(200):
        compressions.observe("t", 1000, 250)
        compressions.observe("plain", 1000, 250)
        compressions.observe("grows", 1000, 1200)
    assert compressions.limit_bytes("t", 1061, 1_000_000) == HEADER_BYTES + int(1000 / 0.2625)
    assert compressions.limit_bytes("t", 1061, 2000) == 2000
    assert compressions.limit_bytes("t", 1061, 500) == 1061
    assert compressions.limit_bytes("plain", 1061, 1_000_000) == 1061
    assert compressions.limit_bytes("grows", 1061, 1_000_000) == 1061
    assert compressions.limit_bytes("t", 0, 1_000_000) == 0


def test_topics_that_are_gone_are_forgotten():
    """The estimates of a producer that has seen many topics do not pile up."""
    compressions = BatchCompressions(GZIP, {})
    compressions.observe("t", 1000, 250)
    compressions.observe("u", 1000, 250)
    compressions.forget({"u"})
    assert (compressions.ratio("t"), compressions.ratio("u")) == (1.0, 0.995)


def test_codecs_by_topic():
    """A topic's own codec, else the one for all."""
    zstd = Compression(Codec.ZSTD, 3)
    compressions = BatchCompressions(NO_COMPRESSION, {"events": zstd})
    assert (compressions.of("events"), compressions.of("t")) == (zstd, NO_COMPRESSION)
    assert compressions.used
    assert not BatchCompressions(NO_COMPRESSION, {"t": NO_COMPRESSION}).used


def fill(bench, cluster, batches):
    """Sends that many batches of records that compress well; their sizes, plain and packed."""
    sizes = []
    while len(sizes) < batches:
        while bench.accumulator.queued_batches(TopicPartition("t", 0)) < 2:
            bench.append(value=b"0123456789" * 10)
        (batch,) = bench.accumulator.drain(cluster, {1}, 1 << 30, 0)[1]
        batch.seal(GZIP)
        plain, packed = batch.uncompressed_bytes, batch.size_bytes
        bench.accumulator.compressions.observe("t", plain - HEADER_BYTES, packed - HEADER_BYTES)
        bench.accumulator.release_surplus(batch)
        sizes.append((plain, packed))
        bench.accumulator.complete(batch, 0, -1)
    return sizes


def test_batches_fill_up_after_compression(make_bench, make_cluster):
    """Compressed batches come near ``batch_size``, and stay below it while the data are alike."""
    bench, cluster = make_bench(batch_bytes=4000, compression=GZIP, buffer_memory=10_000_000), make_cluster(1)
    sizes = fill(bench, cluster, 250)
    assert sizes[0][0] <= 4000
    assert max(packed for _, packed in sizes) <= 4000
    assert sizes[-1][1] > 3000
    assert sizes[-1][0] > 20_000


def test_batches_do_not_outgrow_the_memory(make_bench, make_cluster):
    """However well data compress: an open batch takes a sixteenth of the memory at most."""
    bench, cluster = make_bench(batch_bytes=4000, compression=GZIP, buffer_memory=160_000), make_cluster(1)
    assert max(plain for plain, _ in fill(bench, cluster, 250)) <= 10_000


def test_what_compression_has_freed_is_given_back_at_once(make_bench, make_cluster):
    """A batch in flight is charged for the bytes to be sent."""
    bench, cluster = make_bench(batch_bytes=100_000, compression=GZIP, linger_ms=0), make_cluster(1)
    for _ in range(500):
        bench.append()
    held = bench.accumulator.buffer_memory - bench.accumulator.free_bytes
    (batch,) = bench.accumulator.drain(cluster, {1}, 1 << 30, 0)[1]
    batch.seal(GZIP)
    bench.accumulator.release_surplus(batch)
    assert bench.accumulator.buffer_memory - bench.accumulator.free_bytes < 2500 < held
    bench.accumulator.release_surplus(batch)
    bench.accumulator.complete(batch, 0, -1)
    assert bench.accumulator.free_bytes == bench.accumulator.buffer_memory


def test_uncompressed_batches_keep_their_charge(make_bench, make_cluster):
    """They are sent from where they were appended."""
    bench, cluster = make_bench(linger_ms=0), make_cluster(1)
    bench.append()
    held = bench.accumulator.free_bytes
    (batch,) = bench.drain(cluster)[1]
    bench.accumulator.release_surplus(batch)
    assert bench.accumulator.free_bytes == held


def test_a_batch_put_back_goes_first_and_counts_no_attempt(make_bench, make_cluster):
    """It had no room in its request."""
    bench, cluster = make_bench(batch_bytes=150, linger_ms=0), make_cluster(1)
    first, second = bench.future(), bench.future()
    (batch,) = bench.drain(cluster)[1]
    bench.accumulator.put_back(batch, 0)
    assert bench.ready(cluster, 0).nodes == {1}
    assert bench.drain(cluster)[1] == [batch]
    assert batch.attempts == 0
    assert batch.outcome is first.outcome
    assert bench.drain(cluster)[1][0].outcome is second.outcome
