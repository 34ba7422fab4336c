"""SASLprep (RFC 4013): normalizes names and passwords, so that equal-looking ones are equal.

SCRAM demands it. Kafka's brokers, its Java client and librdkafka hash the plain UTF-8 instead and would
reject a client that prepared a password, if that changes it. So nothing is prepared when it is sent; the
embedded broker accepts only new names and passwords that SASLprep does not change, so that clients of both
kinds can log in.

The tables are those of the standard library's ``stringprep``; the steps between are too few for a dependency.
"""

from __future__ import annotations

import stringprep
import unicodedata

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,  # unassigned in Unicode 3.2, as for a string that is stored
)


_MOST_CHARACTERS = 1_024
"""Limit for text that is not ASCII: each character is looked up in twelve tables, which takes 3 µs."""


def saslprep(text: str) -> str:
    """Return the prepared form.

    Raises:
        ValueError: the text contains prohibited characters, mixes left-to-right and right-to-left text, or is
            too long.
    """
    if text.isascii():  # ASCII is not mapped, and only control characters are prohibited
        if not text.isprintable():
            raise ValueError("it has characters that are not allowed in names and passwords")
        return text
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, at most {_MOST_CHARACTERS} are allowed")
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(is_prohibited(each) for each in prepared for is_prohibited in _PROHIBITED):
        raise ValueError("it has characters that are not allowed in names and passwords")
    if any(map(stringprep.in_table_d1, prepared)):
        ends = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not ends or any(map(stringprep.in_table_d2, prepared)):
            raise ValueError("it mixes left-to-right and right-to-left text")
    return prepared
