"""Read Arrow data of any library through the PyCapsule interface: import it, check it, release it once.

No Arrow library is needed. The structs of the C data interface are read through ``ctypes`` with both twins,
which costs some microseconds per chunk; the kernel reads the rows (``kernel/bulk/blob_column.py``).
Everything that an array says of itself is checked here; what its buffers contain is checked there, row by
row.
"""

from __future__ import annotations

import ctypes
from array import array as Numbers
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.arrow.schema import (
    ColumnType,
    Selection,
    called,
    column_type,
    find_column,
    format_of,
    name_of,
    select,
)
from splashdam.record.arrow.structs import (
    MAX_INT64,
    Arrays,
    Held,
    children,
    released_at_end,
)
from splashdam.record.kernel.bulk.blob_column import ArrowParts, Layout
from splashdam.record.kernel.bulk.header_lists import ListParts


class ArrowChunk(NamedTuple):
    """A chunk of rows.

    Attributes:
        values: the column of values.
        keys: the column of keys, or None.
        headers: the column of headers, or None.
        partitions, timestamps: for each row a number or None; None without the column.
    """

    values: ArrowParts
    keys: ArrowParts | None
    headers: ListParts | None = None
    partitions: Sequence[int | None] | None = None
    timestamps: Sequence[int | None] | None = None


class ArrowSource:
    """The rows of an object with Arrow's PyCapsule interface, chunk by chunk::

        with ArrowSource(table, value="value", key="key", key_needed=False) as source:
            while (chunk := source.next()) is not None:
                ...

    A chunk's memory lives as long as something refers to its ``owner``. Leaving the block releases the
    stream.

    Args:
        data: has ``__arrow_c_stream__`` or ``__arrow_c_array__``.
        value, key, key_needed: as in ``schema.select``.
        headers, partition, timestamp_ms: names of the columns with these; None for none.

    Raises:
        TypeError: ``data`` has neither, or does not return what it should.
        IllegalArgumentError: columns are missing or of another type than bytes, or the data are damaged.
    """

    def __init__(
        self,
        data: Any,
        *,
        value: str,
        key: str | None,
        key_needed: bool,
        headers: str | None = None,
        partition: str | None = None,
        timestamp_ms: str | None = None,
    ) -> None:
        self._arrays = Arrays(data)
        try:
            with released_at_end(self._arrays.schema()) as schema:
                self._selection = select(schema, value, key, key_needed=key_needed)
                self._more = select_more(schema, headers, partition, timestamp_ms)
        except BaseException:
            self.close()
            raise

    @property
    def has_partitions(self) -> bool:
        """Whether there is a column of partitions."""
        return self._more.partition is not None

    @property
    def has_keys(self) -> bool:
        """Whether there is a column of keys."""
        return self._selection.key is not None

    def next(self) -> ArrowChunk | None:
        """Return the next chunk; None at the end.

        Raises:
            IllegalArgumentError: the stream fails, or an array contradicts itself or the schema.
        """
        array = self._arrays.next()
        return None if array is None else _chunk(array, self._selection, self._more)

    def close(self) -> None:
        """Release the stream; a repeated call does nothing."""
        self._arrays.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _chunk(held: Held, selection: Selection, more: MoreColumns) -> ArrowChunk:
    array = held.struct
    if selection.value < 0:
        return ArrowChunk(parts(held, array, selection.value_type, 0, None), None)
    what = "the table"
    check_numbers(array, what)
    nulls = buffer(array, 0, what) if buffers(array, 1, what) else 0
    if nulls and array.null_count and _has_null(nulls, array.offset, array.length):
        raise IllegalArgumentError(f"{what} has rows that are null as a whole; fill or filter them first")
    columns = list(children(array, what))
    if len(columns) != selection.column_count:
        raise IllegalArgumentError(f"{what} has {len(columns)} columns, its schema {selection.column_count}")
    rows = (array.offset, array.length)
    values = parts(held, columns[selection.value], selection.value_type, *rows)
    keys = None
    if selection.key is not None and selection.key_type is not None:
        keys = parts(held, columns[selection.key], selection.key_type, *rows)
    return ArrowChunk(values, keys, *more.read(held, columns, *rows))


def _has_null(validity: int, first: int, length: int) -> bool:
    """Return whether a row's validity bit is not set."""
    if not length:
        return False
    low, high = first >> 3, (first + length + 7) >> 3
    bits = int.from_bytes(ctypes.string_at(validity + low, high - low), "little") >> (first & 7)
    wanted = (1 << length) - 1
    return bits & wanted != wanted


