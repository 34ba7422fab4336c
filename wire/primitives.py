"""What compiled codecs call at run time: varints, and the refusals that need no position.

Positions and field paths are added by `wire.codec`, which runs a failed message a second time through the
tracing twin of its codec.
"""

from __future__ import annotations

from typing import Any, NoReturn

from splashdam.wire.fields import Part

UNCOPIED_BYTES = 64 * 1024
"""Records from this size on are a part of their own; below, a copy is cheaper than one more part."""

MAX_STRING_BYTES = 32_767
"""Also of a compact string: Kafka's own readers and writers refuse longer ones."""

MAX_ELEMENTS = 1_000_000
"""Structures or strings in one array: Kafka's own readers, from 4.4 on, refuse more in requests and answers
alike. As objects they take 30 times the bytes of the smallest."""

MAX_TAGGED_FIELDS = 10_000
"""Tagged fields in one place, known or not: as Kafka's readers have it from 4.4 on."""

MAX_REQUEST_ELEMENTS = 50_000
"""Elements in all arrays of one request together: what a broker does for each takes some microseconds, in a
loop that all clients share. Kafka itself takes no more than 10,000 new partitions at once."""

TAGGED_FIELDS_PER_ELEMENT = 4
MAX_REQUEST_TAGGED_FIELDS = TAGGED_FIELDS_PER_ELEMENT * MAX_REQUEST_ELEMENTS
"""Tagged fields in all places of one request together: known or not, each costs the loop a step, and two
bytes for its sender."""

_VARINT_BYTES = 5
SMALL = [bytes([value]) for value in range(128)]
"""The varints of one byte; compiled codecs look them up without a call."""


class IllegalBytes(Exception):
    """A value that the schema does not allow; `wire.codec` turns it into a ProtocolError."""


class TooManyElements(IllegalBytes):
    """A request names more than it may, or has more tagged fields."""


def uvarint(value: int) -> bytes:
    """Encodes an unsigned varint."""
    if value < 128:
        return SMALL[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    """Decodes an unsigned varint of at most 32 bits; returns it and the position behind it."""
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


def add_records(out: list[Any], parts: list[Part], records: Part) -> None:
    """Adds record batches: small ones to ``out``, large ones and file slices as parts of their own."""
    in_memory = isinstance(records, bytes | bytearray | memoryview)
    if in_memory and len(records) < UNCOPIED_BYTES:  # type: ignore[arg-type]  # it is a buffer
        out.append(records)
        return
    parts.append(b"".join(out))  # at least the length of the records
    out.clear()
    parts.append(records)


def records_size(records: Part) -> int:
    """Bytes of record batches, in memory or not."""
    if isinstance(records, bytes | bytearray | memoryview):
        return len(records)
    return records.size_bytes


def sixteen(value: bytes) -> bytes:
    """Checks a uuid: ``struct`` would pad or cut it silently."""
    if len(value) != 16:
        raise IllegalBytes(f"a uuid has 16 bytes, not {len(value)}")
    return value


def refuse_length(length: int, left: int) -> NoReturn:
    """A length is negative or claims more than is there."""
    if length < 0:
        raise IllegalBytes(f"length {length} is negative")
    raise IllegalBytes(f"length {length} exceeds the {left} bytes left")


def refuse_count(count: int, smallest: int, left: int) -> NoReturn:
    """An array claims more elements than its bytes can hold."""
    if count < 0:
        raise IllegalBytes(f"count {count} is negative")
    raise IllegalBytes(f"{count} elements of at least {smallest} bytes exceed the {left} bytes left")


def refuse_elements(count: int) -> NoReturn:
    """An array has more elements than any message that makes sense."""
    raise IllegalBytes(f"{count} elements are above the limit of {MAX_ELEMENTS}")


def refuse_tagged_fields(count: int) -> NoReturn:
    """More tagged fields in one place than any message that makes sense."""
    raise IllegalBytes(f"{count} tagged fields are above the limit of {MAX_TAGGED_FIELDS}")


def refuse_request() -> NoReturn:
    """A request asks about more than a broker answers at a time."""
    raise TooManyElements(f"more than {MAX_REQUEST_ELEMENTS} elements are asked about at once; ask in parts")


def refuse_request_tags() -> NoReturn:
    """A request has more tagged fields than its elements need."""
    raise TooManyElements(f"more than {MAX_REQUEST_TAGGED_FIELDS} tagged fields stand in one request")


def refuse_string(size: int) -> NoReturn:
    """A string is longer than Kafka's."""
    raise IllegalBytes(f"a string of {size} bytes is above the limit of {MAX_STRING_BYTES}")


def refuse_null() -> NoReturn:
    """A null where the version does not allow one."""
    raise IllegalBytes("null is not allowed in this version")


def refuse_dropping(version: int) -> NoReturn:
    """A value that the version cannot carry and that must not be lost."""
    raise IllegalBytes(f"version {version} has no such field, and its value must not be dropped")


def refuse_tag_size(used: int, size: int) -> NoReturn:
    """A known tagged field did not use exactly its announced bytes."""
    raise IllegalBytes(f"the tagged field takes {used} bytes but announces {size}")
