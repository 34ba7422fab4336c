"""The file behind an index: entries of one size, appended as they are made.

The entries in memory are what counts while the broker runs; the file is there for the next start and for
Kafka's tools. So an entry that the disk refuses is kept back and written with the next one, and only
``settle`` (before a sync or a close) fails for it. After a crash recovery makes the file anew from the log.
"""

from __future__ import annotations

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import LogFile


class IndexFile:
    """Fixed-size entries in a file that is opened at the first write."""

    def __init__(self, files: Files, path: str, entry_bytes: int) -> None:
        self.path = path
        self._files = files
        self._entry_bytes = entry_bytes
        self._file: LogFile | None = None
        self._kept_back = b""
        self._size_bytes = -1  # as loaded, as long as nothing was written since
        self._last = b""  # the last entry, as loaded
        self._surplus = b""  # the entry at the file's end that ``drop_to`` left there

    @property
    def size_bytes(self) -> int | None:
        """The file's length, or None where there is none."""
        return self._files.size_bytes(self.path)

    @property
    def is_synced(self) -> bool:
        """Whether every entry is on stable storage."""
        return not self._kept_back and (self._file is None or self._file.is_synced)

    def load(self) -> bytes:
        """All whole entries, without the zeros to which Kafka preallocates its files.

        Raises:
            KafkaStorageError: the file cannot be read.
        """
        data = self._files.read_bytes(self.path)
        self._size_bytes, data = (-1, b"") if data is None else (len(data), data)
        used = len(data.rstrip(b"\0"))
        # The last entry may itself end in zeros; one of zeros alone is never written.
        entries = min(-(-used // self._entry_bytes), len(data) // self._entry_bytes)
        data = data[: entries * self._entry_bytes - len(self._surplus)]
        self._last = data[-self._entry_bytes :]
        return data

    def append(self, entry: bytes) -> None:
        """Writes one entry, or keeps it back where the disk refuses it."""
        if entry == self._surplus:
            self._surplus = b""
            return
        entries = self._kept_back + entry
        try:
            self._cut_surplus()
            self._open().append((entries,))
            self._kept_back = b""
        except KafkaStorageError:
            self._kept_back = entries

    def truncate(self, entry_count: int) -> None:
        """Cuts the file to its first ``entry_count`` entries, making it where it is missing.

        Raises:
            KafkaStorageError: it could not be cut or made.
        """
        if entry_count:
            self.settle()
        self._kept_back = self._surplus = b""
        if self._file is None:
            size_bytes = self._size_bytes if entry_count else self.size_bytes
            if size_bytes == entry_count * self._entry_bytes:
                return
        file = self._open()
        if file.end != entry_count * self._entry_bytes:
            file.truncate(entry_count * self._entry_bytes)

    def drop_to(self, entry_count: int) -> None:
        """As ``truncate``, but a single entry too many may stay until another one or a sync is due.

        Where the same entry is added again before that, nothing is written at all: a partition that is opened
        and closed, and nothing else, costs no write and no sync.

        Raises:
            KafkaStorageError: as ``truncate``.
        """
        if self._file is None and self._size_bytes == (entry_count + 1) * self._entry_bytes:
            self._surplus = self._surplus or self._last
        else:
            self.truncate(entry_count)

    def _cut_surplus(self) -> None:
        if self._surplus:
            file = self._open()
            file.truncate(file.end - len(self._surplus))
            self._surplus = b""

    def settle(self) -> LogFile | None:
        """Writes what was kept back; returns the file if it needs a sync.

        Raises:
            KafkaStorageError: the disk still refuses.
        """
        self._cut_surplus()
        if self._kept_back:
            self._open().append((self._kept_back,))
            self._kept_back = b""
        return None if self._file is None or self._file.is_synced else self._file

    def mark_unsynced(self) -> None:
        """Says of what the file holds that it may not be on stable storage.

        Raises:
            KafkaStorageError: the file cannot be opened.
        """
        if self.size_bytes:
            self._open().mark_unsynced()

    def discard(self) -> None:
        """Gives the file back for good: what is not on stable storage need never be."""
        self._kept_back = self._surplus = b""
        if self._file is not None:
            self._file.discard()
        self.close()

    def close(self) -> None:
        """Gives the file back."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self) -> LogFile:
        if self._file is None:
            self._file = self._files.open_log(self.path, create=True)
            self._size_bytes = -1
        return self._file
