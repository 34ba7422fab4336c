"""Reading the segments that are cleaned, through files of one's own: the log may close or rename its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.record.batch import BatchHeader
from splashdam.record.damage import DamagedError
from splashdam.storage.files.disk import Files
from splashdam.storage.segments.batch_scan import iter_sound_batches


class Source(NamedTuple):
    """A segment: where its ``.log`` is, and the base of the next."""

    path: str
    end_offset: int


def sound_batches(files: Files, path: str) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch of a closed segment, its checksum right. A batch is valid until the next is asked for.

    Raises:
        CorruptMessageError: the file does not consist of sound batches alone, or, thrown in by who uses a
            batch, its records are damaged.
        KafkaStorageError: it cannot be read.
    """
    file = files.open_log(path)
    try:
        end = 0
        for position, header, batch in iter_sound_batches(file):
            yield header, batch
            end = position + header.size_bytes
        if end != file.end:
            raise CorruptMessageError(f"{path}, position {end}: there is no whole, sound batch")
    finally:
        file.close()


def corrupt(path: str, header: BatchHeader, error: DamagedError) -> CorruptMessageError:
    """The error for a batch whose checksum is right and whose records are damaged."""
    return CorruptMessageError(f"{path}: batch at offset {header.base_offset}: {error}")
