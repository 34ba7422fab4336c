"""Walking along the segments that are cleaned: their sound batches, and what these tell of transactions.

They are read through files of one's own: the log may close or rename its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.values import Buffer
from splashdam.record.aborted import AbortedTransactions
from splashdam.record.batch import BatchHeader
from splashdam.record.damage import DamagedError
from splashdam.storage.files.disk import Files
from splashdam.storage.index.txn_index import AbortedTransaction
from splashdam.storage.segments.batch_scan import iter_sound_batches
from splashdam.storage.transaction_marker import parse_marker


class Source(NamedTuple):
    """A segment: where its ``.log`` is, and the base of the next."""

    path: str
    end_offset: int


def sound_batches(files: Files, path: str) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a closed segment, its checksum right. A batch is valid until the next is asked for.

    Raises:
        CorruptMessageError: the file does not consist of sound batches alone, or, thrown in by who uses a
            batch, its records are damaged.
        KafkaStorageError: it cannot be read.
    """
    file = files.open_log(path)
    try:
        end = 0
        for position, header, batch in iter_sound_batches(file):
            yield header, batch
            end = position + header.size_bytes
        if end != file.end:
            raise CorruptMessageError(f"{path}, position {end}: there is no whole, sound batch")
    finally:
        file.close()


def corrupt(path: str, header: BatchHeader, error: DamagedError) -> CorruptMessageError:
    """The error for a batch whose checksum is right and whose records are damaged."""
    return CorruptMessageError(f"{path}: batch at offset {header.base_offset}: {error}")


class WalkedTransactions:
    """The transactions of one walk, whose batches are told in the order of the log.

    A marker may go only when nothing of its transaction is left in the log: the walk has met no batch of it.

    Args:
        aborted: those with records in the part that is walked along.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = AbortedTransactions(aborted)
        self._with_batches: set[int] = set()  # producers of which a batch was met since their last marker
        self._with_data: list[AbortedTransaction] = []

    def meets_aborted_data(self, header: BatchHeader) -> bool:
        """Takes a batch of data in; whether its transaction was aborted."""
        if header.is_transactional:
            self._with_batches.add(header.producer_id)
        return self._aborted.of_data(header) is not None

    def meets_idle_marker(self, header: BatchHeader, batch: Buffer) -> bool:
        """Takes a control batch in; whether it ends a transaction of which nothing is left.

        Raises:
            CorruptMessageError: its record cannot be read.
        """
        if not header.record_count:
            return True  # an earlier cleaning emptied it
        marker = parse_marker(batch, header.producer_id, header.producer_epoch)
        if marker is None:
            return False  # not of a transaction
        had_batches = header.producer_id in self._with_batches
        self._with_batches.discard(header.producer_id)
        if marker.is_commit:
            return not had_batches
        aborted = self._aborted.ended_by(header)
        if aborted is None or not had_batches:
            return True
        self._with_data.append(aborted)
        return False

    def take_with_data(self) -> list[AbortedTransaction]:
        """The aborted transactions whose marker came by since the last call and of which a batch was met."""
        taken, self._with_data = self._with_data, []
        return taken
