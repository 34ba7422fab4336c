"""Records appended on the fast path while batches are opened, drained, expired and aborted around it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.running.examples import examples

from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.accumulator.open_batches import Appended
from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.errors import KafkaError
from splashdam.model.values import TopicPartition
from splashdam.record.batch import Codec
from splashdam.record.compression import NO_COMPRESSION, Compression
from splashdam.record.kernel import FAILED, SUCCEEDED, FutureCell
from splashdam.record.reader import read_records

PARTITIONS = 3
CLUSTER = ClusterMetadata(
    nodes={1: Node(1, "a", 1)},
    topics={"t": TopicInfo("t", tuple(PartitionInfo("t", number, 1, 0) for number in range(PARTITIONS)))},
)
BUFFER_MEMORY = 40_000


class FastAppends(RuleBasedStateMachine):
    """Every future names the one batch and place that hold its record, or has an error."""

    def __init__(self) -> None:
        super().__init__()
        self.accumulator = RecordAccumulator(
            batch_bytes=2000,
            linger_ms=5,
            buffer_memory=BUFFER_MEMORY,
            compression=NO_COMPRESSION,
            delivery_timeout_ms=100,
            retry_backoff_ms=0,
            retry_backoff_max_ms=0,
            random=lambda: 0.5,
        )
        self.lanes = [self.accumulator.lane(TopicPartition("t", number)) for number in range(PARTITIONS)]
        self.now_ms = 0
        self.sent: list[tuple[bytes, FutureCell]] = []
        self.in_flight: list[Any] = []
        self.written: dict[Any, list[bytes | None]] = {}

    def value(self, size: int) -> bytes:
        return b"%d:" % len(self.sent) + b"x" * size

    @rule(number=st.integers(0, PARTITIONS - 1), size=st.integers(0, 700))
    def fast_append(self, number: int, size: int) -> None:
        """As the fast path does: without a question to the accumulator."""
        lane, value = self.lanes[number], self.value(size)
        future = lane.try_append(self.now_ms, None, value, None, FutureCell)
        assert future is None or lane.buffer is not None
        if future is not None:
            assert future.outcome is lane.outcome
            self.sent.append((value, future))

    @precondition(lambda self: not self.accumulator.closed)
    @rule(number=st.integers(0, PARTITIONS - 1), size=st.integers(0, 2500))
    def slowly(self, number: int, size: int) -> None:
        value = self.value(size)
        answer = self.accumulator.append(
            TopicPartition("t", number), self.now_ms, self.now_ms, None, value, None
        )
        if isinstance(answer, Appended):
            self.sent.append((value, answer.future))
        else:
            self.accumulator.cancel(answer.ticket)

    @rule(limit=st.integers(100, 5000))
    def drain(self, limit: int) -> None:
        """What is in flight takes no more records, and a request is no larger than it may be."""
        drained = self.accumulator.drain(CLUSTER, {1}, limit, self.now_ms).get(1, [])
        for batch in drained:
            batch.seal(NO_COMPRESSION)
            self.written[batch.outcome] = [record.value for record in read_records(batch.sealed)]
            assert len(self.written[batch.outcome]) == batch.record_count
        assert len(drained) < 2 or sum(batch.size_bytes for batch in drained) <= limit
        self.in_flight += drained

    @precondition(lambda self: self.in_flight)
    @rule(which=st.integers(0, 100), well=st.booleans())
    def answer(self, which: int, well: bool) -> None:
        batch = self.in_flight.pop(which % len(self.in_flight))
        if well:
            self.accumulator.complete(batch, 0, -1)
        else:
            self.accumulator.fail(batch, KafkaError("no"))

    @rule(later_ms=st.integers(1, 80))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms
        for batch in self.accumulator.expire(self.now_ms):
            self.accumulator.fail(batch, KafkaError("expired"))

    @rule()
    def abort_unsent(self) -> None:
        self.accumulator.abort_unsent(KafkaError("unsent"))

    @invariant()
    def memory_is_exact(self) -> None:
        assert 0 <= self.accumulator.free_bytes <= BUFFER_MEMORY

    def teardown(self) -> None:
        self.accumulator.close()
        assert all(lane.buffer is None for lane in self.lanes)
        self.accumulator.abort_batches(KafkaError("the end"))
        for batch in self.in_flight:
            self.accumulator.fail(batch, KafkaError("the end"))
        assert self.accumulator.free_bytes == BUFFER_MEMORY
        places = set()
        for value, future in self.sent:
            places.add((future.outcome, future.index))
            assert future.outcome.state in (SUCCEEDED, FAILED)
            if future.outcome in self.written:
                assert self.written[future.outcome][future.index] == value
            else:
                assert future.outcome.state == FAILED
        assert len(places) == len(self.sent)
        assert sum(map(len, self.written.values())) <= len(self.sent)


FastAppends.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestFastAppends = FastAppends.TestCase


def fill(bench: Any, count: int = 9) -> None:
    for _ in range(count):
        bench.append(value=b"v" * 100)


def turn(bench: Any, cluster: ClusterMetadata) -> None:
    """Sends all there is, and hears that it was written."""
    while batches := bench.drain(cluster).get(1):
        for batch in batches:
            bench.accumulator.complete(batch, 0, -1)


def test_batches_open_as_large_as_the_last_one_was(make_bench, make_cluster):
    """The second batch of a busy partition has its memory at once; that of a quiet one is small again."""
    bench, cluster = make_bench(batch_bytes=16_384), make_cluster(1)
    taken = []
    for count in (60, 1, 1):
        bench.append()
        taken.append(bench.accumulator.buffer_memory - bench.accumulator.free_bytes)
        fill(bench, count - 1)
        turn(bench, cluster)
    assert taken[0] == taken[2] < 2000
    assert 7000 < taken[1] < 10_000


def test_scarce_memory_goes_to_records_not_to_expectations(make_bench, make_cluster):
    """If the size of the last batch is not free, a batch opens with the size of its first record."""
    bench, cluster = make_bench(batch_bytes=8000, buffer_memory=20_000), make_cluster(1, 1)
    fill(bench, 60)
    turn(bench, cluster)
    bench.append(partition=1, value=b"x" * 15_000)
    assert isinstance(bench.append(value=b"v"), Appended)


def test_memory_of_a_full_batch_is_used_again(make_bench, make_cluster):
    """Unless somebody still looks at the bytes: he goes on to see the batch that he was given."""
    bench, cluster = make_bench(batch_bytes=1000), make_cluster(1)
    seen = []
    for keep in (True, False, False):
        fill(bench, 8)
        (batch,) = bench.drain(cluster)[1]
        kept = batch.sealed if keep else None
        seen.append(id(batch.sealed.obj))
        bench.accumulator.complete(batch, 0, -1)
        if kept is not None:
            first, bytes_then = kept, bytes(kept)
        del batch, kept
    assert bytes(first) == bytes_then
    assert seen[0] not in seen[1:]
    assert seen[1] == seen[2]


def test_lanes_of_topics_that_are_gone_are_forgotten(make_bench, make_cluster):
    """A lane with an open batch stays; a stale lane accepts no record."""
    bench = make_bench()
    accumulator = bench.accumulator
    kept, idle = accumulator.lane(TopicPartition("t", 0)), accumulator.lane(TopicPartition("t", 1))
    bench.append(partition=0)
    accumulator.forget_lanes({"t"})
    assert accumulator.lane(TopicPartition("t", 1)) is idle
    accumulator.forget_lanes(())
    assert accumulator.lane(TopicPartition("t", 0)) is kept
    bench.append(partition=1)
    assert idle.buffer is None
    assert accumulator.lane(TopicPartition("t", 1)).buffer is not None


@pytest.mark.parametrize("free_part", [0, 1])
def test_pooled_memory_counts_as_free(make_bench, make_cluster, free_part):
    """Batches and pool together stay within ``buffer_memory``: what others reserve, the pool lets go of."""
    bench, cluster = make_bench(batch_bytes=1000, buffer_memory=16_000), make_cluster(1, 1)
    fill(bench, 40)
    turn(bench, cluster)
    pool = bench.accumulator._open.pool
    assert pool._buffers
    large = bench.accumulator.free_bytes - 1200 - 1000 * free_part
    assert isinstance(bench.append(partition=1, value=b"x" * large), Appended)
    assert len(pool._buffers) * 999 <= bench.accumulator.free_bytes


def test_buffers_of_compressed_batches_pass_no_limit(make_bench, make_cluster):
    """A sealed batch has its charge still: its buffer was kept beside it where no memory was free."""
    bench, cluster = make_bench(batch_bytes=1000, buffer_memory=16_000), make_cluster(1)
    accumulator, noise = bench.accumulator, Random(1)
    while isinstance(bench.append(value=noise.randbytes(100)), Appended):
        pass
    pool = accumulator._open.pool
    batches = accumulator.drain(cluster, {1}, 1_000_000, 0)[1]
    batches += accumulator.drain(cluster, {1}, 1_000_000, 0).get(1, ())
    assert accumulator.free_bytes < 999
    for batch in batches:
        batch.seal(Compression(Codec.GZIP))
        assert not pool._buffers
    accumulator.complete(batches[0], 0, -1)
    assert not pool._buffers


def test_buffers_of_a_full_memory_are_used_again(make_bench, make_cluster):
    """What a batch gives back with its buffer is free for that: nobody sends faster where all is new."""
    bench, cluster = make_bench(batch_bytes=1000, buffer_memory=16_000), make_cluster(1)
    while isinstance(bench.append(), Appended):
        pass
    assert bench.accumulator.free_bytes < 999
    (batch,) = bench.drain(cluster)[1]
    bench.accumulator.complete(batch, 0, -1)
    assert len(bench.accumulator._open.pool._buffers) == 1
