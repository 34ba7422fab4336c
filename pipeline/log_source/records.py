"""The records of a slice as Arrow, of ``mode=records``.

What only a walk along several batches shows: offsets that go back, and aborts that no index lists.
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
from splashdam.record.aborted import ABORT, control_type
from splashdam.record.batch import MAGIC, BatchHeader
from splashdam.storage.segments.indexes import AbortedTransaction

if TYPE_CHECKING:
    import pyarrow as pa

DECODER_CHECKS = ReadingRules(is_checked_later=True)
"""The decoder looks at every checksum, so that this need not be done before."""


@attrs.frozen
class RecordRules:
    """Which records are read, and how.

    Attributes:
        columns: what of them.
        read_committed: those of aborted transactions are left out.
        since_ms: batches that are older as a whole may be left out.
        reading: how the files are read.
    """

    columns: Columns
    read_committed: bool = False
    since_ms: int = ALL.first
    reading: ReadingRules = DECODER_CHECKS


def read_records(whole: LogSlice, rules: RecordRules) -> Iterator[pa.RecordBatch]:
    """The records of a slice, about 8 MiB at a time.

    Raises:
        KafkaStorageError: a file cannot be read.
        CorruptMessageError: there is damage, and it is to fail.
        UnsupportedCodecError: the library of a batch's codec is not installed.
    """
    return _Records(whole, rules).read()


class _Run(NamedTuple):
    """Wanted batches that lie one behind the other in a chunk, and the first offset there."""

    start: int
    end: int
    first_offset: int


class _Records:
    """The records of one slice."""

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
        if header.magic != MAGIC or header.is_control:  # of the others the first offset is not known
            return True
        return header.base_offset < self._whole.end_offset and header.max_timestamp >= self._rules.since_ms

    def _look_for_aborts(self, part: Part, chunk: Chunk, at: int, header: BatchHeader) -> None:
        if not header.is_control:
            self._aborts.data(header)
        elif self._aborts.ended(header, aborted=_is_abort(chunk, at)):
            self._tell(
                part,
                chunk.position + at,
                f"producer {header.producer_id} aborts a transaction that no .txnindex lists, so that its "
                "records cannot be left out; was the file lost? Where this segment has no .index a broker "
                "makes both anew at its next start",
                outcome="its records were read",
            )

    def _decoded(self, part: Part, chunk: Chunk, run: _Run) -> Iterator[pa.RecordBatch]:
        """The records of a run; where damage does not fail, the batch that has it is left out alone."""
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
    """Where the batch begins and ends that the decoder stopped at, and the offset behind it."""
    for at, header in chunk.batches:
        if at >= start and header.next_offset > offset:
            return at, at + header.size_bytes, header.next_offset
    return start, len(chunk.data), offset


def _is_abort(chunk: Chunk, at: int) -> bool:
    try:
        return control_type(chunk.data, at) == ABORT
    except CorruptMessageError:  # the decoder tells
        return False


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
