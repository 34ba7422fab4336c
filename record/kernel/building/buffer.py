"""The records of one batch, each encoded when it is appended."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import index as as_int
from struct import Struct
from typing import TypeAlias

from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import Buffer, HeaderPairs
from splashdam.record.checksum import crc32c
from splashdam.record.kernel.building.headers import NO_HEADERS, as_bytes, encode_headers
from splashdam.record.kernel.building.varint import encode_varint, size_of_varint

HEADER_BYTES = 61
CRC_FROM = 21  # batch.CRC_FROM
MAX_BATCH_BYTES = 0x7FFFFFFF
RECORD_OVERHEAD_BYTES = 21
"""Length 5, attributes 1, timestamp delta 10, offset delta 5: the maximum overhead of a record."""

_FITS_ONE_BYTE = 64  # varints below this
_NULL = b"\x01"
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def _make_encoded() -> tuple[bytes, ...]:
    """Make the table in a fraction of the time that encoding its 8,192 numbers one by one would take."""
    lows = bytes(range(0x80, 0x100, 2)) * 127
    highs = b"".join(bytes([high]) * 64 for high in range(1, 128))
    pairs = bytearray(2 * len(lows))
    pairs[0::2], pairs[1::2] = lows, highs
    ones, twos = bytes(range(0, 0x80, 2)), bytes(pairs)
    return tuple(
        [ones[at : at + 1] for at in range(len(ones))] + [twos[at : at + 2] for at in range(0, len(twos), 2)]
    )


_ENCODED = _make_encoded()
"""The encodings of 0, 1, 2, … up to two bytes: nearly every length and delta of a batch."""

_TABLE_SIZE = len(_ENCODED)


class BatchBuffer:
    """The records of one batch, each encoded when it is appended, after 61 bytes for the header.

    Not thread-safe; its owner guards it. Views stay valid for ever: a buffer that grows moves to new memory
    and leaves the old memory to them.

    Attributes:
        record_count: records appended.
        size_bytes: bytes in use, the header's 61 included.
        capacity_bytes: bytes allocated.
        base_timestamp_ms: of the first record, -1 without records.
        max_timestamp_ms: largest of all records, -1 without records.
    """

    __slots__ = (
        "_layouts",
        "_memory",
        "base_timestamp_ms",
        "capacity_bytes",
        "max_timestamp_ms",
        "record_count",
        "size_bytes",
    )

    def __init__(self, capacity_bytes: int) -> None:
        """Allocate ``capacity_bytes``, the header's 61 included.

        Raises:
            IllegalArgumentError: fewer than 61, or more than 2,147,483,647.
        """
        capacity_bytes = _as_number(capacity_bytes)
        _check_capacity(capacity_bytes)
        self._memory = memoryview(bytearray(capacity_bytes))
        self._layouts = NO_LAYOUTS
        self.capacity_bytes = capacity_bytes
        self.size_bytes = HEADER_BYTES
        self.record_count = 0
        self.base_timestamp_ms = -1
        self.max_timestamp_ms = -1

    def try_append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: HeaderPairs | None,
    ) -> bool:
        """Encode and append one record; return False, without a change, if it does not fit.

        Args:
            timestamp_ms: milliseconds since the epoch; may be smaller than earlier ones, and negative.
            key: the key, None for a null key; ``b""`` is a key.
            value: the value, None for a null value (a tombstone in a compacted topic).
            headers: ``(str, bytes or None)`` pairs in order, None for none.

        Raises:
            TypeError: an argument has the wrong type; nothing changed.
            OverflowError: the timestamp does not fit 64 bits; nothing changed.
            UnicodeEncodeError: a header's key holds a lone surrogate; nothing changed.
        """
        if type(timestamp_ms) is not int:
            timestamp_ms = as_int(timestamp_ms)
        if not _INT64_MIN <= timestamp_ms <= _INT64_MAX:
            raise OverflowError("timestamp_ms does not fit 64 bits")
        if key is None and headers is None and type(value) is bytes and self.record_count:
            return self._append_value(timestamp_ms, value) >= 0
        if key is None:
            key_head, key = _NULL, b""
        else:
            if type(key) is not bytes:
                key = as_bytes(key, "key")
            size = len(key)
            key_head = _ENCODED[size] if size < _TABLE_SIZE else encode_varint(size)
        if value is None:
            value_head, value = _NULL, b""
        else:
            if type(value) is not bytes:
                value = as_bytes(value, "value")
            size = len(value)
            value_head = _ENCODED[size] if size < _TABLE_SIZE else encode_varint(size)
        encoded_headers = NO_HEADERS if headers is None else encode_headers(headers)

        count = self.record_count
        delta = timestamp_ms - self.base_timestamp_ms if count else 0
        delta_part = _ENCODED[delta] if 0 <= delta < _TABLE_SIZE else encode_varint(delta)
        index_part = _ENCODED[count] if count < _TABLE_SIZE else encode_varint(count)
        # Complete before the buffer is touched: a part that cannot be encoded leaves no trace.
        body = b"".join((b"\x00", delta_part, index_part, key_head, key, value_head, value, encoded_headers))
        size = len(body)
        length = _ENCODED[size] if size < _TABLE_SIZE else encode_varint(size)
        start = self.size_bytes
        middle = start + len(length)
        end = middle + size
        if end > self.capacity_bytes:
            return False
        self._note_time(timestamp_ms)
        memory = self._memory
        memory[start:middle] = length
        memory[middle:end] = body
        self.size_bytes = end
        self.record_count = count + 1
        return True

    def _append_value(self, timestamp_ms: int, value: bytes) -> int:
        """Append a record with only a value; return its number, -1 if it does not fit. Checks no argument."""
        number = self.record_count
        layouts = self._layouts
        if timestamp_ms != layouts.timestamp_ms or number >= layouts.end:
            return self._append_with_new_layouts(timestamp_ms, value)
        write, front, back, size_bytes = layouts[len(value)]
        start = self.size_bytes
        end = start + size_bytes
        if end > self.capacity_bytes:
            return -1
        number_part = _ENCODED[number] if number < _TABLE_SIZE else encode_varint(number)
        write(self._memory, start, front, number_part, back, value)
        self.size_bytes = end
        self.record_count = number + 1
        return number

    def _append_with_new_layouts(self, timestamp_ms: int, value: bytes) -> int:
        number = self.record_count
        delta_ms = timestamp_ms - self.base_timestamp_ms if number else 0
        layouts = self._layouts = ValueLayouts(timestamp_ms, delta_ms, number)
        *_, size_bytes = layouts[len(value)]
        if self.size_bytes + size_bytes > self.capacity_bytes:
            return -1
        self._note_time(timestamp_ms)  # first: a Ctrl-C must not leave a record without its timestamp noted
        return self._append_value(timestamp_ms, value)

    def _note_time(self, timestamp_ms: int) -> None:
        if not self.record_count:
            self.base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms

    def reserve(self, capacity_bytes: int) -> None:
        """Grow the buffer to ``capacity_bytes``; a smaller number changes nothing.

        Raises:
            IllegalArgumentError: more than 2,147,483,647.
        """
        capacity_bytes = _as_number(capacity_bytes)
        while capacity_bytes > self.capacity_bytes:
            _check_capacity(capacity_bytes)
            old, size_bytes = self._memory, self.size_bytes
            memory = memoryview(bytearray(capacity_bytes))
            memory[:size_bytes] = old[:size_bytes]
            if self._memory is old and self.size_bytes == size_bytes:  # no finalizer has appended meanwhile
                self._memory = memory
                self.capacity_bytes = capacity_bytes

    def recycle(self) -> bool:
        """Empty the buffer for reuse, keeping its memory; return False if a view of it still exists.

        Only for the owner of the one reference to the buffer.
        """
        memory = self._memory.obj
        assert isinstance(memory, bytearray)
        self._memory.release()
        try:
            memory.pop()  # raises while there are views
        except BufferError:
            self._memory = memoryview(memory)
            return False
        memory.append(0)
        self._memory = memoryview(memory)
        self._layouts = NO_LAYOUTS
        self.size_bytes = HEADER_BYTES
        self.record_count = 0
        self.base_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self._memory[:HEADER_BYTES] = bytes(HEADER_BYTES)
        return True

    def checksum(self) -> int:
        """Return CRC-32C of all bytes in use from the header's attributes on, which must be written before.

        The compiled twin has computed most of it by then: it checksums records as they are appended, while
        they are in the processor's cache, if the processor has the instruction (x86-64 with SSE 4.2). It
        stops doing so in a recycled buffer whose last batch did not need the checksum, as compressed batches
        do not. Records must not be changed through a `view` meanwhile.
        """
        return crc32c(self._memory[CRC_FROM : self.size_bytes])

    def view(self) -> memoryview:
        """Return a writable view of all bytes in use; the header is undefined before a seal."""
        return self._memory[: self.size_bytes]


def _as_number(number: int) -> int:
    """Convert to an exact ``int``: a subclass could compare as one number and be used as another."""
    return int.__pos__(as_int(number))


def _check_capacity(capacity_bytes: int) -> None:
    if not HEADER_BYTES <= capacity_bytes <= MAX_BATCH_BYTES:
        raise IllegalArgumentError(
            f"capacity_bytes={capacity_bytes}: a batch has {HEADER_BYTES} to {MAX_BATCH_BYTES} bytes"
        )


def record_size_upper_bound(key: Buffer | None, value: Buffer | None, headers: HeaderPairs | None) -> int:
    """Return the maximum size of a record in any batch, without the batch's header.

    Like the Java producer's ``estimateSizeInBytesUpperBound``, which adds the 61 bytes of the header.

    Raises:
        TypeError: an argument has the wrong type.
    """
    size = RECORD_OVERHEAD_BYTES + (1 if headers is None else len(encode_headers(headers)))
    for data in (key, value):
        if data is None:
            size += 1
        else:
            length = len(data if type(data) is bytes else as_bytes(data, "key or value"))
            size += length + (1 if length < _FITS_ONE_BYTE else size_of_varint(length))
    return size


# Layouts of records that have only a value: those of one millisecond and one size differ only in number and
# value, so all other bytes are prepared once. Only the Python twin needs this: there, encoding these bytes
# takes longer than the rest of an append.

ValueLayout: TypeAlias = tuple[Callable[..., None], bytes, bytes, int]
"""``write(memory, position, front, number, back, value)``; ``front``; ``back``; size of the record."""

_BITS_PER_BYTE = 7


class ValueLayouts(dict[int, ValueLayout]):
    """Layouts by size of the value, each made when first used.

    Attributes:
        timestamp_ms: timestamp of the records.
        end: first record number that needs more bytes; the layouts serve lower numbers.
    """

    __slots__ = ("_delta", "_number_bytes", "end", "timestamp_ms")

    def __init__(self, timestamp_ms: int, delta_ms: int, number: int) -> None:
        """For records of one timestamp, ``delta_ms`` after the batch's first, from ``number`` on."""
        super().__init__()
        self._delta = encode_varint(delta_ms)
        self._number_bytes = size_of_varint(number) or 1
        self.timestamp_ms = timestamp_ms
        self.end = 1 << (_BITS_PER_BYTE * self._number_bytes - 1)

    def __missing__(self, size: int) -> ValueLayout:
        back = b"\x01" + encode_varint(size)  # null key, length of the value
        body_bytes = 1 + len(self._delta) + self._number_bytes + len(back) + size + 1
        front = b"%b\x00%b" % (encode_varint(body_bytes), self._delta)
        layout = _layout(len(front), self._number_bytes, len(back), size)
        form = self[size] = (layout.pack_into, front, back, layout.size)
        return form


@lru_cache(maxsize=1024)
def _layout(front_bytes: int, number_bytes: int, back_bytes: int, size: int) -> Struct:
    return Struct(f"{front_bytes}s{number_bytes}s{back_bytes}s{size}sx")  # x: no headers


NO_LAYOUTS = ValueLayouts(0, 0, 0)
NO_LAYOUTS.end = 0
"""Serves no record, so that the first append makes new layouts."""
