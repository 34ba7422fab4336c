"""The transaction coordinator: every transactional id of this broker, kept in ``__transaction_state``.

A change is appended before it counts and before it is answered (``answer_when_safe``: and synced where the
options say so). All methods belong to the broker's loop and do not wait, so no two changes are ever under way
for one id; Kafka's pending states are not needed, except while markers are written.
"""

from __future__ import annotations

import logging
import math
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
    AT_REST,
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
    from splashdam.embedded_broker.controller.producer_ids import HandsOutIds
    from splashdam.storage.log import Log

_log = logging.getLogger(__name__)

_RETRY_MS, _LONGEST_RETRY_MS = 1_000, 60_000
"""Between two tries to write markers that the disk refused; doubled as long as it does."""


class CoordinatesTransactions(OwnsTopics, CompletesTransactions, Protocol):
    """What a coordinator needs of its broker; the attributes are those of `Broker`."""

    producer_ids: HandsOutIds


class TransactionCoordinator:
    """The transactional ids of a broker.

    Args:
        broker: whose it is.
        start_soon: begins a task of the broker's.
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

    @property
    def states(self) -> Mapping[str, TransactionMetadata]:
        """Every transactional id that is known."""
        return self._states

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """What is known of a transactional id."""
        return self._states.get(transactional_id)

    def log_of(self, transactional_id: str) -> Log:
        """The log that a transactional id's state is in; what is answered waits for its flush.

        Raises:
            CoordinatorNotAvailableError: it is not here, and cannot be made.
        """
        return self._topic.log(self._topic.partition_for(transactional_id))

    async def wait_ended(self, transactional_id: str, end_offset: int, term: int) -> None:
        """Returns when the transaction decided last is complete, or the disk refuses some of its markers.

        Args:
            transactional_id: its name.
            end_offset: of its log, behind the decision.
            term: in which that was appended; as ``wait_safe``.

        Raises:
            KafkaStorageError: the decision itself may not outlive a power cut, against what was promised.
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
        """Whether ``wait_ended`` has something to wait for."""
        return self._completion.under_way(transactional_id) is not None

    # --- requests -------------------------------------------------------------------------------------------

    def initialize(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """A producer's id and epoch; earlier producers of this transactional id are fenced.

        An open transaction is aborted first.

        Args:
            transactional_id: its name.
            timeout_ms: how long its transactions may stay open.
            expected: who the producer believes to be (KIP-360), None for a new one.

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
                metadata.check_expected(expected)  # before it costs the present producer its transaction
            self._abort_over_its_head(metadata)
            metadata = self._states[transactional_id]
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
        """Adds partitions to the producer's transaction, and begins one where none is open.

        Args:
            transactional_id: its name.
            producer_id: of the producer.
            producer_epoch: of the producer.
            partitions: those that it is about to write to.
            client_version: 2 where the producer ends transactions by EndTxn 5, 0 for older ones.

        Raises:
            BrokerResponseError: INVALID_REQUEST (42), INVALID_PRODUCER_ID_MAPPING (49), PRODUCER_FENCED (90),
                CONCURRENT_TRANSACTIONS (51), or what ``put`` raises.
        """
        metadata = self._known(transactional_id)
        metadata.check_producer(ProducerIdentity(producer_id, producer_epoch))
        wanted = frozenset(partitions)
        if metadata.state is TransactionState.ONGOING and wanted <= metadata.partitions:
            return
        self.put(metadata.with_partitions(wanted, self._broker.clock.wall_ms(), client_version))

    def partitions_of(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> frozenset[TopicPartition]:
        """Those that are in the producer's transaction.

        Raises:
            BrokerResponseError: as ``add_partitions``.
        """
        metadata = self._known(transactional_id)
        metadata.check_producer(ProducerIdentity(producer_id, producer_epoch))
        return metadata.partitions

    def verify_partition(
        self, transactional_id: str, producer_id: int, producer_epoch: int, topic_partition: TopicPartition
    ) -> None:
        """Asks whether a partition is in the producer's transaction.

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
        """Commits or aborts; when this returns the decision is in the log, and nothing changes it any more.

        Returns:
            What the producer uses for its next transaction.

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
        """Looks at a transactional id.

        Raises:
            InvalidRequestError: it is empty.
            CoordinatorNotAvailableError: what is known of it could not be read.
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
            raise CoordinatorNotAvailableError(
                f"what is known of {quoted(transactional_id)} could not be read"
            )

    def _abort_over_its_head(self, metadata: TransactionMetadata) -> None:
        version = self._broker.settings.transactions.transaction_version
        now_ms, new_id = self._broker.clock.wall_ms(), self._broker.producer_ids.next_id
        prepared = metadata.fenced_off(now_ms, version, new_id)
        self.put(prepared)
        self._completion.begin(prepared)

    # --- the log --------------------------------------------------------------------------------------------

    def put(self, metadata: TransactionMetadata) -> None:
        """Appends a state, which then counts.

        Raises:
            BrokerResponseError: NOT_COORDINATOR (16) where the disk refuses, COORDINATOR_NOT_AVAILABLE (15)
                where there is no log, -1 where the state is too large for it. Nothing has changed.
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
        """Reads the states of a partition that this broker leads from now on, and finishes what was decided.

        The ids of a damaged partition are answered with 15.
        """
        self._unreadable.discard(partition)
        try:
            states = read_states(self._topic, partition)
        except (CorruptMessageError, KafkaStorageError) as error:
            _log.error("%s-%d cannot be read, nor its ids: %s", self._topic.name, partition, error.message)
            self._unreadable.add(partition)
            return
        self._states.update(states)
        known_ids = (each.producer_id for each in states.values())
        self._broker.producer_ids.skip(max(known_ids, default=-1))
        if self._is_settled:
            self._finish(states.values())

    def resign(self, partition: int) -> None:
        """Another broker leads a partition: what is known of its ids is forgotten here."""
        self._unreadable.discard(partition)
        is_gone = self._broker.topics.get(self._topic.name) is None  # with all that says who was where
        for transactional_id in list(self._states):
            if is_gone or self._topic.partition_for(transactional_id) == partition:
                del self._states[transactional_id]
                self._completion.forget(transactional_id)

    def settle(self) -> None:
        """Finishes what a crash interrupted; once, when the broker has joined, before the first request.

        Where a partition is damaged nothing that is open without an owner is ended: what cannot be read may
        say that it was committed.
        """
        self._is_settled = True
        if not self._unreadable:
            settle_hanging(self._broker, self._states, self.put)
        self._finish(self._states.values())

    def _finish(self, states: Iterable[TransactionMetadata]) -> None:
        for metadata in [each for each in states if each.is_prepared]:
            _log.info(
                "%s was being completed when its broker ended; going on", quoted(metadata.transactional_id)
            )
            self._completion.begin(metadata)

    # --- what time brings -----------------------------------------------------------------------------------

    async def keep_house(self) -> None:
        """Does what time brings, for as long as the broker runs."""
        clock = self._broker.clock
        while True:
            delay_ms = self.step(clock.now_ms(), clock.wall_ms())
            with trio.move_on_after(delay_ms / 1000):
                if self._completion.is_owing:
                    await trio.sleep_forever()
                await self._completion.wait_refused()

    def step(self, now_ms: float, wall_ms: int) -> float:
        """Aborts transactions that are open too long, forgets ids that nobody uses, goes on with markers.

        Args:
            now_ms: monotonic clock.
            wall_ms: wall clock, milliseconds since the epoch.

        Returns:
            Milliseconds until the next turn is due.
        """
        settings = self._broker.settings
        abort_ms = settings.transactions.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expiry_ms = settings.transactions.transaction_remove_expired_transaction_cleanup_interval_ms
        if self._next_abort_ms is None:  # producers of before a restart have this time to come back
            self._next_abort_ms, self._next_expiry_ms = now_ms + abort_ms, now_ms + expiry_ms
        if now_ms >= self._next_abort_ms:
            self._next_abort_ms = now_ms + abort_ms
            self._abort_timed_out(wall_ms)
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + expiry_ms
            self._expire(wall_ms - settings.transactions.transactional_id_expiration_ms)
        due = [self._next_abort_ms, self._next_expiry_ms]
        if self._completion.is_owing:
            if now_ms >= self._next_retry_ms:
                self._completion.retry()
                self._next_retry_ms = now_ms + self._retry_ms
                self._retry_ms = min(2 * self._retry_ms, _LONGEST_RETRY_MS)
            due.append(self._next_retry_ms)
        else:
            self._retry_ms = _RETRY_MS
        return max(0.0, min(due) - now_ms)

    def _abort_timed_out(self, wall_ms: int) -> None:
        for metadata in [each for each in self._states.values() if each.is_timed_out(wall_ms)]:
            with log_failures(f"aborting the transaction of {quoted(metadata.transactional_id)}"):
                _log.info(
                    "aborting the transaction of %s: open for more than %d ms",
                    quoted(metadata.transactional_id),
                    metadata.timeout_ms,
                )
                self._abort_over_its_head(metadata)

    def _expire(self, unused_since_ms: int) -> None:
        for metadata in list(self._states.values()):
            if metadata.state in AT_REST and metadata.last_update_ms <= unused_since_ms:
                with log_failures(f"forgetting {quoted(metadata.transactional_id)}"):
                    self._append(metadata.transactional_id, None)
                    del self._states[metadata.expired().transactional_id]
