"""``mode=records``: the records of a slice as Arrow batches.

Along the way it finds what no single batch shows: offsets that go back, and aborts that no index lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import attrs

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import UnsupportedCodecError, message_of
from splashdam.pipeline.decoding import RecordDecoder
from splashdam.pipeline.filters import ALL
from splashdam.pipeline.log_source.slices import LogSlice, Part, Piece, ReadingRules, parts_of
from splashdam.pipeline.log_source.walking import Chunk, tell_of_batch
from splashdam.pipeline.schema import Columns
from splashdam.record.aborted_transactions import ABORT, control_type
from splashdam.record.batch import MAGIC, BatchHeader
from splashdam.storage.segments.indexes import AbortedTransaction

if TYPE_CHECKING:
    import pyarrow as pa

DECODER_CHECKS = ReadingRules(is_checked_later=True)
"""The decoder checks every checksum, so the walk need not."""


@attrs.frozen
class RecordRules:
    """Which records are read, and how.

    Attributes:
        columns: the columns to decode.
        read_committed: skip records of aborted transactions.
        since_ms: batches whose records are all older may be skipped.
        reading: how the files are read.
    """

    columns: Columns
    read_committed: bool = False
    since_ms: int = ALL.first
    reading: ReadingRules = DECODER_CHECKS


def read_records(whole: LogSlice, rules: RecordRules) -> Iterator[pa.RecordBatch]:
    """Yield the records of a slice, about 8 MiB at a time.

    Raises:
        KafkaStorageError: a file cannot be read.
        CorruptMessageError: there is damage, and the rules make it an error.
        UnsupportedCodecError: the library of a batch's codec is not installed.
    """
    return _Records(whole, rules).read()


class _Run(NamedTuple):
    """Contiguous batches of a chunk that are wanted, and their first offset."""

    start: int
    end: int
    first_offset: int


class _Records:
    def __init__(self, whole: LogSlice, rules: RecordRules) -> None:
        self._whole, self._rules = whole, rules
        self._order, self._aborts = OffsetOrder(), UnlistedAborts(whole.aborted)
        self._decoder = RecordDecoder(
            whole.where,
            rules.columns,
            first_offset=whole.first_offset,
            end_offset=whole.end_offset,
            read_committed=rules.read_committed,
        )

    def read(self) -> Iterator[pa.RecordBatch]:
        for part in parts_of(self._whole, self._rules.reading):
            if isinstance(part.found, Chunk):
                for run in self._runs(part, part.found):
                    yield from self._decoded(part, part.found, run)
        yield from self._decoder.finish()

    def _runs(self, part: Part, chunk: Chunk) -> Iterator[_Run]:
        start = end = first_offset = 0
        for at, header in chunk.batches:
            problem = self._order.problem(part.piece, header)
            if problem is not None:
                self._tell(part, chunk.position + at, problem)
            if problem is not None or not self._is_wanted(header):
                continue
            if header.is_transactional and self._rules.read_committed:
                self._look_for_aborts(part, chunk, at, header)
            if end < at or start == end:
                if start < end:
                    yield _Run(start, end, first_offset)
                start, first_offset = at, header.base_offset
            end = at + header.size_bytes
        if start < end:
            yield _Run(start, end, first_offset)

    def _is_wanted(self, header: BatchHeader) -> bool:
        if header.last_offset < self._whole.first_offset:
            return False
        # Batches of formats 0 and 1 do not state their first offset.
        if header.magic != MAGIC or header.is_control:
            return True
        return header.base_offset < self._whole.end_offset and header.max_timestamp >= self._rules.since_ms

    def _look_for_aborts(self, part: Part, chunk: Chunk, at: int, header: BatchHeader) -> None:
        if not header.is_control:
            self._aborts.data(header)
        elif self._aborts.ended(header, aborted=_is_abort(chunk, at)):
            self._tell(
                part,
                chunk.position + at,
                f"producer {header.producer_id} aborts a transaction that no .txnindex lists, so its "
                "records cannot be skipped; was the file lost? If this segment has no .index, a broker "
                "rebuilds both at its next start",
                outcome="its records were read",
            )

    def _decoded(self, part: Part, chunk: Chunk, run: _Run) -> Iterator[pa.RecordBatch]:
        """Yield the records of a run. If damage is not an error, only the damaged batch is skipped."""
        decoder, (start, end, first_offset) = self._decoder, run
        while start < end:
            aborted = [each for each in self._whole.aborted if each.last_offset >= first_offset]
            try:
                yield from decoder.feed(chunk.data[start:end], aborted)
                start = end
            except CorruptMessageError as damage:
                at, start, first_offset = _stopped_at(chunk, start, decoder.position)
                self._tell(part, chunk.position + at, damage.message)
            except UnsupportedCodecError as error:
                at, _, _ = _stopped_at(chunk, start, decoder.position)
                raise UnsupportedCodecError(
                    f"{part.file_name}, position {chunk.position + at}: {message_of(error)}"
                ) from error.__cause__

    def _tell(self, part: Part, position: int, problem: str, *, outcome: str = "left out") -> None:
        what = f"{part.file_name}, position {position}: {problem}"
        tell_of_batch(what, fails=self._rules.reading.fails, outcome=outcome)


def _stopped_at(chunk: Chunk, start: int, offset: int) -> tuple[int, int, int]:
    """Return where the batch at which the decoder stopped begins and ends, and its next offset."""
    for at, header in chunk.batches:
        if at >= start and header.next_offset > offset:
            return at, at + header.size_bytes, header.next_offset
    return start, len(chunk.data), offset


def _is_abort(chunk: Chunk, at: int) -> bool:
    try:
        return control_type(chunk.data, at) == ABORT
    except CorruptMessageError:  # the decoder reports it
        return False


class OffsetOrder:
    """Checks that each batch of a slice follows the previous one, and ends before the next segment."""

    def __init__(self) -> None:
        self._due = 0

    def problem(self, piece: Piece, header: BatchHeader) -> str | None:
        """Add the next batch; return what is wrong with its offsets, None if they are right.

        Args:
            piece: where the batch lies.
            header: of the batch. A compressed message of format 0 or 1 states only its last offset.
        """
        due = max(self._due, piece.segment.base_offset)
        first = header.base_offset if header.magic == MAGIC else header.last_offset
        if first < due:
            return f"the batch at offset {first} does not follow offset {due - 1}, which was there before"
        if header.last_offset >= piece.end_offset:
            return f"the batch at offset {first} reaches into the segment that begins at {piece.end_offset}"
        self._due = header.next_offset
        return None


class UnlistedAborts:
    """Finds abort markers of transactions that no ``.txnindex`` lists, although their records are there.

    Args:
        listed: the aborted transactions that the indexes list.
    """

    def __init__(self, listed: Iterable[AbortedTransaction]) -> None:
        self._listed = {(each.producer_id, each.last_offset) for each in listed}
        self._open: set[int] = set()

    def data(self, header: BatchHeader) -> None:
        """Add a data batch of a transaction."""
        self._open.add(header.producer_id)

    def ended(self, header: BatchHeader, *, aborted: bool) -> bool:
        """Add a marker; return whether it aborts records that were seen and are not listed as aborted."""
        had_records = header.producer_id in self._open
        self._open.discard(header.producer_id)
        return aborted and had_records and (header.producer_id, header.last_offset) not in self._listed
