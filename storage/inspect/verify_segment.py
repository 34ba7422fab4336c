"""Verifying one segment: every batch of the ``.log``, and that each entry of its indexes leads to one.

The indexes are read along with the log, so that nothing but one batch is held at a time.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from struct import Struct

from splashdam.model.broker_errors import BrokerResponseError
from splashdam.model.errors import UnsupportedCodecError
from splashdam.record.batch import MAGIC, BatchHeader
from splashdam.record.reader import RecordScan, iter_records, scan_batch
from splashdam.storage.index import offset_index, time_index, txn_index
from splashdam.storage.index.offset_index import MAX_RELATIVE_OFFSET
from splashdam.storage.inspect.findings import Finding, error, note
from splashdam.storage.inspect.read_only import (
    FoundBatch,
    OnBytes,
    ReadOnlyFile,
    Tail,
    iter_entries,
    measure_entries,
    open_read_only,
    walk_log,
)
from splashdam.storage.segments.segment import INDEX, LOG, TIME_INDEX, TXN_INDEX


class SegmentVerifier:
    """Verifies one segment; made for one ``run``.

    Args:
        directory: of the partition.
        base_offset: of the segment.
        names: the files that are in the directory.
        next_offset: the offset behind the segment before, None for the first.
        contiguous: whether a gap between offsets is an error.
        on_bytes: is told of progress in the ``.log``.

    Attributes:
        next_offset: behind the last batch so far.
        batch_count: batches so far.
        record_count: records in them, markers too.
    """

    def __init__(
        self,
        directory: str,
        base_offset: int,
        names: Collection[str],
        *,
        next_offset: int | None,
        contiguous: bool,
        on_bytes: OnBytes,
    ) -> None:
        self.next_offset = base_offset
        self.batch_count = self.record_count = 0
        self._directory = directory
        self._base_offset = base_offset
        self._names = names
        self._offset_before = next_offset
        self._found_gap = error if contiguous else note
        self._on_bytes = on_bytes
        self._log_path = self._path(LOG)
        self._indexes: list[IndexVerifier] = []

    def run(self) -> Iterator[Finding]:
        """Everything that is wrong, or worth knowing, in the order of the log.

        Raises:
            KafkaStorageError: a file cannot be read.
        """
        before = self._offset_before
        if before is not None and before > self._base_offset:
            yield error(self._log_path, f"the segment before ends with offset {before - 1}")
        elif before is not None and before < self._base_offset:
            yield self._found_gap(self._log_path, f"no offsets from {before} to {self._base_offset - 1}")
        with ExitStack() as files:
            log = files.enter_context(open_read_only(self._log_path))
            yield from self._open_indexes(files, is_empty=not log.end)
            for found in walk_log(log, self._on_bytes):
                yield from self._tail(found) if isinstance(found, Tail) else self._batch(found)
            for index in self._indexes:
                yield from index.end()
        if self._name(TXN_INDEX) in self._names:
            with open_read_only(self._path(TXN_INDEX)) as aborted:
                yield from verify_txn_index(aborted, self._base_offset, self.next_offset)

    def _open_indexes(self, files: ExitStack, *, is_empty: bool) -> Iterator[Finding]:
        if is_empty:
            yield note(self._log_path, "an empty segment")
        for suffix, kind in ((INDEX, OffsetIndexVerifier), (TIME_INDEX, TimeIndexVerifier)):
            if self._name(suffix) not in self._names:
                yield note(self._path(suffix), "is missing; the next start makes it anew")
                continue
            index = kind(files.enter_context(open_read_only(self._path(suffix))), self._base_offset)
            yield from index.notes()
            self._indexes.append(index)

    def _batch(self, found: FoundBatch) -> Iterator[Finding]:
        header, position = found.header, found.position
        if found.crc_ok is False:
            yield self._error(found, "its checksum is wrong")
        elif found.data is None:
            yield note(self._log_path, f"a batch of {header.size_bytes:,} bytes is not looked into", position)
        else:
            yield from self._records(found, found.data)
        if header.last_offset - self._base_offset > MAX_RELATIVE_OFFSET:
            yield self._error(found, f"its offsets are too far above the segment's base {self._base_offset}")
        yield from self._offsets(found)
        self.batch_count += 1
        self.next_offset = max(self.next_offset, header.next_offset)
        for index in self._indexes:
            yield from index.see(position, header)

    def _offsets(self, found: FoundBatch) -> Iterator[Finding]:
        """That offsets rise; of a wrapper of format 0 or 1, only the last is known without unpacking it."""
        header, due = found.header, self.next_offset
        if header.last_offset < due or (header.magic == MAGIC and header.base_offset < due):
            yield self._error(found, f"its offsets begin at {header.base_offset}, due is {due}")
        elif header.base_offset > due and header.record_count >= 0:
            text = f"no offsets from {due} to {header.base_offset - 1}"
            yield self._found_gap(self._log_path, text, found.position)
        if header.record_count >= 0 and header.record_count < header.last_offset_delta + 1:
            text = f"{header.record_count} records with offsets {header.base_offset} to {header.last_offset}"
            yield self._found_gap(self._log_path, text, found.position)

    def _records(self, found: FoundBatch, data: memoryview) -> Iterator[Finding]:
        try:
            if found.header.magic == MAGIC:
                scan = scan_batch(data)
                self.record_count += found.header.record_count
                yield from self._max_timestamp(found, scan)
            else:
                self.record_count += sum(1 for _ in iter_records(data))
        except BrokerResponseError as damage:
            yield self._error(found, damage.message)
        except UnsupportedCodecError as missing:
            yield note(self._log_path, f"records not looked at: {missing}", found.position)

    def _max_timestamp(self, found: FoundBatch, scan: RecordScan) -> Iterator[Finding]:
        """Retention and look-ups by time believe the header, and open no batch to see."""
        header = found.header
        lies = scan.max_timestamp_ms != header.max_timestamp
        if lies and header.record_count and not header.is_log_append_time:
            yield self._error(
                found,
                f"its header says that the largest timestamp is {header.max_timestamp}, "
                f"and its records go up to {scan.max_timestamp_ms}",
            )

    def _tail(self, tail: Tail) -> Iterator[Finding]:
        if tail.is_zeros:
            yield note(self._log_path, f"{tail.size_bytes:,} zero bytes behind the last batch", tail.position)
        else:
            text = f"the last {tail.size_bytes:,} bytes are no batches: {tail.reason}"
            yield error(self._log_path, text, tail.position)

    def _error(self, found: FoundBatch, text: str) -> Finding:
        return error(
            self._log_path, f"the batch at offset {found.header.base_offset}: {text}", found.position
        )

    def _name(self, suffix: str) -> str:
        return f"{self._base_offset:020d}{suffix}"

    def _path(self, suffix: str) -> str:
        return os.path.join(self._directory, self._name(suffix))


class IndexVerifier:
    """Goes along one index while ``see`` is told of the batches of the log in their order.

    Args:
        file: the index.
        entry: how an entry is packed.
        base_offset: of the segment.
    """

    def __init__(self, file: ReadOnlyFile, entry: Struct, base_offset: int) -> None:
        self.path = file.path
        self.base_offset = base_offset
        self._extent = measure_entries(file, entry.size)
        self._entries = iter_entries(file, entry, self._extent.entry_count)
        self._entry_bytes = entry.size
        self._number = -1
        self.entry: tuple[int, ...] | None = None
        self.before: tuple[int, ...] | None = None
        self._advance()

    def notes(self) -> Iterator[Finding]:
        """What there is to say of the file before any entry is looked at."""
        if self._extent.zero_bytes:
            yield note(self.path, f"{self._extent.zero_bytes:,} preallocated zero bytes behind the entries")
        if self._extent.torn_bytes:
            yield error(self.path, f"the last entry has {self._extent.torn_bytes} bytes: it was cut off")

    def see(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        """The entries that speak of this batch, or of what lies before it and is no batch."""
        raise NotImplementedError

    def end(self) -> Iterator[Finding]:
        """What is left when the log has ended."""
        if self.entry is not None:
            left = self._extent.entry_count - self._number
            yield self.complaint(f"{left:,} entries lead behind the last batch, the first is {self.entry}")

    def complaint(self, text: str) -> Finding:
        """An error at the entry at hand."""
        return error(self.path, text, self._number * self._entry_bytes)

    def _advance(self) -> None:
        self.before, self.entry = self.entry, next(self._entries, None)
        self._number += 1


class OffsetIndexVerifier(IndexVerifier):
    """An entry has the last offset of a batch and the batch's position."""

    def __init__(self, file: ReadOnlyFile, base_offset: int) -> None:
        super().__init__(file, offset_index.ENTRY, base_offset)

    def see(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        while self.entry is not None and self.entry[1] <= position:
            relative, at = self.entry
            if self.before is not None and (relative <= self.before[0] or at <= self.before[1]):
                yield self.complaint(f"entry {self.entry} does not rise above {self.before}")
            elif at != position:
                yield self.complaint(f"entry {self.entry}: no batch begins at byte {at}")
            elif self.base_offset + relative != header.last_offset:
                yield self.complaint(
                    f"entry {self.entry} says offset {self.base_offset + relative}, the batch at byte {at} "
                    f"ends with {header.last_offset}"
                )
            self._advance()


class TimeIndexVerifier(IndexVerifier):
    """An entry has the largest timestamp so far and an offset of the batch that had it first."""

    def __init__(self, file: ReadOnlyFile, base_offset: int) -> None:
        super().__init__(file, time_index.ENTRY, base_offset)

    def see(self, position: int, header: BatchHeader) -> Iterator[Finding]:
        while self.entry is not None and self.base_offset + self.entry[1] <= header.last_offset:
            timestamp, relative = self.entry
            if self.before is not None and (timestamp <= self.before[0] or relative < self.before[1]):
                yield self.complaint(f"entry {self.entry} does not rise above {self.before}")
            elif timestamp != header.max_timestamp:
                yield self.complaint(
                    f"entry {self.entry}: offset {self.base_offset + relative} is in a batch whose largest "
                    f"timestamp is {header.max_timestamp}"
                )
            self._advance()


def verify_txn_index(file: ReadOnlyFile, base_offset: int, next_offset: int) -> Iterator[Finding]:
    """The aborted transactions of a segment: their markers rise and lie in it."""
    whole, torn = divmod(file.end, txn_index.ENTRY.size)
    if torn:
        yield error(file.path, f"the last entry has {torn} bytes: it was cut off")
    last_marker = base_offset - 1
    for number, (version, _, first, last, stable) in enumerate(iter_entries(file, txn_index.ENTRY, whole)):
        where = number * txn_index.ENTRY.size
        if version != txn_index.VERSION:
            yield error(file.path, f"an entry of version {version}, known is {txn_index.VERSION}", where)
        elif not last_marker < last < next_offset or first > last or stable > last + 1:
            text = (
                f"first offset {first}, marker at {last}, stable {stable} cannot be: the segment has offsets"
            )
            yield error(file.path, f"{text} {base_offset} to {next_offset - 1}", where)
        last_marker = last
