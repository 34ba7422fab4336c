"""Read files of a log from outside: nothing is opened for writing, and no length in a file is trusted.

Memory is bounded: entries are read a chunk at a time, and a batch as a whole only up to
``LARGEST_BATCH_BYTES``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError, KafkaStorageError
from splashdam.record.batch import HEADER_BYTES, BatchHeader
from splashdam.record.stored import parse_stored_header, stored_crc_ok
from splashdam.storage.files.log_file import check_size, storage_errors

LARGEST_BATCH_BYTES = 256 * 1024 * 1024
"""Of a larger batch only the header is read; Kafka's default limit is 1 MiB."""

_CHUNK_BYTES = 1024 * 1024
_ZEROS = bytes(_CHUNK_BYTES)

OnBytes = Callable[[int], None]
"""Called with the number of bytes read since the last call."""


class ReadOnlyFile:
    """A regular file opened for reading; ``end`` is its length when it was opened."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self.path = path
        self.end = os.fstat(descriptor).st_size

    def read(self, position: int, count: int) -> bytes:
        """Return up to ``count`` bytes from ``position``; fewer only at the end of the file.

        Raises:
            KafkaStorageError: the file cannot be read, or has become shorter meanwhile.
        """
        wanted = max(0, min(count, self.end - position))
        with storage_errors("read", self.path):
            data = os.pread(self._descriptor, wanted, position)
        if len(data) < wanted:
            raise KafkaStorageError(f"{self.path} became shorter while it was read; is a broker using it?")
        return data


@contextmanager
def open_read_only(path: str) -> Iterator[ReadOnlyFile]:
    """Open a file for the time of the block.

    Raises:
        KafkaStorageError: the file is missing, not a regular file, or not readable.
    """
    with storage_errors("open", path):
        if not os.path.isfile(path):  # opening a pipe would block until it has a writer
            os.stat(path)
            raise KafkaStorageError(f"{path} is not a regular file")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield ReadOnlyFile(descriptor, path)
    finally:
        os.close(descriptor)


def read_small(path: str) -> bytes:
    """Return the content of a checkpoint, snapshot or other small file.

    Raises:
        KafkaStorageError: the file cannot be read, or is too large to be what its name says.
    """
    with open_read_only(path) as file:
        check_size(path, file.end)
        return file.read(0, file.end)


class FoundBatch(NamedTuple):
    """A batch of a log file.

    Attributes:
        position: where it begins.
        header: its parsed header.
        data: all its bytes; None if it is larger than ``LARGEST_BATCH_BYTES``.
        crc_ok: whether the checksum is right; None if it was not computed.
    """

    position: int
    header: BatchHeader
    data: memoryview | None
    crc_ok: bool | None


class Tail(NamedTuple):
    """Bytes after the last batch.

    Attributes:
        position: where they begin.
        size_bytes: their number, up to the end of file.
        is_zeros: whether all are zeros, as in a preallocated file.
        reason: why they are no batch.
    """

    position: int
    size_bytes: int
    is_zeros: bool
    reason: str


def walk_log(file: ReadOnlyFile, on_bytes: OnBytes = lambda _: None) -> Iterator[FoundBatch | Tail]:
    """Yield each batch of a ``.log``, in any format, and last the tail if there are bytes after them.

    Raises:
        KafkaStorageError: the file cannot be read.
    """
    chunk, start, position = memoryview(b""), 0, 0
    while position < file.end:
        at = position - start
        if len(chunk) - at < HEADER_BYTES:
            chunk, start, at = memoryview(file.read(position, _CHUNK_BYTES)), position, 0
        try:
            header = parse_stored_header(chunk, at)
        except CorruptMessageError as error:
            yield _tail(file, position, error.message.partition(": ")[2])  # the caller adds the position
            break
        size = header.size_bytes
        if position + size > file.end:
            yield _tail(file, position, f"a batch of {size:,} bytes is cut short")
            break
        if size > LARGEST_BATCH_BYTES:
            yield FoundBatch(position, header, None, None)
        else:
            if len(chunk) - at < size:
                chunk, start, at = memoryview(file.read(position, max(size, _CHUNK_BYTES))), position, 0
            yield FoundBatch(position, header, chunk[at : at + size], stored_crc_ok(chunk, at, header))
        on_bytes(size)
        position += size
    on_bytes(file.end - position)


def _tail(file: ReadOnlyFile, position: int, reason: str) -> Tail:
    return Tail(position, file.end - position, _is_zeros(file, position), reason)


def _is_zeros(file: ReadOnlyFile, position: int) -> bool:
    while position < file.end:
        data = file.read(position, _CHUNK_BYTES)
        if data != _ZEROS[: len(data)]:
            return False
        position += len(data)
    return True


class Entries(NamedTuple):
    """The extent of the entries in an index file.

    Attributes:
        entry_count: entries up to the last one with a byte other than zero.
        zero_bytes: the zeros after it.
        torn_bytes: the bytes of an incomplete last entry.
    """

    entry_count: int
    zero_bytes: int
    torn_bytes: int


def measure_entries(file: ReadOnlyFile, entry_bytes: int) -> Entries:
    """Find the end of the entries of an index: Kafka preallocates its files, with zeros after the last."""
    used = _used_bytes(file)
    count = -(-used // entry_bytes)
    if count * entry_bytes > file.end:
        return Entries(count - 1, 0, file.end - (count - 1) * entry_bytes)
    return Entries(count, file.end - count * entry_bytes, 0)


def _used_bytes(file: ReadOnlyFile) -> int:
    end = file.end
    while end > 0:
        start = max(0, end - _CHUNK_BYTES)
        data = file.read(start, end - start)
        if data != _ZEROS[: len(data)]:
            return start + len(data.rstrip(b"\0"))
        end = start
    return 0


def iter_entries(file: ReadOnlyFile, entry: Struct, count: int) -> Iterator[tuple[int, ...]]:
    """Yield the first ``count`` entries of an index, reading a chunk at a time."""
    step = _CHUNK_BYTES // entry.size * entry.size
    for position in range(0, count * entry.size, step):
        yield from entry.iter_unpack(file.read(position, min(step, count * entry.size - position)))
