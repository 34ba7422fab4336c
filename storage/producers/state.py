"""What a log remembers of each idempotent producer: epoch, the last five batches, an open transaction.

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
"""Kafka's delivery.timeout.ms: after that the producer of a refused batch has given it up."""


class RememberedBatch(NamedTuple):
    """One batch of a producer, as far as a repeat of it can be told by it."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker has been seen; ``last_offset`` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    is_aborted: bool


@attrs.define
class ProducerEntry:
    """One producer id. -1 stands for no sequence, no coordinator and no open transaction."""

    producer_id: int
    epoch: int
    batches: deque[RememberedBatch] = attrs.field(factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    timestamp_ms: int = -1
    coordinator_epoch: int = -1
    transaction_first_offset: int = -1
    seen_ms: int = 0
    """Wall clock when this broker last heard of the producer; not part of snapshots."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def move_to_epoch(self, epoch: int) -> None:
        """A new epoch numbers its batches from 0 again: those of the old one can no longer be repeated."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class Verification:
    """Stands for what a coordinator is asked about a producer, from the question on; a marker makes it void.

    Kafka's VerificationGuard. What was said before the marker says nothing of what comes behind it.
    """


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
        return next(iter(self._open_transactions.values()), None)  # they stand in the order they began

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """What the log makes of an idempotent batch before it is written.

        Returns:
            The earlier batch that this one repeats, or None for a new one.

        Raises:
            InvalidProducerEpochError: a newer epoch of the producer has written.
            OutOfOrderSequenceNumberError: batches before this one are missing, or it repeats one that is no
                longer remembered.
            InvalidTxnStateError: the producer has an open transaction and this batch is not part of one.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch == entry.epoch:
            for batch in entry.batches:
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
        """Remember a data batch that is in the log, at ``base_offset``."""
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
        """What the log makes of a batch or marker of a coordinator, which has no sequence number.

        Raises:
            InvalidProducerEpochError: a newer epoch of the producer has written.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"producer {producer_id} is at epoch {entry.epoch}, its coordinator writes at {epoch}"
            )

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has written in a transaction of this epoch that no marker has ended yet."""
        return producer_id in self._open_transactions and self._entries[producer_id].epoch == epoch

    def verification(self, producer_id: int) -> Verification:
        """The producer's until its next marker; whoever asks the coordinator holds it."""
        if self._verifications is None:
            self._verifications = WeakValueDictionary()
        found = self._verifications.get(producer_id)
        if found is None:
            found = self._verifications[producer_id] = Verification()
        return found

    def holds(self, verification: Verification, producer_id: int) -> bool:
        """Whether no marker of the producer has come, and no truncation, since the verification was taken."""
        return self._verifications is not None and self._verifications.get(producer_id) is verification

    def check_marker(self, marker: TransactionMarker) -> None:
        """What the log makes of a marker before it is written.

        Raises:
            InvalidProducerEpochError: a newer epoch of the producer has written.
            BrokerResponseError: TRANSACTION_COORDINATOR_FENCED (52): a newer coordinator has.
        """
        self.check_epoch(marker.producer_id, marker.producer_epoch)
        entry = self._entries.get(marker.producer_id)
        if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            raise error_for(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the marker is of coordinator epoch {marker.coordinator_epoch}, "
                f"an earlier one of {entry.coordinator_epoch}",
            )

    def end_transaction(
        self, marker: TransactionMarker, offset: int, timestamp_ms: int, now_ms: int
    ) -> CompletedTransaction | None:
        """Take in a marker that is in the log; None where the producer had no open transaction in it."""
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
        """Forget producers silent for ``expiration_ms``, unless a transaction is open; return how many.

        Silent by the broker's clock. (Kafka compares with the records' timestamps, so it soon forgets an
        active producer that writes records of last year.)
        """
        expired = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.transaction_first_offset < 0 and now_ms - entry.seen_ms >= expiration_ms
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def complete_from(self, tail: ProducerStates) -> None:
        """Fill in batches that a snapshot left out, from the states that the end of the log alone gives."""
        for entry in self._entries.values():
            seen = tail._entries.get(entry.producer_id)
            if seen is None or seen.epoch != entry.epoch or not entry.batches:
                continue
            if seen.batches[-1].last_offset == entry.batches[-1].last_offset:
                entry.batches = seen.batches

    def restart_clocks(self, now_ms: int) -> None:
        """Count silence from now on, for producers known from files."""
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
    """A producer's first batch that the disk refused."""

    epoch: int
    sequence: int
    at_ms: int
    error: KafkaStorageError

    def is_before(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether a batch was sent behind this one, while this one may be sent again."""
        distance = (header.base_sequence - self.sequence) & MAX_SEQUENCE
        is_later = header.producer_epoch == self.epoch and 0 < distance <= MAX_SEQUENCE // 2
        return is_later and 0 <= now_ms - self.at_ms < _RETRY_MS


class RefusedBatches(dict[int, _Refused]):
    """The first refused batch of each producer, by its id, the latest last.

    A dict, since every append asks whether there are any, and mostly there are none.
    """

    __slots__ = ()

    def note(self, header: BatchHeader, error: KafkaStorageError, now_ms: int) -> None:
        """The disk has refused a batch."""
        if header.producer_id < 0:
            return
        earlier = self.get(header.producer_id)
        if earlier is None or not earlier.is_before(header, now_ms):
            self.pop(header.producer_id, None)
            self[header.producer_id] = _Refused(header.producer_epoch, header.base_sequence, now_ms, error)
            if len(self) > _MOST_REFUSED:
                del self[next(iter(self))]

    def check(self, header: BatchHeader, now_ms: int) -> None:
        """Refuse what comes behind a refused batch for the same reason, and not for a gap in its sequences.

        Raises:
            KafkaStorageError: the disk has refused an earlier batch of this producer, whose retry may come.
        """
        earlier = self.get(header.producer_id)
        if earlier is not None and earlier.is_before(header, now_ms):
            raise KafkaStorageError(
                f"the batch of producer {header.producer_id} with sequence {earlier.sequence} comes first: "
                f"{earlier.error.message}"
            ) from earlier.error
