"""One array of Arrow data: what it says of itself is checked, and its buffers become ``ArrowParts``."""

from __future__ import annotations

import ctypes
from typing import Any

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.arrow.schema import ColumnType
from splashdam.record.arrow.structs import MAX_INT64, Held
from splashdam.record.kernel.bulk.blob_column import ArrowParts, Layout


def parts(held: Held, array: Any, kind: ColumnType, skip: int, length: int | None) -> ArrowParts:
    """A column without its first ``skip`` rows; ``length`` rows of it, or all.

    Raises:
        IllegalArgumentError: the array contradicts itself.
    """
    check_numbers(array, kind.name)
    if length is None:
        length = array.length
    elif skip + length > array.length:
        raise IllegalArgumentError(f"{kind.name} has {array.length} rows, its table {skip + length}")
    first = array.offset + skip
    if kind.code_bytes:
        return _coded(held, array, kind, first, length)
    if kind.layout is Layout.NULLS:
        return ArrowParts(kind.layout, held, first, length, 0, 0, 0, 0)
    if kind.layout is Layout.VIEWS:
        return _views(held, array, kind, first, length)
    if kind.layout is Layout.FIXED_SIZE:
        buffers(array, 2, kind.name)
        data = needed(array, 1, kind.name, needed=length > 0 and kind.size_bytes > 0)
        nulls = validity(array, kind.name)
        return ArrowParts(kind.layout, held, first, length, nulls, 0, data, kind.size_bytes)
    buffers(array, 3, kind.name)
    offsets = needed(array, 1, kind.name, needed=length > 0)
    offset_type: Any = ctypes.c_int32 if kind.layout is Layout.OFFSETS_32 else ctypes.c_int64
    end = 0
    if length:
        end = offset_type.from_address(offsets + (first + length) * ctypes.sizeof(offset_type)).value
    data = needed(array, 2, kind.name, needed=end > 0)
    return ArrowParts(kind.layout, held, first, length, validity(array, kind.name), offsets, data, end)


def _views(held: Held, array: Any, kind: ColumnType, first: int, length: int) -> ArrowParts:
    """A column of views: behind them their buffers, and at the end the sizes of these."""
    count = max(array.n_buffers - 3, 0)
    buffers(array, count + 3, kind.name)
    views = needed(array, 1, kind.name, needed=length > 0)
    sizes = needed(array, count + 2, kind.name, needed=count > 0)
    spans = tuple(
        (buffer(array, number + 2, kind.name), ctypes.c_int64.from_address(sizes + 8 * number).value)
        for number in range(count)
    )
    spans = tuple((start, size if start else 0) for start, size in spans)
    return ArrowParts(kind.layout, held, first, length, validity(array, kind.name), 0, views, 0, spans)


def _coded(held: Held, array: Any, kind: ColumnType, first: int, length: int) -> ArrowParts:
    """A column of codes, and the dictionary that says what they mean."""
    buffers(array, 2, kind.name)
    codes = needed(array, 1, kind.name, needed=length > 0)
    if not array.dictionary:
        raise IllegalArgumentError(f"{kind.name} lacks its dictionary")
    inner = kind._replace(name=f"the dictionary of {kind.name}", code_bytes=0)
    return ArrowParts(
        inner.layout,
        held,
        first,
        length,
        validity(array, kind.name),
        0,
        codes,
        0,
        (),
        kind.code_bytes,
        parts(held, array.dictionary.contents, inner, 0, None),
    )


def check_numbers(array: Any, what: str) -> None:
    if not array.release:
        raise IllegalArgumentError(f"{what} was released already")
    if array.length < 0 or array.offset < 0 or array.offset + array.length > MAX_INT64 // 16:
        raise IllegalArgumentError(f"{what} says it has {array.length} rows from row {array.offset}")
    if not -1 <= array.null_count <= array.length:
        raise IllegalArgumentError(f"{what} says {array.null_count} of its {array.length} rows are null")


def buffers(array: Any, count: int, what: str) -> bool:
    """True; raises where the array has another number of buffers."""
    if array.n_buffers != count or not array.buffers:
        found = array.n_buffers if array.buffers else 0
        raise IllegalArgumentError(f"{what} has {found} buffers, its type has {count}")
    return True


def buffer(array: Any, number: int, what: str) -> int:
    """The address of a buffer, 0 for none."""
    if number >= array.n_buffers:
        raise IllegalArgumentError(f"{what} has no buffer {number}")
    return array.buffers[number] or 0


def needed(array: Any, number: int, what: str, *, needed: bool) -> int:
    address = buffer(array, number, what)
    if needed and not address:
        raise IllegalArgumentError(f"{what} lacks its buffer {number}")
    return address


def validity(array: Any, what: str) -> int:
    if array.null_count == 0:
        return 0
    return needed(array, 0, what, needed=array.null_count > 0)
