"""Along the pieces of a slice: what is damaged fails or is told, and a torn end is nothing to worry about."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple

import attrs

from splashdam.pipeline.log_source.damage import tell
from splashdam.pipeline.log_source.filesystems import LogFiles
from splashdam.pipeline.log_source.hints import load_offset_hints
from splashdam.pipeline.log_source.slices import LogSlice, Piece
from splashdam.pipeline.log_source.walking import READ_BYTES, Chunk, Damage, Walk

_HEADERS_BYTES = 4096  # what is read at a time where batches are skipped and a read costs little


@attrs.frozen
class ReadingRules:
    """How to read.

    Attributes:
        fails: damage is an error; else it is told, and what comes behind it is read.
        check_crcs: whether checksums are looked at.
        is_checked_later: whoever gets the batches looks at them; here it is done where an end may be torn.
        headers_only: see `Walk`.
        read_bytes: what one read brings.
    """

    fails: bool = True
    check_crcs: bool = True
    is_checked_later: bool = False
    headers_only: bool = False
    read_bytes: int = READ_BYTES


class Part(NamedTuple):
    """What was met, and where.

    Attributes:
        piece: of the slice.
        file_name: for messages.
        found: batches, or what is none.
    """

    piece: Piece
    file_name: str
    found: Chunk | Damage


def parts_of(whole: LogSlice, rules: ReadingRules) -> Generator[Part]:
    """The batches of a slice, and the damage that does not fail.

    Where files are elsewhere than on this machine, the next part is read while the caller works on one.

    Raises:
        KafkaStorageError: a file cannot be read.
        CorruptMessageError: there is damage, and it is to fail. The end of a log may be torn or zero: that is
            what a crash leaves.
    """
    files, _ = whole.location.open()
    parts = _parts_of(files, whole, rules)
    return parts if files.is_local else ahead(parts)


def ahead(parts: Generator[Part]) -> Generator[Part]:
    """The same, each part taken in another thread before it is asked for. Who stops early closes both."""
    # Leaving waits for the thread before it closes what the thread may be in.
    with closing(parts), ThreadPoolExecutor(1, "kafka-log-ahead") as thread:
        coming = thread.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = thread.submit(next, parts, None)
            yield part
            del part  # its memory is free while the next is waited for


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
