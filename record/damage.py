"""Kinds of damage in the bytes of records, and their error texts, which both twins share.

Positions count from the first byte of the batch's decompressed records.
"""

from __future__ import annotations

from enum import IntEnum


class DamagedError(Exception):
    """The records of a batch are damaged; the text names record, field and position."""


class Damage(IntEnum):
    """Kinds of damage; the compiled twin uses the same numbers."""

    NUMBER_CUT = 1
    NUMBER_TOO_LONG = 2
    SIZE = 3
    NO_ATTRIBUTES = 4
    HEADER_COUNT = 5
    NULL_HEADER_KEY = 6
    HEADER_KEY_TEXT = 7
    LEFT_OVER = 8
    OFFSET = 9
    BEHIND_LAST = 10
    COUNT = 11
    ATTRIBUTES = 12


class Field(IntEnum):
    """Fields of a record; the compiled twin uses the same numbers."""

    RECORD = 0
    TIMESTAMP_DELTA = 1
    OFFSET_DELTA = 2
    KEY = 3
    VALUE = 4
    HEADER_COUNT = 5
    HEADER_KEY = 6
    HEADER_VALUE = 7


_NAMES = (
    "record",
    "timestamp delta",
    "offset delta",
    "key",
    "value",
    "header count",
    "header key",
    "header value",
)
_PLAIN_NUMBERS = (Field.TIMESTAMP_DELTA, Field.OFFSET_DELTA, Field.HEADER_COUNT)
_TEXTS = {
    Damage.NUMBER_CUT: "{number} at {position} is truncated at {left}",
    Damage.NUMBER_TOO_LONG: "{number} at {position} has more than {said} bits",
    Damage.SIZE: "{field} of {said} bytes at {position}, {left} are left",
    Damage.NO_ATTRIBUTES: "it ends at {position} before its attributes",
    Damage.HEADER_COUNT: "{said} headers at {position}, {left} bytes are left",
    Damage.NULL_HEADER_KEY: "a null header key at {position}",
    Damage.HEADER_KEY_TEXT: "a header key before {position} is not UTF-8, and too long to be converted",
    Damage.LEFT_OVER: "{left} bytes at {position} belong to no field",
    Damage.OFFSET: "offset delta {said} at {position} exceeds 64 bits",
    Damage.BEHIND_LAST: "{left} bytes at {position}, after the last of {record} records",
    Damage.COUNT: "{said} records in {left} bytes",
    Damage.ATTRIBUTES: "attributes {said} at {position}, of which no bit is defined",
}
_OF_ALL = (Damage.BEHIND_LAST, Damage.COUNT)


def damaged(damage: int, field: int, record: int, position: int, *, said: int, left: int) -> DamagedError:
    """Make the error.

    Args:
        damage: a ``Damage``.
        field: a ``Field``.
        record: number of the record in its batch, from 0.
        position: of the field's first byte.
        said: the claimed length, count or delta; for a long number, its maximum of bits.
        left: number of bytes left; for a truncated number, where the bytes end.
    """
    name = _NAMES[field]
    number = name if field in _PLAIN_NUMBERS else f"length of the {name}"
    text = _TEXTS[Damage(damage)].format(
        field=name, number=number, record=record, position=position, said=said, left=left
    )
    return DamagedError(text if damage in _OF_ALL else f"record {record}: {text}")
