"""``.index``: from an offset to a position in the log, sparse. Format: docs/format/indexes.md.

An entry is two big-endian int32: the LAST offset of a batch relative to the segment's base, and the position
of the batch's first byte. Entries are kept as two arrays and found by bisection.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right

from splashdam.storage.files.disk import Files
from splashdam.storage.index.index_file import IndexFile

ENTRY = struct.Struct(">ii")
MAX_RELATIVE_OFFSET = 2**31 - 1


class OffsetIndex:
    """The offset index of one segment; loaded with one read at its first use."""

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self.file = IndexFile(files, path, ENTRY.size)
        self.base_offset = base_offset
        self._max_entries = max_bytes // ENTRY.size
        self._offsets = array("i")
        self._positions = array("i")
        self._is_loaded = False

    def __len__(self) -> int:
        self._load()
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        if not self._is_loaded:
            self._load()
        return len(self._offsets) >= self._max_entries

    @property
    def last_offset(self) -> int:
        """Offset of the last entry, the base offset where there is none."""
        self._load()
        return self.base_offset + (self._offsets[-1] if self._offsets else 0)

    @property
    def last_position(self) -> int:
        """Position of the last entry, 0 where there is none."""
        if not self._is_loaded:
            self._load()
        return self._positions[-1] if self._positions else 0

    def lookup(self, offset: int) -> int:
        """Position of a batch at or before the one that holds ``offset``: no later batch can hold it."""
        self._load()
        slot = bisect_right(self._offsets, min(offset - self.base_offset, MAX_RELATIVE_OFFSET))
        return self._positions[slot - 1] if slot else 0

    def position_before(self, position: int, *, entries: int, max_bytes: int) -> int:
        """Where to start in order to see what lies before ``position``: so many entries or bytes back."""
        self._load()
        end = bisect_left(self._positions, position)
        nearest = bisect_left(self._positions, position - max_bytes)
        slot = max(end - entries, nearest, 0)
        return self._positions[slot] if 0 < slot < end else 0

    def offset_behind(self, position: int) -> int | None:
        """The last offset of the first indexed batch at or behind ``position``, None where there is none."""
        self._load()
        slot = bisect_left(self._positions, position)
        return self.base_offset + self._offsets[slot] if slot < len(self._offsets) else None

    def append(self, last_offset: int, position: int) -> None:
        """Adds the batch that ends with ``last_offset`` and starts at ``position``."""
        self._load()
        relative = last_offset - self.base_offset
        self._offsets.append(relative)
        self._positions.append(position)
        self.file.append(ENTRY.pack(relative, position))

    def drop_from(self, position: int) -> None:
        """Removes the entries of batches at or behind a position, in memory and on disk.

        Raises:
            KafkaStorageError: the file could not be cut.
        """
        self._load()
        count = bisect_left(self._positions, position)
        del self._offsets[count:], self._positions[count:]
        self.file.truncate(count)

    def reset(self) -> None:
        """Forgets every entry, in memory and on disk.

        Raises:
            KafkaStorageError: the file could not be emptied or made.
        """
        self.file.truncate(0)
        self._offsets, self._positions, self._is_loaded = array("i"), array("i"), True

    def trim(self) -> None:
        """Cuts from the file what is no entry (the zeros of a preallocated one)."""
        self.file.truncate(len(self))

    def is_sane(self, log_size_bytes: int) -> bool:
        """Whether the last entry can be one of a log of this size; as in Kafka, the others are trusted."""
        return not len(self) or (self._offsets[-1] >= 0 and 0 <= self._positions[-1] < log_size_bytes)

    def distrust(self) -> None:
        """Answers position 0 to every lookup until entries are made anew: they were found to be wrong."""
        self._offsets, self._positions, self._is_loaded = array("i"), array("i"), True

    def unload(self) -> None:
        """Drops the entries from memory; the next use reads them again."""
        self.file.close()
        self._offsets, self._positions, self._is_loaded = array("i"), array("i"), False

    def _load(self) -> None:
        if not self._is_loaded:
            numbers = array("i")
            numbers.frombytes(self.file.load())
            if sys.byteorder == "little":
                numbers.byteswap()
            self._offsets, self._positions = numbers[0::2], numbers[1::2]
            self._is_loaded = True
