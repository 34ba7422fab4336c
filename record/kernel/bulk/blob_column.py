"""Columns of keys and values, read row by row: Python sequences and Arrow's buffers.

What an Arrow array says of itself is checked when it is imported (``record/arrow/source.py``); what its
buffers contain is checked here, row by row, as far as possible.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any, Final, NamedTuple

from splashdam.model.errors import IllegalArgumentError

DAMAGED_ROW: Final = "the row points outside of its column: the Arrow array is invalid"

_VIEW_BYTES = 16
_INLINE_BYTES = 12


class Layout(IntEnum):
    """Layout of a column's rows; the compiled twin uses these numbers."""

    OBJECTS = 0
    OFFSETS_32 = 1
    OFFSETS_64 = 2
    FIXED_SIZE = 3
    VIEWS = 4
    NULLS = 5


class ArrowParts(NamedTuple):
    """The buffers of an Arrow column, as addresses that ``owner`` keeps valid; 0 for none.

    Attributes:
        layout: layout of the rows in ``data``.
        owner: keeps the memory alive.
        first: row of the buffers that is row 0 of the column.
        length: number of rows.
        validity: bitmap, set for rows that are not null.
        offsets: of the rows in ``data``.
        data: the bytes; for ``VIEWS`` the views, with a dictionary the codes.
        end: maximum of the offsets; for fixed-size rows their size.
        spans: address and size of the buffers that views point into.
        code_bytes: size of a dictionary code, negative for signed codes; 0 without dictionary.
        dictionary: the dictionary's values.
    """

    layout: Layout
    owner: object
    first: int
    length: int
    validity: int
    offsets: int
    data: int
    end: int
    spans: tuple[tuple[int, int], ...] = ()
    code_bytes: int = 0
    dictionary: ArrowParts | None = None


class BlobColumn:
    """A column of bytes and nulls for ``BulkRecords``, made by ``of_objects`` or ``of_arrow``."""

    __slots__ = ("_dictionary", "_parts", "_source")

    def __init__(self) -> None:
        self._source: list[Any] | tuple[Any, ...] = ()
        self._parts: ArrowParts | None = None
        self._dictionary: BlobColumn | None = None

    @staticmethod
    def of_objects(source: list[Any] | tuple[Any, ...]) -> BlobColumn:
        """Wrap a list or tuple without copying it. Rows may be anything; the kernels accept bytes and None.

        Raises:
            TypeError: ``source`` is neither.
        """
        if type(source) is not list and type(source) is not tuple:
            raise TypeError(f"a list or a tuple, not {type(source).__name__}")
        column = BlobColumn()
        column._source = source
        return column

    @staticmethod
    def of_arrow(parts: ArrowParts) -> BlobColumn:
        """Wrap a column of an Arrow array. The addresses are trusted."""
        column = BlobColumn()
        column._parts = parts
        if parts.dictionary is not None:
            column._dictionary = BlobColumn.of_arrow(parts.dictionary)
        return column

    def close(self) -> None:
        """Release the memory; the column has no rows afterwards."""
        self._source, self._parts, self._dictionary = (), None, None

    def __len__(self) -> int:
        if self._parts is not None:
            return self._parts.length
        return len(self._source)

    def __getitem__(self, row: int) -> Any:
        """Return a row: the object of a sequence, bytes or None of an Arrow array.

        Raises:
            IndexError: there is no such row.
            IllegalArgumentError: the array's buffers contradict each other here.
        """
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        if self._parts is None:
            return self._source[row]
        found = self.at(row)
        if isinstance(found, Odd):
            raise IllegalArgumentError(DAMAGED_ROW)
        return found

    def at(self, row: int) -> bytes | Odd | None:
        """Return an existing row; ``ODD`` if it is neither bytes nor null, or out of bounds."""
        parts = self._parts
        if parts is None:
            item = self._source[row]
            return item if item is None or type(item) is bytes else ODD
        if parts.layout is Layout.NULLS:
            return None
        row += parts.first
        if parts.validity and not _read(ctypes.c_uint8, parts.validity, row >> 3) >> (row & 7) & 1:
            return None
        if self._dictionary is not None:
            code = _read(_CODES[parts.code_bytes], parts.data, row)
            return self._dictionary.at(code) if 0 <= code < len(self._dictionary) else ODD
        return _stored(parts, row)


class Odd:
    """The type of ``ODD``."""


ODD: Final = Odd()

_CODES: dict[int, Any] = {
    1: ctypes.c_uint8,
    -1: ctypes.c_int8,
    2: ctypes.c_uint16,
    -2: ctypes.c_int16,
    4: ctypes.c_uint32,
    -4: ctypes.c_int32,
    8: ctypes.c_uint64,
    -8: ctypes.c_int64,
}


def _read(kind: Any, address: int, position: int) -> int:
    value: int = kind.from_address(address + position * ctypes.sizeof(kind)).value
    return value


def _stored(parts: ArrowParts, row: int) -> bytes | Odd:
    if parts.layout is Layout.FIXED_SIZE:
        return ctypes.string_at(parts.data + row * parts.end, parts.end) if parts.end else b""
    if parts.layout is Layout.VIEWS:
        return _viewed(parts, parts.data + row * _VIEW_BYTES)
    kind: Any = ctypes.c_int32 if parts.layout is Layout.OFFSETS_32 else ctypes.c_int64
    low, high = _read(kind, parts.offsets, row), _read(kind, parts.offsets, row + 1)
    if not 0 <= low <= high <= parts.end:
        return ODD
    return ctypes.string_at(parts.data + low, high - low) if high > low else b""


def _viewed(parts: ArrowParts, view: int) -> bytes | Odd:
    size = _read(ctypes.c_int32, view, 0)
    if 0 <= size <= _INLINE_BYTES:
        return ctypes.string_at(view + 4, size)
    number, start = _read(ctypes.c_int32, view, 2), _read(ctypes.c_int32, view, 3)
    if size > 0 and 0 <= number < len(parts.spans):
        address, span_bytes = parts.spans[number]
        if 0 <= start <= span_bytes - size:
            return ctypes.string_at(address + start, size)
    return ODD
