"""The first pass of a cleaning: which key was written where last, in the part of a log that is dirty."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from splashdam.record.batch import MAGIC, BatchHeader
from splashdam.record.damage import DamagedError
from splashdam.record.kernel import OffsetMap
from splashdam.record.reader import iter_records, unpack_records
from splashdam.storage.cleaning.walking import Source, WalkedTransactions, corrupt, sound_batches
from splashdam.storage.files.disk import Files

_ALL_IN = -1


def map_keys(
    files: Files,
    sources: Sequence[Source],
    offset_map: OffsetMap,
    *,
    transactions: WalkedTransactions,
    first_dirty: int,
    bytes_at_once: int,
) -> Generator[int, None, int]:
    """Fills ``offset_map`` until it is full or all is in; yields bytes read, about so many at once.

    Control records and those of aborted transactions are no news of their keys.

    Returns:
        The offset up to which everything is in the map.

    Raises:
        CorruptMessageError: a segment is damaged.
        UnsupportedCodecError: the library for a codec is not installed.
        KafkaStorageError: a segment cannot be read.
    """
    read, known_up_to = 0, first_dirty
    for source in sources:
        for header, batch in sound_batches(files, source.path):
            try:
                no_room = _put(offset_map, transactions, header, batch, first_dirty)
            except DamagedError as error:
                raise corrupt(source.path, header, error) from None
            if no_room != _ALL_IN:
                return no_room
            read += header.size_bytes
            if read >= bytes_at_once:
                yield read
                read = 0
        known_up_to = source.end_offset  # also over offsets that no batch has
        yield read
        read = 0
    return known_up_to


def _put(
    offset_map: OffsetMap,
    transactions: WalkedTransactions,
    header: BatchHeader,
    batch: memoryview,
    first_dirty: int,
) -> int:
    """Returns the offset of the first record that found no room."""
    if header.magic != MAGIC:
        for record in iter_records(batch):
            is_news = record.key is not None and record.offset >= first_dirty
            if is_news and not offset_map.put(record.key or b"", record.offset):
                return record.offset
        return _ALL_IN
    if header.is_control:
        transactions.meets_idle_marker(header, batch)
        return _ALL_IN
    if transactions.meets_aborted_data(header) or header.last_offset < first_dirty or not header.record_count:
        return _ALL_IN
    return offset_map.put_records(
        unpack_records(batch, 0, header),
        header.record_count,
        base_offset=header.base_offset,
        first_offset=first_dirty,
    )
