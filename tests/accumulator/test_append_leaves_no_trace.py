"""Regressions of appending: what raises has changed nothing, and who fills a batch tells the sender."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from splashdam.accumulator.accumulator import Exhausted
from splashdam.accumulator.open_batches import BATCH_OVERHEAD_BYTES, Appended
from splashdam.model.errors import IllegalArgumentError, IllegalStateError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import FutureCell
from splashdam.record.reader import read_records

TP = TopicPartition("t", 0)


class OwnText(str):
    """A header key that will not be encoded its own way."""

    __slots__ = ()

    def encode(self, *_arguments: object) -> bytes:
        raise RuntimeError("mine")


class GrowingHeaders(Sequence):
    """Headers that somebody makes larger while they are appended."""

    looks = 0

    def __len__(self):
        return 1

    def __getitem__(self, position):
        if position:
            raise IndexError
        self.looks += 1
        return ("h", b"x" * (1 if self.looks < 2 else 5000))


class BrokenFuture(FutureCell):
    """A future that cannot be made."""

    __slots__ = ()

    def __new__(cls, *_arguments: object):
        raise MemoryError


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"value": 5}, TypeError),
        ({"headers": (("h",),)}, (TypeError, ValueError)),
        ({"future_type": BrokenFuture}, MemoryError),
    ],
    ids=["no bytes", "no pair", "no memory"],
)
@pytest.mark.parametrize("room", [True, False], ids=["into an open batch", "into a new one"])
def test_append_that_raises_has_appended_nothing(make_bench, make_cluster, changed, error, room):
    """Sizes are checked and the future is made first: a record is never sent without a future."""
    bench = make_bench()
    if room:
        bench.append(value=b"before")
    free = bench.accumulator.free_bytes
    with pytest.raises(error):
        bench.append(**changed)
    assert bench.accumulator.free_bytes == free
    bench.append(value=b"after")
    (batch,) = bench.drain(make_cluster(1))[1]
    assert [record.value for record in read_records(batch.sealed)] == [b"before"] * room + [b"after"]


def test_header_keys_are_measured_as_text(make_bench):
    """A subclass of str has no say in how its key is encoded or measured."""
    bench = make_bench()
    assert bench.append(headers=((OwnText("é"), b"xy"),)).future.header_size == 4


def test_record_that_grew_while_it_was_appended(make_bench):
    """What does not fit the memory reserved for it is refused, and its memory comes back."""
    bench = make_bench(batch_bytes=16_384)
    with pytest.raises(IllegalArgumentError, match="a record for t-0 was changed while it was appended"):
        bench.append(headers=GrowingHeaders())
    assert bench.accumulator.free_bytes == bench.accumulator.buffer_memory
    assert not bench.accumulator.has_incomplete
    assert bench.append().future.index == 0


@pytest.mark.parametrize("left", range(18, 60))
def test_record_that_fills_a_batch_wakes(make_bench, make_cluster, left):
    """The hot path, which wakes nobody, leaves the last byte alone; so a full batch does not linger."""
    bench = make_bench(batch_bytes=1500, linger_ms=1000)
    bench.append(value=b"v" * (1500 - 61 - 9 - left))
    (outcome,) = bench.accumulator.begin_flush()
    bench.accumulator.end_flush()
    filling = b"w" * (left - 7)
    assert bench.accumulator.lane(TP).try_append(0, None, filling, None, FutureCell) is None
    answer = bench.append(value=filling)
    assert (answer.future.outcome, answer.wake) == (outcome, True)
    assert bench.ready(make_cluster(1), 0).nodes == {1}
    assert bench.drain(make_cluster(1))[1][0].size_bytes == 1500
    assert not bench.append(value=b"").future.index


def test_batch_that_cannot_take_a_record_does_not_grow(make_bench):
    """520 bytes are not charged 16,384 because a large record came by."""
    bench = make_bench(batch_bytes=16_384)
    bench.append(value=b"x" * 450)
    before = bench.accumulator.free_bytes
    bench.append(value=b"x" * 16_200)
    assert before - bench.accumulator.free_bytes < 16_400 + BATCH_OVERHEAD_BYTES


def test_batch_grows_at_once_to_what_a_record_needs(make_bench):
    """A record above twice the present size joins the batch, and needs one growth."""
    bench = make_bench(batch_bytes=16_384)
    first = bench.append(value=b"x" * 450).future
    assert bench.append(value=b"x" * 9000).future.outcome is first.outcome
    assert bench.accumulator.buffer_memory - bench.accumulator.free_bytes < 9700 + BATCH_OVERHEAD_BYTES


def test_tiny_batches_are_charged_their_objects(make_bench):
    """A batch is more than its bytes, which bounds the number of batches, too."""
    bench = make_bench(batch_bytes=0, buffer_memory=100_000)
    count = 0
    while isinstance(bench.append(value=b"x"), Appended):
        count += 1
    assert count == 100_000 // (61 + 24 + BATCH_OVERHEAD_BYTES)


def test_record_as_large_as_all_memory_is_taken(make_bench):
    """What fits ``buffer_memory`` alone never waits for more than there is."""
    bench = make_bench(batch_bytes=0, buffer_memory=1000)
    assert isinstance(bench.append(value=b"x" * (1000 - 61 - 25)), Appended)
    assert isinstance(bench.append(value=b""), Exhausted)


def test_end_flush_needs_a_begin(make_bench):
    """A count below zero would keep the next flush from cutting linger."""
    bench = make_bench()
    with pytest.raises(IllegalStateError, match="without a begin_flush"):
        bench.accumulator.end_flush()
    bench.accumulator.begin_flush()
    bench.accumulator.end_flush()
