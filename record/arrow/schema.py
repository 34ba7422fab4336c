"""Select the columns of values and keys in an Arrow schema, and determine their layouts."""

from __future__ import annotations

from typing import Any, NamedTuple

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.arrow.structs import children
from splashdam.record.kernel.bulk.blob_column import Layout

_LAYOUTS = {
    "z": Layout.OFFSETS_32,
    "u": Layout.OFFSETS_32,
    "Z": Layout.OFFSETS_64,
    "U": Layout.OFFSETS_64,
    "vz": Layout.VIEWS,
    "vu": Layout.VIEWS,
    "n": Layout.NULLS,
}

_CODE_BYTES = {"c": -1, "C": 1, "s": -2, "S": 2, "i": -4, "I": 4, "l": -8, "L": 8}

_NAMES = {
    "b": "bool",
    "c": "int8",
    "C": "uint8",
    "s": "int16",
    "S": "uint16",
    "i": "int32",
    "I": "uint32",
    "l": "int64",
    "L": "uint64",
    "e": "float16",
    "f": "float32",
    "g": "float64",
    "+s": "struct",
    "+l": "list",
    "+L": "large_list",
    "+m": "map",
    "+r": "run_end_encoded",
}
"""Names of the formats that are rejected most often."""


class ColumnType(NamedTuple):
    """The layout of a column.

    Attributes:
        name: for errors.
        layout: of the values.
        size_bytes: size of fixed-size values, else 0.
        code_bytes: as in ``ArrowParts``: not 0 if rows are codes of a dictionary.
    """

    name: str
    layout: Layout
    size_bytes: int
    code_bytes: int


class Selection(NamedTuple):
    """The selected columns.

    Attributes:
        value, key: indexes of the columns; value -1: the array itself is the column; key None: no keys.
        value_type, key_type: their layouts.
        column_count: number of columns that each array must have.
    """

    value: int
    value_type: ColumnType
    key: int | None
    key_type: ColumnType | None
    column_count: int


def select(schema: Any, value: str, key: str | None, *, key_needed: bool) -> Selection:
    """Find the columns by name; an array that is no table is the column of values.

    Args:
        schema: an ``ArrowSchema``.
        value, key: names of the columns; None for no keys.
        key_needed: whether a missing key column is an error.

    Raises:
        IllegalArgumentError: a column is missing, exists twice, or is not of bytes or text.
    """
    if format_of(schema, "the data") != "+s":
        if key is not None and key_needed:
            raise IllegalArgumentError(
                f"key={key!r}: a single array has no such column; send a table, or give the array of keys"
                " itself"
            )
        return Selection(-1, column_type(schema, "the array"), None, None, 0)
    fields = list(children(schema, "the schema"))
    names = [name_of(field) for field in fields]
    value_at = find_column(names, value, "value")
    key_at = None
    if key is not None and (key_needed or key in names):
        key_at = find_column(names, key, "key")
    return Selection(
        value_at,
        column_type(fields[value_at], f"column {value!r}"),
        key_at,
        None if key_at is None else column_type(fields[key_at], f"column {key!r}"),
        len(fields),
    )


def find_column(names: list[str], name: str, option: str) -> int:
    """Return the index of the column with this name.

    Raises:
        IllegalArgumentError: no column has it, or more than one.
    """
    found = [number for number, other in enumerate(names) if other == name]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
    if found:
        raise IllegalArgumentError(f"{len(found)} columns are named {name!r}, of {shown}; rename all but one")
    raise IllegalArgumentError(f"no column {name!r} among {shown or 'none'}; name one with {option}=…")


def column_type(schema: Any, name: str) -> ColumnType:
    """Return the layout of a column.

    Raises:
        IllegalArgumentError: its type is not bytes or text; the text says which one it is.
    """
    form = format_of(schema, name)
    if schema.dictionary:
        if form not in _CODE_BYTES or schema.dictionary.contents.dictionary:
            raise _refusal(name, form)
        inner = column_type(schema.dictionary.contents, f"the dictionary of {name}")
        return inner._replace(name=name, code_bytes=_CODE_BYTES[form])
    if form.startswith("w:") and form[2:].isdecimal():
        return ColumnType(name, Layout.FIXED_SIZE, int(form[2:]), 0)
    if form not in _LAYOUTS:
        raise _refusal(name, form)
    return ColumnType(name, _LAYOUTS[form], 0, 0)


def name_of(schema: Any) -> str:
    """Return the name of a column."""
    return (schema.name or b"").decode(errors="replace")


def format_of(schema: Any, name: str) -> str:
    """Return the Arrow format of a column.

    Raises:
        IllegalArgumentError: it has none.
    """
    text: bytes | None = schema.format
    if text is None:
        raise IllegalArgumentError(f"{name} has no Arrow format")
    return text.decode(errors="replace")


def _refusal(name: str, form: str) -> IllegalArgumentError:
    return IllegalArgumentError(
        f"{name} is of Arrow type {called(form)}; keys and values are binary, string, their large, view and"
        " fixed-size kinds, or dictionaries of these: cast the column first, in pyarrow with"
        " `.cast(pyarrow.string())`"
    )


def called(form: str) -> str:
    """Return the name of an Arrow format, for messages."""
    return f"{_NAMES[form]} (format {form!r})" if form in _NAMES else f"format {form!r}"
