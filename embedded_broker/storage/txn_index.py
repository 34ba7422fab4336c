"""``.txnindex``: the aborted transactions whose markers are in a segment. Format: docs/format/indexes.md."""

from __future__ import annotations

import struct
from typing import NamedTuple

from splashdam.embedded_broker.storage.files import Files, LogFile

VERSION = 0
ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One entry; ``last_offset`` is the abort marker's, ``last_stable_offset`` the log's right after it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The file of one segment; made only when there is something to write."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._file: LogFile | None = None

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds one aborted transaction.

        Raises:
            KafkaStorageError: it could not be written.
        """
        if self._file is None:
            self._file = self._files.open_log(self.path, create=True)
        self._file.append((ENTRY.pack(VERSION, *aborted),))

    def entries(self) -> list[AbortedTransaction]:
        """All entries, in the order of their markers; a torn last one is left out."""
        data = self._files.read_bytes(self.path) or b""
        whole = len(data) - len(data) % ENTRY.size
        return [AbortedTransaction(*fields[1:]) for fields in ENTRY.iter_unpack(data[:whole])]

    def reset(self) -> None:
        """Removes the file."""
        self.close()
        self._files.unlink(self.path)

    def unsynced(self) -> LogFile | None:
        """The file if it needs a sync."""
        return None if self._file is None or self._file.is_synced else self._file

    def close(self) -> None:
        """Gives the file back."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
