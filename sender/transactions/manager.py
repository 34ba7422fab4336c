"""A transactional producer's side of the protocol: what it asks its coordinators, and in which order. Pure.

One request is under way at a time: FindCoordinator, InitProducerId, AddPartitions or AddOffsets (or none of
them, with KIP-890), TxnOffsetCommit, EndTxn. Semantics are those of Kafka's ``TransactionManager``; the
differences are in ``docs/decisions/transactions.md``.

Which partitions are in a producer's transaction: the accumulator's gate before its sequence numbers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from enum import auto
from typing import Any

from splashdam.accumulator.backoff import Backoff
from splashdam.accumulator.batch import ProducerBatch
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.cluster import Node
from splashdam.model.errors import IllegalStateError, KafkaError, TransactionAbortedError
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.transactions import ConsumerGroupMetadata, OffsetAndMetadata, PreparedTransaction
from splashdam.model.values import TopicPartition
from splashdam.sender.idempotence import Idempotence
from splashdam.sender.transactions import questions as requests
from splashdam.sender.transactions.calls import OffsetsCall, Operation, PendingCall, abortable, fatal, fenced
from splashdam.sender.transactions.questions import Asked, CoordinatorKey, Question, Ruling, Writer, ruling_on


class TransactionState(Stage):
    """Where a transactional producer is."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    """A producer id and epoch are asked for: the first ones, or new ones after an abort."""
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARING = auto()
    """No more records; those there are go out, and then nothing more."""
    PREPARED = auto()
    """All is in the logs, and somebody, here or elsewhere, commits or aborts it (the name is KIP-939's)."""
    COMMITTING = auto()
    """No more records; those there are go out, then the coordinator is told."""
    ABORTING = auto()
    """What was not sent fails; what is under way is awaited, then the coordinator is told."""
    ABORTABLE_ERROR = auto()
    """Something of the transaction failed: it can only be aborted."""
    FATAL_ERROR = auto()


class TransactionEvent(Stage):
    """What can happen to it."""

    INITIALIZE = auto()
    GRANT = auto()
    """The coordinator gave a producer id and epoch."""
    DENY = auto()
    """It did not, for lack of rights: to be asked again once they are granted."""
    BEGIN = auto()
    PREPARE = auto()
    HOLD = auto()
    """All that was to be prepared is in the logs."""
    COMMIT = auto()
    ABORT = auto()
    COMPLETE = auto()
    """The transaction has ended."""
    RENEW = auto()
    """It is aborted, and a new epoch is needed."""
    FAIL = auto()
    DIE = auto()


_S, _E = TransactionState, TransactionEvent

TRANSITIONS: dict[tuple[TransactionState, TransactionEvent], TransactionState] = {
    (_S.UNINITIALIZED, _E.INITIALIZE): _S.INITIALIZING,
    (_S.INITIALIZING, _E.GRANT): _S.READY,
    (_S.INITIALIZING, _E.DENY): _S.UNINITIALIZED,  # in Java by way of ABORTABLE_ERROR
    (_S.INITIALIZING, _E.FAIL): _S.ABORTABLE_ERROR,
    (_S.READY, _E.BEGIN): _S.IN_TRANSACTION,
    (_S.IN_TRANSACTION, _E.COMMIT): _S.COMMITTING,
    (_S.IN_TRANSACTION, _E.ABORT): _S.ABORTING,
    (_S.IN_TRANSACTION, _E.FAIL): _S.ABORTABLE_ERROR,
    (_S.IN_TRANSACTION, _E.PREPARE): _S.PREPARING,
    (_S.PREPARING, _E.HOLD): _S.PREPARED,
    (_S.PREPARING, _E.FAIL): _S.ABORTABLE_ERROR,
    (_S.PREPARED, _E.COMMIT): _S.COMMITTING,
    (_S.PREPARED, _E.ABORT): _S.ABORTING,
    (_S.COMMITTING, _E.COMPLETE): _S.READY,
    (_S.COMMITTING, _E.FAIL): _S.ABORTABLE_ERROR,
    (_S.ABORTING, _E.COMPLETE): _S.READY,
    (_S.ABORTING, _E.RENEW): _S.INITIALIZING,
    (_S.ABORTING, _E.FAIL): _S.ABORTING,
    (_S.ABORTABLE_ERROR, _E.ABORT): _S.ABORTING,
    (_S.ABORTABLE_ERROR, _E.FAIL): _S.ABORTABLE_ERROR,
    **{(state, _E.DIE): _S.FATAL_ERROR for state in _S if state is not _S.FATAL_ERROR},
}


FIRST_ADD_WAIT_MS = 20.0
"""The last transaction's markers are still being written (51): that is over sooner than any backoff."""

RENEWS_FROM = 3
"""First version of InitProducerId that gives a known producer a higher epoch."""

_RUNNING = (
    TransactionState.IN_TRANSACTION,
    TransactionState.PREPARING,
    TransactionState.COMMITTING,
    TransactionState.ABORTING,
)

V2_LEVEL = 2
"""From this level of the feature ``transaction.version`` on, KIP-890 holds."""

_OPEN = (TransactionState.IN_TRANSACTION, TransactionState.PREPARING, TransactionState.COMMITTING)
"""Batches go into the transaction."""
_COMPLETING = (TransactionState.PREPARING, TransactionState.COMMITTING, TransactionState.ABORTING)

_NEEDS = {
    TransactionState.UNINITIALIZED: ("a producer without a transaction", "it is initialized already"),
    TransactionState.READY: (
        "a producer without a transaction",
        "commit or abort the one that is open first",
    ),
    TransactionState.IN_TRANSACTION: ("an open transaction", "call begin_transaction() first"),
}
"""By the state a call wants: what that is, and how to come to it."""


class TransactionManager:
    """Decides; somebody else asks, and tells what was answered. Every method needs the guard.

    First what the application may call and ask, then what is asked of coordinators and learnt from them.

    Args:
        transactional_id: the producer's name; of those with the same one the newest wins.
        timeout_ms: the coordinator aborts a transaction that is open for so long.
        backoff: waits between attempts.

    Attributes:
        state: see ``TransactionState``.
        cause: why the transaction can only be aborted, or why the producer is finished; else None.
        v2: the present transaction follows KIP-890.
        sequences: numbers the batches, under identities that the coordinator gives.
        enrolment: the gate of the accumulator: which partitions are in the transaction.
        ended: calls that are decided, and whose waiters are to be run.
        on_change: called after each change of ``state``.
        last_error: why the last request has to be repeated, for messages; None where it has not.
    """

    def __init__(self, transactional_id: str, timeout_ms: int, backoff: Backoff) -> None:
        self.state = TransactionState.UNINITIALIZED
        self.cause: BaseException | None = None
        self.v2 = False
        self.sequences = Idempotence(own_epochs=False)
        self.enrolment = Enrolment(self.sequences)
        self.ended: deque[PendingCall] = deque()
        self.on_change: Callable[[], None] = lambda: None
        self._level = 0
        self._can_renew = False
        self._call: PendingCall | None = None
        self._offsets: deque[OffsetsCall] = deque()
        self._groups: set[str] = set()
        self._unsure = False  # something was to be added, and there was no answer
        self._renew = False
        self._skip_end = False
        self.last_error: BaseException | None = None
        self._key = CoordinatorKey(1, transactional_id)
        self._timeout_ms = timeout_ms
        self._backoff = backoff
        self._not_before_ms = -math.inf
        self._coordinators: dict[CoordinatorKey, Node] = {}
        self._asked: Question | None = None
        self._adding: Question | None = None
        self._adding_group = ""

    def init(self) -> PendingCall:
        """Asks for producer id and epoch, which ends what others with this id have left open."""
        call = self._pending(Operation.INIT)
        if call is None:
            call = PendingCall(Operation.INIT)
            if self.state is TransactionState.READY:
                self._end(call)
                return call
            self._refuse_unless(TransactionState.UNINITIALIZED, call.operation.value)
            self._advance(TransactionEvent.INITIALIZE)
            self._call = call
        return call

    def begin(self) -> None:
        """Opens a transaction."""
        self._pending(None)
        self._refuse_unless(TransactionState.READY, "begin_transaction")
        self._advance(TransactionEvent.BEGIN)
        self.v2 = self._level >= V2_LEVEL
        self.enrolment.begin(implicit=self.v2)
        self._groups.clear()
        self._unsure = self._renew = self._skip_end = False

    def commit(self) -> PendingCall:
        """Ends the transaction once all its batches are there."""
        return self._complete(Operation.COMMIT, TransactionEvent.COMMIT)

    def prepare(self) -> PendingCall:
        """Holds the transaction once all its batches are there, for whoever ends it."""
        call = self._pending(Operation.PREPARE)
        if call is None:
            self._refuse_unless(TransactionState.IN_TRANSACTION, Operation.PREPARE.value)
            call = PendingCall(Operation.PREPARE)
            self._advance(TransactionEvent.PREPARE)
            self._call = call
        return call

    def abort(self) -> PendingCall:
        """Gives the transaction up."""
        call = self._complete(Operation.ABORT, TransactionEvent.ABORT)
        call.detached = False
        return call

    def abort_unattended(self) -> None:
        """As `abort`, where that is legal, for who does not wait."""
        if self.can_abort:
            if self._call is not None and self._call.decided:
                self._call = None  # nobody asks any more how that one ended
            self.abort().detached = True

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> PendingCall:
        """Makes offsets part of the transaction."""
        self._pending(None)
        call = OffsetsCall(offsets, group)
        self._refuse_unless(TransactionState.IN_TRANSACTION, Operation.OFFSETS.value)
        for waiting in self._offsets:
            if waiting.same_as(call):
                return waiting
        self._offsets.append(call)
        return call

    def acknowledge(self, call: PendingCall) -> None:
        """The application has heard how a call ended."""
        if self._call is call:
            self._call = None

    def run_ended(self) -> None:
        """Wakes those whose calls have ended. Here alone the guard is not held."""
        while True:
            try:
                call = self.ended.popleft()
            except IndexError:
                return
            call.finished.open()

    def refusal(self) -> KafkaError:
        """Why no record is taken now."""
        if self.cause is not None:
            return self._error()
        if self.state is TransactionState.UNINITIALIZED:
            return IllegalStateError("no record without a transaction: call init_transactions() first")
        if self.state is TransactionState.PREPARED:
            return IllegalStateError("no record after prepare_transaction(): commit or abort it first")
        return IllegalStateError(
            f"no record outside a transaction, and this producer is {self.state.name}:"
            " call begin_transaction(), or use `with producer.transaction():`"
        )

    @property
    def can_abort(self) -> bool:
        """Whether what is open should be aborted by whoever gives up. What is prepared belongs to others."""
        return self.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR)

    @property
    def completing(self) -> bool:
        """Whether nothing lingers, since the transaction is about to be prepared or to end."""
        return self.state in _COMPLETING

    @property
    def ongoing(self) -> bool:
        """Whether a transaction is open, or has not ended yet."""
        return self.completing or self.can_abort

    @property
    def dooms(self) -> BaseException | None:
        """What batches that were not sent fail with; None where they go out."""
        if self.state is TransactionState.ABORTABLE_ERROR:
            return self.cause
        if self.state is TransactionState.ABORTING:
            return self.cause or TransactionAbortedError("the transaction was aborted before this was sent")
        return None

    @property
    def fatal_error(self) -> KafkaError | None:
        """Why nothing can be sent any more, None while the producer is of use."""
        return self._error() if self.state is TransactionState.FATAL_ERROR else None

    def batch_failed(self, error: BaseException) -> None:
        """A batch of the transaction was not written."""
        if self.ongoing:
            self._fail(error)

    def die(self, error: BaseException) -> None:
        """Nothing can go on. The first cause stays."""
        if self.state is TransactionState.FATAL_ERROR:
            return
        self.cause = error
        self._advance(TransactionEvent.DIE)
        self._end_all(self._error())

    def due_in_ms(self, now_ms: float) -> float:
        """How long the next request has to wait."""
        return max(0.0, self._not_before_ms - now_ms)

    def coordinator(self, key: CoordinatorKey) -> Node:
        """Who was found to coordinate ``key``."""
        return self._coordinators[key]

    def coordinator_lost(self, node_id: int) -> None:
        """A broker cannot be reached: what it coordinated may have moved."""
        self._coordinators = {key: at for key, at in self._coordinators.items() if at.node_id != node_id}

    def next_question(self, *, batches_left: bool) -> Question | None:
        """What is to be asked now; None: nothing, or one is under way.

        Args:
            batches_left: batches are queued, or their answers are awaited.
        """
        if self._asked is not None:
            return None
        wanted = self._wanted(batches_left)
        if wanted is None:
            return None
        key = wanted.coordinator
        return wanted if key is None or key in self._coordinators else requests.find_coordinator(key)

    def asking(self, question: Question, version: int, level: int) -> None:
        """It is being sent, in ``version``, to a broker with this level of ``transaction.version``."""
        self._asked = question
        if question.asked is not Asked.FIND_COORDINATOR:
            self._level = level
        if question.asked is Asked.INIT_PRODUCER_ID:
            self._can_renew = version >= RENEWS_FROM

    def answered(self, question: Question, response: Any, now_ms: float) -> None:
        """The answer."""
        self._asked = None
        if self.state is TransactionState.FATAL_ERROR:
            return  # a batch has ended the producer while this was under way
        code, text = question.refusal(response)
        if not code:
            self._backoff.reset()
            self.last_error = None
            self._learn(question, response)
            return
        if code == ErrorCode.INVALID_TXN_STATE and self._unsure and self._aborts(question):
            self._completed()  # what had no answer was not carried out: there is nothing to abort
            return
        self._rule(question, ruling_on(question.asked, code), error_for(code, text), now_ms)

    def impossible(self, question: Question, error: KafkaError, now_ms: float) -> None:
        """The request cannot be made for this broker, or with these arguments."""
        for_offsets = question.asked in (Asked.ADD_OFFSETS, Asked.COMMIT_OFFSETS)
        self._rule(question, Ruling.ABORT if for_offsets else Ruling.DIE, error, now_ms)

    def unanswered(self, question: Question, error: KafkaError, now_ms: float) -> None:
        """No answer came, because the connection broke or the request took too long."""
        self._unsure |= question.asked in (Asked.ADD_PARTITIONS, Asked.ADD_OFFSETS)
        self._rule(question, Ruling.FIND_AGAIN, error, now_ms)

    def refused(self, error: KafkaError) -> None:
        """No broker lets us in: who waits for an identity need not wait any longer."""
        if self.state is TransactionState.INITIALIZING and self._asked is None:
            self._deny(error)

    def _pending(self, operation: Operation | None) -> PendingCall | None:
        """The call to go on waiting for, if this one was made before; raises while another one is open."""
        if self.state is TransactionState.FATAL_ERROR:
            raise self._error()
        call = self._call
        if call is None or call.operation is operation:
            return call
        if operation is Operation.ABORT and call.error is not None:  # it has ended, in vain
            self._call = None
            return None
        raise IllegalStateError(
            f"{call.operation.value}() has not ended: call it again, which goes on waiting for it"
        )

    def _complete(self, operation: Operation, event: TransactionEvent) -> PendingCall:
        call = self._pending(operation)
        if call is None:
            endable = self.state is TransactionState.PREPARED
            if not endable and (operation is Operation.COMMIT or not self.can_abort):
                self._refuse_unless(TransactionState.IN_TRANSACTION, operation.value)
            call = PendingCall(operation)
            self._advance(event)
            self._call = call
            if operation is Operation.ABORT:
                self.enrolment.wanted.clear()
                self._drop_offsets(TransactionAbortedError("the transaction was aborted"))
        return call

    def _refuse_unless(self, state: TransactionState, call: str) -> None:
        if self.state is TransactionState.ABORTABLE_ERROR:
            raise self._error()
        if self.state is not state:
            needs, remedy = _NEEDS[state]
            if self.state is TransactionState.UNINITIALIZED:
                remedy = "call init_transactions() first"
            raise IllegalStateError(
                f"{call}() needs {needs}, and this producer is {self.state.name}: {remedy}"
            )

    def _fail(self, error: BaseException) -> None:
        """The transaction can only be aborted; while that is under way, it goes on."""
        first = self.state not in (TransactionState.ABORTING, TransactionState.ABORTABLE_ERROR)
        if first:
            self.cause = error
        self._renew |= self.state is TransactionState.INITIALIZING
        self._advance(TransactionEvent.FAIL)
        if first:
            self._end_all(self._error())

    def _hold(self) -> None:
        """All batches of the transaction are in the logs."""
        self._advance(TransactionEvent.HOLD)
        assert self._call is not None
        producer_id, epoch = self.sequences.identity
        has_something = self.enrolment.added or self._groups or self._unsure
        self._call.prepared = PreparedTransaction(
            self._key.key, producer_id, epoch, is_empty=not has_something
        )
        self._end_call()

    def _completed(self) -> None:
        """The coordinator has ended the transaction, or has never heard of it."""
        self.sequences.settle()
        self.enrolment.begin(implicit=False)
        self._groups.clear()
        stuck = self.sequences.in_trouble
        renewable = self._can_renew or not self.sequences.identified
        if self.state is TransactionState.ABORTING and (self._renew or stuck) and renewable:
            self.cause = None
            self._advance(TransactionEvent.RENEW)
            return
        if stuck and not self.sequences.step_back():
            self.die(IllegalStateError("the broker (before 2.5) gives no new epoch, and one is needed"))
            return
        self.cause = None
        self._advance(TransactionEvent.COMPLETE)
        self._end_call()

    def _error(self) -> KafkaError:
        assert self.cause is not None
        return fatal(self.cause) if self.state is TransactionState.FATAL_ERROR else abortable(self.cause)

    def _end_all(self, error: KafkaError) -> None:
        self._end_call(error)
        self._drop_offsets(error)

    def _drop_offsets(self, error: KafkaError) -> None:
        while self._offsets:
            self._end(self._offsets.popleft(), error)

    def _end_call(self, error: KafkaError | None = None) -> None:
        if self._call is not None and not self._call.decided:
            self._end(self._call, error)
            if self._call.detached:
                self._call = None

    def _end(self, call: PendingCall, error: KafkaError | None = None) -> None:
        call.error = error
        call.decided = True
        self.ended.append(call)

    def _advance(self, event: TransactionEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event, "a transactional producer")
        self.enrolment.open = self.state in _OPEN
        self.on_change()

    def _deny(self, error: KafkaError) -> None:
        self._advance(TransactionEvent.DENY)
        self._end_call(error)

    def _wanted(self, batches_left: bool) -> Question | None:
        if self.state is TransactionState.INITIALIZING:
            return requests.init_producer_id(self._key, self._timeout_ms, self.sequences.identity)
        if self.state not in _RUNNING:
            return None
        addition = None if self.state is TransactionState.ABORTING else self._addition()
        if addition is not None or batches_left or self.state is TransactionState.IN_TRANSACTION:
            return addition
        self._adding = None
        if self.state is TransactionState.PREPARING:
            self._hold()
            return None
        if (self.enrolment.added or self._groups or self._unsure) and not self._skip_end:
            committed = self.state is TransactionState.COMMITTING
            return requests.end(self._writer, committed=committed, v2=self.v2)
        self._completed()
        return self._wanted(batches_left)

    def _addition(self) -> Question | None:
        if self._adding is not None:
            return self._adding
        if self.enrolment.wanted:
            self._adding = requests.add_partitions(self._writer, self.enrolment.ask_for_wanted())
            return self._adding
        if not self._offsets:
            return None
        call = self._offsets[0]
        group_id = call.group.group_id
        if group_id not in self._groups:
            if not self.v2:
                self._adding_group = group_id
                self._adding = requests.add_offsets(self._writer, group_id)
                return self._adding
            self._groups.add(group_id)
        return requests.commit_offsets(self._writer, call.group, call.offsets, v2=self.v2)

    @property
    def _writer(self) -> Writer:
        return Writer(self._key, self.sequences.identity)

    def _learn(self, question: Question, response: Any) -> None:
        match question.asked:
            case Asked.FIND_COORDINATOR:
                assert question.finds is not None
                self._coordinators[question.finds] = requests.coordinator_in(response)
            case Asked.INIT_PRODUCER_ID:
                self.sequences.take_identity(response.producer_id, response.producer_epoch)
                self._advance(TransactionEvent.GRANT)
                self._end_call()
            case Asked.ADD_PARTITIONS | Asked.ADD_OFFSETS:
                self._add_decided(question, added=True)
            case Asked.COMMIT_OFFSETS:
                if self._offsets:  # an abort has dropped it otherwise
                    self._end(self._offsets.popleft())
            case Asked.END:
                if response.producer_id >= 0:
                    self._renew = False
                    self.sequences.take_identity(response.producer_id, response.producer_epoch)
                self._completed()

    def _rule(self, question: Question, ruling: Ruling, error: KafkaError, now_ms: float) -> None:
        self._asked = None
        if self.state is TransactionState.FATAL_ERROR:
            return
        self.last_error = error
        if ruling is Ruling.RENEW:
            if not self._can_renew:
                ruling = Ruling.DIE
            self._renew = True
            unknown = error_code(error) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            self._skip_end |= unknown or self._aborts(question)
        elif ruling is Ruling.ABORT and self._leads_out_of_an_abort(question):
            ruling = Ruling.RETRY  # there is no other way
        match ruling:
            case Ruling.FIND_AGAIN | Ruling.RETRY:
                if ruling is Ruling.FIND_AGAIN and question.coordinator is not None:
                    self._coordinators.pop(question.coordinator, None)
                self._not_before_ms = now_ms + self._wait_ms(question, error)
            case Ruling.DENY:
                self._deny(error)
            case Ruling.ABORT | Ruling.RENEW:
                self._add_decided(question, added=False)
                self._fail(error)
            case Ruling.FENCE:
                self.die(fenced(self._key.key, error))
            case _:
                self.die(error)

    def _aborts(self, question: Question) -> bool:
        return question.asked is Asked.END and self.state is TransactionState.ABORTING

    def _leads_out_of_an_abort(self, question: Question) -> bool:
        finds = question.asked is Asked.FIND_COORDINATOR and self.state is TransactionState.ABORTING
        return finds or self._aborts(question)

    def _wait_ms(self, question: Question, error: KafkaError) -> float:
        busy = error_code(error) == ErrorCode.CONCURRENT_TRANSACTIONS
        if busy and question.asked is Asked.ADD_PARTITIONS and not self.enrolment.added:
            return FIRST_ADD_WAIT_MS
        return self._backoff.next_ms()

    def _add_decided(self, question: Question, *, added: bool) -> None:
        if question.asked is Asked.ADD_PARTITIONS:
            self.enrolment.add_decided(added=added)
            self._adding = None
        elif question.asked is Asked.ADD_OFFSETS:
            if added:
                self._groups.add(self._adding_group)
            self._adding = None


