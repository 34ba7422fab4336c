"""A transactional producer's side of the protocol: what it asks its coordinators, and in which order. Pure.

One request is under way at a time: FindCoordinator, InitProducerId, AddPartitions or AddOffsets (or none of
them, with KIP-890), TxnOffsetCommit, EndTxn. Semantics are those of Kafka's ``TransactionManager``; the
differences are in ``docs/decisions/transactions.md``.
"""

from __future__ import annotations

import math
from typing import Any

from splashdam.accumulator.backoff import Backoff
from splashdam.model.broker_errors import error_for
from splashdam.model.cluster import Node
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError, KafkaError
from splashdam.sender.transactions import coordinator_requests as requests
from splashdam.sender.transactions.calls import fenced
from splashdam.sender.transactions.coordinator_codes import Asked, Ruling, ruling_on
from splashdam.sender.transactions.coordinator_requests import CoordinatorKey, Question, Writer
from splashdam.sender.transactions.life import TransactionLife
from splashdam.sender.transactions.states import TransactionEvent, TransactionState

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


class TransactionManager(TransactionLife):
    """Decides; somebody else asks, and tells what was answered. Every method needs the guard.

    Args:
        transactional_id: the producer's name; of those with the same one the newest wins.
        timeout_ms: the coordinator aborts a transaction that is open for so long.
        backoff: waits between attempts.

    Attributes:
        last_error: why the last request has to be repeated, for messages; None where it has not.
    """

    def __init__(self, transactional_id: str, timeout_ms: int, backoff: Backoff) -> None:
        super().__init__(transactional_id)
        self.last_error: BaseException | None = None
        self._key = CoordinatorKey(1, transactional_id)
        self._timeout_ms = timeout_ms
        self._backoff = backoff
        self._not_before_ms = -math.inf
        self._coordinators: dict[CoordinatorKey, Node] = {}
        self._asked: Question | None = None
        self._adding: Question | None = None
        self._adding_group = ""

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
        if (self.sequences.added or self._groups or self._unsure) and not self._skip_end:
            committed = self.state is TransactionState.COMMITTING
            return requests.end(self._writer, committed=committed, v2=self.v2)
        self._completed()
        return self._wanted(batches_left)

    def _addition(self) -> Question | None:
        if self._adding is not None:
            return self._adding
        if self.sequences.wanted:
            self._adding = requests.add_partitions(self._writer, self.sequences.ask_for_wanted())
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
        if busy and question.asked is Asked.ADD_PARTITIONS and not self.sequences.added:
            return FIRST_ADD_WAIT_MS
        return self._backoff.next_ms()

    def _add_decided(self, question: Question, *, added: bool) -> None:
        if question.asked is Asked.ADD_PARTITIONS:
            self.sequences.add_decided(added=added)
            self._adding = None
        elif question.asked is Asked.ADD_OFFSETS:
            if added:
                self._groups.add(self._adding_group)
            self._adding = None


def error_code(error: KafkaError) -> int:
    """The broker's code, 0 where the error is another one."""
    return error.code if isinstance(error, BrokerResponseError) else 0
