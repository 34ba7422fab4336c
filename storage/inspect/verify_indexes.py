"""Verifying indexes beside a walk along their log: each entry must lead to the batch it speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from splashdam.record.batch import BatchHeader
from splashdam.storage.index import offset_index, time_index, txn_index
from splashdam.storage.inspect.findings import Finding, error, note
from splashdam.storage.inspect.read_only import ReadOnlyFile, iter_entries, measure_entries


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
