"""Functions that compiled codecs call: varints, records, and errors without a position.

`wire.codec` adds positions and field paths: it runs a failed message a second time through the tracing
variant of its codec.
"""

from __future__ import annotations

from typing import Any, NoReturn

from splashdam.wire.fields import Part

UNCOPIED_BYTES = 64 * 1024
"""Records of this size and more become a part of their own; for smaller ones a copy is cheaper."""

MAX_STRING_BYTES = 32_767
"""Limit of compact strings, too: Kafka's own readers and writers reject longer ones."""

MAX_ELEMENTS = 1_000_000
"""Limit of structures or strings in one array, as in Kafka from 4.4 on, in requests and responses. As objects
they take 30 times the memory of the smallest encoding."""

MAX_TAGGED_FIELDS = 10_000
"""Limit of tagged fields in one structure, known or not, as in Kafka from 4.4 on."""

MAX_REQUEST_ELEMENTS = 50_000
"""Limit of elements in all arrays of one request: a broker spends some microseconds on each, in a loop that
all clients share. Kafka itself accepts at most 10,000 new partitions at once."""

TAGGED_FIELDS_PER_ELEMENT = 4
MAX_REQUEST_TAGGED_FIELDS = TAGGED_FIELDS_PER_ELEMENT * MAX_REQUEST_ELEMENTS
"""Limit of tagged fields in all structures of one request: each, known or not, costs the loop a step, and its
sender two bytes."""

_VARINT_BYTES = 5
SMALL = [bytes([value]) for value in range(128)]
"""The varints of one byte; compiled codecs look them up without a call."""


class IllegalBytes(Exception):
    """A value violates the schema; `wire.codec` turns it into a ProtocolError."""


class TooManyElements(IllegalBytes):
    """A request exceeds its limit of elements or tagged fields."""


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 128:
        return SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    """Decode an unsigned varint of at most 32 bits; return it and the position after it."""
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
    else:
        raise IllegalBytes(f"a varint is longer than {_VARINT_BYTES} bytes")
    if value > 0xFFFFFFFF:
        raise IllegalBytes("a varint does not fit in 32 bits")
    return value, position


def skip_tagged_fields(data: memoryview, position: int, end: int, count: int) -> int:
    """Return the position after ``count`` tagged fields that are not declared."""
    for _ in range(count):
        _tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if size > end - position:
            refuse_length(size, end - position)
        position += size
    return position


def add_records(out: list[Any], parts: list[Part], records: Part) -> None:
    """Add record batches: small ones to ``out``, large ones and file slices as parts of their own."""
    in_memory = isinstance(records, bytes | bytearray | memoryview)
    if in_memory and len(records) < UNCOPIED_BYTES:  # type: ignore[arg-type]  # it is a buffer
        out.append(records)
        return
    parts.append(b"".join(out))  # never empty: the length of the records is in it
    out.clear()
    parts.append(records)


def records_size(records: Part) -> int:
    """Return the size of record batches, in memory or not."""
    if isinstance(records, bytes | bytearray | memoryview):
        return len(records)
    return records.size_bytes


def sixteen(value: bytes) -> bytes:
    """Return a uuid if it has 16 bytes; ``struct`` would pad or cut it silently."""
    if len(value) != 16:
        raise IllegalBytes(f"a uuid has 16 bytes, not {len(value)}")
    return value


def refuse_length(length: int, left: int) -> NoReturn:
    """Raise for a length that is negative or exceeds the bytes that are left."""
    if length < 0:
        raise IllegalBytes(f"length {length} is negative")
    raise IllegalBytes(f"length {length} exceeds the {left} bytes left")


def refuse_count(count: int, smallest: int, left: int) -> NoReturn:
    """Raise for an array's count that is negative or exceeds what the bytes can hold."""
    if count < 0:
        raise IllegalBytes(f"count {count} is negative")
    raise IllegalBytes(f"{count} elements of at least {smallest} bytes exceed the {left} bytes left")


def refuse_elements(count: int) -> NoReturn:
    raise IllegalBytes(f"{count} elements are above the limit of {MAX_ELEMENTS}")


def refuse_tagged_fields(count: int) -> NoReturn:
    raise IllegalBytes(f"{count} tagged fields are above the limit of {MAX_TAGGED_FIELDS}")


def refuse_request() -> NoReturn:
    raise TooManyElements(f"more than {MAX_REQUEST_ELEMENTS} elements in one request; split it")


def refuse_request_tags() -> NoReturn:
    raise TooManyElements(f"more than {MAX_REQUEST_TAGGED_FIELDS} tagged fields in one request")


def refuse_string(size: int) -> NoReturn:
    raise IllegalBytes(f"a string of {size} bytes is above the limit of {MAX_STRING_BYTES}")


def refuse_null() -> NoReturn:
    raise IllegalBytes("null is not allowed in this version")


def refuse_dropping(version: int) -> NoReturn:
    raise IllegalBytes(f"version {version} has no such field, and its value must not be dropped")


def refuse_tag_size(used: int, size: int) -> NoReturn:
    raise IllegalBytes(f"the tagged field takes {used} bytes but announces {size}")
