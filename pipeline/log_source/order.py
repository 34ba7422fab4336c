"""What only a walk along several batches shows: offsets that go back, and aborts that no index lists."""

from __future__ import annotations

from collections.abc import Iterable

from splashdam.pipeline.log_source.slices import Piece
from splashdam.record.batch import MAGIC, BatchHeader
from splashdam.storage.index.txn_index import AbortedTransaction


class OffsetOrder:
    """Whether each batch of a slice is behind the one before it, and before the next segment."""

    def __init__(self) -> None:
        self._due = 0

    def problem(self, piece: Piece, header: BatchHeader) -> str | None:
        """Takes in the next batch; what is wrong with its offsets, None for nothing.

        Args:
            piece: where it lies.
            header: its header. Of a compressed message of format 0 or 1 the last offset alone is known.
        """
        due = max(self._due, piece.segment.base_offset)
        first = header.base_offset if header.magic == MAGIC else header.last_offset
        if first < due:
            return f"the batch at offset {first} is not behind offset {due - 1}, which was there before"
        if header.last_offset >= piece.end_offset:
            return f"the batch at offset {first} reaches into the segment that begins at {piece.end_offset}"
        self._due = header.next_offset
        return None


class UnlistedAborts:
    """Finds abort markers of transactions that are in no ``.txnindex``, though their records are there.

    Args:
        listed: the aborted transactions that are known.
    """

    def __init__(self, listed: Iterable[AbortedTransaction]) -> None:
        self._listed = {(each.producer_id, each.last_offset) for each in listed}
        self._open: set[int] = set()

    def data(self, header: BatchHeader) -> None:
        """Takes in a batch of data of a transaction."""
        self._open.add(header.producer_id)

    def ended(self, header: BatchHeader, *, aborted: bool) -> bool:
        """Takes in a marker; whether it aborts records that were seen and are not known to be aborted."""
        had_records = header.producer_id in self._open
        self._open.discard(header.producer_id)
        return aborted and had_records and (header.producer_id, header.last_offset) not in self._listed
