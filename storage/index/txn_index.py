"""``.txnindex``: the aborted transactions whose markers are in a segment. Format: docs/format/indexes.md."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import NamedTuple

from splashdam.storage.files.disk import Files
from splashdam.storage.index.index_file import IndexFile

VERSION = 0
ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One entry; ``last_offset`` is the abort marker's, ``last_stable_offset`` the log's right after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The file of one segment; made only when there is something to write, loaded at its first use."""

    def __init__(self, files: Files, path: str) -> None:
        self.file = IndexFile(files, path, ENTRY.size)
        self._files = files
        self._entries: list[AbortedTransaction] | None = None

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds one aborted transaction; what the disk refuses is written with the next one."""
        self._load().append(aborted)
        self.file.append(ENTRY.pack(VERSION, *aborted))

    def entries(self) -> list[AbortedTransaction]:
        """All entries, in the order of their markers; a torn last one is left out.

        Raises:
            KafkaStorageError: the file cannot be read.
        """
        return list(self._load())

    def is_sane(self, base_offset: int) -> bool:
        """Whether the file can be one of a segment with this base: whole entries whose markers rise."""
        size = self.file.size_bytes
        if size is None:
            self._entries = []
        elif size % ENTRY.size:
            return False
        entries = self._load()
        return all(base_offset <= each.last_offset and each.first_offset >= 0 for each in entries) and all(
            one.last_offset < other.last_offset for one, other in pairwise(entries)
        )

    def drop_from(self, offset: int) -> None:
        """Forgets the transactions whose markers are at or behind an offset.

        Raises:
            KafkaStorageError: the file could not be cut.
        """
        entries = self._load()
        kept = [each for each in entries if each.last_offset < offset]
        if len(kept) < len(entries):
            self.file.truncate(len(kept))
            self._entries = kept

    def reset(self) -> None:
        """Forgets every entry and removes the file.

        Raises:
            KafkaStorageError: it could not be removed.
        """
        self.file.discard()
        self._files.unlink(self.file.path)
        self._entries = []

    def unload(self) -> None:
        """Drops the entries from memory; the next use reads them again."""
        self.file.close()
        self._entries = None

    def _load(self) -> list[AbortedTransaction]:
        if self._entries is None:
            data = self.file.load()
            self._entries = [AbortedTransaction(*fields[1:]) for fields in ENTRY.iter_unpack(data)]
        return self._entries
