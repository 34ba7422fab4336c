"""The records of a slice as Arrow, of ``mode=records``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.pipeline.decoding import RecordDecoder
from splashdam.pipeline.filters import ALL
from splashdam.pipeline.log_source.damage import WHAT_TO_DO, logger
from splashdam.pipeline.log_source.reading import ReadingRules, parts_of
from splashdam.pipeline.log_source.slices import LogSlice
from splashdam.pipeline.log_source.walking import Chunk
from splashdam.pipeline.schema import Columns
from splashdam.record.batch import MAGIC, BatchHeader

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
    decoder = RecordDecoder(
        whole.where,
        rules.columns,
        first_offset=whole.first_offset,
        end_offset=whole.end_offset,
        read_committed=rules.read_committed,
    )
    for part in parts_of(whole, rules.reading):
        if not isinstance(part.found, Chunk):
            continue
        for start, end, first_offset in _runs(part.found, whole, rules):
            aborted = [each for each in whole.aborted if each.last_offset >= first_offset]
            try:
                yield from decoder.feed(part.found.data[start:end], aborted)
            except CorruptMessageError as damage:
                position = _position_of(part.found, start, decoder.position)
                what = f"{part.file_name}, position {position}: {damage.message}"
                if rules.reading.fails:
                    raise CorruptMessageError(f"{what}. {WHAT_TO_DO}") from damage.__cause__
                logger.warning("%s; left out", what)
    yield from decoder.finish()


def _position_of(chunk: Chunk, start: int, offset: int) -> int:
    """Where the batch is that the decoder stopped at."""
    behind = (at for at, header in chunk.batches if at >= start and header.next_offset > offset)
    return chunk.position + next(behind, start)


def _runs(chunk: Chunk, whole: LogSlice, rules: RecordRules) -> Iterator[tuple[int, int, int]]:
    """Where wanted batches lie one behind the other, and the first offset there.

    Where damage does not fail each batch is by itself, so that only the damaged one is left out.
    """
    start = end = first_offset = 0
    for at, header in chunk.batches:
        if not _is_wanted(header, whole, rules):
            continue
        if end < at or start == end or not rules.reading.fails:
            if start < end:
                yield start, end, first_offset
            start, first_offset = at, header.base_offset
        end = at + header.size_bytes
    if start < end:
        yield start, end, first_offset


def _is_wanted(header: BatchHeader, whole: LogSlice, rules: RecordRules) -> bool:
    if header.last_offset < whole.first_offset:
        return False
    if header.magic != MAGIC or header.is_control:  # of the others the first offset is not known
        return True
    return header.base_offset < whole.end_offset and header.max_timestamp >= rules.since_ms
