"""``append_new``: the short way for what opens a batch; it changes all or nothing and never waits."""

from __future__ import annotations

import pytest

from splashdam.model.errors import IllegalStateError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import FutureCell


def append_new(bench, value=b"v" * 100):
    """A record that is only taken if it opens a batch."""
    lane = bench.accumulator.lane(TopicPartition("t", 0))
    return bench.accumulator.append_new(lane, 0, 0, None, value, None, FutureCell)


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
