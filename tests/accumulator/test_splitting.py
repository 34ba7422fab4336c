"""Dividing a batch that the broker found too large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.accumulator import splitting
from splashdam.accumulator.accumulator import RecordAccumulator
from splashdam.accumulator.open_batches import Appended
from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.errors import IllegalStateError
from splashdam.model.values import TopicPartition
from splashdam.record.batch import HEADER_BYTES, Codec
from splashdam.record.compression import NO_COMPRESSION, Compression
from splashdam.record.reader import read_records

TP = TopicPartition("t", 0)
CLUSTER = ClusterMetadata(
    nodes={1: Node(1, "a", 1)}, topics={"t": TopicInfo("t", (PartitionInfo("t", 0, 1),))}
)


def accumulator_of(values, *, batch_bytes=100_000, compression=NO_COMPRESSION):
    """An accumulator with one batch of these values in flight, their futures, and the batch."""
    accumulator = RecordAccumulator(
        batch_bytes=batch_bytes,
        linger_ms=0,
        buffer_memory=10_000_000,
        compression=compression,
        delivery_timeout_ms=1000,
        retry_backoff_ms=100,
        retry_backoff_max_ms=1000,
        random=lambda: 0.5,
    )
    answers = [
        accumulator.append(TP, 5, 1000 + number, b"k%d" % number, value, (("h", None),))
        for number, value in enumerate(values)
    ]
    assert all(isinstance(answer, Appended) for answer in answers)
    batch = drain(accumulator)
    batch.seal(compression)
    return accumulator, [answer.future for answer in answers], batch


def drain(accumulator):
    """The next batch of the partition."""
    return accumulator.drain(CLUSTER, {1}, 1 << 30, 5)[1][0]


@given(
    sizes=st.lists(st.integers(0, 400), min_size=2, max_size=60),
    codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
)
def test_records_survive_any_number_of_splits(sizes, codec):
    """Split until every part holds one record: same records, same order, sequences without a gap."""
    values = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    compression = Compression(codec)
    accumulator, futures, batch = accumulator_of(values, compression=compression)
    batch.base_sequence = 2**31 - 3
    charged = accumulator.buffer_memory - accumulator.free_bytes
    pending, offset, sequence = [batch], 0, 2**31 - 3
    parts = accumulator.split_and_reenqueue(batch, 7)
    pending = len(parts)
    assert pending >= 2
    while pending:
        headers_bytes = HEADER_BYTES * len(values)
        assert accumulator.buffer_memory - accumulator.free_bytes <= charged + headers_bytes
        part = drain(accumulator)
        assert (part.created_ms, part.attempts, part.base_sequence) == (5, 0, sequence)
        records = read_records(part.seal(compression))
        pending -= 1
        if len(records) > 1:
            pending += len(accumulator.split_and_reenqueue(part, 7))
            continue
        (record,) = records
        assert (record.timestamp_ms, record.key, record.value) == (
            1000 + offset,
            b"k%d" % offset,
            values[offset],
        )
        assert record.headers == (("h", None),)
        accumulator.complete(part, offset, -1)
        offset += 1
        sequence = (sequence + 1) % 2**31
    assert [future.outcome.offset_of(future.index) for future in futures] == list(range(len(values)))
    assert all(future.done() for future in futures)
    assert accumulator.free_bytes == accumulator.buffer_memory


def test_parts_keep_within_batch_size():
    """An oversized batch is split at batch_size; the first record of a part always fits."""
    accumulator, _, batch = accumulator_of([b"x" * 100] * 50)
    accumulator.batch_bytes = 700
    parts = accumulator.split_and_reenqueue(batch, 7)
    assert all(part.size_bytes <= 700 for part in parts)
    assert len(parts) > 8


def test_flush_waits_for_the_parts():
    """A batch that is split is done when its parts are; a flush does not see it as done before (R8)."""
    accumulator, futures, batch = accumulator_of([b"x" * 100] * 4)
    (outcome,) = accumulator.begin_flush()
    woken = []
    outcome.add_waiter(lambda: woken.append("all"))
    outcome.add_waiter(lambda: woken.append("last"), 3)
    parts = accumulator.split_and_reenqueue(batch, 7)
    assert accumulator.begin_flush() == [part.outcome for part in parts]
    assert not outcome.done()
    first, second = drain(accumulator), drain(accumulator)
    accumulator.complete(first, 0, -1).run_waiters()
    assert (woken, futures[0].done(), outcome.done()) == ([], True, False)
    accumulator.fail(second, ValueError()).run_waiters()
    assert sorted(woken) == ["all", "last"]
    assert outcome.done()


def test_single_record_is_not_split():
    """It cannot be split; the sender fails it instead."""
    accumulator, _, batch = accumulator_of([b"x"])
    with pytest.raises(IllegalStateError, match="with 1 records cannot be split"):
        accumulator.split_and_reenqueue(batch, 7)
    accumulator.fail(batch, ValueError())
    assert accumulator.free_bytes == accumulator.buffer_memory


def test_parts_go_before_newer_batches():
    """What was sent first stays first, also without sequence numbers."""
    accumulator, _, batch = accumulator_of([b"x" * 100] * 4)
    newer = accumulator.append(TP, 5, 0, None, b"new", None).future
    accumulator.split_and_reenqueue(batch, 7)
    assert drain(accumulator).record_count == 2
    assert drain(accumulator).record_count == 2
    assert drain(accumulator).outcome is newer.outcome


def test_splitting_trusts_the_size_the_batch_had(monkeypatch):
    """A batch above the reader's default limit is split as well: its own size is the limit."""
    limits = []

    def read(data, **limit):
        limits.append((limit["max_bytes"], limit["max_records"]))
        return read_records(data, **limit)

    monkeypatch.setattr(splitting, "read_records", read)
    accumulator, _, batch = accumulator_of([b"x" * 1000] * 5, compression=Compression(Codec.GZIP))
    assert len(batch.sealed) < 1000
    assert len(accumulator.split_and_reenqueue(batch, 7)) == 2
    assert limits == [(batch.uncompressed_bytes, 5)]
    assert 5000 < batch.uncompressed_bytes < 5200


