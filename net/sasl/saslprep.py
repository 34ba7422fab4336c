"""SASLprep (RFC 4013): the one form of a name or password that looks the same in several.

SCRAM asks for it. Kafka's brokers, its Java client and librdkafka hash the UTF-8 as it is instead, and a
client that prepared a password would be refused by them where the two differ. So nothing is prepared here
when it is sent; the embedded broker takes only new names and passwords that preparing does not change, so
that clients of both kinds get in.
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
"""Of a text that is not all ASCII: each is looked up in twelve tables, which takes 3 µs."""


def saslprep(text: str) -> str:
    """The prepared form.

    Raises:
        ValueError: the text has characters that are not allowed, mixes directions of writing, or is longer
            than anybody's name or password.
    """
    if text.isascii():  # of ASCII nothing is mapped, and control characters alone are prohibited
        if not text.isprintable():
            raise ValueError("it has characters that are not allowed in names and passwords")
        return text
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"it has {len(text)} characters, and not more than {_MOST_CHARACTERS} are allowed")
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(is_prohibited(each) for each in prepared for is_prohibited in _PROHIBITED):
        raise ValueError("it has characters that are not allowed in names and passwords")
    if any(map(stringprep.in_table_d1, prepared)):
        ends = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not ends or any(map(stringprep.in_table_d2, prepared)):
            raise ValueError("it mixes directions of writing")
    return prepared
