"""The header of an LZ4 frame as Kafka wrote it in message format 0: its checksum covers the wrong bytes.

The byte behind the frame descriptor is the second of an xxHash32; old Kafkas took it over the magic number
and the descriptor, every LZ4 library takes it over the descriptor alone. Sources: the LZ4 frame format,
xxHash's specification, Kafka's ``Lz4BlockInputStream``.
"""

from __future__ import annotations

from splashdam.model.values import Buffer

_MAGIC = b"\x04\x22\x4d\x18"
_CONTENT_SIZE_BIT, _DICTIONARY_BIT = 0x08, 0x01
_PRIME_1, _PRIME_2, _PRIME_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME_4, _PRIME_5 = 0x27D4EB2F, 0x165667B1
_UINT32 = 0xFFFFFFFF
_STRIPE_BYTES = 16


def with_right_checksum(frame: Buffer) -> bytes:
    """The frame with the checksum that libraries want; what is no LZ4 frame comes back as it is."""
    data = bytearray(frame)
    if data[:4] != _MAGIC or len(data) < 7:
        return bytes(data)
    flags = data[4]
    end = 6 + (8 if flags & _CONTENT_SIZE_BIT else 0) + (4 if flags & _DICTIONARY_BIT else 0)
    if len(data) > end:
        data[end] = xxhash32(bytes(data[4:end])) >> 8 & 0xFF
    return bytes(data)


def xxhash32(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes, which is all that a frame descriptor can have.

    Raises:
        ValueError: there are more.
    """
    if len(data) >= _STRIPE_BYTES:
        raise ValueError(f"{len(data)} bytes are too many")
    state = (_PRIME_5 + len(data)) & _UINT32
    words = len(data) // 4 * 4
    for at in range(0, words, 4):
        word = int.from_bytes(data[at : at + 4], "little")
        state = _rotated(state + word * _PRIME_3, 17) * _PRIME_4 & _UINT32
    for byte in data[words:]:
        state = _rotated(state + byte * _PRIME_5, 11) * _PRIME_1 & _UINT32
    state = (state ^ state >> 15) * _PRIME_2 & _UINT32
    state = (state ^ state >> 13) * _PRIME_3 & _UINT32
    return state ^ state >> 16


def _rotated(value: int, bits: int) -> int:
    value &= _UINT32
    return (value << bits | value >> (32 - bits)) & _UINT32
