"""What a walk along a log knows of its transactions: which data were aborted, which markers must stay."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import attrs

from splashdam.embedded_broker.storage.transaction_marker import parse_marker
from splashdam.embedded_broker.storage.txn_index import AbortedTransaction
from splashdam.model.values import Buffer
from splashdam.record.batch import BatchHeader


@attrs.define
class _Ongoing:
    aborted: AbortedTransaction
    has_batches: bool = False


class WalkedTransactions:
    """The transactions of one walk, whose batches are told in the order of the log.

    A marker may go only when nothing of its transaction is left in the log: the walk has met no batch of it.

    Args:
        aborted: those with records in the part that is walked along.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._to_come = [(each.first_offset, each) for each in aborted]
        heapq.heapify(self._to_come)
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()
        self._with_data: list[AbortedTransaction] = []

    def meets_aborted_data(self, header: BatchHeader) -> bool:
        """Takes a batch of data in; whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        ongoing = self._aborted.get(header.producer_id)
        if ongoing is None:
            self._committed.add(header.producer_id)
            return False
        ongoing.has_batches = True
        return True

    def meets_idle_marker(self, header: BatchHeader, batch: Buffer) -> bool:
        """Takes a control batch in; whether it ends a transaction of which nothing is left.

        Raises:
            CorruptMessageError: its record cannot be read.
        """
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            return True  # an earlier cleaning emptied it
        marker = parse_marker(batch, header.producer_id, header.producer_epoch)
        if marker is None:
            return False  # not of a transaction
        if marker.is_commit:
            had_batches = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not had_batches
        ongoing = self._aborted.pop(header.producer_id, None)
        if ongoing is None or not ongoing.has_batches:
            return True
        self._with_data.append(ongoing.aborted)
        return False

    def take_with_data(self) -> list[AbortedTransaction]:
        """The aborted transactions whose marker came by since the last call and of which a batch was met."""
        taken, self._with_data = self._with_data, []
        return taken

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[0][0] <= offset:
            _, aborted = heapq.heappop(self._to_come)
            self._aborted.setdefault(aborted.producer_id, _Ongoing(aborted))
