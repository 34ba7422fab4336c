"""What one task reads: pieces of segments, cut where the offset index names a batch that is there.

The driver plans slices (`slices_of`); a worker walks along the pieces of one (`parts_of`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple

import attrs

from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.pipeline.log_source.directories import PartitionLog, Segment
from splashdam.pipeline.log_source.filesystems import Location, LogFiles
from splashdam.pipeline.log_source.index_hints import load_offset_hints
from splashdam.pipeline.log_source.transactions import Transactions
from splashdam.pipeline.log_source.walking import READ_BYTES, Chunk, Damage, Walk, tell
from splashdam.storage.segments.indexes import AbortedTransaction


@attrs.frozen
class Piece:
    """A part of one segment.

    Attributes:
        segment: the segment.
        start: the position of its first batch.
        end: the position after its last batch.
        is_cut: another batch was found at ``end``; otherwise the segment ended there when it was listed.
        is_active: the segment is the log's last, whose end may be torn.
        least_offset: no batch in it ends before this offset.
        end_offset: where the next segment begins: no batch in it may have that offset.
    """

    segment: Segment
    start: int
    end: int
    is_cut: bool
    is_active: bool
    least_offset: int
    end_offset: int = MAX_LONG

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@attrs.frozen
class LogSlice:
    """What one task reads of one partition. It travels to Spark's workers.

    Attributes:
        where: the partition.
        location: opens its files.
        pieces: by offset.
        first_offset: of the records to read; the pieces may begin earlier.
        end_offset: after the last record to read.
        aborted: aborted transactions with records in the pieces.
    """

    where: TopicPartition
    location: Location
    pieces: tuple[Piece, ...]
    first_offset: int
    end_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()


def slices_of(
    log: PartitionLog,
    files: LogFiles,
    first_offset: int,
    end_offset: int,
    *,
    max_bytes: int,
    transactions: Transactions | None = None,
) -> Iterator[LogSlice]:
    """Yield slices that together have each record of [``first_offset``, ``end_offset``) exactly once.

    Args:
        log: as it was listed.
        files: its filesystem.
        first_offset: of the first record.
        end_offset: after the last one.
        max_bytes: approximate size of a slice; small segments share one.
        transactions: of the log, if aborted records are skipped.

    Raises:
        KafkaStorageError: a segment or its index cannot be read.
    """

    def joined(pieces: list[Piece], next_offset: int) -> LogSlice:
        aborted: tuple[AbortedTransaction, ...] = ()
        if transactions is not None:
            # A transaction that ended earlier must not be listed: the producer's next one would count as
            # aborted.
            least = max(pieces[0].least_offset, first_offset)
            aborted = transactions.between(least, min(next_offset, end_offset))
        return LogSlice(log.where, log.location, tuple(pieces), first_offset, end_offset, aborted)

    together: list[Piece] = []
    together_bytes = 0
    for piece in _pieces(log, files, first_offset, end_offset, max_bytes):
        if together and together_bytes + piece.size_bytes > max_bytes:
            yield joined(together, piece.least_offset)
            together, together_bytes = [], 0
        together.append(piece)
        together_bytes += piece.size_bytes
    if together:
        yield joined(together, MAX_LONG)


def _pieces(
    log: PartitionLog, files: LogFiles, first_offset: int, end_offset: int, max_bytes: int
) -> Iterator[Piece]:
    bases = [segment.base_offset for segment in log.segments]
    for segment, next_base in zip(log.segments, [*bases[1:], MAX_LONG], strict=True):
        if segment.base_offset >= end_offset:
            return
        if next_base <= first_offset or not segment.size_bytes:
            continue
        is_within = first_offset <= segment.base_offset and next_base <= end_offset
        whole = Piece(
            segment, 0, segment.size_bytes, False, log.is_active(segment), segment.base_offset, next_base
        )
        if is_within and segment.size_bytes <= max_bytes:
            yield whole
        else:
            yield from _cut(whole, files, first_offset, end_offset, max_bytes)


def _cut(
    whole: Piece, files: LogFiles, first_offset: int, end_offset: int, max_bytes: int
) -> Iterator[Piece]:
    segment = whole.segment
    with files.open(segment.log_path) as file:
        hints = load_offset_hints(files, segment, file)
        first, last = hints.at_or_before(first_offset), hints.behind(end_offset - 1)
        if first is not None:
            whole = attrs.evolve(whole, start=first.position, least_offset=first.last_offset)
        if last is not None:
            whole = attrs.evolve(whole, end=last, is_cut=True, is_active=False)
        for cut in hints.cuts(whole.start, whole.end, max_bytes):
            yield attrs.evolve(whole, end=cut.position, is_cut=True, is_active=False)
            whole = attrs.evolve(whole, start=cut.position, least_offset=cut.last_offset)
    yield whole


_HEADERS_BYTES = 4096  # of a read on a local disk if only headers are wanted


@attrs.frozen
class ReadingRules:
    """How to read a slice.

    Attributes:
        fails: damage is an error; otherwise it is logged, and reading continues after it.
        check_crcs: whether checksums are checked.
        is_checked_later: the caller checks them, so they are checked here only where an end may be torn.
        headers_only: see `Walk`.
        read_bytes: size of one read.
    """

    fails: bool = True
    check_crcs: bool = True
    is_checked_later: bool = False
    headers_only: bool = False
    read_bytes: int = READ_BYTES


class Part(NamedTuple):
    """Batches or damage, and where they were found.

    Attributes:
        piece: of the slice.
        file_name: for messages.
        found: the batches, or the damage.
    """

    piece: Piece
    file_name: str
    found: Chunk | Damage


def parts_of(whole: LogSlice, rules: ReadingRules) -> Generator[Part]:
    """Yield the batches of a slice, and damage that is not an error.

    On a remote filesystem the next part is read while the caller works on one.

    Raises:
        KafkaStorageError: a file cannot be read.
        CorruptMessageError: there is damage, and the rules make it an error. A torn or zero end of a log is
            never an error: a crash leaves such.
    """
    files, _ = whole.location.open()
    parts = _parts_of(files, whole, rules)
    return parts if files.is_local else ahead(parts)


def ahead(parts: Generator[Part]) -> Generator[Part]:
    """Yield the same parts, each read by another thread in advance. Closing this generator closes
    ``parts``."""
    # The executor exits first, and waits for its thread, which may be running `parts`.
    with closing(parts), ThreadPoolExecutor(1, "kafka-log-ahead") as thread:
        pending = thread.submit(next, parts, None)
        while (part := pending.result()) is not None:
            pending = thread.submit(next, parts, None)
            yield part
            del part  # frees its memory while the next part is awaited


def _parts_of(files: LogFiles, whole: LogSlice, rules: ReadingRules) -> Generator[Part]:
    for piece in whole.pieces:
        with files.open(piece.segment.log_path) as file:
            is_skipping = rules.headers_only and not rules.check_crcs and files.is_local
            walk = Walk(
                file,
                load_offset_hints(files, piece.segment, file),
                check_crcs=rules.check_crcs and (piece.is_active or not rules.is_checked_later),
                headers_only=rules.headers_only,
                read_bytes=min(rules.read_bytes, _HEADERS_BYTES) if is_skipping else rules.read_bytes,
            )
            name = file.name
            for found in walk.chunks(piece.start, piece.end, is_cut=piece.is_cut):
                if isinstance(found, Damage):
                    tell(name, found, is_torn_end=piece.is_active and found.is_tail, fails=rules.fails)
                yield Part(piece, name, found)
