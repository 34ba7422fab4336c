"""The life of a transactional id without a broker: the table, epochs, what EndTxn means in which state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, product
from typing import TypeVar

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.running.examples import examples

from splashdam.embedded_broker.transactions.end_txn import EndDecision, decide_end
from splashdam.embedded_broker.transactions.metadata import (
    AT_REST,
    MAX_EPOCH,
    PREPARED,
    TRANSITIONS,
    ProducerIdentity,
    TransactionMetadata,
    TransactionState,
)
from splashdam.embedded_broker.transactions.records import decode_value, encode_value
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.errors import IllegalStateError
from splashdam.model.values import TopicPartition

S = TransactionState
T = TypeVar("T")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def metadata(state: TransactionState = S.EMPTY, epoch: int = 3, **fields: object) -> TransactionMetadata:
    """A transaction of producer 7."""
    known = TransactionMetadata(
        transactional_id="tx",
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=1000,
        last_update_ms=5,
        start_ms=-1 if state is S.EMPTY else 4,
        state=state,
    )
    return attrs.evolve(known, **fields)


def test_previous_states_are_kafkas() -> None:
    """Read against Kafka's table of the states that each may come from."""
    came_from = {
        state: {before for (before, _), after in TRANSITIONS.items() if after is state} for state in S
    }
    assert came_from == {
        S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.PREPARE_COMMIT: {S.ONGOING},
        S.PREPARE_ABORT: {S.ONGOING, S.PREPARE_EPOCH_FENCE, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
        S.COMPLETE_ABORT: {S.PREPARE_ABORT},
        S.DEAD: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.PREPARE_EPOCH_FENCE: {S.ONGOING},
    }


def test_illegal_events_name_state_and_event() -> None:
    """A mistake of the broker's own is told plainly."""
    with pytest.raises(IllegalStateError, match=r"'tx'.*PREPARE_COMMIT.*ADD"):
        metadata(S.PREPARE_COMMIT).with_partitions([T0], 9, 2)


def no_id() -> int:
    raise AssertionError("no id is needed")


# --- InitProducerId -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(AT_REST, key=lambda each: each.value))
def test_a_new_producer_gets_the_next_epoch(state: TransactionState) -> None:
    """Whatever became of the last transaction; nothing of it is left."""
    after = metadata(state, next_producer_id=-1).initialized(2000, None, 9, no_id)
    assert after.identity == (7, 4)
    assert (after.state, after.timeout_ms, after.last_producer_epoch, after.start_ms) == (
        S.EMPTY,
        2000,
        -1,
        -1,
    )


def test_the_first_epoch_is_0() -> None:
    """Also for a producer that names an identity of an id that was forgotten meanwhile."""
    fresh = metadata(epoch=-1)
    assert fresh.initialized(1000, None, 9, no_id).identity == (7, 0)
    assert fresh.initialized(1000, ProducerIdentity(3, 8), 9, no_id).identity == (7, 0)


def test_epochs_that_are_used_up_bring_another_id() -> None:
    """The last one is kept for fencing; a repeat of the call that changed the id is answered alike."""
    last = metadata(epoch=MAX_EPOCH - 1)
    assert last.initialized(1000, None, 9, lambda: 8).identity == (8, 0)
    kept = last.initialized(1000, ProducerIdentity(7, MAX_EPOCH - 1), 9, lambda: 8)
    assert kept.identity == (8, 0)
    assert kept.initialized(1000, ProducerIdentity(7, MAX_EPOCH - 1), 9, no_id).identity == (8, 0)
    with pytest.raises(BrokerResponseError, match="epoch"):
        kept.initialized(1000, ProducerIdentity(7, 5), 9, no_id)


@pytest.mark.parametrize("expected", [(7, 2), (7, 4), (6, 3), (8, 3)])
def test_another_identity_is_fenced(expected: tuple[int, int]) -> None:
    """Another epoch or id than the present one."""
    with pytest.raises(BrokerResponseError) as caught:
        metadata().initialized(1000, ProducerIdentity(*expected), 9, no_id)
    assert caught.value.code == 90


def test_a_newcomer_in_between_fences_the_repeat() -> None:
    """KIP-360: only while nobody else came is the call before the last one answered again."""
    bumped = metadata().initialized(1000, ProducerIdentity(7, 3), 9, no_id)
    assert bumped.initialized(1000, ProducerIdentity(7, 3), 9, no_id).identity == (7, 4)
    newcomer = bumped.initialized(1000, None, 9, no_id)
    with pytest.raises(BrokerResponseError):
        newcomer.initialized(1000, ProducerIdentity(7, 4), 9, no_id)


# --- the end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_epochs_stay_before_kip_890(version: int) -> None:
    """Commit and abort alike."""
    prepared = metadata(S.ONGOING, partitions=frozenset([T0])).ended(True, 9, version, no_id)
    assert prepared.completed(10).identity == prepared.identity == (7, 3)


def test_every_transaction_has_an_epoch_of_its_own() -> None:
    """The marker has the next one, and the producer goes on with it."""
    prepared = metadata(S.ONGOING, partitions=frozenset([T0])).ended(False, 9, 2, no_id)
    assert (prepared.state, prepared.producer_epoch, prepared.partitions) == (
        S.PREPARE_ABORT,
        4,
        frozenset([T0]),
    )
    complete = prepared.completed(10)
    assert (complete.state, complete.identity, complete.partitions) == (S.COMPLETE_ABORT, (7, 4), frozenset())


def test_the_last_epoch_writes_the_marker() -> None:
    """The producer is told the id that follows, which counts once the markers are written."""
    prepared = metadata(S.ONGOING, MAX_EPOCH - 1).ended(True, 9, 2, lambda: 8)
    assert (prepared.producer_id, prepared.producer_epoch) == (7, MAX_EPOCH)
    assert prepared.identity == (8, 0)
    complete = prepared.completed(10)
    assert (complete.producer_id, complete.producer_epoch, complete.next_producer_id) == (8, 0, -1)
    repeat = ProducerIdentity(7, MAX_EPOCH - 1)
    assert decide_end(complete, repeat, is_commit=True, client_version=2) is EndDecision.DONE


@pytest.mark.parametrize(("version", "epoch"), list(product([0, 2], [3, MAX_EPOCH - 1])))
def test_fencing_takes_one_epoch(version: int, epoch: int) -> None:
    """Also the last one: after it the producer that comes gets another id."""
    ids = count(8)
    fenced = metadata(S.ONGOING, epoch).fenced_off(9, version, lambda: next(ids))
    assert (fenced.state, fenced.producer_id, fenced.producer_epoch) == (S.PREPARE_ABORT, 7, epoch + 1)
    after = fenced.completed(10).initialized(1000, None, 11, lambda: next(ids))
    assert after.producer_epoch < MAX_EPOCH
    assert after.identity > fenced.completed(10).identity


CLASSIC = {
    (S.ONGOING, True): EndDecision.PREPARE,
    (S.ONGOING, False): EndDecision.PREPARE,
    **dict.fromkeys(product(PREPARED, (True, False)), 51),
    (S.COMPLETE_COMMIT, True): EndDecision.DONE,
    (S.COMPLETE_ABORT, False): EndDecision.DONE,
}
SINCE_890 = {
    3: {
        (S.ONGOING, True): EndDecision.PREPARE,
        (S.ONGOING, False): EndDecision.PREPARE,
        (S.EMPTY, False): EndDecision.PREPARE,
        (S.COMPLETE_COMMIT, False): EndDecision.PREPARE,
        (S.COMPLETE_ABORT, False): EndDecision.PREPARE,
        **dict.fromkeys(product(PREPARED, (True, False)), 51),
    },
    2: {
        **dict.fromkeys(product(PREPARED, (True, False)), 51),
        (S.COMPLETE_COMMIT, True): EndDecision.DONE,
        (S.COMPLETE_ABORT, False): EndDecision.DONE,
        **dict.fromkeys([(S.ONGOING, True), (S.ONGOING, False)], 90),
        **dict.fromkeys([(S.EMPTY, True), (S.EMPTY, False)], 90),
    },
    4: dict.fromkeys(product(PREPARED, (True, False)), 51),
}
LIVING = sorted((*AT_REST, *PREPARED, S.ONGOING), key=lambda state: state.name)


def answered(call: Callable[[], T]) -> T | int:
    """The result of the call, or the code of the refusal."""
    try:
        return call()
    except BrokerResponseError as error:
        return error.code


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_the_other_end_waits_while_markers_are_owed(version: int, is_commit: bool) -> None:
    """As on Kafka 4.4: 51 until all markers are written, whichever end was told, and 48 after that."""
    prepared = metadata(S.ONGOING, partitions=frozenset([T0])).ended(is_commit, 9, version, lambda: 8)
    assert decided(prepared, 3, not is_commit, version) == 51
    assert decided(prepared.completed(10), 3, not is_commit, version) == 48


def test_a_committed_producer_is_not_fenced_while_the_disk_refuses_a_marker() -> None:
    """Its next abort came before the marker was written; it is to wait, also where its id is a new one."""
    for epoch in (3, MAX_EPOCH - 1):
        prepared = metadata(S.ONGOING, epoch, partitions=frozenset([T0])).ended(True, 9, 2, lambda: 8)
        told = prepared.identity
        assert decided(prepared, told.epoch, False, 2, told.producer_id) == 51
        assert decided(prepared.completed(10), told.epoch, False, 2, told.producer_id) is EndDecision.PREPARE


def decided(
    known: TransactionMetadata, epoch: int, is_commit: bool, version: int, producer_id: int = 7
) -> EndDecision | int:
    """The decision, or the code of the refusal."""
    producer = ProducerIdentity(producer_id, epoch)
    return answered(lambda: decide_end(known, producer, is_commit=is_commit, client_version=version))


@pytest.mark.parametrize(("state", "is_commit"), list(product(LIVING, (True, False))))
def test_ends_before_kip_890(state: TransactionState, is_commit: bool) -> None:
    """The epoch must be the present one; everything that is not in the table is 48."""
    known = metadata(state)
    assert decided(known, 3, is_commit, 0) == CLASSIC.get((state, is_commit), 48)
    assert {decided(known, epoch, is_commit, 0) for epoch in (2, 4)} == {90}


@pytest.mark.parametrize(("state", "is_commit", "epoch"), list(product(LIVING, (True, False), (2, 3, 4))))
def test_ends_since_kip_890(state: TransactionState, is_commit: bool, epoch: int) -> None:
    """The epoch before the present one is a repeat of the end that put it up; one ahead of it is nobody's."""
    known = metadata(state, client_version=2)
    refused = 90 if epoch == 4 else 48
    assert decided(known, epoch, is_commit, 2) == SINCE_890[epoch].get((state, is_commit), refused)


@pytest.mark.parametrize("state", sorted(PREPARED, key=lambda state: state.name))
@pytest.mark.parametrize("is_commit", [True, False])
def test_while_markers_are_missing_the_producer_is_not_checked(
    state: TransactionState, is_commit: bool
) -> None:
    """As on Kafka 4.4: since KIP-890 every request waits; before, those with the present epoch."""
    known = metadata(state, client_version=2)
    whoever = [(7, 2), (7, 3), (7, 4), (7, 5), (1_007, 3)]
    assert [decided(known, epoch, is_commit, 2, number) for number, epoch in whoever] == [51] * 5
    assert [decided(known, epoch, is_commit, 0, number) for number, epoch in whoever] == [90, 51, 90, 90, 49]


def test_another_producer_id_ends_nothing() -> None:
    """49 in both protocols."""
    for version in (0, 2):
        with pytest.raises(BrokerResponseError) as caught:
            decide_end(metadata(S.ONGOING), ProducerIdentity(6, 3), is_commit=True, client_version=version)
        assert caught.value.code == 49


# --- any history --------------------------------------------------------------------------------------------


class OneTransactionalId(RuleBasedStateMachine):
    """Requests in any order by a producer and those that replace it, near the end of the epochs, too."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = count(8)
        self.now_ms = 10
        self.given: set[ProducerIdentity] = set()
        self.outcomes: list[bool] = []

    @initialize(epoch=st.sampled_from([-1, 0, 5, MAX_EPOCH - 3, MAX_EPOCH - 1]))
    def start(self, epoch: int) -> None:
        self.known = metadata(epoch=epoch)
        self.held = ProducerIdentity(7, epoch)

    def new_id(self) -> int:
        return next(self.ids)

    @precondition(lambda self: self.known.state in AT_REST)
    @rule(keeps=st.booleans())
    def initialize_producer(self, keeps: bool) -> None:
        expected = self.held if keeps else None
        after = answered(lambda: self.known.initialized(1000, expected, self.now_ms, self.new_id))
        if isinstance(after, int):
            assert (after, keeps) == (90, True)
            return
        self.known, self.held = after, after.identity

    @rule(partition=st.integers(0, 2), version=st.sampled_from([0, 2]))
    def add(self, partition: int, version: int) -> None:
        refusal = answered(lambda: self.known.check_producer(self.held))
        assert refusal in (None, 49, 51, 90)
        if refusal is None and self.held.epoch >= 0:
            where = [TopicPartition("t", partition)]
            self.known = self.known.with_partitions(where, self.now_ms, version)

    @rule(is_commit=st.booleans(), version=st.sampled_from([0, 2]), loses_answer=st.booleans())
    def end(self, is_commit: bool, version: int, loses_answer: bool) -> None:
        if self.held.epoch < 0:
            return
        decision = decided(self.known, self.held.epoch, is_commit, version, self.held.producer_id)
        if isinstance(decision, int):
            assert decision in (48, 49, 51, 90)
            return
        if decision is EndDecision.PREPARE:
            self.known = self.known.ended(is_commit, self.now_ms, version, self.new_id)
        elif version == 2:
            assert (self.known.state is S.COMPLETE_COMMIT) == is_commit
        if not loses_answer:
            self.held = self.known.identity

    @precondition(lambda self: self.known.state is S.ONGOING)
    @rule(version=st.sampled_from([0, 1, 2]))
    def fence(self, version: int) -> None:
        self.known = self.known.fenced_off(self.now_ms, version, self.new_id)

    @precondition(lambda self: self.known.is_prepared)
    @rule()
    def complete(self) -> None:
        self.known = self.known.completed(self.now_ms)

    @rule()
    def time_passes(self) -> None:
        self.now_ms += 7

    @rule()
    def restart(self) -> None:
        read = decode_value("tx", encode_value(self.known, 2))
        assert read == attrs.evolve(self.known, last_producer_epoch=-1)
        self.known = read

    @invariant()
    def is_sound(self) -> None:
        if not hasattr(self, "known"):
            return
        known = self.known
        assert -1 <= known.producer_epoch <= MAX_EPOCH
        assert known.state is not S.PREPARE_EPOCH_FENCE
        assert known.state not in AT_REST or not known.partitions
        assert known.state is S.EMPTY or known.start_ms >= 0
        assert known.is_prepared or known.next_producer_id == -1


OneTransactionalId.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None
)
TestOneTransactionalId = OneTransactionalId.TestCase