def test_parts_that_fail_again_keep_their_order():
    """Parts have places of their own, so several retries do not turn them round; without sequences, too."""
    accumulator, _, batch = accumulator_of([b"x" * 100] * 8)
    accumulator.append(TP, 5, 0, None, b"new", None)
    accumulator.batch_bytes = 400
    parts = accumulator.split_and_reenqueue(batch, 7)
    assert len(parts) == 4
    assert [drain(accumulator) for _ in parts] == parts
    for part in (parts[1], parts[3], parts[0], parts[2]):
        accumulator.reenqueue(part, 5, at_once=True)
    assert [drain(accumulator) for _ in parts] == parts


def test_parts_of_a_compressed_batch_were_charged_for_its_compressed_bytes():
    """They hold the records as they were: what was given back is owed, until the parts give it back again."""
    gzip = Compression(Codec.GZIP)
    accumulator, futures, batch = accumulator_of([b"x" * 5000] * 16, compression=gzip)
    accumulator.release_surplus(batch)
    assert batch.charged_bytes < 5000
    parts = accumulator.split_and_reenqueue(batch, 5)
    charged = accumulator.buffer_memory - accumulator.free_bytes
    assert charged == sum(part.charged_bytes for part in parts) > 16 * 5000
    for part in parts:
        assert drain(accumulator) is part
        part.seal(gzip)
        accumulator.release_surplus(part)
        assert part.charged_bytes < 5000
        accumulator.complete(part, 0, -1)
    assert accumulator.free_bytes == accumulator.buffer_memory
    assert all(future.done() for future in futures)