def error_code(error: KafkaError) -> int:
    """The broker's code, 0 where the error is another one."""
    return error.code if isinstance(error, BrokerResponseError) else 0


class Enrolment:
    """Admits what may go into the transaction and ``sequences`` admits, too. Pure.

    Args:
        sequences: numbers what is admitted.

    Attributes:
        open: batches may leave their queues: a transaction is open, or being committed.
        implicit: leaders add their partitions to the transaction themselves (KIP-890).
        added: partitions that are in the transaction.
        adding: partitions that the coordinator is asked to add.
        wanted: partitions that are to be added.
    """

    def __init__(self, sequences: Idempotence) -> None:
        self._sequences = sequences
        self.open = False
        self.implicit = False
        self.added: set[TopicPartition] = set()
        self.adding: set[TopicPartition] = set()
        self.wanted: set[TopicPartition] = set()

    def begin(self, *, implicit: bool) -> None:
        """Nothing is in the transaction yet."""
        self.implicit = implicit
        for partitions in (self.added, self.adding, self.wanted):
            partitions.clear()

    def admits(self, batch: ProducerBatch) -> bool:
        """See ``Idempotence.admits``; a partition that is not in the transaction is wanted there."""
        if not self._sequences.admits(batch):
            return False
        if batch.sequenced:
            return True
        if not self.open:
            return False
        topic_partition = batch.topic_partition
        if self.implicit or topic_partition in self.added:
            return True
        if topic_partition not in self.adding:
            self.wanted.add(topic_partition)
        return False

    def drained(self, batch: ProducerBatch) -> None:
        """See ``Idempotence.drained``."""
        batch.transactional = True
        self.added.add(batch.topic_partition)
        self._sequences.drained(batch)

    def ask_for_wanted(self) -> frozenset[TopicPartition]:
        """What the coordinator is to be asked to add."""
        self.adding, self.wanted = self.wanted, set()
        return frozenset(self.adding)

    def add_decided(self, *, added: bool) -> None:
        """The coordinator's answer to that."""
        if added:
            self.added |= self.adding
        self.adding.clear()
