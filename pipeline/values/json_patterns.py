"""A pattern of good rows for one schema, in the language of RE2, the regular expressions of Arrow.

It demands what a strict reader demands, as far as a regular expression can: syntax, types, and integers of
the right size. It overlooks a name that stands twice, a field that is missing, and a number beyond the
largest double. It is too strict about fields that the schema lacks: they may be nested to `DEPTH` levels.

RE2 compiles a pattern for each array of rows, so the pattern has to be short. A list is written as
``([\\[,] item)+ \\]``, which names the item once, where an exact pattern names it twice at each level: for
the first item and for those after a comma. So ``[1[2]`` is overlooked, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

DEPTH = 8
"""Levels of arrays and objects in a field that the schema lacks."""
LONGEST_PATTERN = 30_000
"""Characters of a pattern; RE2 takes about 0.15 ms to compile 1,000."""
LONGEST_NAME, LONGEST_NAMES = 100, 3_000
"""Bytes of a name, and of all names of an object, up to which other names are told from them."""

_BLANK = r"[ \t\n\r]*"
_PLAIN = r'[^"\\\x00-\x1f]'
_HEX = "[0-9A-Fa-f]"
# Without half of a surrogate pair, which Arrow's parser refuses.
_ESCAPE = (
    rf'\\(?:["\\/bfnrt]|u(?:[0-9A-Ca-cE-Fe-f]{_HEX}{_HEX}{_HEX}|[Dd][0-7]{_HEX}{_HEX}'
    rf"|[Dd][89ABab]{_HEX}{_HEX}\\u[Dd][C-Fc-f]{_HEX}{_HEX}))"
)
_TEXT = rf'"(?:{_PLAIN}|{_ESCAPE})*"'
_ANY_ESCAPE = r"\\[^\x00-\x1f]"
_LOOSE_TEXT = rf'"(?:{_PLAIN}|{_ANY_ESCAPE})*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"


def row_pattern(fields: pa.StructType, *, refuses_unknown: bool) -> str:
    """Return the pattern of rows with an object of these fields, and blanks after it.

    It matches values of the type ``binary``, and relies on each to begin with ``{``.
    """
    anything = None if refuses_unknown else _anything()
    pattern = _object(fields, anything)
    if len(pattern) > LONGEST_PATTERN:
        pattern = _repeated("{", f"{_LOOSE_TEXT}{_BLANK}:{_BLANK}{_anything()}", "}")
    return f"^{pattern}{_BLANK}$"


def _repeated(opening: str, item: str, closing: str) -> str:
    blank = _BLANK
    return rf"(?:\{opening}{blank}\{closing}|(?:[\{opening},]{blank}{item}{blank})+\{closing})"


def _anything() -> str:
    """Return the pattern of any value. Inside it, arrays and objects are not told from each other."""
    leaf = f"{_LOOSE_TEXT}|{_NUMBER}|true|false|null"
    found = f"(?:{leaf})"
    for _ in range(DEPTH):
        item = f"(?:{_LOOSE_TEXT}{_BLANK}:{_BLANK})?{found}"
        found = rf"(?:{leaf}|[\[{{]{_BLANK}[\]}}]|(?:[\[{{,]{_BLANK}{item}{_BLANK})+[\]}}])"
    return found


def _object(fields: pa.StructType, anything: str | None) -> str:
    """Return the pattern of an object, with any value in fields of other names, or without them if None."""
    by_value: dict[str, list[bytes]] = {}
    for field in fields:
        by_value.setdefault(_value(field.type, anything), []).append(field.name.encode())
    members = [
        f'"(?:{"|".join(map(_quoted, names))})"{_BLANK}:{_BLANK}{value}' for value, names in by_value.items()
    ]
    if anything is not None:
        names = [name for same in by_value.values() for name in same]
        members.append(f"{_other_name(names)}{_BLANK}:{_BLANK}{anything}")
    return _repeated("{", f"(?:{'|'.join(members)})", "}")


def _value(kind: pa.DataType, anything: str | None) -> str:
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        found = _object(kind, anything)
    elif types.is_list(kind):
        found = _repeated("[", _value(kind.value_type, anything), "]")
    elif types.is_boolean(kind):
        found = "true|false"
    elif types.is_integer(kind):
        found = _integer(kind.bit_width)
    else:
        found = _NUMBER if types.is_floating(kind) else _TEXT
    return f"(?:{found}|null)"


def _integer(bits: int) -> str:
    """Return the pattern of signed integers that fit."""
    most = str((1 << (bits - 1)) - 1)
    shorter = rf"[1-9][0-9]{{0,{len(most) - 2}}}"
    smaller = [
        f"{most[:at]}[{int(at == 0)}-{int(digit) - 1}][0-9]{{{len(most) - at - 1}}}"
        for at, digit in enumerate(most)
        if int(digit) > int(at == 0)
    ]
    return f"-?(?:0|{'|'.join([shorter, *smaller, most])})|-{1 << (bits - 1)}"


def _other_name(names: Sequence[bytes]) -> str:
    """Return the pattern of a name other than these. A name that has an escape counts as another name."""
    if max(map(len, names)) > LONGEST_NAME or sum(map(len, names)) > LONGEST_NAMES:
        return _LOOSE_TEXT
    return rf'"(?:{_other_than(names)}|{_PLAIN}*{_ANY_ESCAPE}(?:{_PLAIN}|{_ANY_ESCAPE})*)"'


def _other_than(names: Sequence[bytes]) -> str:
    tails: dict[int, list[bytes]] = {}
    for name in names:
        if name:
            tails.setdefault(name[0], []).append(name[1:])
    heads = {head: _quoted(bytes([head])) for head in tails}
    ways = [rf'[^"\\\x00-\x1f{"".join(heads.values())}]{_PLAIN}*']
    if b"" not in names:
        ways.append("")
    ways += [quoted + _other_than(tails[head]) for head, quoted in heads.items()]
    return f"(?:{'|'.join(ways)})"


def _quoted(name: bytes) -> str:
    return "".join(
        chr(byte) if chr(byte).isascii() and chr(byte).isalnum() else f"\\x{byte:02x}" for byte in name
    )
