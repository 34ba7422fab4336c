"""The codecs by themselves: framing, levels, limits, and what happens without their libraries."""

from __future__ import annotations

import gzip
import os
import random
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support.running.alone import traced

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import KafkaConfigurationError, UnsupportedCodecError
from splashdam.record.batch import Codec
from splashdam.record.compression import NO_COMPRESSION, Compression, compress, decompress

PACKING = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"".join(b'{"id":%d,"name":"user-%d"}' % (index, index % 97) for index in range(20_000))


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [0, 1, 100, 32_768, 32_769, 65_536, 400_000])
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_there_and_back(codec: Codec, size: int, wrap: type) -> None:
    """Text and noise of sizes around the codecs' blocks, in every kind of bytes."""
    for data in (TEXT[:size], random.Random(size).randbytes(size)):
        packed = compress(wrap(data), Compression(codec))
        assert isinstance(packed, bytes)
        assert decompress(codec, wrap(packed), max_bytes=len(data)) == data


@given(data=st.binary(max_size=2000), codec=st.sampled_from(Codec))
def test_anything_comes_back(data: bytes, codec: Codec) -> None:
    """Whatever the bytes."""
    assert decompress(codec, compress(data, Compression(codec))) == data


# What the bytes look like


def test_gzip_is_one_plain_member() -> None:
    """No name, no time: the same input makes the same bytes."""
    packed = compress(TEXT, Compression(Codec.GZIP))
    assert packed[:4] == b"\x1f\x8b\x08\x00"
    assert packed[4:8] == bytes(4)
    assert gzip.decompress(packed) == TEXT


def test_snappy_is_xerials_stream() -> None:
    """Header with versions 1 and 1, then blocks of 32 KiB with their lengths."""
    packed = compress(TEXT[:40_000], Compression(Codec.SNAPPY))
    assert packed[:16] == bytes.fromhex("82 534e41505059 00 00000001 00000001")
    (size,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + size])) == TEXT[:32_768]


def test_snappy_without_a_header() -> None:
    """A bare block is read too."""
    bare = bytes(cramjam.snappy.compress_raw(TEXT[:1000]))
    assert decompress(Codec.SNAPPY, bare) == TEXT[:1000]


def test_snappy_with_other_version_numbers() -> None:
    """Some producers write them the other way round."""
    packed = bytearray(compress(b"data", Compression(Codec.SNAPPY)))
    packed[8:16] = bytes.fromhex("01000000 01000000")
    assert decompress(Codec.SNAPPY, packed) == b"data"


def test_lz4_is_a_frame_that_kafka_reads() -> None:
    """Independent blocks of 64 KiB, no checksums, no size: what Kafka's own reader demands."""
    info = lz4.frame.get_frame_info(compress(TEXT, Compression(Codec.LZ4)))
    assert info["block_size"] == 65_536
    assert not info["block_linked"]
    assert not info["content_checksum"]
    assert not info["block_checksum"]
    assert not info["content_size"]


def test_zstd_frames() -> None:
    """Several frames, with and without their size and checksum, are one stream."""
    known = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    unknown = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    assert decompress(Codec.ZSTD, known + unknown + known) == TEXT * 3


def test_zstd_frames_that_tell_less() -> None:
    """Limit and cut-off end are seen without a size in the frame, and with a checksum behind it."""
    unknown = zstandard.ZstdCompressor(write_content_size=False).compress(b"x")
    with pytest.raises(CorruptMessageError, match="limit of 0"):
        decompress(Codec.ZSTD, unknown, max_bytes=0)
    summed = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
    with pytest.raises(CorruptMessageError, match="cut off"):
        decompress(Codec.ZSTD, summed[:-1])


# Levels and names


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", -100, 22)])
def test_levels_matter(codec: str, low: int, high: int) -> None:
    """More effort makes fewer bytes."""
    cheap, dear = (compress(TEXT, Compression.parse(codec, level)) for level in (low, high))
    assert len(dear) < len(cheap)


