"""Appending: when a batch is full, what it reserves, and what happens when there is no memory."""

from __future__ import annotations

import pytest

from splashdam.accumulator.accumulator import BatchFull, Exhausted
from splashdam.accumulator.open_batches import BATCH_OVERHEAD_BYTES, Appended
from splashdam.model.broker_errors import MessageTooLargeError
from splashdam.model.errors import IllegalArgumentError, IllegalStateError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import FutureCell


class OwnFuture(FutureCell):
    """What ``client`` does: methods, no slots."""

    __slots__ = ()


def test_future_tells_place_and_sizes(make_bench):
    """A future knows its batch, its index and the sizes that RecordMetadata reports; -1 means absent."""
    bench = make_bench()
    first = bench.append(value=None, key=b"k").future
    second = bench.append(
        value=b"", now_ms=7, headers=(("é", b"xy"), ("h", None)), future_type=OwnFuture
    ).future
    assert (first.index, first.key_size, first.value_size, first.header_size) == (0, 1, -1, -1)
    assert (second.index, second.timestamp_ms, second.value_size, second.header_size) == (1, 7, 0, 5)
    assert isinstance(second, OwnFuture)
    assert second.outcome is first.outcome


def test_wakes_once_per_batch(make_bench):
    """The sender is woken for a new batch and for one that became full, not for each record."""
    bench = make_bench(batch_bytes=1000)
    wakes = [bench.append().wake for _ in range(20)]
    assert wakes[0] is True
    assert sum(wakes) == 3  # 8 records of 108 bytes fit into 1000


@pytest.mark.parametrize("size", [16, 100, 400])
def test_full_to_the_byte_wakes(make_bench, size):
    """A batch that is exactly at its limit is full at once."""
    one = 61 + size + 8 + (size > 63)
    bench = make_bench(batch_bytes=one)
    assert bench.append(value=b"v" * size).wake
    bench.append(value=b"v" * size)
    assert bench.accumulator.queued_batches(TopicPartition("t", 0)) == 2


def test_batch_size_zero_makes_batches_of_one(make_bench):
    """``batch_size=0``: every record has a batch of its own, tiny ones too."""
    bench = make_bench(batch_bytes=0)
    answers = [bench.append(value=b"") for _ in range(3)]
    assert all(answer.wake and answer.future.index == 0 for answer in answers)
    assert bench.accumulator.statistics().queued_batches == 3


def test_large_record_travels_alone(make_bench, make_cluster):
    """A record above batch_size is accepted, alone in a batch of its own size."""
    bench = make_bench(batch_bytes=1000)
    bench.append()
    bench.append(value=b"L" * 5000)
    bench.append()
    sizes = []
    for _ in range(3):
        (batch,) = bench.drain(make_cluster(1))[1]
        sizes.append(batch.size_bytes)
    assert [size > 5000 for size in sizes] == [False, True, False]
    charged = bench.accumulator.buffer_memory - bench.accumulator.free_bytes
    assert charged < 5000 + 100 + 2 * 1000 + 3 * BATCH_OVERHEAD_BYTES


def test_memory_is_what_buffers_hold(make_bench):
    """Small batches reserve about 2 KiB, so that thousands of partitions fit (Java's trap: 2,048)."""
    bench = make_bench(batch_bytes=16_384, buffer_memory=32 * 1024 * 1024)
    for partition in range(16_000):
        assert isinstance(bench.append(partition), Appended)
    assert bench.accumulator.waiting == 0


def test_batch_doubles_up_to_its_limit(make_bench):
    """The reservation doubles, and keeps the last byte of batch_size for the record that fills it."""
    bench = make_bench(batch_bytes=5000)
    seen = set()
    for _ in range(40):
        bench.append()
        seen.add(bench.accumulator.buffer_memory - bench.accumulator.free_bytes)
    assert {reserved - BATCH_OVERHEAD_BYTES for reserved in seen} == {1024, 2048, 4096, 4999}


def test_closed_batch_when_growth_has_no_memory(make_bench):
    """A batch that cannot grow is closed; a smaller need is tried before."""
    bench = make_bench(batch_bytes=5000, buffer_memory=1500 + BATCH_OVERHEAD_BYTES)
    while isinstance(answer := bench.append(), Appended):
        last = answer
    assert isinstance(answer, Exhausted)
    assert last.future.index >= 10  # beyond the first 1024 bytes
    assert bench.accumulator.waiting == 1


