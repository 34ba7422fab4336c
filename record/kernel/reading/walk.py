"""Walk through the records of a batch, field by field.

Every length and count is compared with the bytes that are left before anything is allocated. Both twins read
the fields in the same order, so both report the same damage first.
"""

from __future__ import annotations

from splashdam.model.values import Buffer
from splashdam.record.damage import Damage, DamagedError, Field, damaged

_SMALLEST_RECORD_BYTES = 7  # length, attributes, two deltas, no key, no value, no headers
_SMALLEST_HEADER_BYTES = 2
_UINT64 = (1 << 64) - 1
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class Walk:
    """A position in the records of one batch, with the fields of the current record."""

    __slots__ = (
        "_end",
        "_exact",
        "body",
        "number",
        "offset_delta",
        "offset_delta_at",
        "position",
        "record_bytes",
        "timestamp_delta",
    )

    def __init__(self, records: Buffer, record_count: int, *, exact: bool = False) -> None:
        self._exact = exact
        self.body = bytes(records)
        if not 0 <= record_count * _SMALLEST_RECORD_BYTES <= len(self.body):
            raise damaged(Damage.COUNT, Field.RECORD, 0, 0, said=record_count, left=len(self.body))
        self.position = 0
        self.number = 0  # of the current record
        self._end = 0  # of the current record
        self.timestamp_delta = self.offset_delta = self.offset_delta_at = self.record_bytes = 0

    @property
    def bytes_left(self) -> int:
        """Bytes left of the current record."""
        return self._end - self.position

    def begin(self) -> None:
        """Read the next record up to its key."""
        self._end = len(self.body)
        at = self.position
        length = self._varint(Field.RECORD, 32)
        if not 0 <= length <= self._end - self.position:
            raise self._damage(Damage.SIZE, Field.RECORD, at, length, self._end - self.position)
        self._end = self.position + length
        self.record_bytes = length
        if not length:
            raise self._damage(Damage.NO_ATTRIBUTES, Field.RECORD, self.position)
        attributes = self.body[self.position]  # none are defined
        if self._exact and attributes & 0x80:
            raise self._damage(Damage.ATTRIBUTES, Field.RECORD, self.position, attributes)
        self.position += 1
        self.timestamp_delta = self._varint(Field.TIMESTAMP_DELTA, 64)
        self.offset_delta_at = self.position
        self.offset_delta = self._varint(Field.OFFSET_DELTA, 32)

    def scan(self) -> bool:
        """Read the whole next record; return whether its key is null."""
        self.begin()
        is_null = self.blob(Field.KEY)[0] < 0
        self.blob(Field.VALUE)
        for _ in range(self.header_count()):
            self.header()
        self.finish()
        return is_null

    def offset(self, base_offset: int) -> int:
        """Return the offset of the current record."""
        offset = base_offset + self.offset_delta
        if not _INT64_MIN <= offset < _INT64_MAX:  # the next offset must fit, too
            raise self._damage(Damage.OFFSET, Field.OFFSET_DELTA, self.offset_delta_at, self.offset_delta)
        return offset

    def data(self, field: Field) -> bytes | None:
        """Read the next field, key or value."""
        size, start = self.blob(field)
        return None if size < 0 else self.body[start : start + size]

    def blob(self, field: Field) -> tuple[int, int]:
        """Skip the next field; return its size, -1 for null, and its position."""
        at = self.position
        size = self._varint(field, 32)
        start = self.position
        if size == -1:
            return size, start
        if not 0 <= size <= self._end - start:
            raise self._damage(Damage.SIZE, field, at, size, self._end - start)
        self.position = start + size
        return size, start

    def header_count(self) -> int:
        """Read the number of headers."""
        at = self.position
        count = self._varint(Field.HEADER_COUNT, 32)
        left = self._end - self.position
        if count and not 0 < count * _SMALLEST_HEADER_BYTES <= left:
            raise self._damage(Damage.HEADER_COUNT, Field.HEADER_COUNT, at, count, left)
        return count

    def header(self) -> tuple[bytes, tuple[int, int]]:
        """Read the next header: its key, perhaps invalid UTF-8, and size and position of its value."""
        at = self.position
        size, start = self.blob(Field.HEADER_KEY)
        if size < 0:
            raise self._damage(Damage.NULL_HEADER_KEY, Field.HEADER_KEY, at)
        return self.body[start : start + size], self.blob(Field.HEADER_VALUE)

    def finish(self) -> None:
        """End the current record; raise if bytes of it are left."""
        left = self._end - self.position
        if left:
            raise self._damage(Damage.LEFT_OVER, Field.RECORD, self.position, 0, left)
        self.number += 1

    def pass_over(self) -> None:
        """Skip the rest of the current record."""
        self.position = self._end
        self.number += 1

    def check_end(self) -> None:
        """Raise if bytes follow the last record."""
        left = len(self.body) - self.position
        if left:
            raise self._damage(Damage.BEHIND_LAST, Field.RECORD, self.position, 0, left)

    def _damage(
        self, damage: Damage, field: Field, position: int, said: int = 0, left: int = 0
    ) -> DamagedError:
        return damaged(damage, field, self.number, position, said=said, left=left)

    def _varint(self, field: Field, bits: int) -> int:
        at = position = self.position
        end, body = self._end, self.body
        result = shift = 0
        while True:
            if position >= end:
                raise self._damage(Damage.NUMBER_CUT, field, at, 0, end)
            byte = body[position]
            position += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= bits:
                raise self._damage(Damage.NUMBER_TOO_LONG, field, at, bits)
        if self._exact and bits == 32 and result >> bits:
            raise self._damage(Damage.NUMBER_TOO_LONG, field, at, bits)
        self.position = position
        result &= (1 << bits) - 1
        return (result >> 1) ^ -(result & 1)


def wrapped(value: int) -> int:
    """Wrap a timestamp at 64 bits, as Java's clients do."""
    value &= _UINT64
    return value - (1 << 64) if value >> 63 else value
