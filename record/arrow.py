"""Arrow data of any library, through the PyCapsule interface: taken over, checked, and given back once.

Nothing of Arrow has to be installed. The two structs of the C data interface are read through ``ctypes`` on
both twins, which costs some microseconds per chunk; the rows are the kernel's (``arrow_column.py``).
"""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any, NamedTuple, Self

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.arrow_column import ArrowParts, Layout
from splashdam.record.arrow_schema import ColumnType, Selection, select
from splashdam.record.arrow_structs import (
    MAX_INT64,
    ArrowArray,
    ArrowArrayStream,
    ArrowSchema,
    Held,
    Stream,
    children,
    from_capsule,
    released_at_end,
)


class ArrowChunk(NamedTuple):
    """Some rows of the data.

    Attributes:
        values: the column of values.
        keys: the column of keys, None without.
    """

    values: ArrowParts
    keys: ArrowParts | None


class ArrowSource:
    """Values and keys of something that speaks Arrow's PyCapsule interface, chunk by chunk::

        with ArrowSource(table, value="value", key="key", key_needed=False) as source:
            while (chunk := source.next()) is not None:
                ...

    A chunk keeps its memory as long as anybody refers to its ``owner``. Leaving the block ends the stream.

    Args:
        data: has ``__arrow_c_stream__`` or ``__arrow_c_array__``.
        value, key, key_needed: as ``arrow_schema.select``.

    Raises:
        TypeError: ``data`` has neither, or does not answer what it should.
        IllegalArgumentError: the columns are not there or not bytes, or the data are damaged.
    """

    def __init__(self, data: Any, *, value: str, key: str | None, key_needed: bool) -> None:
        self._stream: Stream | None = None
        self._array: Held | None = None
        try:
            with released_at_end(self._open(data)) as schema:
                self._selection = select(schema, value, key, key_needed=key_needed)
        except BaseException:
            self.close()
            raise

    def _open(self, data: Any) -> Held:
        """Takes the data over; answers their schema."""
        kind = type(data).__name__
        if isinstance(data, type):
            pass
        elif hasattr(data, "__arrow_c_stream__"):
            giver = f"{kind}.__arrow_c_stream__()"
            capsule = data.__arrow_c_stream__()
            self._stream = Stream(from_capsule(capsule, b"arrow_array_stream", ArrowArrayStream, giver))
            return self._stream.schema()
        elif hasattr(data, "__arrow_c_array__"):
            giver = f"{kind}.__arrow_c_array__()"
            schema, array = data.__arrow_c_array__()
            self._array = from_capsule(array, b"arrow_array", ArrowArray, giver)
            return from_capsule(schema, b"arrow_schema", ArrowSchema, giver)
        raise TypeError(
            f"send_arrow() takes what has __arrow_c_stream__ or __arrow_c_array__ (a pyarrow or polars table,"
            f" for example), not {kind}; for a list of values there is send_many()"
        )

    @property
    def has_keys(self) -> bool:
        """Whether there is a column of keys."""
        return self._selection.key is not None

    def next(self) -> ArrowChunk | None:
        """The next rows; None at the end.

        Raises:
            IllegalArgumentError: the stream fails, or an array contradicts itself or the schema.
        """
        array = self._array if self._stream is None else self._stream.next()
        self._array = None
        return None if array is None else _chunk(array, self._selection)

    def close(self) -> None:
        """Ends the stream. Repeating it does nothing."""
        if self._stream is not None:
            self._stream.release()
        if self._array is not None:
            self._array.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _chunk(held: Held, selection: Selection) -> ArrowChunk:
    array = held.struct
    if selection.value < 0:
        return ArrowChunk(_parts(held, array, selection.value_type, 0, None), None)
    what = "the table"
    _check_numbers(array, what)
    validity = _buffer(array, 0, what) if _buffers(array, 1, what) else 0
    if validity and array.null_count and _has_null(validity, array.offset, array.length):
        raise IllegalArgumentError(f"{what} has rows that are null as a whole; fill or filter them first")
    columns = list(children(array, what))
    if len(columns) != selection.column_count:
        raise IllegalArgumentError(f"{what} has {len(columns)} columns, its schema {selection.column_count}")
    rows = (array.offset, array.length)
    values = _parts(held, columns[selection.value], selection.value_type, *rows)
    keys = None
    if selection.key is not None and selection.key_type is not None:
        keys = _parts(held, columns[selection.key], selection.key_type, *rows)
    return ArrowChunk(values, keys)


