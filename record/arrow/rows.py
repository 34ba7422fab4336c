"""Columns of Arrow data that are no bytes: partitions, timestamps and headers."""

from __future__ import annotations

import ctypes
from array import array as Numbers
from collections.abc import Sequence
from typing import Any, NamedTuple

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.arrow.arrays import buffer, buffers, check_numbers, needed, parts, validity
from splashdam.record.arrow.schema import (
    ColumnType,
    called,
    column_type,
    find_column,
    format_of,
    name_of,
)
from splashdam.record.arrow.structs import Held, children
from splashdam.record.kernel.bulk.header_lists import ListParts

_WHOLE_NUMBERS = {"c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "l": "q", "L": "Q"}
"""Format -> type code of an ``array`` of the same numbers."""
_TO_MS = {"tss": (1000, 1), "tsm": (1, 1), "tsu": (1, 1000), "tsn": (1, 1_000_000), "tdm": (1, 1)}
"""Format -> factor and divisor that make milliseconds of it; a time zone stands behind the colon."""

_LISTS: dict[str, Any] = {"+l": ctypes.c_int32, "+L": ctypes.c_int64, "+m": ctypes.c_int32}


class NumberColumn(NamedTuple):
    """Whole numbers.

    Attributes:
        at: number of the column.
        name: for errors.
        kind: type code of an ``array`` of them.
        factor, divisor: what is read is multiplied by the one or divided by the other.
    """

    at: int
    name: str
    kind: str
    factor: int = 1
    divisor: int = 1

    def read(self, held: Held, array: Any, skip: int, length: int) -> Sequence[int | None]:
        """Rows from ``skip`` on. ``held`` keeps the memory meanwhile.

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
    """Lists of a key and a value each.

    Attributes:
        at: number of the column.
        name: for errors.
        offset_type: of the lists.
        key, value: how these are laid out.
    """

    at: int
    name: str
    offset_type: Any
    key: ColumnType
    value: ColumnType

    def read(self, held: Held, array: Any, skip: int, length: int) -> ListParts:
        """Rows from ``skip`` on.

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
    """What is taken from each array beside values and keys; None: nothing."""

    headers: HeaderColumn | None = None
    partition: NumberColumn | None = None
    timestamp: NumberColumn | None = None

    def read(self, held: Held, columns: Sequence[Any], skip: int, length: int) -> tuple[Any, Any, Any]:
        """Headers, partitions and timestamps of these rows; None for a column that there is not."""
        headers, partitions, timestamps = (
            None if column is None else column.read(held, columns[column.at], skip, length) for column in self
        )
        return headers, partitions, timestamps


def select_more(
    schema: Any, headers: str | None, partition: str | None, timestamp_ms: str | None
) -> MoreColumns:
    """Finds these columns by name.

    Raises:
        IllegalArgumentError: one is missing or there twice, or has a type that will not do.
    """
    wanted = {"headers": headers, "partition": partition, "timestamp_ms": timestamp_ms}
    if not any(name is not None for name in wanted.values()):
        return MoreColumns()
    if format_of(schema, "the data") != "+s":
        option, name = next(each for each in wanted.items() if each[1] is not None)
        raise IllegalArgumentError(f"{option}={name!r}: a single array has no such column; send a table")
    fields = list(children(schema, "the schema"))
    names = [name_of(field) for field in fields]
    found = {option: find_column(names, name, option) for option, name in wanted.items() if name is not None}
    return MoreColumns(
        *(_column(option, found[option], fields, names) if option in found else None for option in wanted)
    )


def _column(option: str, at: int, fields: Sequence[Any], names: Sequence[str]) -> Any:
    name, form = f"column {names[at]!r}", format_of(fields[at], f"column {names[at]!r}")
    if fields[at].dictionary:
        raise IllegalArgumentError(f"{name} is a dictionary; {option} takes a plain column: cast it first")
    if option == "headers":
        return _header_column(at, name, form, fields[at])
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
    """The bits from ``first`` on; all set where there are none."""
    if not address or not length:
        return [True] * length
    low = first >> 3
    bits = int.from_bytes(ctypes.string_at(address + low, ((first + length + 7) >> 3) - low), "little")
    shown = bin(bits >> (first & 7) | 1 << length + 8)[: -length - 1 : -1]
    return [bit == "1" for bit in shown]
