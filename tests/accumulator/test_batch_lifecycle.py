"""The life of a batch as a table, and what it holds until it lets go."""

from __future__ import annotations

import gc

import pytest

from splashdam.accumulator.batch import TRANSITIONS, BatchEvent, BatchState, ProducerBatch
from splashdam.model.errors import IllegalStateError
from splashdam.model.values import TopicPartition
from splashdam.record.batch import Codec, parse_header
from splashdam.record.compression import NO_COMPRESSION, Compression
from splashdam.record.kernel import BatchBuffer, BatchOutcome
from splashdam.record.reader import read_records


def batch_of(*values: bytes) -> ProducerBatch:
    """A closed batch in flight."""
    buffer = BatchBuffer(1000)
    for value in values:
        buffer.try_append(0, None, value, None)
    batch = ProducerBatch(TopicPartition("t", 3), buffer, 0, 1000)
    batch.close()
    batch.advance(BatchEvent.DRAIN)
    return batch


@pytest.mark.parametrize("state", BatchState)
@pytest.mark.parametrize("event", BatchEvent)
def test_every_pair_is_in_the_table_or_illegal(state, event):
    """An illegal event names partition, state and event, and changes nothing."""
    batch = batch_of(b"x")
    batch.state = state
    if (state, event) in TRANSITIONS:
        batch.advance(event)
        assert batch.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalStateError, match=f"t-3 that is {state.name} cannot {event.name}"):
            batch.advance(event)
        assert batch.state is state


def test_success_is_final():
    """SUCCEEDED and SPLIT know no event; a failed batch ignores a late success."""
    final = set(BatchState) - {state for state, _ in TRANSITIONS}
    assert final == {BatchState.SUCCEEDED, BatchState.SPLIT}
    assert TRANSITIONS[BatchState.FAILED, BatchEvent.SUCCEED] is BatchState.FAILED


def test_seals_once_and_restamps_later():
    """The first seal makes the bytes; later ones change only the producer's fields, in place."""
    batch = batch_of(b"one", b"two")
    batch.producer_id, batch.producer_epoch, batch.base_sequence = 7, 0, 40
    sealed = batch.seal(NO_COMPRESSION)
    assert batch.seal(NO_COMPRESSION) is sealed
    batch.producer_epoch, batch.base_sequence = 1, 0
    again = batch.seal(NO_COMPRESSION)
    header = parse_header(again)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 0)
    assert [record.value for record in read_records(again)] == [b"one", b"two"]
    assert batch.size_bytes == len(again)


def test_compressed_batch_lets_go_of_its_buffer():
    """What is sent counts, not what was appended."""
    batch = batch_of(b"x" * 500)
    before = batch.size_bytes
    sealed = batch.seal(Compression(Codec.GZIP))
    assert batch.size_bytes == len(sealed) < before


def test_only_the_sender_seals():
    """A batch that is still in its queue may grow, so its bytes are not made."""
    batch = ProducerBatch(TopicPartition("t", 3), BatchBuffer(100), 0, 100)
    with pytest.raises(IllegalStateError, match="OPEN cannot be sealed"):
        batch.seal(NO_COMPRESSION)


def test_charge_is_given_back_once():
    """The second letting go returns nothing."""
    batch = batch_of(b"x")
    assert batch.let_go() == 1000
    assert batch.let_go() == 0


def is_batch_of(each, partition):
    """By the very object, as threads of other tests may have batches of their own."""
    return type(each) is ProducerBatch and each.topic_partition is partition


def test_finished_batch_leaves_no_cycle(make_bench, make_cluster):
    """Futures that outlive their batch keep neither it nor its bytes alive, without the cycle collector."""
    bench = make_bench()
    future = bench.future()
    (batch,) = bench.drain(make_cluster(1))[1]
    gc.collect()
    gc.disable()
    try:
        bench.accumulator.complete(batch, 0, -1)
        assert batch.sealed is None
        partition = batch.topic_partition
        assert [each for each in gc.get_objects() if is_batch_of(each, partition)] == [batch]
        del batch
        assert future.outcome.offset_of(0) == 0
        assert [each for each in gc.get_objects() if is_batch_of(each, partition)] == []
    finally:
        gc.enable()


