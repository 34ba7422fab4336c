"""The transaction manager of a producer: its states, and its requests to coordinators. Does no I/O.

One request is in flight at a time: FindCoordinator, InitProducerId, AddPartitions or AddOffsets (or none of
them, with KIP-890), TxnOffsetCommit, EndTxn. Semantics are those of Kafka's ``TransactionManager``; the
differences are in ``docs/decisions/transactions.md``.

``TransactionPartitions`` is the drain gate: it tracks which partitions are in the transaction.
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
from splashdam.model.views.standing import Standing
from splashdam.sender.idempotence import Idempotence
from splashdam.sender.transactions import requests
from splashdam.sender.transactions.calls import OffsetsCall, Operation, PendingCall, abortable, fatal, fenced
from splashdam.sender.transactions.requests import CoordinatorKey, CoordinatorRequest, TransactionalIdentity
from splashdam.sender.transactions.rulings import RequestKind, Ruling, ruling_on


class TransactionState(Stage):
    """The state of a transactional producer."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    """InitProducerId is due or in flight: the first one, or one for a new epoch after an abort."""
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARING = auto()
    """Takes no records; sends the queued ones."""
    PREPARED = auto()
    """All records are written; this or another process commits or aborts (the name is KIP-939's)."""
    COMMITTING = auto()
    """Takes no records; sends the queued ones, then EndTxn."""
    ABORTING = auto()
    """Fails unsent records, awaits those in flight, then sends EndTxn."""
    ABORTABLE_ERROR = auto()
    """A part of the transaction failed: it can only be aborted."""
    FATAL_ERROR = auto()


class TransactionEvent(Stage):
    """Events of a transactional producer."""

    INITIALIZE = auto()
    GRANT = auto()
    """The coordinator assigned a producer id and epoch."""
    DENY = auto()
    """The coordinator refused for lack of authorization; the call may be repeated once it is granted."""
    BEGIN = auto()
    PREPARE = auto()
    HOLD = auto()
    """All records of the prepared transaction are written."""
    COMMIT = auto()
    ABORT = auto()
    COMPLETE = auto()
    """The transaction has ended."""
    RENEW = auto()
    """The transaction is aborted, and a new epoch is needed."""
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
"""Wait after CONCURRENT_TRANSACTIONS for the first partition: the previous markers are nearly written."""

RENEWS_FROM = 3
"""First version of InitProducerId that bumps the epoch of a known producer (KIP-360)."""

_RUNNING = (
    TransactionState.IN_TRANSACTION,
    TransactionState.PREPARING,
    TransactionState.COMMITTING,
    TransactionState.ABORTING,
)

V2_LEVEL = 2
"""Level of the feature ``transaction.version`` from which KIP-890 applies."""

_OPEN = (TransactionState.IN_TRANSACTION, TransactionState.PREPARING, TransactionState.COMMITTING)
"""States in which batches may be added to the transaction."""
_COMPLETING = (TransactionState.PREPARING, TransactionState.COMMITTING, TransactionState.ABORTING)

_NEEDS = {
    TransactionState.UNINITIALIZED: ("a producer without a transaction", "it is initialized already"),
    TransactionState.READY: (
        "a producer without a transaction",
        "commit or abort the one that is open first",
    ),
    TransactionState.IN_TRANSACTION: ("an open transaction", "call begin_transaction() first"),
}
"""For the state that a call requires: its description, and the remedy."""


class TransactionManager:
    """Decides which calls are legal and which request comes next; ``Coordination`` sends it.

    Every method needs the guard. The methods for the application come first, then those for coordinators.

    Args:
        transactional_id: the transactional id; the newest producer with the same one fences the others.
        timeout_ms: the coordinator aborts a transaction that is open for longer.
        backoff: waits between attempts.

    Attributes:
        state: see ``TransactionState``.
        cause: why the transaction can only be aborted, or why the producer failed for good; else None.
        v2: the open transaction follows KIP-890.
        sequences: numbers the batches, under identities that the coordinator assigns.
        partitions: the drain gate of the accumulator.
        ended: decided calls whose waiters have not run yet.
        on_change: called after each change of ``state``.
        last_error: why the last request is retried, for messages; None if it is not.
    """

    def __init__(self, transactional_id: str, timeout_ms: int, backoff: Backoff) -> None:
        self.state = TransactionState.UNINITIALIZED
        self.cause: BaseException | None = None
        self.v2 = False
        self.sequences = Idempotence(own_epochs=False)
        self.partitions = TransactionPartitions(self.sequences)
        self.ended: deque[PendingCall] = deque()
        self.on_change: Callable[[], None] = lambda: None
        self._level = 0
        self._can_renew = False
        self._call: PendingCall | None = None
        self._offsets: deque[OffsetsCall] = deque()
        self._groups: set[str] = set()
        # A request to add partitions or offsets had no response: the coordinator may have a transaction to
        # end, although nothing is known to be in it.
        self._unsure = False
        self._renew = False
        self._skip_end = False
        self.last_error: BaseException | None = None
        self._key = CoordinatorKey(1, transactional_id)
        self._timeout_ms = timeout_ms
        self._backoff = backoff
        self._not_before_ms = -math.inf
        self._coordinators: dict[CoordinatorKey, Node] = {}
        self._asked: CoordinatorRequest | None = None
        self._adding: CoordinatorRequest | None = None
        self._adding_group = ""

    def init(self) -> PendingCall:
        """Request producer id and epoch, which ends open transactions of earlier producers with this id."""
        call = self._pending(Operation.INIT)
        if call is None:
            call = PendingCall(Operation.INIT)
            # As in kafka-python; in Java a second call is an error.
            if self.state is TransactionState.READY:
                self._end(call)
                return call
            self._refuse_unless(TransactionState.UNINITIALIZED, call.operation.value)
            self._advance(TransactionEvent.INITIALIZE)
            self._call = call
        return call

    def awaits_init(self) -> bool:
        """Whether the caller of ``init`` has not received its result yet, for example after a timeout."""
        return self._call is not None and self._call.operation is Operation.INIT

    def begin(self) -> None:
        self._pending(None)
        self._refuse_unless(TransactionState.READY, "begin_transaction")
        self._advance(TransactionEvent.BEGIN)
        # Fixed for the whole transaction: the coordinator may be upgraded in the middle of it (KIP-890).
        self.v2 = self._level >= V2_LEVEL
        self.partitions.begin(implicit=self.v2)
        self._groups.clear()
        self._unsure = self._renew = self._skip_end = False

    def commit(self) -> PendingCall:
        """Commit once all batches are acknowledged."""
        return self._complete(Operation.COMMIT, TransactionEvent.COMMIT)

    def prepare(self) -> PendingCall:
        """Prepare once all batches are acknowledged; this or another process ends the transaction."""
        call = self._pending(Operation.PREPARE)
        if call is None:
            self._refuse_unless(TransactionState.IN_TRANSACTION, Operation.PREPARE.value)
            call = PendingCall(Operation.PREPARE)
            self._advance(TransactionEvent.PREPARE)
            self._call = call
        return call

    def abort(self) -> PendingCall:
        call = self._complete(Operation.ABORT, TransactionEvent.ABORT)
        call.detached = False
        return call

    def abort_unattended(self) -> None:
        """As `abort`, for callers that do not wait; does nothing where an abort is not legal."""
        if self.can_abort:
            if self._call is not None and self._call.decided:
                self._call = None  # its caller will not return for the result
            self.abort().detached = True

    def unattended(self) -> PendingCall | None:
        """Return the call whose caller has given up waiting; usually None."""
        call = self._call
        return call if call is not None and (call.detached or call.left) else None

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> PendingCall:
        """Add consumed offsets to the transaction."""
        self._pending(None)
        call = OffsetsCall(offsets, group)
        self._refuse_unless(TransactionState.IN_TRANSACTION, Operation.OFFSETS.value)
        for waiting in self._offsets:
            # A call that is repeated after a timeout waits for the same request.
            if waiting.same_as(call):
                return waiting
        self._offsets.append(call)
        return call

    def acknowledge(self, call: PendingCall) -> None:
        """Release a call whose result the application has received."""
        if self._call is call:
            self._call = None

    def run_ended(self) -> None:
        """Wake the callers of ended calls. The only method without the guard."""
        while True:
            try:
                call = self.ended.popleft()
            except IndexError:
                return
            call.finished.open()

    def refusal(self) -> KafkaError:
        """Return the error of ``send`` in the current state."""
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
        """Whether there is a transaction to abort. A prepared one belongs to its coordinator."""
        return self.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR)

    @property
    def completing(self) -> bool:
        """Whether linger is off because the transaction is about to be prepared or to end."""
        return self.state in _COMPLETING

    @property
    def ongoing(self) -> bool:
        """Whether a transaction has not ended yet."""
        return self.completing or self.can_abort

    @property
    def unsent_error(self) -> BaseException | None:
        """The error of unsent batches; None while they may be sent."""
        if self.state is TransactionState.ABORTABLE_ERROR:
            return self.cause
        if self.state is TransactionState.ABORTING:
            return self.cause or TransactionAbortedError("the transaction was aborted before this was sent")
        return None

    @property
    def fatal_error(self) -> KafkaError | None:
        """The error that stopped the producer for good; None while it works."""
        return self._error() if self.state is TransactionState.FATAL_ERROR else None

    def batch_failed(self, error: BaseException) -> None:
        """Record a failed batch of the transaction."""
        if self.ongoing:
            self._fail(error)

    def die(self, error: BaseException) -> None:
        """Stop the producer for good; the first cause is kept."""
        if self.state is TransactionState.FATAL_ERROR:
            return
        self.cause = error
        self._advance(TransactionEvent.DIE)
        self._end_all(self._error())

    def due_in_ms(self, now_ms: float) -> float:
        """Return milliseconds until the next request may be sent."""
        return max(0.0, self._not_before_ms - now_ms)

    def coordinator(self, key: CoordinatorKey) -> Node:
        """Return the known coordinator of ``key``."""
        return self._coordinators[key]

    def coordinator_lost(self, node_id: int) -> None:
        """Forget a broker that cannot be reached: its coordinators may have moved."""
        self._coordinators = {key: at for key, at in self._coordinators.items() if at.node_id != node_id}

    def next_request(self, *, batches_left: bool) -> CoordinatorRequest | None:
        """Return the request to send now; None while a request is in flight, and if no request is due.

        Args:
            batches_left: batches are queued or in flight.
        """
        if self._asked is not None:
            return None
        wanted = self._wanted(batches_left)
        if wanted is None:
            return None
        key = wanted.coordinator
        return wanted if key is None or key in self._coordinators else requests.find_coordinator(key)

    def asking(self, request: CoordinatorRequest, version: int, level: int) -> None:
        """Record that a request is sent, to a broker with this level of ``transaction.version``."""
        self._asked = request
        if request.kind is not RequestKind.FIND_COORDINATOR:
            # FindCoordinator goes to any broker, but the coordinator's own level counts.
            self._level = level
        if request.kind is RequestKind.INIT_PRODUCER_ID:
            self._can_renew = version >= RENEWS_FROM

    def answered(self, request: CoordinatorRequest, response: Any, now_ms: float) -> None:
        """Handle a response."""
        self._asked = None
        if self.state is TransactionState.FATAL_ERROR:
            return  # a batch stopped the producer while the request was in flight
        code, text = request.refusal(response)
        if not code:
            self._backoff.reset()
            self.last_error = None
            self._learn(request, response)
            return
        if code == ErrorCode.INVALID_TXN_STATE and self._unsure and self._aborts(request):
            self._completed()  # the request without a response had no effect: there is nothing to abort
            return
        self._rule(request, ruling_on(request.kind, code), error_for(code, text), now_ms)

    def impossible(self, request: CoordinatorRequest, error: KafkaError, now_ms: float) -> None:
        """Handle a request that cannot be built for this broker or with these arguments."""
        # Its arguments may be at fault (the member of a group), and an abort leaves them behind.
        for_offsets = request.kind in (RequestKind.ADD_OFFSETS, RequestKind.COMMIT_OFFSETS)
        self._rule(request, Ruling.ABORT if for_offsets else Ruling.DIE, error, now_ms)

    def unanswered(self, request: CoordinatorRequest, error: KafkaError, now_ms: float) -> None:
        """Handle a request without response: the connection broke or the request timed out."""
        self._unsure |= request.kind in (RequestKind.ADD_PARTITIONS, RequestKind.ADD_OFFSETS)
        self._rule(request, Ruling.FIND_AGAIN, error, now_ms)

    def refused(self, error: KafkaError) -> None:
        """Fail a pending init, since every broker refuses our credentials."""
        if self.state is TransactionState.INITIALIZING and self._asked is None:
            self._deny(error)

    def _pending(self, operation: Operation | None) -> PendingCall | None:
        """Return the pending call if it is the same operation; raise if it is another one."""
        if self.state is TransactionState.FATAL_ERROR:
            raise self._error()
        call = self._call
        if call is None or call.operation is operation:
            return call
        if operation is Operation.ABORT and call.error is not None:  # a failed commit is followed by an abort
            self._call = None
            return None
        raise IllegalStateError(
            f"{call.operation.value}() has not ended: call it again to continue waiting for it"
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
                # An abort adds nothing more. Those in `adding` stay: the coordinator may have them.
                self.partitions.wanted.clear()
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
        """Leave nothing but an abort; an abort in progress continues."""
        first = self.state not in (TransactionState.ABORTING, TransactionState.ABORTABLE_ERROR)
        if first:
            self.cause = error
        # The new epoch is still missing: the abort asks for it again.
        self._renew |= self.state is TransactionState.INITIALIZING
        self._advance(TransactionEvent.FAIL)
        if first:
            self._end_all(self._error())

    def _hold(self) -> None:
        """End ``prepare`` once all batches are acknowledged."""
        self._advance(TransactionEvent.HOLD)
        assert self._call is not None
        producer_id, epoch = self.sequences.identity
        has_something = self.partitions.added or self._groups or self._unsure
        self._call.prepared = PreparedTransaction(
            self._key.key, producer_id, epoch, is_empty=not has_something
        )
        self._end_call()

    def _completed(self) -> None:
        """Handle the end of the transaction at the coordinator, or that it had nothing to end."""
        self.sequences.settle()
        self.partitions.begin(implicit=False)
        self._groups.clear()
        stuck = self.sequences.unsettled
        renewable = self._can_renew or not self.sequences.identified
        if self.state is TransactionState.ABORTING and (self._renew or stuck) and renewable:
            self.cause = None
            self._advance(TransactionEvent.RENEW)
            return
        if stuck and not self.sequences.reuse_sequences():
            self.die(
                IllegalStateError(
                    "a failed batch left a gap in the sequence numbers, which needs a new producer epoch;"
                    " brokers before 2.5 cannot give one"
                )
            )
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
        self.partitions.open = self.state in _OPEN
        self.on_change()

    def _deny(self, error: KafkaError) -> None:
        self._advance(TransactionEvent.DENY)
        self._end_call(error)

    def _wanted(self, batches_left: bool) -> CoordinatorRequest | None:
        if self.state is TransactionState.INITIALIZING:
            return requests.init_producer_id(self._key, self._timeout_ms, self.sequences.identity)
        if self.state not in _RUNNING:
            return None
        addition = None if self.state is TransactionState.ABORTING else self._addition()
        # EndTxn waits for the answers of all batches, also of those that expired in flight, so that no late
        # copy arrives after the marker. Java does not wait for those.
        if addition is not None or batches_left or self.state is TransactionState.IN_TRANSACTION:
            return addition
        self._adding = None
        if self.state is TransactionState.PREPARING:
            self._hold()
            return None
        if (self.partitions.added or self._groups or self._unsure) and not self._skip_end:
            committed = self.state is TransactionState.COMMITTING
            return requests.end(self._identity, committed=committed, v2=self.v2)
        self._completed()
        # The abort may need a new epoch, whose request comes next.
        return self._wanted(batches_left)

    def _addition(self) -> CoordinatorRequest | None:
        # The same request again until it is decided: a lost answer may have added what it names.
        if self._adding is not None:
            return self._adding
        if self.partitions.wanted:
            self._adding = requests.add_partitions(self._identity, self.partitions.ask_for_wanted())
            return self._adding
        if not self._offsets:
            return None
        call = self._offsets[0]
        group_id = call.group.group_id
        if group_id not in self._groups:
            if not self.v2:
                self._adding_group = group_id
                self._adding = requests.add_offsets(self._identity, group_id)
                return self._adding
            self._groups.add(group_id)
        return requests.commit_offsets(self._identity, call.group, call.offsets, v2=self.v2)

    @property
    def _identity(self) -> TransactionalIdentity:
        return TransactionalIdentity(self._key, self.sequences.identity)

    def _learn(self, request: CoordinatorRequest, response: Any) -> None:
        match request.kind:
            case RequestKind.FIND_COORDINATOR:
                assert request.finds is not None
                self._coordinators[request.finds] = requests.coordinator_in(response)
            case RequestKind.INIT_PRODUCER_ID:
                self.sequences.take_identity(response.producer_id, response.producer_epoch)
                self._advance(TransactionEvent.GRANT)
                self._end_call()
            case RequestKind.ADD_PARTITIONS | RequestKind.ADD_OFFSETS:
                self._add_decided(request, added=True)
            case RequestKind.COMMIT_OFFSETS:
                if self._offsets:  # unless an abort has dropped it
                    self._end(self._offsets.popleft())
            case RequestKind.END:
                # EndTxn of KIP-890 gives the epoch of the next transaction; older versions give -1.
                if response.producer_id >= 0:
                    self._renew = False
                    self.sequences.take_identity(response.producer_id, response.producer_epoch)
                self._completed()

    def _rule(self, request: CoordinatorRequest, ruling: Ruling, error: KafkaError, now_ms: float) -> None:
        self._asked = None
        if self.state is TransactionState.FATAL_ERROR:
            return
        self.last_error = error
        if ruling is Ruling.RENEW:
            if not self._can_renew:
                ruling = Ruling.DIE
            self._renew = True
            unknown = error_code(error) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            # The coordinator knows no transaction of this producer id, so EndTxn could only fail again.
            self._skip_end |= unknown or self._aborts(request)
        elif ruling is Ruling.ABORT and self._leads_out_of_an_abort(request):
            ruling = Ruling.RETRY  # an abort in progress cannot be aborted
        match ruling:
            case Ruling.FIND_AGAIN | Ruling.RETRY:
                if ruling is Ruling.FIND_AGAIN and request.coordinator is not None:
                    self._coordinators.pop(request.coordinator, None)
                self._not_before_ms = now_ms + self._wait_ms(request, error)
            case Ruling.DENY:
                self._deny(error)
            case Ruling.ABORT | Ruling.RENEW:
                self._add_decided(request, added=False)
                self._fail(error)
            case Ruling.FENCE:
                self.die(fenced(self._key.key, error))
            case _:
                self.die(error)

    def _aborts(self, request: CoordinatorRequest) -> bool:
        return request.kind is RequestKind.END and self.state is TransactionState.ABORTING

    def _leads_out_of_an_abort(self, request: CoordinatorRequest) -> bool:
        finds = request.kind is RequestKind.FIND_COORDINATOR and self.state is TransactionState.ABORTING
        return finds or self._aborts(request)

    def _wait_ms(self, request: CoordinatorRequest, error: KafkaError) -> float:
        busy = error_code(error) == ErrorCode.CONCURRENT_TRANSACTIONS
        if busy and request.kind is RequestKind.ADD_PARTITIONS and not self.partitions.added:
            return FIRST_ADD_WAIT_MS
        return self._backoff.next_ms()

    def _add_decided(self, request: CoordinatorRequest, *, added: bool) -> None:
        if request.kind is RequestKind.ADD_PARTITIONS:
            self.partitions.add_decided(added=added)
            self._adding = None
        elif request.kind is RequestKind.ADD_OFFSETS:
            if added:
                self._groups.add(self._adding_group)
            self._adding = None


def error_code(error: KafkaError) -> int:
    """Return the broker's error code, 0 for other errors."""
    return error.code if isinstance(error, BrokerResponseError) else 0


class TransactionPartitions:
    """The drain gate of a transactional producer, in front of that of ``sequences``. Does no I/O.

    Args:
        sequences: numbers the admitted batches.

    Attributes:
        open: batches may be drained: a transaction is open, being prepared or being committed.
        implicit: partition leaders add their partitions to the transaction (KIP-890).
        added: partitions in the transaction.
        adding: partitions of the AddPartitionsToTxn request in flight.
        wanted: partitions for the next one.
    """

    def __init__(self, sequences: Idempotence) -> None:
        self._sequences = sequences
        self.open = False
        self.implicit = False
        self.added: set[TopicPartition] = set()
        self.adding: set[TopicPartition] = set()
        self.wanted: set[TopicPartition] = set()

    def begin(self, *, implicit: bool) -> None:
        """Start an empty transaction."""
        self.implicit = implicit
        for partitions in (self.added, self.adding, self.wanted):
            partitions.clear()

    def holds(self, batch: ProducerBatch) -> Standing | None:
        """As ``Idempotence.holds``; note partitions that are not in the transaction yet."""
        standing = self._sequences.holds(batch)
        if standing is not None or batch.sequenced:
            return standing
        if not self.open:
            return Standing.NO_TRANSACTION
        # Before it is in the transaction, a partition's batch would be written outside of it: an abort would
        # not take it back.
        topic_partition = batch.topic_partition
        if self.implicit or topic_partition in self.added:
            return None
        if topic_partition not in self.adding:
            self.wanted.add(topic_partition)
        return Standing.JOINS_TRANSACTION

    def drained(self, batch: ProducerBatch) -> None:
        """See ``Idempotence.drained``."""
        batch.transactional = True
        # With KIP-890 its leader adds it with this batch, and then EndTxn is needed.
        self.added.add(batch.topic_partition)
        self._sequences.drained(batch)

    def ask_for_wanted(self) -> frozenset[TopicPartition]:
        """Return the partitions of the next AddPartitionsToTxn request, and count them as asked for."""
        self.adding, self.wanted = self.wanted, set()
        return frozenset(self.adding)

    def add_decided(self, *, added: bool) -> None:
        """Handle the response to AddPartitionsToTxn."""
        if added:
            self.added |= self.adding
        self.adding.clear()
