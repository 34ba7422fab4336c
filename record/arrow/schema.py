"""Which columns of Arrow data hold values and keys, and how each is laid out."""

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
"""What people call the formats that are refused most often."""


class ColumnType(NamedTuple):
    """How a column is laid out.

    Attributes:
        name: for errors.
        layout: of the values.
        size_bytes: of each value where all have the same size, else 0.
        code_bytes: as ``ArrowParts``: not 0 where rows are codes of a dictionary.
    """

    name: str
    layout: Layout
    size_bytes: int
    code_bytes: int


class Selection(NamedTuple):
    """What to take from each array.

    Attributes:
        value, key: numbers of the columns; -1 for the value: the array itself is the column. No key: None.
        value_type, key_type: how they are laid out.
        column_count: how many columns each array must have.
    """

    value: int
    value_type: ColumnType
    key: int | None
    key_type: ColumnType | None
    column_count: int


def select(schema: Any, value: str, key: str | None, *, key_needed: bool) -> Selection:
    """Finds the columns by name; an array that is no table holds the values.

    Args:
        schema: an ``ArrowSchema``.
        value, key: names of the columns; None for no keys.
        key_needed: whether it is a mistake if the key's column is missing.

    Raises:
        IllegalArgumentError: a column is missing, is there twice, or has a type that is not bytes.
    """
    if format_of(schema, "the data") != "+s":
        if key is not None and key_needed:
            raise IllegalArgumentError(f"key={key!r}: a single array has no such column; send a table")
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
    """The number of the column of this name.

    Raises:
        IllegalArgumentError: there is none, or more than one.
    """
    found = [number for number, other in enumerate(names) if other == name]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
    if found:
        raise IllegalArgumentError(f"{len(found)} columns are named {name!r}, of {shown}; rename all but one")
    raise IllegalArgumentError(f"no column {name!r} among {shown or 'none'}; name one with {option}=…")


def column_type(schema: Any, name: str) -> ColumnType:
    """How a column is laid out.

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
    """What a column is called."""
    return (schema.name or b"").decode(errors="replace")


def format_of(schema: Any, name: str) -> str:
    """The format string of a column.

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
    """An Arrow format as people call it."""
    return f"{_NAMES[form]} (format {form!r})" if form in _NAMES else f"format {form!r}"
