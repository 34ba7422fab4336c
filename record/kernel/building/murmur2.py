"""The hash function of Kafka's default partitioner."""

from __future__ import annotations

from struct import unpack_from

from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import Buffer
from splashdam.record.kernel.building.headers import as_bytes

_MAX_KEY_BYTES = 0x7FFFFFFF


def murmur2(data: Buffer) -> int:
    """Return Kafka's key hash (``Utils.murmur2``, seed 0x9747b28c) as a signed 32-bit integer.

    Raises:
        TypeError: ``data`` is not bytes-like.
        IllegalArgumentError: it has 2 GiB or more, the limit of Java arrays.
    """
    if type(data) is not bytes:
        data = as_bytes(data, "key")
    length = len(data)
    if length > _MAX_KEY_BYTES:
        raise IllegalArgumentError(f"a key of {length} bytes; at most {_MAX_KEY_BYTES}")
    words = length // 4
    hashed = 0x9747B28C ^ length
    for word in unpack_from(f"<{words}I", data):
        mixed = word * 0x5BD1E995 & 0xFFFFFFFF
        mixed = (mixed ^ mixed >> 24) * 0x5BD1E995
        hashed = (hashed * 0x5BD1E995 ^ mixed) & 0xFFFFFFFF
    if length % 4:
        hashed ^= int.from_bytes(data[words * 4 :], "little")
        hashed = hashed * 0x5BD1E995 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >> 31 else hashed
