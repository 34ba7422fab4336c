"""What can be wrong with the bytes of records, and the one text for it: both twins find it, neither words it.

Positions count from the first byte of the batch's records, unpacked.
"""

from __future__ import annotations

from enum import IntEnum


class DamagedError(Exception):
    """The records of a batch are damaged; the text names record, field and position."""


class Damage(IntEnum):
    """What was met. The numbers are the compiled twin's as well."""

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
    """Where it was met."""

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
    Damage.NUMBER_CUT: "{number} at {position} runs past the end at {left}",
    Damage.NUMBER_TOO_LONG: "{number} at {position} has more than {said} bits",
    Damage.SIZE: "{field} of {said} bytes at {position}, {left} are left",
    Damage.NO_ATTRIBUTES: "it ends at {position} before its attributes",
    Damage.HEADER_COUNT: "{said} headers at {position}, {left} bytes are left",
    Damage.NULL_HEADER_KEY: "a null header key at {position}",
    Damage.HEADER_KEY_TEXT: "a header key before {position} is not UTF-8, and too long to be made so",
    Damage.LEFT_OVER: "{left} bytes at {position} belong to no field",
    Damage.OFFSET: "offset delta {said} at {position} leads out of 64 bits",
    Damage.BEHIND_LAST: "{left} bytes at {position}, behind the last of {record} records",
    Damage.COUNT: "{said} records in {left} bytes",
    Damage.ATTRIBUTES: "attributes {said} at {position}, of which no bit is defined",
}
_OF_ALL = (Damage.BEHIND_LAST, Damage.COUNT)


def damaged(damage: int, field: int, record: int, position: int, *, said: int, left: int) -> DamagedError:
    """The error to raise.

    Args:
        damage: what was met, a ``Damage``.
        field: where, a ``Field``.
        record: number of the record in its batch, from 0.
        position: of the field's first byte.
        said: the length, count or delta that the bytes claim; of a long number, the bits it may have.
        left: bytes that are there; of a cut number, where they end.
    """
    name = _NAMES[field]
    number = name if field in _PLAIN_NUMBERS else f"length of the {name}"
    text = _TEXTS[Damage(damage)].format(
        field=name, number=number, record=record, position=position, said=said, left=left
    )
    return DamagedError(text if damage in _OF_ALL else f"record {record}: {text}")
