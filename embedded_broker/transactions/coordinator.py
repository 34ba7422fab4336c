"""The transaction coordinator: the transactional ids of this broker, stored in ``__transaction_state``.

A change is appended before it takes effect, and answered once it is replicated and, if so configured, synced
(``answer_when_safe``). All methods run in the broker's loop and do not wait, so two changes of one id never
overlap: Kafka's pending states are not needed, except while markers are written.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import trio

from splashdam.embedded_broker.topics.internal_topics import InternalTopic, OwnsTopics, wait_safe
from splashdam.embedded_broker.transactions.end_txn import EndDecision, decide_end
from splashdam.embedded_broker.transactions.hanging_transactions import settle_hanging
from splashdam.embedded_broker.transactions.markers import (
    CompletesTransactions,
    StartSoon,
    TransactionCompletion,
)
from splashdam.embedded_broker.transactions.metadata import (
    ProducerIdentity,
    TransactionMetadata,
    TransactionState,
    concurrent_transactions,
)
from splashdam.embedded_broker.transactions.records import encode_key, encode_value, read_states
from splashdam.model.broker_errors import (
    CoordinatorNotAvailableError,
    CorruptMessageError,
    ErrorCode,
    InvalidRequestError,
    KafkaStorageError,
    MessageTooLargeError,
    NotCoordinatorError,
    RecordListTooLargeError,
    TransactionAbortableError,
    UnknownServerError,
    error_for,
)
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition
from splashdam.storage.background import log_failures
from splashdam.storage.topic_names import TRANSACTION_STATE

if TYPE_CHECKING:
    from splashdam.embedded_broker.controller.producer_ids import ProducerIdSource
    from splashdam.storage.log import Log

_log = logging.getLogger(__name__)

_RETRY_MS, _LONGEST_RETRY_MS = 1_000, 60_000
"""Backoff between two attempts to write markers; doubled while they fail."""

_AT_ONCE = 20
"""Transactional ids that are aborted, or expire, in one turn: thousands may time out together."""


class CoordinatesTransactions(OwnsTopics, CompletesTransactions, Protocol):
    """What a coordinator needs of its broker; the attributes are those of `Broker`."""

    producer_ids: ProducerIdSource


class TransactionCoordinator:
    """The transactional ids of a broker.

    Args:
        broker: that coordinates them.
        start_soon: starts a task in the broker's nursery.
    """

    def __init__(self, broker: CoordinatesTransactions, start_soon: StartSoon) -> None:
        self._broker = broker
        self._topic = InternalTopic(TRANSACTION_STATE, broker)
        self._states: dict[str, TransactionMetadata] = {}
        self._unreadable: set[int] = set()
        self._is_settled = False
        self._completion = TransactionCompletion(broker, self, start_soon)
        self._retry_ms = _RETRY_MS
        self._next_abort_ms: float | None = None
        self._next_expiry_ms = self._next_retry_ms = -math.inf
        self._due_aborts: deque[str] = deque()
        self._due_expiries: deque[str] = deque()

    @property
    def states(self) -> Mapping[str, TransactionMetadata]:
        """The states of all transactional ids."""
        return self._states

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of a transactional id, None if unknown."""
        return self._states.get(transactional_id)

    def log_of(self, transactional_id: str) -> Log:
        """Return the log of a transactional id's state; answers wait for its flush.

        Raises:
            CoordinatorNotAvailableError: the partition is not here, and cannot be created.
        """
        return self._topic.log(self._topic.partition_for(transactional_id))

    async def wait_ended(self, transactional_id: str, end_offset: int, term: int) -> None:
        """Wait until the transaction that was decided last is complete, or some of its markers have failed.

        Args:
            transactional_id: its name.
            end_offset: of its log, after the decision.
            term: in which the decision was appended; as ``wait_safe``.

        Raises:
            KafkaStorageError: the decision could not be synced, although its log has to be.
            BrokerResponseError: the decision is not on all replicas in sync; as ``wait_safe``.
        """
        under_way = self._completion.under_way(transactional_id)
        if under_way is not None:
            await under_way.wait()
            log, metadata = self.log_of(transactional_id), self._states.get(transactional_id)
            must_sync = metadata is not None and self._completion.must_sync(metadata)
            if must_sync and log.recovery_point < end_offset:
                raise KafkaStorageError(f"{log.topic_partition} could not be synced")
            await wait_safe(log, end_offset, term, needs_sync=False)

    def is_ending(self, transactional_id: str) -> bool:
        """Whether ``wait_ended`` would wait."""
        return self._completion.under_way(transactional_id) is not None

    # --- requests -------------------------------------------------------------------------------------------

    def initialize(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """Handle InitProducerId: return producer id and epoch, and fence earlier producers.

        An open transaction is aborted first.

        Args:
            transactional_id: its name.
            timeout_ms: transaction timeout.
            expected: the id and epoch that the producer believes to have (KIP-360), None for a new producer.

        Raises:
            BrokerResponseError: INVALID_TRANSACTION_TIMEOUT (50), PRODUCER_FENCED (90),
                CONCURRENT_TRANSACTIONS (51) while a transaction is being completed, or what ``put`` raises.
        """
        settings, now_ms = self._broker.settings.transactions, self._broker.clock.wall_ms()
        self.check_id(transactional_id)
        if not 0 < timeout_ms <= settings.transaction_max_timeout_ms:
            raise error_for(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"the transaction timeout is {timeout_ms} ms; 1 to {settings.transaction_max_timeout_ms} "
                "(transaction.max.timeout.ms) is accepted",
            )
        metadata = self._states.get(transactional_id) or TransactionMetadata(
            transactional_id=transactional_id,
            producer_id=self._broker.producer_ids.next_id(),
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
        )
        if metadata.is_prepared:
            raise concurrent_transactions(transactional_id)
        if metadata.state is TransactionState.ONGOING:
            if expected is not None:
                metadata.check_expected(expected)  # before the present producer's transaction is aborted
            self._abort_and_fence(metadata)
            metadata = self._states[transactional_id]
            # Its markers wait for a disk or for another broker.
            if metadata.is_prepared:
                raise concurrent_transactions(transactional_id)
        changed = metadata.initialized(timeout_ms, expected, now_ms, self._broker.producer_ids.next_id)
        self.put(changed)
        return changed.identity

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        client_version: int = 2,
    ) -> None:
        """Add partitions to the producer's transaction; begin one if none is open.

        Args:
            transactional_id: its name.
            producer_id: of the producer.
            producer_epoch: of the producer.
            partitions: that it is about to write to.
            client_version: 2 for producers that end transactions by EndTxn 5, 0 for older ones.

        Raises:
            BrokerResponseError: INVALID_REQUEST (42), INVALID_PRODUCER_ID_MAPPING (49), PRODUCER_FENCED (90),
                CONCURRENT_TRANSACTIONS (51), or what ``put`` raises.
        """
        metadata = self._known(transactional_id)
        metadata.check_producer(ProducerIdentity(producer_id, producer_epoch))
        wanted = frozenset(partitions)
        # A repeated request writes nothing: producers repeat it whenever its answer is lost.
        if metadata.state is TransactionState.ONGOING and wanted <= metadata.partitions:
            return
        self.put(metadata.with_partitions(wanted, self._broker.clock.wall_ms(), client_version))

    def partitions_of(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> frozenset[TopicPartition]:
        """Return the partitions of the producer's transaction.

        Raises:
            BrokerResponseError: as ``add_partitions``.
        """
        metadata = self._known(transactional_id)
        metadata.check_producer(ProducerIdentity(producer_id, producer_epoch))
        return metadata.partitions

    def verify_partition(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic_partition: TopicPartition
    ) -> None:
        """Check that a partition is in the producer's transaction.

        Raises:
            BrokerResponseError: as ``partitions_of``, or TRANSACTION_ABORTABLE (120): it is not.
        """
        if topic_partition not in self.partitions_of(transactional_id, producer_id, producer_epoch):
            raise TransactionAbortableError(
                f"{quoted(str(topic_partition))} is not in the transaction of {quoted(transactional_id)}"
            )

    def end(
        self, transactional_id: str, producer: ProducerIdentity, *, is_commit: bool, client_version: int
    ) -> ProducerIdentity:
        """Handle EndTxn: when this returns, the decision is in the log and final.

        Returns:
            Producer id and epoch for the next transaction.

        Raises:
            BrokerResponseError: INVALID_REQUEST (42), what ``decide_end`` raises, or what ``put`` raises.
        """
        metadata = self._known(transactional_id)
        decision = decide_end(metadata, producer, is_commit=is_commit, client_version=client_version)
        if decision is EndDecision.DONE:
            return metadata.identity
        now_ms, new_id = self._broker.clock.wall_ms(), self._broker.producer_ids.next_id
        prepared = metadata.ended(is_commit, now_ms, client_version, new_id)
        self.put(prepared)
        self._completion.begin(prepared)
        return prepared.identity

    def _known(self, transactional_id: str) -> TransactionMetadata:
        self.check_id(transactional_id)
        metadata = self._states.get(transactional_id)
        if metadata is None:
            raise error_for(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"no producer is known for {quoted(transactional_id)}"
            )
        return metadata

    def check_id(self, transactional_id: str) -> None:
        """Check that this broker coordinates a transactional id.

        Raises:
            InvalidRequestError: the id is empty.
            NotCoordinatorError: another broker coordinates it.
            CoordinatorNotAvailableError: its state could not be read, or its data directory has failed.
        """
        if not transactional_id:
            raise InvalidRequestError("the transactional id is empty")
        partition = self._topic.partition_for(transactional_id)
        leader = self._broker.leadership.leader_of(TopicPartition(self._topic.name, partition))
        if leader is not None and leader.node_id != self._broker.node_id:
            raise NotCoordinatorError(
                f"node {leader.node_id} (-1: nobody) coordinates {quoted(transactional_id)}"
            )
        if partition in self._unreadable:
            raise CoordinatorNotAvailableError(f"the state of {quoted(transactional_id)} could not be read")
        self._topic.check_online(partition)

    def _abort_and_fence(self, metadata: TransactionMetadata) -> None:
        version = self._broker.settings.transactions.transaction_version
        now_ms, new_id = self._broker.clock.wall_ms(), self._broker.producer_ids.next_id
        prepared = metadata.fenced_off(now_ms, version, new_id)
        self.put(prepared)
        self._completion.begin(prepared)

    # --- the log --------------------------------------------------------------------------------------------

    def put(self, metadata: TransactionMetadata) -> None:
        """Append a state, which then takes effect.

        Raises:
            BrokerResponseError: NOT_COORDINATOR (16) for a disk error, COORDINATOR_NOT_AVAILABLE (15) if
                there is no log, -1 if the state is too large for it. Nothing has changed.
        """
        self._append(
            metadata.transactional_id,
            encode_value(metadata, self._broker.settings.transactions.transaction_version),
        )
        self._states[metadata.transactional_id] = metadata

    def _append(self, transactional_id: str, value: bytes | None) -> None:
        partition = self._topic.partition_for(transactional_id)
        try:
            self._topic.append(partition, [(encode_key(transactional_id), value)])
        except KafkaStorageError as error:
            _log.error("cannot write the state of %s: %s", quoted(transactional_id), error.message)
            raise NotCoordinatorError(error.message) from error
        except (MessageTooLargeError, RecordListTooLargeError) as error:
            raise UnknownServerError(
                f"the transaction of {quoted(transactional_id)} has too many partitions: {error.message}"
            ) from error

    def load(self, partition: int) -> None:
        """Load a partition that this broker leads from now on, and complete decided transactions.

        Requests for ids of a damaged partition are answered with COORDINATOR_NOT_AVAILABLE (15).
        """
        self._unreadable.discard(partition)
        try:
            states = read_states(self._topic, partition)
        except (CorruptMessageError, KafkaStorageError) as error:
            _log.error(
                "%s-%d and its transactional ids cannot be read: %s",
                self._topic.name,
                partition,
                error.message,
            )
            self._unreadable.add(partition)
            return
        self._states.update(states)
        known_ids = (each.producer_id for each in states.values())
        # A log that was copied from elsewhere may know ids that this broker has not given out yet.
        self._broker.producer_ids.skip(max(known_ids, default=-1))
        # At the start ``settle`` does it, when all partitions are known.
        if self._is_settled:
            self._finish(states.values())

    def resign(self, partition: int) -> None:
        """Drop the transactional ids of a partition that another broker leads."""
        self._unreadable.discard(partition)
        # the topic was deleted, so ids cannot be mapped to partitions any more
        is_gone = self._broker.topics.get(self._topic.name) is None
        for transactional_id in list(self._states):
            if is_gone or self._topic.partition_for(transactional_id) == partition:
                del self._states[transactional_id]
                self._completion.forget(transactional_id)

    def settle(self) -> None:
        """Complete what a crash interrupted; called once, before the first request."""
        self._is_settled = True
        # State that cannot be read, because it is damaged or in a failed data directory, may say that a
        # hanging transaction was committed.
        if not self._unreadable and self._topic.is_online:
            settle_hanging(self._broker, self._states, self.put)
        self._finish(self._states.values())

    def _finish(self, states: Iterable[TransactionMetadata]) -> None:
        for metadata in [each for each in states if each.is_prepared]:
            _log.info(
                "completing the transaction of %s, which a restart has interrupted",
                quoted(metadata.transactional_id),
            )
            self._completion.begin(metadata)

    # --- periodic tasks -------------------------------------------------------------------------------------

    async def keep_house(self) -> None:
        """Run ``step`` whenever it is due, as long as the broker runs."""
        clock = self._broker.clock
        while True:
            delay_ms = self.step(clock.now_ms(), clock.wall_ms())
            with trio.move_on_after(delay_ms / 1000):
                if self._completion.needs_retry:
                    # A retry is due by time already; only the first refusal has to end this sleep early.
                    await trio.sleep_forever()
                await self._completion.wait_refused()

    def step(self, now_ms: float, wall_ms: int) -> float:
        """Abort transactions that have timed out, expire unused ids, and retry markers; a few in each turn.

        Args:
            now_ms: monotonic clock.
            wall_ms: wall clock, milliseconds since the epoch.

        Returns:
            Milliseconds until the next turn is due.
        """
        settings = self._broker.settings.transactions
        abort_ms = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expiry_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        unused_since_ms = wall_ms - settings.transactional_id_expiration_ms
        if self._next_abort_ms is None:  # after a restart producers get this time to come back
            self._next_abort_ms, self._next_expiry_ms = now_ms + abort_ms, now_ms + expiry_ms
        if now_ms >= self._next_abort_ms and not self._due_aborts:
            self._next_abort_ms = now_ms + abort_ms
            self._due_aborts.extend(each for each in self._states if self._states[each].is_timed_out(wall_ms))
        if now_ms >= self._next_expiry_ms and not self._due_expiries:
            self._next_expiry_ms = now_ms + expiry_ms
            self._due_expiries.extend(
                each for each in self._states if self._states[each].is_unused_since(unused_since_ms)
            )
        for _ in range(min(_AT_ONCE, len(self._due_aborts))):
            self._abort_if_timed_out(self._due_aborts.popleft(), wall_ms)
        for _ in range(min(_AT_ONCE, len(self._due_expiries))):
            self._expire_if_unused(self._due_expiries.popleft(), unused_since_ms)
        due = [self._next_abort_ms, self._next_expiry_ms]
        if self._completion.needs_retry:
            if now_ms >= self._next_retry_ms:
                self._completion.retry()
                self._next_retry_ms = now_ms + self._retry_ms
                self._retry_ms = min(2 * self._retry_ms, _LONGEST_RETRY_MS)
            due.append(self._next_retry_ms)
        else:
            self._retry_ms = _RETRY_MS
        if self._due_aborts or self._due_expiries:
            return 0.0
        return max(0.0, min(due) - now_ms)

    def _abort_if_timed_out(self, transactional_id: str, wall_ms: int) -> None:
        metadata = self._states.get(transactional_id)
        if metadata is None or not metadata.is_timed_out(wall_ms):
            return
        with log_failures(f"aborting the transaction of {quoted(transactional_id)}"):
            _log.info(
                "aborting the transaction of %s: it has been open for more than %d ms",
                quoted(transactional_id),
                metadata.timeout_ms,
            )
            # The epoch is raised with the abort, so a producer that comes back late cannot write into a new
            # transaction.
            self._abort_and_fence(metadata)

    def _expire_if_unused(self, transactional_id: str, unused_since_ms: int) -> None:
        metadata = self._states.get(transactional_id)
        if metadata is None or not metadata.is_unused_since(unused_since_ms):
            return
        with log_failures(f"expiring {quoted(transactional_id)}"):
            self._append(transactional_id, None)
            del self._states[metadata.expired().transactional_id]
