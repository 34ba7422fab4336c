"""One transaction after the other: what the application may call when, and what fails it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from splashdam.model.errors import IllegalStateError, KafkaError, TransactionAbortedError
from splashdam.model.groups import ConsumerGroupMetadata, OffsetAndMetadata
from splashdam.model.lifecycle import next_state
from splashdam.model.prepared import PreparedTransaction
from splashdam.model.values import TopicPartition
from splashdam.sender.transactions.calls import OffsetsCall, Operation, PendingCall, abortable, fatal
from splashdam.sender.transactions.sequences import TransactionalSequences
from splashdam.sender.transactions.states import TRANSITIONS, TransactionEvent, TransactionState

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


class TransactionLife:
    """State and calls; ``TransactionManager`` adds the coordinators. Every method needs the guard.

    Attributes:
        state: see ``TransactionState``.
        cause: why the transaction can only be aborted, or why the producer is finished; else None.
        v2: the present transaction follows KIP-890.
        sequences: the gate of the accumulator.
        ended: calls that are decided, and whose waiters are to be run.
        on_change: called after each change of ``state``.
    """

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.cause: BaseException | None = None
        self.v2 = False
        self.sequences = TransactionalSequences()
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
        self.sequences.begin(implicit=self.v2)
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
            call.open()

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
                self.sequences.wanted.clear()
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
        has_something = self.sequences.added or self._groups or self._unsure
        self._call.prepared = PreparedTransaction(
            self._transactional_id, producer_id, epoch, is_empty=not has_something
        )
        self._end_call()

    def _completed(self) -> None:
        """The coordinator has ended the transaction, or has never heard of it."""
        self.sequences.settle()
        self.sequences.begin(implicit=False)
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
        self.sequences.open = self.state in _OPEN
        self.on_change()
