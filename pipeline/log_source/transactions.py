"""Which transactions of a log were aborted and which are open, found in its files alone.

``.txnindex`` files list the aborted ones. Open ones are found in the newest producer snapshot and the headers
of the batches after it, which also yields aborts that no index lists yet.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.options import MAX_LONG
from splashdam.pipeline.log_source.directories import PartitionLog, Segment
from splashdam.pipeline.log_source.filesystems import LogFiles
from splashdam.pipeline.log_source.index_hints import load_offset_hints, read_entries
from splashdam.pipeline.log_source.walking import Chunk, Walk, tell
from splashdam.record.aborted_transactions import ABORT, COMMIT, control_type
from splashdam.storage.producers.snapshots import decode_snapshot
from splashdam.storage.segments.indexes import TXN_ENTRY, TXN_INDEX_VERSION, AbortedTransaction
from splashdam.storage.segments.segment import TXN_INDEX


@attrs.frozen
class Transactions:
    """The transactions that a reader of committed records must know.

    Attributes:
        aborted: sorted by the offsets of their markers.
        last_stable_offset: where the first open transaction begins.
    """

    aborted: tuple[AbortedTransaction, ...] = ()
    last_stable_offset: int = MAX_LONG

    def between(self, first_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions with records or their marker in [``first_offset``,
        ``end_offset``)."""
        return tuple(
            each
            for each in self.aborted
            if each.last_offset >= first_offset and each.first_offset < end_offset
        )


def transactions_of(log: PartitionLog, files: LogFiles, *, fails: bool = True) -> Transactions:
    """Find the transactions of a log.

    Args:
        log: as it was listed.
        files: its filesystem.
        fails: damage that may hide a marker is an error; otherwise a transaction may count as open for ever.

    Raises:
        KafkaStorageError: a file cannot be read.
        CorruptMessageError: there is such damage.
    """
    listed = {each for segment in log.segments for each in _listed(files, segment)}
    found = _Scan(log, files, fails=fails)
    found.run()
    known = {(each.producer_id, each.last_offset) for each in listed}
    listed |= {each for each in found.aborted if (each.producer_id, each.last_offset) not in known}
    return Transactions(
        tuple(sorted(listed, key=lambda each: each.last_offset)),
        min(found.open.values(), default=MAX_LONG),
    )


def _listed(files: LogFiles, segment: Segment) -> Iterator[AbortedTransaction]:
    entries = read_entries(files, segment, TXN_INDEX, TXN_ENTRY)
    for version, *fields in TXN_ENTRY.iter_unpack(entries):
        if version != TXN_INDEX_VERSION:
            raise CorruptMessageError(
                f"{files.shown(segment.stem + TXN_INDEX)} has an entry of version {version}, known is "
                f"{TXN_INDEX_VERSION}; remove the file and start a broker once, which rebuilds it"
            )
        yield AbortedTransaction(*fields)


class _Scan:
    """A scan from the newest readable snapshot, or from the beginning, to the end of the log."""

    def __init__(self, log: PartitionLog, files: LogFiles, *, fails: bool) -> None:
        self._fails = fails
        self._log = log
        self._files = files
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTransaction] = []

    def run(self) -> None:
        start = self._take_snapshot()
        bases = [segment.base_offset for segment in self._log.segments]
        for segment, next_base in zip(self._log.segments, [*bases[1:], MAX_LONG], strict=False):
            if next_base > start and segment.size_bytes:
                self._take_segment(segment, start)

    def _take_snapshot(self) -> int:
        """Load the open transactions of the newest readable snapshot, and return its offset, 0 if there is
        none."""
        for offset in reversed(self._log.snapshots):
            data = self._files.read(self._log.snapshot_path(offset))
            try:
                producers = decode_snapshot(data or b"")
            except CorruptMessageError:
                continue
            self.open = {
                each.producer_id: each.transaction_first_offset
                for each in producers
                if each.transaction_first_offset >= 0
            }
            return offset
        return 0

    def _take_segment(self, segment: Segment, start: int) -> None:
        with self._files.open(segment.log_path) as file:
            hints = load_offset_hints(self._files, segment, file)
            first = hints.at_or_before(start)
            start_at = 0 if first is None else first.position
            for found in Walk(file, hints).chunks(start_at, segment.size_bytes):
                if isinstance(found, Chunk):
                    self._take(found, start)
                else:
                    is_torn_end = self._log.is_active(segment) and found.is_tail
                    tell(file.name, found, is_torn_end=is_torn_end, fails=self._fails)

    def _take(self, chunk: Chunk, start: int) -> None:
        for at, header in chunk.batches:
            # What lies before the snapshot's offset is in the snapshot.
            if not header.is_transactional or header.last_offset < start:
                continue
            if not header.is_control:
                # The first batch after the last marker begins the transaction.
                self.open.setdefault(header.producer_id, header.base_offset)
                continue
            kind = control_type(chunk.data, at)
            if kind not in (ABORT, COMMIT):
                continue
            first = self.open.pop(header.producer_id, None)
            if kind == ABORT and first is not None:
                stable = min(self.open.values(), default=header.next_offset)
                self.aborted.append(AbortedTransaction(header.producer_id, first, header.last_offset, stable))