def test_success_and_failure_release_memory(make_bench, make_cluster):
    """Completing and failing both give everything back; the outcome is stored."""
    bench = make_bench(batch_bytes=150)
    futures = [bench.future() for _ in range(3)]
    cluster = make_cluster(1)
    (one,), (two,) = bench.drain(cluster)[1], bench.drain(cluster)[1]
    assert bench.accumulator.complete(one, 42, 1234) is futures[0].outcome
    error = ValueError("no")
    bench.accumulator.fail(two, error, {0: KeyError("own")})
    (third,) = bench.drain(cluster)[1]
    bench.accumulator.fail(third, error)
    assert futures[0].outcome.offset_of(0) == 42
    assert futures[0].outcome.log_append_time_ms == 1234
    assert isinstance(futures[1].outcome.error_of(0), KeyError)
    assert futures[2].outcome.error_of(0) is error
    assert bench.accumulator.free_bytes == bench.accumulator.buffer_memory
    assert not bench.accumulator.has_incomplete
    with pytest.raises(IllegalStateError, match="SUCCEEDED cannot FAIL"):
        bench.accumulator.fail(one, error)


def test_abandoned_batch_keeps_its_memory(make_bench, make_cluster):
    """In flight past its deadline: failed for the application, but a socket may still read its bytes."""
    bench = make_bench()
    future = bench.future()
    (batch,) = bench.drain(make_cluster(1))[1]
    outcome = bench.accumulator.abandon(batch, TimeoutError("late"))
    assert outcome.done()
    assert not bench.accumulator.has_incomplete
    assert bench.accumulator.free_bytes < bench.accumulator.buffer_memory
    assert batch.sealed is not None
    bench.accumulator.complete(batch, 5, -1)  # the late success is ignored
    assert bench.accumulator.free_bytes == bench.accumulator.buffer_memory
    assert isinstance(future.outcome.error_of(0), TimeoutError)


def test_flush_is_a_snapshot(make_bench, make_cluster):
    """A flush waits for what is incomplete now, in queues and in flight, not for later records."""
    bench, cluster = make_bench(batch_bytes=150), make_cluster(1)
    sent, queued = bench.future(), bench.future()
    bench.drain(cluster)
    outcomes = bench.accumulator.begin_flush()
    later = bench.future()
    assert set(outcomes) == {sent.outcome, queued.outcome}
    assert later.outcome not in outcomes
    bench.accumulator.begin_flush()
    bench.accumulator.end_flush()
    assert bench.ready(cluster, 0).nodes == {1}  # the first flush goes on
    bench.accumulator.end_flush()


def test_abort_fails_everything(make_bench, make_cluster):
    """Queued batches are done with; those in flight keep their memory until they are settled."""
    bench, cluster = make_bench(batch_bytes=150), make_cluster(1)
    futures = [bench.future() for _ in range(3)]
    (flying,) = bench.drain(cluster)[1]
    error = RuntimeError("closed")
    outcomes = [batch.outcome for batch in bench.accumulator.abort_batches(error)]
    assert set(outcomes) == {future.outcome for future in futures}
    assert all(future.outcome.error_of(future.index) is error for future in futures)
    assert bench.ready(cluster, 0).nodes == frozenset()
    bench.accumulator.fail(flying, error)
    assert bench.accumulator.free_bytes == bench.accumulator.buffer_memory
    assert isinstance(bench.append().future.outcome, BatchOutcome)  # it was not closed


def test_abort_unsent_leaves_numbered_batches(make_bench, make_cluster):
    """Batches that wait for a retry stay; new ones fail."""
    bench, cluster = make_bench(batch_bytes=150), make_cluster(1, 1)
    retried, fresh, other = bench.future(0), bench.future(0), bench.future(1)
    (batch, _) = bench.drain(cluster)[1]
    batch.base_sequence = 0
    bench.accumulator.reenqueue(batch, 0)
    batches = bench.accumulator.abort_unsent(ValueError())
    assert [batch.outcome for batch in batches] == [fresh.outcome]
    assert not retried.done()
    assert not other.done()
    assert bench.accumulator.queued_topics() == {"t"}
    assert bench.accumulator.has_queued
    bench.accumulator.abort_batches(ValueError())
    assert not bench.accumulator.queued_topics()
    assert not bench.accumulator.has_queued
    assert bench.append(0).future.index == 0


def test_open_batch_cannot_fail(make_bench):
    """A failed batch drops its buffer, to which records could still be appended: it must be closed first."""
    bench = make_bench()
    future = bench.future()
    (batch,) = bench.accumulator._incomplete
    with pytest.raises(IllegalStateError, match="t-0 that is OPEN cannot FAIL"):
        bench.accumulator.fail(batch, ValueError())
    assert not future.done()
    assert bench.future().index == 1


def test_closed_batch_knows_its_uncompressed_size():
    """What its records may decompress to is known, and not guessed."""
    batch = batch_of(b"x" * 500)
    assert batch.uncompressed_bytes == batch.size_bytes > len(batch.seal(Compression(Codec.GZIP)))
    assert batch.uncompressed_bytes > 500
