"""Both twins find the same record by its time, and the same end of a zstd frame, whatever the bytes."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support.record.record_kit import mutated

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.record.batch import Codec
from splashdam.record.compression import (
    MAX_DECOMPRESSED_BYTES,
    Compression,
    OverLimitError,
    compress,
    decompress,
    likely_unpacked_bytes,
)
from splashdam.record.damage import DamagedError
from splashdam.record.sealing import build_batch

TIMES = (1000, 3000, 2000, 3000)
SOUND = build_batch([(time, b"k", b"v", [("h", b"x")]) for time in TIMES])[61:]


def find(kernel: ModuleType, records: bytes, timestamp_ms: int | None, **fields: int | None) -> object:
    """What a twin finds, or how it says that the bytes are damaged."""
    given_fields = {"base_offset": 10, "base_timestamp": 1000, "append_time": None, "from_offset": 0}
    try:
        return kernel.find_by_time(records, 4, **{**given_fields, **fields}, timestamp_ms=timestamp_ms)
    except DamagedError as error:
        return str(error)


@pytest.mark.parametrize(
    ("timestamp_ms", "from_offset", "found"),
    [
        (0, 0, (10, 1000)),
        (1001, 0, (11, 3000)),
        (1001, 12, (12, 2000)),
        (2001, 12, (13, 3000)),
        (3001, 0, None),
        (0, 14, None),
        (None, 0, (11, 3000)),
        (None, 12, (13, 3000)),
        (None, 14, None),
    ],
)
def test_finding(
    kernel: ModuleType, timestamp_ms: int | None, from_offset: int, found: tuple[int, int] | None
) -> None:
    """The first that is late enough, or the first of the latest."""
    assert find(kernel, SOUND, timestamp_ms, from_offset=from_offset) == found


def test_append_time(kernel: ModuleType) -> None:
    """All records of such a batch are as old as each other."""
    assert find(kernel, SOUND, 5, append_time=7) == (10, 7)
    assert find(kernel, SOUND, None, append_time=7, from_offset=12) == (12, 7)
    assert find(kernel, SOUND, 8, append_time=7) is None


@given(seed=st.integers(0, 2**32), timestamp_ms=st.sampled_from([None, 0, 2500, 1 << 62]))
def test_twins_agree(twins: tuple[ModuleType, ModuleType], seed: int, timestamp_ms: int | None) -> None:
    """On sound and on mutated records."""
    noise = random.Random(seed)
    records = mutated(noise, SOUND) if seed % 4 else SOUND
    fields = {
        "from_offset": noise.choice((0, 11, 13)),
        "base_offset": noise.choice((10, 0, (1 << 63) - 3)),
        "base_timestamp": noise.choice((1000, -1, (1 << 63) - 1)),
    }
    compiled, plain = (find(each, records, timestamp_ms, **fields) for each in twins)
    assert compiled == plain


@given(data=st.binary(max_size=60), position=st.integers(-1, 61), header_bytes=st.integers(-1, 20))
def test_twins_agree_on_frames(
    twins: tuple[ModuleType, ModuleType], data: bytes, position: int, header_bytes: int
) -> None:
    """Whatever the bytes are."""
    for has_checksum in (False, True):
        compiled, plain = (each.zstd_frame(data, position, header_bytes, has_checksum) for each in twins)
        assert compiled == plain


def test_the_end_of_a_frame(kernel: ModuleType) -> None:
    """Its size and blocks, with a checksum and without; one byte less is cut off."""
    for has_checksum in (False, True):
        packer = zstandard.ZstdCompressor(write_checksum=has_checksum)
        frame = packer.compress(bytes(range(256)) * 2000)
        header_bytes = zstandard.frame_header_size(frame)
        assert kernel.zstd_frame(frame + b"more", 0, header_bytes, has_checksum) == (len(frame), 4)
        assert kernel.zstd_frame(b"x" + frame, 1, header_bytes, has_checksum) == (len(frame), 4)
        assert kernel.zstd_frame(frame[:-1], 0, header_bytes, has_checksum) == (-1, 0)


@given(data=st.binary(max_size=3000), copies=st.integers(1, 50), codec=st.sampled_from(list(Codec)))
def test_claims(data: bytes, copies: int, codec: Codec) -> None:
    """What an honest batch says is right for gzip and zstd."""
    data *= copies
    packed = compress(data, Compression(codec))
    if codec in (Codec.GZIP, Codec.ZSTD) and data:
        assert likely_unpacked_bytes(codec, packed) == max(len(data), len(packed))


@given(data=st.binary(max_size=40), codec=st.integers(0, 7))
def test_claims_of_any_bytes(data: bytes, codec: int) -> None:
    """They are within bounds, and nothing is raised."""
    assert len(data) <= likely_unpacked_bytes(codec, data) <= MAX_DECOMPRESSED_BYTES


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_over_the_limit_is_told_from_damage(codec: Codec) -> None:
    """So that it can be tried with a larger one."""
    packed = compress(bytes(5000), Compression(codec))
    with pytest.raises(OverLimitError):
        decompress(codec, packed, max_bytes=4999)
    assert len(decompress(codec, packed, max_bytes=5000)) == 5000
    with pytest.raises(CorruptMessageError) as caught:
        decompress(codec, b"no", max_bytes=4999)
    assert not isinstance(caught.value, OverLimitError)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_too_many_pieces(codec: Codec) -> None:
    """Each takes the interpreter's time, wherever that is done: 16,384 are enough."""
    piece = compress(b"x", Compression(codec))
    packed = piece * 16_384 if codec is not Codec.SNAPPY else piece[:16] + piece[16:] * 16_384
    assert decompress(codec, packed) == b"x" * 16_384
    with pytest.raises(CorruptMessageError, match="more than 16384 pieces"):
        decompress(codec, packed + (piece[16:] if codec is Codec.SNAPPY else piece))
