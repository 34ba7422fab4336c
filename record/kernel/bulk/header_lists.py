"""Record headers in Arrow's layout: for each row a list of keys and values, or a map.

The kernels encode them directly from Arrow's buffers, row by row. Rows that they cannot encode (``ODD``) are
left to the slow path, which reads them as pairs and reports what is wrong.

The compiled twin is 200 times as fast (``python -m benchmarks.twins``: 1,000 rows of two headers in 0.12 ms,
not 26). To make the blocks here for the compiled append would take nearly as long as the Python append.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, TypeAlias

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.kernel.building.headers import encode_headers
from splashdam.record.kernel.bulk.blob_column import ODD, ArrowParts, BlobColumn, Odd

MAX_HEADERS = 256
"""Maximum of headers per row in the kernels; rows with more take the slow path."""

Pairs: TypeAlias = list[tuple[str, bytes | None]]


class ListParts(NamedTuple):
    """The buffers of a column of headers, as addresses that ``keys.owner`` keeps valid; 0 for none.

    Attributes:
        name: of the column, for errors.
        first: row of the buffers that is row 0 of the column.
        length: number of rows.
        validity: bitmap, set for rows that are not null.
        offsets: of the rows in the entries.
        offset_bytes: size of an offset, 4 or 8.
        keys, values: the entries, equally many.
        present: bitmap, set for entries that are not null.
        first_present: bit of the first entry.
    """

    name: str
    first: int
    length: int
    validity: int
    offsets: int
    offset_bytes: int
    keys: ArrowParts
    values: ArrowParts
    present: int
    first_present: int


class HeaderLists:
    """A column of headers for ``BulkRecords``, made by ``of_arrow``; otherwise empty."""

    __slots__ = ("_keys", "_parts", "_values")

    def __init__(self) -> None:
        self._parts: ListParts | None = None
        self._keys = self._values = BlobColumn()

    @staticmethod
    def of_arrow(parts: ListParts) -> HeaderLists:
        """Wrap a column of an Arrow array. The addresses are trusted."""
        lists = HeaderLists()
        lists._keys, lists._values = BlobColumn.of_arrow(parts.keys), BlobColumn.of_arrow(parts.values)
        lists._parts = parts
        return lists

    def close(self) -> None:
        """Release the memory; the column has no rows afterwards."""
        self._parts = None
        self._keys.close()
        self._values.close()

    def __len__(self) -> int:
        return 0 if self._parts is None else self._parts.length

    def __getitem__(self, row: int) -> Pairs | None:
        """Return the row's headers; None if it is null.

        Raises:
            IndexError: there is no such row.
            IllegalArgumentError: a header has no key or a key that is not UTF-8, or the buffers are
                inconsistent.
        """
        if self._parts is None or not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return pairs_of(self._parts, self._keys, self._values, row)

    def block(self, row: int) -> bytes | Odd:
        """Encode the headers of an existing row; return ``ODD`` if that is not possible here."""
        try:
            pairs = self[row]
        except IllegalArgumentError:
            return ODD
        return ODD if pairs and len(pairs) > MAX_HEADERS else encode_headers(tuple(pairs or ()))


def pairs_of(parts: ListParts, keys: Any, values: Any, row: int) -> Pairs | None:
    """Return the headers of a row, for both twins: ``keys`` and ``values`` are columns of either.

    Raises:
        IllegalArgumentError: as ``HeaderLists.__getitem__``.
    """
    row += parts.first
    if parts.validity and not _bit(parts.validity, row):
        return None
    kind: Any = ctypes.c_int32 if parts.offset_bytes == 4 else ctypes.c_int64
    low, high = (kind * 2).from_address(parts.offsets + row * parts.offset_bytes)
    if not 0 <= low <= high <= len(keys):
        raise IllegalArgumentError(f"{parts.name} points outside of its entries")
    found = []
    for at in range(low, high):
        present = not parts.present or _bit(parts.present, parts.first_present + at)
        key = keys[at] if present else None
        if key is None:
            raise IllegalArgumentError(f"{parts.name}: a header has no key")
        try:
            found.append((key.decode(), values[at]))
        except UnicodeDecodeError as error:
            raise IllegalArgumentError(f"{parts.name}: a header's key is not UTF-8: {error}") from error
    return found


def _bit(bits: int, position: int) -> int:
    byte: int = ctypes.c_uint8.from_address(bits + (position >> 3)).value
    return byte >> (position & 7) & 1