def test_default_levels() -> None:
    """gzip 6 and zstd 3, as in Kafka."""
    assert compress(TEXT, Compression.parse("gzip")) == compress(TEXT, Compression.parse("gzip", 6))
    assert compress(TEXT, Compression.parse("gzip")) == compress(TEXT, Compression.parse("gzip", -1))
    assert compress(TEXT, Compression.parse("zstd")) == compress(TEXT, Compression.parse("zstd", 3))


@pytest.mark.parametrize(
    ("name", "level"),
    [("gzip", 0), ("gzip", 10), ("gzip", -2), ("lz4", 0), ("lz4", 18), ("zstd", 23), ("zstd", -131073)],
)
def test_illegal_levels(name: str, level: int) -> None:
    """The error names the codec's range."""
    with pytest.raises(KafkaConfigurationError, match=rf"level {level}: {name} has -?\d+ to \d+"):
        Compression.parse(name, level)


@pytest.mark.parametrize("name", ["snappy", "none", None])
def test_codecs_without_levels(name: str | None) -> None:
    """A level that would do nothing is refused."""
    with pytest.raises(KafkaConfigurationError, match="has no levels"):
        Compression.parse(name, 3)


def test_names() -> None:
    """Kafka's names; None means none."""
    names = {
        "none": Codec.NONE,
        "gzip": Codec.GZIP,
        "snappy": Codec.SNAPPY,
        "lz4": Codec.LZ4,
        "zstd": Codec.ZSTD,
    }
    assert {name: Compression.parse(name).codec for name in names} == names
    assert Compression.parse(None) == NO_COMPRESSION


def test_unknown_names() -> None:
    """The nearest right one is proposed."""
    with pytest.raises(KafkaConfigurationError, match=r"one of none, gzip.*Did you mean 'snappy'"):
        Compression.parse("snapy")


# Missing libraries

LIBRARIES = [(Codec.SNAPPY, "cramjam"), (Codec.LZ4, "lz4"), (Codec.ZSTD, "zstandard")]


@pytest.mark.parametrize(("codec", "library"), LIBRARIES)
def test_without_the_library(monkeypatch: pytest.MonkeyPatch, codec: Codec, library: str) -> None:
    """Every way in says which library is missing and how to get it."""
    packed = compress(b"data", Compression(codec))
    monkeypatch.setitem(sys.modules, library, None)
    message = f"'{library}' is not installed .pip install 'splashdam.compression.'."
    with pytest.raises(KafkaConfigurationError, match=message):
        Compression.parse(codec.name.lower())
    with pytest.raises(UnsupportedCodecError, match=message):
        compress(b"data", Compression(codec))
    with pytest.raises(UnsupportedCodecError, match=message):
        decompress(codec, packed)


