"""The state of each idempotent producer in a log: epoch, the last five batches, an open transaction.

The rules are those of Kafka's ProducerStateManager and ProducerAppendInfo. The state is a function of the
batches in the log, so it can always be rebuilt from their headers; snapshots only make that short.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from weakref import WeakValueDictionary

import attrs

from splashdam.model.broker_errors import (
    ErrorCode,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaStorageError,
    OutOfOrderSequenceNumberError,
    error_for,
)
from splashdam.record.batch import BatchHeader
from splashdam.storage.transaction_marker import TransactionMarker

REMEMBERED_BATCHES = 5
NO_SEQUENCE = -1
MAX_SEQUENCE = 2**31 - 1
_MOST_REFUSED = 1_000
_RETRY_MS = 120_000
"""Kafka's default delivery.timeout.ms: later the producer has given up a refused batch."""


class RememberedBatch(NamedTuple):
    """What identifies a batch of a producer, to recognise a retry."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class CompletedTransaction(NamedTuple):
    """A transaction that has ended; ``last_offset`` is the offset of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    is_aborted: bool


@attrs.define
class ProducerEntry:
    """The state of one producer id; -1 for no timestamp, no coordinator and no open transaction."""

    producer_id: int
    epoch: int
    batches: deque[RememberedBatch] = attrs.field(factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    timestamp_ms: int = -1
    coordinator_epoch: int = -1
    transaction_first_offset: int = -1
    seen_ms: int = 0
    """Wall clock of the producer's last batch, by the broker; not part of snapshots."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def move_to_epoch(self, epoch: int) -> None:
        """Begin a new epoch.

        Its sequences start at 0, and batches of the old one can no longer be retried.
        """
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class Verification:
    """Kafka's VerificationGuard: a token for a pending question to the transaction coordinator.

    A marker of the producer makes it void, because an answer from before the marker says nothing about
    batches after it.
    """


_FIRST_WITH_EPOCH_BUMPS = 2
"""The transaction version from which on each transaction ends with a new epoch (KIP-890)."""


class ProducerStates:
    """All producers of one log."""

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}
        began = sorted((entry.transaction_first_offset, entry.producer_id) for entry in self)
        self._open_transactions = {producer_id: offset for offset, producer_id in began if offset >= 0}
        self._verifications: WeakValueDictionary[int, Verification] | None = None  # most logs need none

    def __iter__(self) -> Iterator[ProducerEntry]:
        """Entries in ascending order of producer id."""
        return iter(sorted(self._entries.values(), key=lambda entry: entry.producer_id))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest open transaction, or None."""
        return next(iter(self._open_transactions.values()), None)  # in the order in which they began

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """Check epoch and sequence of an idempotent batch before it is written.

        Returns:
            The earlier batch of which this is a retry, or None for a new batch.

        Raises:
            InvalidProducerEpochError: a newer epoch of the producer has written.
            OutOfOrderSequenceNumberError: batches before this one are missing, or it is a retry of a batch
                that is no longer remembered.
            InvalidTxnStateError: the producer has an open transaction and this batch is not part of one.
        """
        entry = self._entries.get(header.producer_id)
        # As in Kafka any sequence is right then: retention, DeleteRecords or expiration may have taken the
        # producer's state.
        if entry is None:
            return None
        if header.producer_epoch == entry.epoch:
            for batch in entry.batches:  # by index: five attribute look-ups for every batch would cost more
                if batch[0] == header.base_sequence and batch[1] == header.last_sequence:
                    return batch
        self._check_order(entry, header)
        if entry.transaction_first_offset >= 0 and not header.is_transactional:
            raise InvalidTxnStateError(
                f"producer {header.producer_id} has an open transaction; its batch must be transactional"
            )
        return None

    @staticmethod
    def _check_order(entry: ProducerEntry, header: BatchHeader) -> None:
        sequence = header.base_sequence
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"producer {entry.producer_id} is at epoch {entry.epoch}, the batch at "
                f"{header.producer_epoch}"
            )
        if header.producer_epoch > entry.epoch:
            expected = 0
        else:
            last = entry.last_sequence
            expected = 0 if last == MAX_SEQUENCE else last + 1
        if sequence != expected:
            raise OutOfOrderSequenceNumberError(
                f"producer {entry.producer_id} epoch {header.producer_epoch}: "
                f"sequence {sequence} where {expected} was expected"
            )

    def record(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember a data batch that has been written at ``base_offset``."""
        entry = self._entry(header.producer_id, header.producer_epoch)
        entry.seen_ms = now_ms
        timestamp_ms = header.max_timestamp
        last_offset = base_offset + header.last_offset_delta
        entry.batches.append(
            RememberedBatch(
                header.base_sequence, header.last_sequence, base_offset, last_offset, timestamp_ms
            )
        )
        entry.timestamp_ms = timestamp_ms
        if header.is_transactional and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = base_offset
            self._open_transactions[entry.producer_id] = base_offset

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Check the epoch of a coordinator's batch or marker, which has no sequence number.

        Raises:
            InvalidProducerEpochError: a newer epoch of the producer has written.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"producer {producer_id} is at epoch {entry.epoch}, its coordinator writes at {epoch}"
            )

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction of this epoch in the log."""
        return producer_id in self._open_transactions and self._entries[producer_id].epoch == epoch

    def verification(self, producer_id: int) -> Verification:
        """Return the producer's token; it is kept as long as a caller holds it, up to the next marker."""
        if self._verifications is None:
            self._verifications = WeakValueDictionary()
        found = self._verifications.get(producer_id)
        if found is None:
            found = self._verifications[producer_id] = Verification()
        return found

    def holds(self, verification: Verification, producer_id: int) -> bool:
        """Whether the token is still valid: no marker and no truncation has come since it was taken."""
        return self._verifications is not None and self._verifications.get(producer_id) is verification

    def check_marker(self, marker: TransactionMarker) -> None:
        """Check a marker before it is written.

        Raises:
            InvalidProducerEpochError: a newer epoch of the producer has written, or the marker is that of an
                earlier transaction and comes late (KIP-1228): the open one began with the marker's epoch.
            BrokerResponseError: TRANSACTION_COORDINATOR_FENCED (52): a newer coordinator has written.
        """
        self.check_epoch(marker.producer_id, marker.producer_epoch)
        entry = self._entries.get(marker.producer_id)
        bumps = marker.transaction_version >= _FIRST_WITH_EPOCH_BUMPS
        if bumps and self.has_open_transaction(marker.producer_id, marker.producer_epoch):
            raise InvalidProducerEpochError(
                f"producer {marker.producer_id} has a transaction open at epoch {marker.producer_epoch}, "
                "which began after the marker's transaction had ended"
            )
        if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            raise error_for(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker has coordinator epoch {marker.coordinator_epoch}, "
                f"an earlier marker had {entry.coordinator_epoch}",
            )

    def end_transaction(
        self, marker: TransactionMarker, offset: int, timestamp_ms: int, now_ms: int
    ) -> CompletedTransaction | None:
        """Note a marker that has been written; return the transaction it ends, or None if none was open."""
        if self._verifications is not None:
            self._verifications.pop(marker.producer_id, None)
        entry = self._entry(marker.producer_id, marker.producer_epoch)
        entry.seen_ms = now_ms
        entry.timestamp_ms = timestamp_ms
        entry.coordinator_epoch = marker.coordinator_epoch
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, -1
        if first_offset < 0:
            return None
        del self._open_transactions[entry.producer_id]
        stable = self.first_unstable_offset
        return CompletedTransaction(
            entry.producer_id,
            first_offset,
            offset,
            offset + 1 if stable is None else stable,
            not marker.is_commit,
        )

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers silent for ``expiration_ms``, except in an open transaction; return how many."""
        # By the broker's clock. Kafka compares with the records' timestamps, so it soon forgets an active
        # producer that writes records of last year.
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_first_offset < 0 and now_ms - entry.seen_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def complete_from(self, tail: ProducerStates) -> None:
        """Add the batches that a snapshot leaves out; ``tail`` is the state of the end of the log alone."""
        for entry in self._entries.values():
            seen = tail._entries.get(entry.producer_id)
            if seen is None or seen.epoch != entry.epoch or not entry.batches:
                continue
            # Only if both end with the same batch: otherwise a batch between them would stay unknown.
            if seen.batches[-1].last_offset == entry.batches[-1].last_offset:
                entry.batches = seen.batches

    def restart_clocks(self, now_ms: int) -> None:
        """Start the expiration of producers that were loaded from files."""
        for entry in self._entries.values():
            entry.seen_ms = now_ms

    def _entry(self, producer_id: int, epoch: int) -> ProducerEntry:
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch)
        else:
            entry.move_to_epoch(epoch)
        return entry


class _Refused(NamedTuple):
    """The first batch of a producer that the disk refused.

    It has the text of the error, not the error, whose traceback would keep the whole request in memory.
    """

    epoch: int
    sequence: int
    at_ms: int
    reason: str

    def is_before(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether a batch was sent after this one, while this one may still be retried."""
        # Sequences wrap around at 2^31: half of the circle counts as later.
        distance = (header.base_sequence - self.sequence) & MAX_SEQUENCE
        is_later = header.producer_epoch == self.epoch and 0 < distance <= MAX_SEQUENCE // 2
        return is_later and 0 <= now_ms - self.at_ms < _RETRY_MS


class RefusedBatches(dict[int, _Refused]):
    """The first batch of each producer that a full disk refused, by producer id.

    Batches sent after it get the same error (56), not OUT_OF_ORDER_SEQUENCE_NUMBER: nothing is lost but what
    was just refused, and a smaller batch would even fit. See docs/decisions/storage.md, "A full disk". A
    dict, because every append asks whether it is empty, and mostly it is.
    """

    __slots__ = ()

    def note(self, header: BatchHeader, error: KafkaStorageError, now_ms: int) -> None:
        """Note a batch that the disk has refused."""
        if header.producer_id < 0:
            return
        earlier = self.get(header.producer_id)
        if earlier is None or not earlier.is_before(header, now_ms):
            # Put in anew, so that the first entry of the dict is always the oldest.
            self.pop(header.producer_id, None)
            self[header.producer_id] = _Refused(
                header.producer_epoch, header.base_sequence, now_ms, error.message
            )
            if len(self) > _MOST_REFUSED:
                del self[next(iter(self))]

    def check(self, header: BatchHeader, now_ms: int) -> None:
        """Refuse a batch that was sent after a refused one, with the same error.

        Raises:
            KafkaStorageError: the disk has refused an earlier batch of the producer, which may still be
                retried.
        """
        earlier = self.get(header.producer_id)
        if earlier is not None and earlier.is_before(header, now_ms):
            raise KafkaStorageError(
                f"the batch of producer {header.producer_id} with sequence {earlier.sequence} comes first: "
                f"{earlier.reason}"
            )
