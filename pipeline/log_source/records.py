"""The records of a slice as Arrow, of ``mode=records``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.pipeline.decoding import RecordDecoder
from splashdam.pipeline.log_source.reading import ReadingRules, logger, parts_of
from splashdam.pipeline.log_source.slices import LogSlice
from splashdam.pipeline.log_source.walking import Chunk
from splashdam.pipeline.schema import Columns
from splashdam.record.batch import MAGIC, BatchHeader

if TYPE_CHECKING:
    import pyarrow as pa

NO_TIME = -1
"""Records without a timestamp count as from here."""


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
    since_ms: int = NO_TIME
    reading: ReadingRules = attrs.Factory(ReadingRules)


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
    aborted = whole.aborted
    for part in parts_of(whole, rules.reading):
        if not isinstance(part.found, Chunk):
            continue
        for start, end in _runs(part.found, whole, rules):
            try:
                yield from decoder.feed(part.found.data[start:end], aborted)
            except CorruptMessageError as damage:
                place = f"{part.file_name}, position {part.found.position + start}: {damage.message}"
                if rules.reading.fails:
                    raise CorruptMessageError(place) from damage
                logger.warning("%s; left out", place)
            aborted = ()
    yield from decoder.finish()


def _runs(chunk: Chunk, whole: LogSlice, rules: RecordRules) -> Iterator[tuple[int, int]]:
    """Where wanted batches lie one behind the other; one by one where a damaged one is to be left out."""
    start, end = 0, 0
    for at, header in chunk.batches:
        if _is_wanted(header, whole, rules):
            if end < at or not rules.reading.fails:
                if start < end:
                    yield start, end
                start = at
            end = at + header.size_bytes
    if start < end:
        yield start, end


def _is_wanted(header: BatchHeader, whole: LogSlice, rules: RecordRules) -> bool:
    if header.last_offset < whole.first_offset:
        return False
    if header.magic != MAGIC or header.is_control:  # of the others the first offset is not known
        return True
    return header.base_offset < whole.end_offset and header.max_timestamp >= rules.since_ms
