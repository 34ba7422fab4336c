"""Batches that cost more than they weigh: they unpack to much, or claim records that are missing."""

from __future__ import annotations

from splashdam.record.batch import HEADER, parse_header, stamp_crc
from splashdam.record.compression import Compression
from splashdam.record.sealing import build_batch

MIB = 1 << 20
LATE_MS = 1 << 50


def bomb(size_bytes: int, codec: str = "zstd", *, key: bytes | None = b"k", **fields: int) -> bytes:
    """A batch of one record that unpacks to about so much."""
    return build_batch([(1000, key, bytes(size_bytes), None)], Compression.parse(codec), **fields)


def promising(batch: bytes) -> bytes:
    """The same batch, whose header names a later timestamp than any of its records."""
    changed = bytearray(batch)
    HEADER.pack_into(changed, 0, *parse_header(batch)._replace(max_timestamp=LATE_MS))
    stamp_crc(changed, 0, len(changed))
    return bytes(changed)
