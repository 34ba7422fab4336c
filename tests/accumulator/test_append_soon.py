"""``append_new`` opens a batch, ``append_grown`` grows one: all or nothing, and without a wait."""

from __future__ import annotations

import pytest

from splashdam.model.errors import IllegalStateError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import FutureCell


def append_new(bench, value=b"v" * 100):
    """A record that is only taken if it opens a batch."""
    lane = bench.accumulator.lane(TopicPartition("t", 0))
    return bench.accumulator.append_new(lane, 0, 0, None, value, None, FutureCell)


def append_grown(bench, value=b"v" * 100):
    """A record that is only taken if the open batch may grow."""
    lane = bench.accumulator.lane(TopicPartition("t", 0))
    return bench.accumulator.append_grown(lane, 0, None, value, None, FutureCell)


def test_append_new_opens_a_batch_that_takes_more(make_bench):
    bench = make_bench()
    future = append_new(bench)
    assert future is not None
    assert bench.future().outcome is future.outcome


def test_append_new_leaves_an_open_batch_alone(make_bench):
    bench = make_bench()
    bench.future()
    before = bench.accumulator.statistics()
    assert append_new(bench) is None
    assert bench.accumulator.statistics() == before


def test_append_new_neither_waits_for_memory_nor_overtakes_who_does(make_bench):
    bench = make_bench(buffer_memory=2_500)
    bench.future(partition=1)
    before = bench.accumulator.statistics()
    assert append_new(bench, b"v" * 900) is None
    assert bench.accumulator.statistics() == before
    bench.exhausted(partition=2, value=b"v" * 900)
    assert append_new(bench) is None
    assert bench.accumulator.waiting == 1


def test_append_new_leaves_it_to_append_to_say_that_it_is_closed(make_bench):
    bench = make_bench()
    bench.accumulator.close()
    assert append_new(bench) is None
    with pytest.raises(IllegalStateError, match="closed"):
        bench.append()


def test_append_grown_makes_room_in_the_open_batch(make_bench):
    bench = make_bench(batch_bytes=16_384)
    first = bench.future(value=bytes(900))
    lane = bench.accumulator.lane(TopicPartition("t", 0))
    assert lane.try_append(0, None, bytes(900), None, FutureCell) is None
    future = append_grown(bench, bytes(900))
    assert future.outcome is first.outcome
    assert future.index == 1
    assert lane.try_append(0, None, b"v", None, FutureCell) is not None


def test_append_grown_neither_opens_a_batch_nor_fills_it_nor_waits(make_bench):
    bench = make_bench(batch_bytes=4_000, buffer_memory=8_000)
    assert append_grown(bench) is None
    bench.future(value=bytes(900))
    before = bench.accumulator.statistics()
    assert append_grown(bench, bytes(3_100)) is None  # the batch would be full
    assert bench.accumulator.statistics() == before
    bench.future(partition=1, value=bytes(3_500))
    bench.exhausted(partition=2, value=bytes(3_500))
    full = bench.accumulator.statistics()
    assert append_grown(bench, bytes(900)) is None  # others wait for memory
    assert bench.accumulator.statistics() == full
    assert bench.accumulator.lane(TopicPartition("t", 0)).buffer is not None


def test_append_grown_takes_nothing_once_it_is_closed(make_bench):
    bench = make_bench(batch_bytes=16_384)
    bench.future(value=bytes(900))
    bench.accumulator.close()
    assert append_grown(bench, bytes(900)) is None