def test_sticky_caller_hears_of_a_new_batch(make_bench):
    """``abort_on_new_batch`` answers BatchFull and appends nothing, also where no batch is open yet."""
    bench = make_bench(batch_bytes=300)
    assert isinstance(bench.append(abort_on_new_batch=True), BatchFull)
    assert not bench.accumulator.has_incomplete
    bench.append()
    bench.append()
    assert isinstance(bench.append(abort_on_new_batch=True), BatchFull)
    assert bench.accumulator.statistics().queued_batches == 1
    assert bench.append(1).wake


def test_record_above_all_memory_fails_at_once(make_bench):
    """It could never be sent, so nobody waits for it."""
    bench = make_bench(buffer_memory=1000)
    with pytest.raises(MessageTooLargeError, match="buffer_memory is 1000"):
        bench.append(value=b"x" * 1000)
    assert bench.accumulator.waiting == 0


@pytest.mark.parametrize(("field", "value"), [("key", "text"), ("value", 7)])
def test_bad_record_changes_nothing(make_bench, field, value):
    """A TypeError leaves neither a batch nor a reservation."""
    bench = make_bench()
    with pytest.raises(TypeError):
        bench.append(**{field: value})
    assert bench.accumulator.free_bytes == bench.accumulator.buffer_memory
    assert not bench.accumulator.has_incomplete


def test_bad_timestamp_gives_its_memory_back(make_bench):
    """What only the encoder finds out is undone as well, with and without a ticket."""
    bench = make_bench(buffer_memory=1024)
    tp = TopicPartition("t", 0)
    with pytest.raises(OverflowError):
        bench.accumulator.append(tp, 0, 1 << 70, None, b"v", None)
    assert bench.accumulator.free_bytes == 1024
    first = bench.append(1)
    ticket = bench.exhausted().ticket
    (expired,) = bench.accumulator.expire(1000)
    bench.accumulator.fail(expired, TimeoutError())
    assert first.future.done()
    with pytest.raises(OverflowError):
        bench.accumulator.append(tp, 0, 1 << 70, None, b"v", None, ticket=ticket)
    bench.accumulator.cancel(ticket)
    assert bench.accumulator.free_bytes == 1024


def test_append_after_close_is_refused(make_bench):
    """Also if the open batch has room."""
    bench = make_bench()
    bench.append()
    bench.accumulator.close()
    assert bench.accumulator.closed
    with pytest.raises(IllegalStateError, match="closed"):
        bench.append()


def test_ticket_is_for_its_record(make_bench, make_cluster):
    """A ticket is not taken for a larger record, nor twice."""
    bench = make_bench(buffer_memory=1100 + BATCH_OVERHEAD_BYTES)
    bench.append()
    ticket = bench.exhausted(partition=1).ticket
    assert bench.append(1, ticket=ticket).ticket is ticket  # not its turn yet
    (batch,) = bench.drain(make_cluster(1, 1))[1]
    bench.accumulator.complete(batch, 0, -1)
    with pytest.raises(IllegalArgumentError, match="the ticket is for 1899 bytes"):
        bench.append(1, value=b"x" * 990, ticket=ticket)
    assert isinstance(bench.append(1, ticket=ticket), Appended)
    with pytest.raises(IllegalStateError, match="SPENT cannot SPEND"):
        bench.append(2, ticket=ticket)


def test_a_batch_that_is_short_of_memory_does_not_grow_record_by_record(make_bench):
    """It takes what is left at once: each growth copies the batch, which for 1 MB cost 100 us per record."""
    bench = make_bench(batch_bytes=10_000, buffer_memory=6_000 + BATCH_OVERHEAD_BYTES)
    bench.append()
    capacities = set()
    while (buffer := bench.accumulator.lane(TopicPartition("t", 0)).buffer) is not None:
        capacities.add(buffer.capacity_bytes)
        bench.append(abort_on_new_batch=True)
    assert sorted(capacities) == [1024, 2048, 4096, 6000]


def test_a_new_batch_takes_what_is_left_of_what_it_expects(make_bench):
    """It does not open with the minimum, which would have to grow at once."""
    bench = make_bench(batch_bytes=10_000, buffer_memory=200_000)
    bench.future(partition=1, value=bytes(190_000))
    assert bench.accumulator.free_bytes > 5_000
    assert isinstance(bench.append(expected_bytes=9_900), Appended)
    assert bench.accumulator.free_bytes == 0