def test_gzip_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It and ``none`` always work."""
    for _, library in LIBRARIES:
        monkeypatch.setitem(sys.modules, library, None)
    for name in ("none", "gzip"):
        assert (
            decompress(Compression.parse(name).codec, compress(b"data", Compression.parse(name))) == b"data"
        )


# Damage and bombs


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("size", [1, 3000, 100_000])
def test_cut_off(codec: Codec, size: int) -> None:
    """No prefix of a stream passes for a whole one, and neither does more than it."""
    packed = compress(TEXT[:size], Compression(codec))
    # A xerial stream has no end mark: it may stop behind any whole block.
    legal = {16} if codec is Codec.SNAPPY else set()
    if codec is Codec.SNAPPY:
        while (end := max(legal)) < len(packed):
            legal.add(end + 4 + struct.unpack_from(">i", packed, end)[0])
    step = max(1, len(packed) // 200)
    for end in {*range(0, len(packed), step), len(packed) - 1} - legal:
        if end or codec is not Codec.ZSTD:  # no frame at all is no data
            with pytest.raises(CorruptMessageError, match=codec.name.lower()):
                decompress(codec, packed[:end])
    with pytest.raises(CorruptMessageError, match=codec.name.lower()):
        decompress(codec, packed + b"more")


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=400))
def test_noise(codec: Codec, data: bytes) -> None:
    """Any bytes: content within the limit, or ``CorruptMessageError``."""
    prefix = compress(b"x" * 50, Compression(codec))[:18]
    for packed in (data, prefix + data):
        try:
            assert len(decompress(codec, packed, max_bytes=1000)) <= 1000
        except CorruptMessageError:
            continue


@pytest.mark.parametrize("codec", list(Codec))
def test_the_limit_is_exact(codec: Codec) -> None:
    """As much as the limit passes, one byte more does not."""
    for size in (1, 100, 32_768, 70_000, 300_000):
        packed = compress(TEXT[:size], Compression(codec))
        assert len(decompress(codec, packed, max_bytes=size)) == size
        with pytest.raises(CorruptMessageError, match="limit"):
            decompress(codec, packed, max_bytes=size - 1)


GIB_AS_VARINT = b"\x80\x80\x80\x80\x04"
NO_BLOCKS = compress(b"", Compression(Codec.SNAPPY))
ZSTD_START = b"\x28\xb5\x2f\xfd"
ZSTD_BLOCK = b"\x19\0\0abc"
LIES = {
    "snappy block that claims a GiB": (Codec.SNAPPY, GIB_AS_VARINT + b"\0a"),
    "snappy block in a stream that claims a GiB": (
        Codec.SNAPPY,
        NO_BLOCKS + struct.pack(">i", 7) + GIB_AS_VARINT + b"\0a",
    ),
    "xerial block length beyond the data": (Codec.SNAPPY, NO_BLOCKS + struct.pack(">i", 2**31 - 1) + b"abc"),
    "negative xerial block length": (Codec.SNAPPY, NO_BLOCKS + struct.pack(">i", -1) + b"abc"),
    "zstd frame that claims 16 TiB": (
        Codec.ZSTD,
        ZSTD_START + b"\xe0" + struct.pack("<Q", 1 << 44) + ZSTD_BLOCK,
    ),
    "zstd frame that claims a GiB": (
        Codec.ZSTD,
        ZSTD_START + b"\xe0" + struct.pack("<Q", 1 << 30) + ZSTD_BLOCK,
    ),
    "zstd block of a reserved kind": (Codec.ZSTD, ZSTD_START + b"\x20\x03\x1f\0\0abc"),
    "lz4 frame that claims a GiB": (
        Codec.LZ4,
        lz4.frame.compress_begin(lz4.frame.create_compression_context(), source_size=1 << 30),
    ),
}


def test_what_the_lies_are_made_of() -> None:
    """With its true size the zstd frame is right."""
    assert decompress(Codec.ZSTD, ZSTD_START + b"\xe0" + struct.pack("<Q", 3) + ZSTD_BLOCK) == b"abc"


BELIEVE = """
import sys
from resource import RLIMIT_AS, setrlimit

import cramjam, lz4.frame, zstandard

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.record.compression import Codec, compress, decompress, Compression

for codec in Codec:  # whatever the libraries load and keep is loaded and kept
    decompress(codec, compress(bytes(100_000), Compression(codec)))
with open("/proc/self/statm") as sizes:
    used = int(sizes.read().split()[0]) * 4096
setrlimit(RLIMIT_AS, (used + (100 << 20),) * 2)
for line in sys.argv[1:]:
    number, packed = line.split(":")
    try:
        decompress(Codec(int(number)), bytes.fromhex(packed), max_bytes=1 << 50)
    except CorruptMessageError:
        continue
    sys.exit(f"believed: {line}")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="address space is measured in /proc")
