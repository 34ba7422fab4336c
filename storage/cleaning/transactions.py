"""What a walk along a log knows of its transactions: which data were aborted, which markers must stay."""

from __future__ import annotations

from collections.abc import Iterable

from splashdam.model.values import Buffer
from splashdam.record.aborted import AbortedTransactions
from splashdam.record.batch import BatchHeader
from splashdam.storage.index.txn_index import AbortedTransaction
from splashdam.storage.transaction_marker import parse_marker


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