def _parts(held: Held, array: Any, kind: ColumnType, skip: int, length: int | None) -> ArrowParts:
    """A column without its first ``skip`` rows; ``length`` rows of it, or all.

    Raises:
        IllegalArgumentError: the array contradicts itself.
    """
    _check_numbers(array, kind.name)
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
        _buffers(array, 2, kind.name)
        data = _needed(array, 1, kind.name, needed=length > 0 and kind.size_bytes > 0)
        validity = _validity(array, kind.name)
        return ArrowParts(kind.layout, held, first, length, validity, 0, data, kind.size_bytes)
    _buffers(array, 3, kind.name)
    offsets = _needed(array, 1, kind.name, needed=length > 0)
    offset_type: Any = ctypes.c_int32 if kind.layout is Layout.OFFSETS_32 else ctypes.c_int64
    end = 0
    if length:
        end = offset_type.from_address(offsets + (first + length) * ctypes.sizeof(offset_type)).value
    data = _needed(array, 2, kind.name, needed=end > 0)
    return ArrowParts(kind.layout, held, first, length, _validity(array, kind.name), offsets, data, end)


def _views(held: Held, array: Any, kind: ColumnType, first: int, length: int) -> ArrowParts:
    """A column of views: behind them their buffers, and at the end the sizes of these."""
    count = max(array.n_buffers - 3, 0)
    _buffers(array, count + 3, kind.name)
    views = _needed(array, 1, kind.name, needed=length > 0)
    sizes = _needed(array, count + 2, kind.name, needed=count > 0)
    spans = tuple(
        (_buffer(array, number + 2, kind.name), ctypes.c_int64.from_address(sizes + 8 * number).value)
        for number in range(count)
    )
    spans = tuple((start, size if start else 0) for start, size in spans)
    return ArrowParts(kind.layout, held, first, length, _validity(array, kind.name), 0, views, 0, spans)


def _coded(held: Held, array: Any, kind: ColumnType, first: int, length: int) -> ArrowParts:
    """A column of codes, and the dictionary that says what they mean."""
    _buffers(array, 2, kind.name)
    codes = _needed(array, 1, kind.name, needed=length > 0)
    if not array.dictionary:
        raise IllegalArgumentError(f"{kind.name} lacks its dictionary")
    inner = kind._replace(name=f"the dictionary of {kind.name}", code_bytes=0)
    return ArrowParts(
        inner.layout,
        held,
        first,
        length,
        _validity(array, kind.name),
        0,
        codes,
        0,
        (),
        kind.code_bytes,
        _parts(held, array.dictionary.contents, inner, 0, None),
    )


def _check_numbers(array: Any, what: str) -> None:
    if not array.release:
        raise IllegalArgumentError(f"{what} was released already")
    if array.length < 0 or array.offset < 0 or array.offset + array.length > MAX_INT64 // 16:
        raise IllegalArgumentError(f"{what} says it has {array.length} rows from row {array.offset}")
    if not -1 <= array.null_count <= array.length:
        raise IllegalArgumentError(f"{what} says {array.null_count} of its {array.length} rows are null")


def _buffers(array: Any, count: int, what: str) -> bool:
    """True; raises where the array has another number of buffers."""
    if array.n_buffers != count or not array.buffers:
        found = array.n_buffers if array.buffers else 0
        raise IllegalArgumentError(f"{what} has {found} buffers, its type has {count}")
    return True


def _buffer(array: Any, number: int, what: str) -> int:
    """The address of a buffer, 0 for none."""
    if number >= array.n_buffers:
        raise IllegalArgumentError(f"{what} has no buffer {number}")
    return array.buffers[number] or 0


def _needed(array: Any, number: int, what: str, *, needed: bool) -> int:
    address = _buffer(array, number, what)
    if needed and not address:
        raise IllegalArgumentError(f"{what} lacks its buffer {number}")
    return address


def _validity(array: Any, what: str) -> int:
    if array.null_count == 0:
        return 0
    return _needed(array, 0, what, needed=array.null_count > 0)


def _has_null(validity: int, first: int, length: int) -> bool:
    """Whether a bit of a row is not set."""
    if not length:
        return False
    low, high = first >> 3, (first + length + 7) >> 3
    bits = int.from_bytes(ctypes.string_at(validity + low, high - low), "little") >> (first & 7)
    wanted = (1 << length) - 1
    return bits & wanted != wanted
