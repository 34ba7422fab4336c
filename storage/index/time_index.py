"""``.timeindex``: from a timestamp to an offset, sparse. Format: docs/format/indexes.md.

An entry is a big-endian int64 timestamp, the largest seen so far in the segment, and an int32: the last
offset, relative to the base, of the first batch that had it. Both rise.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right

from splashdam.storage.files.disk import Files
from splashdam.storage.index.index_file import IndexFile

ENTRY = struct.Struct(">qi")
NO_TIMESTAMP = -1


class TimeIndex:
    """The time index of one segment; loaded with one read at its first use."""

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self.file = IndexFile(files, path, ENTRY.size)
        self.base_offset = base_offset
        # One slot stays free for the final entry of a closed segment.
        self._max_entries = max_bytes // ENTRY.size - 1
        self._timestamps = array("q")
        self._offsets = array("i")
        self._is_loaded = False

    def __len__(self) -> int:
        self._load()
        return len(self._timestamps)

    @property
    def is_full(self) -> bool:
        if not self._is_loaded:
            self._load()
        return len(self._timestamps) >= self._max_entries

    @property
    def last_timestamp(self) -> int:
        """Timestamp of the last entry, -1 where there is none."""
        self._load()
        return self._timestamps[-1] if self._timestamps else NO_TIMESTAMP

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, the base offset where there is none."""
        self._load()
        return self.base_offset + (self._offsets[-1] if self._offsets else 0)

    def lookup(self, timestamp_ms: int) -> int:
        """An offset before which no record is as late as ``timestamp_ms``."""
        self._load()
        slot = bisect_right(self._timestamps, timestamp_ms)
        return self.base_offset + (self._offsets[slot - 1] if slot else 0)

    def offer(self, timestamp_ms: int, offset: int) -> None:
        """Adds an entry if the timestamp is later than all before."""
        if timestamp_ms > self.last_timestamp:
            relative = offset - self.base_offset
            self._timestamps.append(timestamp_ms)
            self._offsets.append(relative)
            self.file.append(ENTRY.pack(timestamp_ms, relative))

    def drop_after(self, offset: int) -> None:
        """Removes the entries behind ``offset``, in memory and, a single one at the next write, on disk."""
        self._load()
        count = bisect_right(self._offsets, offset - self.base_offset)
        del self._timestamps[count:], self._offsets[count:]
        self.file.drop_to(count)

    def reset(self) -> None:
        """Forgets every entry, in memory and on disk.

        Raises:
            KafkaStorageError: the file could not be emptied or made.
        """
        self.file.truncate(0)
        self._timestamps, self._offsets, self._is_loaded = array("q"), array("i"), True

    def unload(self) -> None:
        """Drops the entries from memory; the next use reads them again."""
        self.file.close()
        self._timestamps, self._offsets, self._is_loaded = array("q"), array("i"), False

    def _load(self) -> None:
        if not self._is_loaded:
            entries = list(ENTRY.iter_unpack(self.file.load()))
            self._timestamps = array("q", [timestamp for timestamp, _ in entries])
            self._offsets = array("i", [offset for _, offset in entries])
            self._is_loaded = True