def test_lies() -> None:
    """A length that the data claims for itself is not believed, however high the limit is.

    In a process that may have 100 MiB more than it has: each claim is of a gigabyte at least.
    """
    lines = [f"{int(codec)}:{packed.hex()}" for codec, packed in LIES.values()]
    done = subprocess.run(
        [sys.executable, "-c", BELIEVE, *lines], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_gzip_members() -> None:
    """Several members are one stream, as for Java; the limit holds for all together."""
    parts = [TEXT[:100_000], b"x", TEXT[100_000:]]
    packed = b"".join(compress(part, Compression(Codec.GZIP)) for part in parts)
    content = b"".join(parts)
    assert decompress(Codec.GZIP, packed, max_bytes=len(content)) == content == gzip.decompress(packed)
    with pytest.raises(CorruptMessageError, match=f"gzip: .* limit of {len(content) - 1} bytes"):
        decompress(Codec.GZIP, packed, max_bytes=len(content) - 1)
    for behind in (b"\x1f", packed[:30], b"\0"):
        with pytest.raises(CorruptMessageError, match="gzip"):
            decompress(Codec.GZIP, packed + behind)


def zstd_of(data: bytes) -> bytes:
    """A frame that does not tell its size."""
    return zstandard.ZstdCompressor(write_content_size=False).compress(data)


PIECES: dict[str, tuple[Codec, bytes, bytes]] = {
    "gzip members": (Codec.GZIP, b"", zlib.compress(b"", 9, 31)),
    "xerial blocks": (Codec.SNAPPY, NO_BLOCKS, b"\0\0\0\1\0"),
    "zstd frames": (Codec.ZSTD, b"", zstd_of(b"")),
    "zstd frames that claim 0": (Codec.ZSTD, b"", zstandard.compress(b"")),
}


@pytest.mark.parametrize(("codec", "start", "piece"), PIECES.values(), ids=PIECES)
def test_pieces_that_hold_nothing(codec: Codec, start: bytes, piece: bytes) -> None:
    """One may be all there is. A megabyte of them is refused at the first, not read to its end."""
    assert decompress(codec, start + piece) == b""
    with pytest.raises(CorruptMessageError, match=f"{codec.name.lower()}: a piece of it is empty"):
        decompress(codec, start + piece * (1_000_000 // len(piece)))


ZEROS = bytes(20_000_000)
BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, lambda: zlib.compress(ZEROS, 9, 31)),
    "snappy": (Codec.SNAPPY, lambda: compress(ZEROS, Compression(Codec.SNAPPY))),
    "bare snappy": (Codec.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(ZEROS))),
    "lz4": (Codec.LZ4, lambda: lz4.frame.compress(ZEROS, store_size=False)),
    "lz4 that names its size": (Codec.LZ4, lambda: lz4.frame.compress(ZEROS, store_size=True)),
    "zstd": (Codec.ZSTD, lambda: zstandard.compress(ZEROS)),
    "zstd of unknown size": (
        Codec.ZSTD,
        lambda: zstandard.ZstdCompressor(write_content_size=False).compress(ZEROS),
    ),
}


def refuse(codec: Codec, packed: bytes, max_bytes: int) -> None:
    with pytest.raises(CorruptMessageError):
        decompress(codec, packed, max_bytes=max_bytes)


@pytest.mark.parametrize(("codec", "make"), BOMBS.values(), ids=BOMBS)
def test_bombs(codec: Codec, make: Callable[[], bytes]) -> None:
    """Twenty million bytes out of a few: refused at a hundred thousand, and held at no time."""
    packed = make()
    assert traced(refuse, codec, packed, max_bytes=100_000).peak_bytes < 500_000 + 2 * len(packed)
    assert len(decompress(codec, packed, max_bytes=len(ZEROS))) == len(ZEROS)


def test_threads_do_not_share_contexts() -> None:
    """Many threads compress and decompress with one level at once."""
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        data = random.Random(seed).randbytes(20_000) + TEXT[: 1000 * seed]
        try:
            for _ in range(30):
                assert decompress(Codec.ZSTD, compress(data, Compression(Codec.ZSTD, 1))) == data
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(max(4, os.cpu_count() or 0))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
