"""What a log remembers of batches that a full disk refused: those sent behind them must not go first."""

from __future__ import annotations

from typing import NamedTuple

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.record.batch import BatchHeader
from splashdam.storage.producers.state import MAX_SEQUENCE

_MOST = 1_000
_RETRY_MS = 120_000
"""Kafka's delivery.timeout.ms: after that the producer of a refused batch has given it up."""


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
            if len(self) > _MOST:
                del self[next(iter(self))]

    def check(self, header: BatchHeader, now_ms: int) -> None:
        """Refuses what comes behind a refused batch for the same reason, and not for a gap in its sequences.

        Raises:
            KafkaStorageError: the disk has refused an earlier batch of this producer, whose retry may come.
        """
        earlier = self.get(header.producer_id)
        if earlier is not None and earlier.is_before(header, now_ms):
            raise KafkaStorageError(
                f"the batch of producer {header.producer_id} with sequence {earlier.sequence} comes first: "
                f"{earlier.error.message}"
            ) from earlier.error
