"""Zigzag base-128 integers of record fields: low seven bits first, the sign in the lowest bit."""

from __future__ import annotations

_UINT64 = (1 << 64) - 1


def _encode(value: int) -> bytes:
    rest = ((value << 1) ^ (value >> 63)) & _UINT64
    out = bytearray()
    while rest > 0x7F:
        out.append(0x80 | (rest & 0x7F))
        rest >>= 7
    out.append(rest)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """Encode a signed integer; beyond 64 bits it wraps, like Java's ``long``."""
    if 0 <= value < 64:
        return bytes((value << 1,))
    if 0 < value < 8192:
        return bytes((value << 1 & 0x7F | 0x80, value >> 6))
    if 0 < value < 1 << 20:  # record numbers of a full batch
        return bytes((value << 1 & 0x7F | 0x80, value >> 6 & 0x7F | 0x80, value >> 13))
    wrapped = value & _UINT64
    return _encode(wrapped - (1 << 64) if wrapped >> 63 else wrapped)


def size_of_varint(value: int) -> int:
    """Return the encoded size of a value above 0."""
    return ((value << 1).bit_length() + 6) // 7
