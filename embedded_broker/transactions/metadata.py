"""The state of one transactional id, and its changes. Pure: time and new producer ids are arguments.

Each method returns the state after an event and changes nothing; the coordinator writes the new state to the
log, and then replaces the old one. Semantics: Kafka's ``TransactionMetadata`` with KIP-360
(retries of InitProducerId) and KIP-890 (an epoch for each transaction).
The table of its states stands here, too; they and their numbers are Kafka's ``TransactionState``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import attrs

from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, ProducerFencedError, error_for
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition


class TransactionState(Stage):
    """State of a transactional id; the numbers are those of ``__transaction_state``."""

    EMPTY = 0  # a producer is known, no transaction was begun
    ONGOING = 1
    PREPARE_COMMIT = 2  # decided; markers are being written
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4  # every marker is in its log
    COMPLETE_ABORT = 5
    DEAD = 6  # expired; never written, a tombstone is
    PREPARE_EPOCH_FENCE = 7  # on the way from ONGOING to PREPARE_ABORT; never written

    @property
    def kafka_name(self) -> str:
        """Kafka's name of the state, as in ``PrepareCommit``."""
        return self.name.title().replace("_", "")


class TransactionEvent(Stage):
    """Event in the life of a transactional id."""

    INITIALIZE = "be initialized"
    ADD = "take partitions"
    COMMIT = "be committed"
    ABORT = "be aborted"
    FENCE = "be fenced"
    COMPLETE = "be completed"
    EXPIRE = "expire"


_S, _E = TransactionState, TransactionEvent

AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""States without an open transaction and without missing markers."""

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""States in which the outcome is decided, and markers are missing."""

TRANSITIONS: Mapping[tuple[TransactionState, TransactionEvent], TransactionState] = {
    **{(state, _E.INITIALIZE): _S.EMPTY for state in AT_REST},
    **{(state, _E.ADD): _S.ONGOING for state in (*AT_REST, _S.ONGOING)},
    **{(state, _E.EXPIRE): _S.DEAD for state in AT_REST},
    # Since KIP-890 a producer may abort what it never added anything to, to get a new epoch.
    **{(state, _E.ABORT): _S.PREPARE_ABORT for state in (*AT_REST, _S.ONGOING, _S.PREPARE_EPOCH_FENCE)},
    (_S.ONGOING, _E.COMMIT): _S.PREPARE_COMMIT,
    (_S.ONGOING, _E.FENCE): _S.PREPARE_EPOCH_FENCE,
    (_S.PREPARE_COMMIT, _E.COMPLETE): _S.COMPLETE_COMMIT,
    (_S.PREPARE_ABORT, _E.COMPLETE): _S.COMPLETE_ABORT,
}
"""(state, event) → next state; missing pairs are illegal."""

NO_PRODUCER_ID = NO_EPOCH = -1
MAX_EPOCH = 2**15 - 1
EPOCH_BUMPS = 2
"""Transaction version from which every transaction has a producer epoch of its own (KIP-890)."""

NewProducerId = Callable[[], int]


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


def concurrent_transactions(transactional_id: str) -> BrokerResponseError:
    """Return CONCURRENT_TRANSACTIONS (51): the client tries again after a moment."""
    return error_for(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"the last transaction of {quoted(transactional_id)} is being completed",
    )


def is_exhausted(epoch: int) -> bool:
    """Whether no epoch is left after this one; the very last is reserved for fencing."""
    return epoch >= MAX_EPOCH - 1