_WHOLE_NUMBERS = {"c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "l": "q", "L": "Q"}
"""Arrow format -> type code of an ``array``."""
_TO_MS = {"tss": (1000, 1), "tsm": (1, 1), "tsu": (1, 1000), "tsn": (1, 1_000_000), "tdm": (1, 1)}
"""Arrow format -> factor and divisor to convert to milliseconds; a time zone follows the colon."""

_LISTS: dict[str, Any] = {"+l": ctypes.c_int32, "+L": ctypes.c_int64, "+m": ctypes.c_int32}


class NumberColumn(NamedTuple):
    """A column of integers.

    Attributes:
        at: index of the column.
        name: for errors.
        kind: type code of an ``array``.
        factor, divisor: values are multiplied or divided by these.
    """

    at: int
    name: str
    kind: str
    factor: int = 1
    divisor: int = 1

    def read(self, held: Held, array: Any, skip: int, length: int) -> Sequence[int | None]:
        """Read rows from ``skip`` on; ``held`` keeps the memory meanwhile.

        Raises:
            IllegalArgumentError: the array contradicts itself.
        """
        first = _first_row(array, self.name, skip, length)
        buffers(array, 2, self.name)
        data = needed(array, 1, self.name, needed=length > 0)
        if not length:
            return []
        read = Numbers(self.kind)
        stored: Any = ctypes.c_char * (length * read.itemsize)
        read.frombytes(stored.from_address(data + first * read.itemsize))
        numbers: Sequence[int] = read
        if self.factor != 1:
            numbers = [number * self.factor for number in read]
        elif self.divisor != 1:
            numbers = [number // self.divisor for number in read]
        nulls = validity(array, self.name)
        if not nulls:
            return numbers
        return [
            number if bit else None for number, bit in zip(numbers, _bits(nulls, first, length), strict=True)
        ]


class HeaderColumn(NamedTuple):
    """A column of lists of key and value.

    Attributes:
        at: index of the column.
        name: for errors.
        offset_type: of the lists.
        key, value: their layouts.
    """

    at: int
    name: str
    offset_type: Any
    key: ColumnType
    value: ColumnType

    def read(self, held: Held, array: Any, skip: int, length: int) -> ListParts:
        """Read rows from ``skip`` on.

        Raises:
            IllegalArgumentError: the array contradicts itself.
        """
        first = _first_row(array, self.name, skip, length)
        buffers(array, 2, self.name)
        (pairs,) = _below(array, 1, self.name)
        offsets = needed(array, 1, self.name, needed=length > 0)
        entries = f"the entries of {self.name}"
        check_numbers(pairs, entries)
        buffers(pairs, 1, entries)
        keys, values = (
            parts(held, child, kind, pairs.offset, pairs.length)
            for child, kind in zip(_below(pairs, 2, self.name), (self.key, self.value), strict=True)
        )
        return ListParts(
            self.name,
            first,
            length,
            validity(array, self.name),
            offsets,
            ctypes.sizeof(self.offset_type),
            keys,
            values,
            buffer(pairs, 0, entries) if pairs.null_count else 0,
            pairs.offset,
        )


class MoreColumns(NamedTuple):
    """The columns beside values and keys; None for a missing one."""

    headers: HeaderColumn | None = None
    partition: NumberColumn | None = None
    timestamp: NumberColumn | None = None

    def read(self, held: Held, columns: Sequence[Any], skip: int, length: int) -> tuple[Any, Any, Any]:
        """Read headers, partitions and timestamps of some rows; None for a missing column."""
        headers, partitions, timestamps = (
            None if column is None else column.read(held, columns[column.at], skip, length) for column in self
        )
        return headers, partitions, timestamps


def select_more(
    schema: Any, headers: str | None, partition: str | None, timestamp_ms: str | None
) -> MoreColumns:
    """Find these columns by name.

    Raises:
        IllegalArgumentError: a column is missing, exists twice, or has a wrong type.
    """
    wanted = {"headers": headers, "partition": partition, "timestamp_ms": timestamp_ms}
    if not any(name is not None for name in wanted.values()):
        return MoreColumns()
    if format_of(schema, "the data") != "+s":
        option, name = next(each for each in wanted.items() if each[1] is not None)
        raise IllegalArgumentError(
            f"{option}={name!r}: a single array has no such column; send a table, or give the array itself"
        )
    fields = list(children(schema, "the schema"))
    names = [name_of(field) for field in fields]
    found = {option: find_column(names, name, option) for option, name in wanted.items() if name is not None}
    return MoreColumns(
        *(_column(option, found[option], fields, names) if option in found else None for option in wanted)
    )


def _column(option: str, at: int, fields: Sequence[Any], names: Sequence[str]) -> Any:
    return column_of(option, f"column {names[at]!r}", fields[at], at)


def column_of(option: str, name: str, schema: Any, at: int = 0) -> NumberColumn | HeaderColumn:
    """Return how to read the column ``at`` of headers, partitions or timestamps.

    Args:
        option: of ``send_arrow``: headers, partition or timestamp_ms.
        name: of the column, for errors.
        schema: of the column.
        at: index of the column.

    Raises:
        IllegalArgumentError: it has a wrong type.
    """
    form = format_of(schema, name)
    if schema.dictionary:
        raise IllegalArgumentError(f"{name} is a dictionary; {option} takes a plain column: cast it first")
    if option == "headers":
        return _header_column(at, name, form, schema)
    if form in _WHOLE_NUMBERS:
        return NumberColumn(at, name, _WHOLE_NUMBERS[form])
    scale = _TO_MS.get(form.partition(":")[0])
    if option == "timestamp_ms" and scale is not None:
        return NumberColumn(at, name, "q", *scale)
    kinds = "whole numbers" if option == "partition" else "timestamps, or whole numbers of milliseconds"
    raise IllegalArgumentError(
        f"{name} is of Arrow type {called(form)}; {option} takes {kinds}: cast it first"
    )


def _header_column(at: int, name: str, form: str, schema: Any) -> HeaderColumn:
    below = list(children(schema, name)) if form in _LISTS else []
    inner = list(children(below[0], name)) if len(below) == 1 and format_of(below[0], name) == "+s" else []
    if len(inner) != 2:
        raise IllegalArgumentError(
            f"{name} is of Arrow type {called(form)};"
            " headers takes lists of structs of a key and a value, or maps: cast it first"
        )
    key, value = (
        column_type(each, f"the {what} of {name}")
        for each, what in zip(inner, ("keys", "values"), strict=True)
    )
    return HeaderColumn(at, name, _LISTS[form], key, value)


def _below(array: Any, count: int, name: str) -> list[Any]:
    found = list(children(array, name))
    if len(found) != count:
        raise IllegalArgumentError(f"{name} has {len(found)} arrays below it, its schema {count}")
    return found


def _first_row(array: Any, name: str, skip: int, length: int) -> int:
    check_numbers(array, name)
    if skip + length > array.length:
        raise IllegalArgumentError(f"{name} has {array.length} rows, its table {skip + length}")
    first: int = array.offset + skip
    return first


def _bits(address: int, first: int, length: int) -> list[bool]:
    """Return the validity bits from ``first`` on; all True without a buffer."""
    if not address or not length:
        return [True] * length
    low = first >> 3
    bits = int.from_bytes(ctypes.string_at(address + low, ((first + length + 7) >> 3) - low), "little")
    # The bit above them keeps leading zeros in the text, which is read backwards: the lowest bit comes first.
    shown = bin(bits >> (first & 7) | 1 << length + 8)[: -length - 1 : -1]
    return [bit == "1" for bit in shown]


def parts(held: Held, array: Any, kind: ColumnType, skip: int, length: int | None) -> ArrowParts:
    """Return ``length`` rows of a column, or all, without its first ``skip`` rows.

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
        # The last offset is the limit that the kernel holds every row to.
        end = offset_type.from_address(offsets + (first + length) * ctypes.sizeof(offset_type)).value
    data = needed(array, 2, kind.name, needed=end > 0)
    return ArrowParts(kind.layout, held, first, length, validity(array, kind.name), offsets, data, end)


def _views(held: Held, array: Any, kind: ColumnType, first: int, length: int) -> ArrowParts:
    """Read a column of views: then come their data buffers, and last the sizes of these."""
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
    """Read a dictionary-encoded column: codes, and the dictionary."""
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
    """Return True; raise if the array has another number of buffers."""
    if array.n_buffers != count or not array.buffers:
        found = array.n_buffers if array.buffers else 0
        raise IllegalArgumentError(f"{what} has {found} buffers, its type has {count}")
    return True


def buffer(array: Any, number: int, what: str) -> int:
    """Return the address of a buffer, 0 for none."""
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
