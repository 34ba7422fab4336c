"""Sequence numbers of one partition: whose turn it is, and when a new identity is due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.accumulator.batch import (
    SEQUENCE_COUNT,
    BatchEvent,
    BatchState,
    ProducerBatch,
    is_earlier,
    sequence_after,
)
from splashdam.model.errors import IllegalStateError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel import BatchBuffer
from splashdam.sender.idempotence import LAST_EPOCH, TRANSITIONS, Idempotence, Identity, IdEvent, IdState

TP = TopicPartition("t", 0)


def new_batch(records=1, topic_partition=TP):
    """A batch as it leaves its queue for the first time."""
    buffer = BatchBuffer(61 + 100 * records)
    for _ in range(records):
        buffer.try_append(0, None, b"v", None)
    batch = ProducerBatch(topic_partition, buffer, 0, 100)
    batch.close()
    return batch


def send(idempotence, batch):
    """What a drain does."""
    assert idempotence.holds(batch) is None
    batch.advance(BatchEvent.DRAIN)
    idempotence.drained(batch)


def back(batch):
    """The batch waits for its retry."""
    batch.advance(BatchEvent.RETRY)
    batch.attempts += 1


@pytest.fixture
def idempotence():
    """With producer id 1, epoch 0, and one batch confirmed: sequence 1 is next."""
    made = Idempotence()
    made.requested()
    made.granted(1, 0)
    first = new_batch()
    send(made, first)
    made.delivered(first)
    return made


def fly(idempotence, *counts):
    """New batches on the wire."""
    batches = [new_batch(count) for count in counts]
    for batch in batches:
        send(idempotence, batch)
    return batches


@given(st.integers(0, SEQUENCE_COUNT - 1), st.integers(1, 1_000_000))
def test_later_is_later_across_the_wrap(start, count):
    """Numbers compare on a circle; 2,147,483,647 is followed by 0."""
    end = sequence_after(start, count)
    assert 0 <= end < SEQUENCE_COUNT
    assert is_earlier(start, end)
    assert not is_earlier(end, start)
    assert not is_earlier(start, start)


def test_nothing_goes_without_an_id():
    """The first batch waits for the producer id, and only for that."""
    made = Idempotence()
    assert made.wants_id
    assert made.holds(new_batch())
    made.requested()
    assert not made.wants_id
    made.granted(9, 0)
    batch = new_batch(3)
    send(made, batch)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 0, 0)


def test_first_batch_goes_alone():
    """A broker that does not know the producer takes any number: nobody may overtake the first batch."""
    made = Idempotence()
    made.requested()
    made.granted(9, 0)
    first = new_batch()
    send(made, first)
    assert made.holds(new_batch())
    made.delivered(first)
    fly(made, 1, 1)


def test_five_in_flight(idempotence):
    """Five numbered batches, without muting; the sixth waits for an answer."""
    batches = fly(idempotence, 2, 3, 1, 1, 1)
    assert [batch.base_sequence for batch in batches] == [1, 3, 6, 7, 8]
    assert idempotence.holds(new_batch())
    idempotence.delivered(batches[0])
    assert idempotence.holds(new_batch()) is None


def test_retries_go_one_at_a_time_lowest_first(idempotence):
    """Only the lowest is sent until it is resolved."""
    a, b, c = fly(idempotence, 1, 1, 1)
    for batch in (c, b, a):
        back(batch)
    assert [idempotence.holds(batch) is None for batch in (a, b, c)] == [True, False, False]
    send(idempotence, a)
    assert idempotence.holds(b)
    idempotence.delivered(a)
    assert idempotence.holds(b) is None


def test_nothing_new_while_one_is_repeated(idempotence):
    """A repeat may be in the log already; with five new ones behind it the broker would not know it again."""
    (a,) = fly(idempotence, 1)
    back(a)
    send(idempotence, a)
    assert idempotence.holds(new_batch())
    idempotence.delivered(a)
    assert idempotence.holds(new_batch()) is None


def test_gap_behind_a_failure_is_only_retried(idempotence):
    """45 for a batch whose predecessor is not resolved: the predecessor goes first, nothing is renumbered."""
    a, b = fly(idempotence, 1, 1)
    assert not idempotence.out_of_sequence(b)
    idempotence.settle()
    assert idempotence.bumps == 0
    back(b)
    idempotence.delivered(a)
    assert idempotence.holds(b) is None


def test_real_gap_raises_the_epoch(idempotence):
    """45 for the lowest batch: it and all behind it are renumbered from 0, once they are off the wire."""
    a, b = fly(idempotence, 2, 1)
    assert idempotence.out_of_sequence(a)
    back(a)
    idempotence.settle()
    assert idempotence.bumps == 0  # b is on the wire
    assert idempotence.holds(a)
    back(b)
    idempotence.settle()
    assert [(x.producer_epoch, x.base_sequence) for x in (a, b)] == [(1, 0), (1, 2)]
    assert idempotence.holds(a) is None
    send(idempotence, a)
    idempotence.delivered(a)
    send(idempotence, b)
    idempotence.delivered(b)
    assert fly(idempotence, 1)[0].base_sequence == 3


def test_refused_batch_leaves_no_gap(idempotence):
    """After a refusal the next number the broker sees is legal: 0 in a new epoch (R3)."""
    (a,) = fly(idempotence, 4)
    idempotence.refused(a)
    assert idempotence.holds(new_batch())
    idempotence.settle()
    (b,) = fly(idempotence, 1)
    assert (b.producer_epoch, b.base_sequence) == (1, 0)


def test_batches_before_a_refused_one_keep_their_numbers(idempotence):
    """They may have been written: they are repeated under the old identity, and renumbered never."""
    a, b, c = fly(idempotence, 1, 1, 1)
    back(a)  # lost its answer
    idempotence.refused(b)
    back(c)
    idempotence.settle()
    assert idempotence.bumps == 0
    assert idempotence.holds(a) is None
    send(idempotence, a)
    assert (a.producer_epoch, a.base_sequence) == (0, 1)
    idempotence.delivered(a)
    idempotence.settle()
    assert (c.producer_epoch, c.base_sequence) == (1, 0)


def test_unresolved_batch_stops_new_ones(idempotence):
    """A batch given up without an answer: nothing new until in-flight is empty, then a new epoch."""
    a, b = fly(idempotence, 1, 1)
    idempotence.lost(a)
    assert idempotence.holds(new_batch())
    back(b)
    idempotence.settle()
    assert idempotence.holds(b) is None
    idempotence.lost(b)
    idempotence.settle()
    assert idempotence.bumps == 1
    assert fly(idempotence, 1)[0].base_sequence == 0


def test_unresolved_batch_that_was_written_costs_nothing(idempotence):
    """A later batch is accepted, so the lost one is there: same epoch, next number."""
    a, b = fly(idempotence, 2, 1)
    idempotence.lost(a)
    idempotence.delivered(b)
    idempotence.settle()
    assert idempotence.bumps == 0
    assert fly(idempotence, 1)[0].base_sequence == 4


def test_abandoned_batch_is_awaited(idempotence):
    """Its late answer decides: written, and the numbers go on; or never known, and the epoch is raised."""
    (a,) = fly(idempotence, 1)
    a.advance(BatchEvent.ABANDON)
    idempotence.abandoned(a)
    idempotence.settle()
    assert idempotence.holds(new_batch())
    idempotence.delivered(a)
    idempotence.settle()
    assert idempotence.bumps == 0
    assert fly(idempotence, 1)[0].base_sequence == 2


def test_split_parts_share_the_numbers(idempotence):
    """More than five may be numbered then; they go one at a time."""
    a, b = fly(idempotence, 4, 1)
    parts = [new_batch(2), new_batch(2)]
    for part, sequence in zip(parts, (1, 3), strict=True):
        part.producer_id, part.producer_epoch, part.base_sequence = 1, 0, sequence
    idempotence.split(a, parts)
    back(b)
    assert [idempotence.holds(batch) is None for batch in (*parts, b)] == [True, False, False]


def test_one_raise_serves_all_partitions(idempotence):
    """Two partitions in trouble share the new epoch; a third goes on under the old one until it is empty."""
    others = [new_batch(topic_partition=TopicPartition("t", number)) for number in (1, 2)]
    for other in others:
        send(idempotence, other)
    idempotence.delivered(others[1])
    third = new_batch(topic_partition=TopicPartition("t", 2))
    send(idempotence, third)
    (a,) = fly(idempotence, 1)
    idempotence.refused(a)
    idempotence.refused(others[0])
    idempotence.settle()
    assert (idempotence.bumps, idempotence.identity) == (1, Identity(1, 1))
    fourth = new_batch(topic_partition=TopicPartition("t", 2))
    send(idempotence, fourth)
    assert (fourth.producer_epoch, fourth.base_sequence) == (0, 2)
    idempotence.delivered(third)
    idempotence.delivered(fourth)
    fifth = new_batch(topic_partition=TopicPartition("t", 2))
    send(idempotence, fifth)
    assert (fifth.producer_epoch, fifth.base_sequence) == (1, 0)


def test_last_epoch_asks_for_a_new_id():
    """At 32,767 a new producer id is needed; until it is there, refused batches wait with their numbers."""
    made = Idempotence()
    made.requested()
    made.granted(1, LAST_EPOCH)
    a, other = new_batch(), new_batch(topic_partition=TopicPartition("t", 1))
    send(made, a)
    send(made, other)
    made.out_of_sequence(a)
    back(a)
    made.settle()
    assert made.wants_id
    assert made.holds(a)
    back(other)
    assert made.holds(other) is None  # other partitions go on under the old id
    made.requested()
    made.granted(2, 0)
    made.settle()
    assert (a.producer_id, a.producer_epoch, a.base_sequence) == (2, 0, 0)
    assert made.holds(a) is None


def test_late_trouble_takes_the_present_identity(idempotence):
    """A partition that fell back to an older identity needs no further raise."""
    other = new_batch(topic_partition=TopicPartition("t", 1))
    send(idempotence, other)
    (a,) = fly(idempotence, 1)
    idempotence.refused(a)
    idempotence.settle()
    idempotence.refused(other)
    idempotence.settle()
    assert idempotence.bumps == 1
    again = new_batch(topic_partition=TopicPartition("t", 1))
    send(idempotence, again)
    assert (again.producer_epoch, again.base_sequence) == (1, 0)


def test_partitions_out_of_use_are_forgotten_under_a_new_epoch(idempotence, monkeypatch):
    """Their number 0 would be taken for a repeat; what is in use, in flight or in trouble stays."""
    monkeypatch.setattr("splashdam.sender.idempotence.MOST_IDLE", 0)
    flying, used = new_batch(1, TopicPartition("flying", 0)), new_batch(1, TopicPartition("used", 0))
    send(idempotence, flying)
    send(idempotence, used)
    idempotence.delivered(used)
    idempotence.expect_expiry({"used"})
    assert set(idempotence._partitions) == {flying.topic_partition, used.topic_partition}
    assert (idempotence.identity, idempotence.bumps) == (Identity(1, 1), 1)
    idempotence.delivered(flying)
    again = new_batch()
    send(idempotence, again)
    assert (again.producer_id, again.producer_epoch, again.base_sequence) == (1, 1, 0)
    idempotence.delivered(again)
    more = new_batch(1, used.topic_partition)
    send(idempotence, more)
    assert (more.producer_epoch, more.base_sequence) == (1, 0)


def test_few_partitions_out_of_use_are_remembered(idempotence):
    """Usual producers never pay for it with an epoch."""
    idempotence.expect_expiry(())
    assert set(idempotence._partitions) == {TP}
    assert idempotence.bumps == 0


def test_partitions_in_trouble_are_not_forgotten(idempotence, monkeypatch):
    """Until it is settled whether their last batch was written."""
    monkeypatch.setattr("splashdam.sender.idempotence.MOST_IDLE", 0)
    (batch,) = fly(idempotence, 1)
    idempotence.lost(batch)
    idempotence.expect_expiry(())
    assert set(idempotence._partitions) == {TP}
    idempotence.settle()
    idempotence.expect_expiry(())
    assert not idempotence._partitions


def test_forgetting_at_the_last_epoch_waits_for_a_new_id(idempotence, monkeypatch):
    """Without a new identity the old numbers are still needed; then they are not."""
    monkeypatch.setattr("splashdam.sender.idempotence.MOST_IDLE", 0)
    idempotence.identity = idempotence._partitions[TP].identity = Identity(1, LAST_EPOCH)
    idempotence.expect_expiry(())
    assert idempotence.wants_id
    assert set(idempotence._partitions) == {TP}
    idempotence.expect_expiry(())
    assert not idempotence._partitions
    assert idempotence.holds(new_batch())
    idempotence.requested()
    idempotence.granted(2, 0)
    batch = new_batch()
    send(idempotence, batch)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (2, 0, 0)


def test_numbers_wrap(idempotence):
    """After 2,147,483,647 comes 0, in a batch and between batches."""
    partition = idempotence._partitions[TP]
    partition.next_sequence = partition.acked_to = SEQUENCE_COUNT - 2
    a, b = fly(idempotence, 3, 1)
    assert (a.base_sequence, b.base_sequence) == (SEQUENCE_COUNT - 2, 1)
    idempotence.delivered(b)
    assert partition.acked_to == 2
    idempotence.delivered(a)
    assert partition.acked_to == 2


@pytest.mark.parametrize("state", IdState)
@pytest.mark.parametrize("event", IdEvent)
def test_identity_table(state, event):
    """Every pair is in the table or raises, naming both."""
    made = Idempotence()
    made.state = state
    if (state, event) in TRANSITIONS:
        made._advance(event)
        assert made.state is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalStateError, match=f"{state.name} cannot {event.name}"):
            made._advance(event)


def test_states_on_the_wire():
    """What the rules call on the wire is what the batch's table calls in flight or abandoned."""
    batch = new_batch()
    batch.advance(BatchEvent.DRAIN)
    assert batch.state is BatchState.IN_FLIGHT