@attrs.frozen(kw_only=True)
class TransactionMetadata:
    """One transactional id.

    Attributes:
        transactional_id: its name.
        producer_id: of its producer.
        producer_epoch: of its producer, -1 before the first InitProducerId.
        timeout_ms: transaction timeout.
        last_update_ms: wall clock of the last change.
        state: of the transactional id.
        partitions: of the open transaction, or those that still need a marker.
        start_ms: wall clock at the first partition of the transaction, -1 for none.
        previous_producer_id: the producer id before the last change.
        next_producer_id: the producer id after the transaction is complete, -1 for the same.
        last_producer_epoch: the epoch before the last bump that the producer itself asked for; -1 if another
            one bumped it, and after a restart.
        client_version: transaction version of the client that changed it last.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    timeout_ms: int
    last_update_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_EPOCH
    client_version: int = 0

    @property
    def identity(self) -> ProducerIdentity:
        """Producer id and epoch for the next transaction, also while the present one is being completed."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are missing."""
        return self.state in PREPARED

    def is_timed_out(self, wall_ms: int) -> bool:
        """Whether a transaction has been open for longer than its timeout."""
        return self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms < wall_ms

    def is_unused_since(self, wall_ms: int) -> bool:
        """Whether there is no transaction, and nothing has changed since a time."""
        return self.state in AT_REST and self.last_update_ms <= wall_ms

    def check_producer(self, producer: ProducerIdentity) -> None:
        """Check the producer id and epoch of a request.

        Raises:
            BrokerResponseError: INVALID_PRODUCER_ID_MAPPING (49), PRODUCER_FENCED (90), or
                CONCURRENT_TRANSACTIONS (51) while the last transaction is being completed.
        """
        if producer.producer_id != self.producer_id:
            raise error_for(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"{quoted(self.transactional_id)} writes with producer id {self.producer_id}, not "
                f"{producer.producer_id}",
            )
        if producer.epoch != self.producer_epoch:
            raise self.fenced(producer.epoch)
        if self.is_prepared:
            raise concurrent_transactions(self.transactional_id)

    def fenced(self, epoch: int) -> ProducerFencedError:
        """Return the error for a request of another epoch."""
        return ProducerFencedError(
            f"{quoted(self.transactional_id)} is at epoch {self.producer_epoch}, the request at {epoch}"
        )

    # --- changes --------------------------------------------------------------------------------------------

    def initialized(
        self, timeout_ms: int, expected: ProducerIdentity | None, now_ms: int, new_producer_id: NewProducerId
    ) -> TransactionMetadata:
        """Return the state after InitProducerId: earlier producers of this transactional id are fenced.

        Args:
            timeout_ms: transaction timeout.
            expected: the id and epoch that the producer believes to have (KIP-360), None for a new producer.
            now_ms: wall clock.
            new_producer_id: returns a new id, if no epoch is left for the present one.

        Raises:
            ProducerFencedError: another producer was initialized meanwhile.
            KafkaStorageError: ``new_producer_id`` could not reserve one.
        """
        if expected is not None:
            self.check_expected(expected)
        producer_id, epoch = self.producer_id, self.producer_epoch
        last_epoch = NO_EPOCH if expected is None else epoch
        if self._is_retry(expected):
            last_epoch = self.last_producer_epoch
        elif self.is_exhausted:
            producer_id, epoch = new_producer_id(), 0
        else:
            epoch += 1
        return self._changed(
            TransactionEvent.INITIALIZE,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            start_ms=-1,
        )

    def check_expected(self, expected: ProducerIdentity) -> None:
        """Check the id and epoch that a producer believes to have (KIP-360).

        Raises:
            ProducerFencedError: another producer was initialized meanwhile.
        """
        if self.producer_epoch == NO_EPOCH:
            return
        is_known = expected.producer_id == self.producer_id or (
            expected.producer_id == self.previous_producer_id and is_exhausted(expected.epoch)
        )
        if not is_known or not (expected.epoch == self.producer_epoch or self._is_retry(expected)):
            raise self.fenced(expected.epoch)

    def _is_retry(self, expected: ProducerIdentity | None) -> bool:
        """Whether this repeats the last InitProducerId, whose answer may have been lost."""
        return (
            expected is not None
            and expected.epoch != self.producer_epoch
            and expected.epoch == self.last_producer_epoch != NO_EPOCH
        )

    def with_partitions(
        self, partitions: Iterable[TopicPartition], now_ms: int, client_version: int
    ) -> TransactionMetadata:
        """Return the state with more partitions; the first one begins a transaction."""
        is_open = self.state is TransactionState.ONGOING
        return self._changed(
            TransactionEvent.ADD,
            now_ms,
            partitions=self.partitions.union(partitions),
            start_ms=self.start_ms if is_open else now_ms,
            client_version=client_version,
        )

    def ended(
        self, is_commit: bool, now_ms: int, client_version: int, new_producer_id: NewProducerId
    ) -> TransactionMetadata:
        """Return the state after the outcome is decided; from transaction version 2 the epoch is bumped, too.

        Raises:
            KafkaStorageError: ``new_producer_id`` could not reserve an id.
        """
        event = TransactionEvent.COMMIT if is_commit else TransactionEvent.ABORT
        is_open = self.state is TransactionState.ONGOING
        changes: dict[str, Any] = {"start_ms": self.start_ms if is_open else now_ms}
        if client_version >= EPOCH_BUMPS:
            changes.update(self._bumped(new_producer_id))
        return self._changed(event, now_ms, client_version=client_version, **changes)

    def fenced_off(
        self, now_ms: int, client_version: int, new_producer_id: NewProducerId
    ) -> TransactionMetadata:
        """Return the state after the coordinator aborts a transaction: for a newer producer, or a timeout.

        With version 2 the producer's next EndTxn tells it what has happened.

        Raises:
            KafkaStorageError: ``new_producer_id`` could not reserve an id.
        """
        state = next_state(TRANSITIONS, self.state, TransactionEvent.FENCE, self.transactional_id)
        # In every version, so that no batch of the old producer is accepted any more.
        changes = self._bumped(new_producer_id)
        if client_version < EPOCH_BUMPS:
            changes["last_producer_epoch"] = NO_EPOCH
        fenced = attrs.evolve(self, state=state)
        return fenced._changed(TransactionEvent.ABORT, now_ms, client_version=client_version, **changes)

    def _bumped(self, new_producer_id: NewProducerId) -> dict[str, Any]:
        """Return a bumped epoch, and the next producer id if no epoch is left."""
        return {
            "producer_epoch": min(self.producer_epoch + 1, MAX_EPOCH),
            "last_producer_epoch": self.producer_epoch,
            "next_producer_id": new_producer_id() if self.is_exhausted else NO_PRODUCER_ID,
        }

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Return the state after all markers are written."""
        producer_id, epoch = self.identity
        return self._changed(
            TransactionEvent.COMPLETE,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    def expired(self) -> TransactionMetadata:
        """Return the state after ``transactional.id.expiration.ms`` without use; a tombstone follows."""
        return self._changed(TransactionEvent.EXPIRE, self.last_update_ms)

    def _changed(self, event: TransactionEvent, now_ms: int, **changes: Any) -> TransactionMetadata:
        return attrs.evolve(
            self,
            state=next_state(
                TRANSITIONS, self.state, event, f"transactional id {quoted(self.transactional_id)}"
            ),
            previous_producer_id=self.producer_id,
            last_update_ms=now_ms,
            **changes,
        )
