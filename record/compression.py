"""Compression of record batches: which codec, at which level, and how Kafka frames each codec's bytes.

gzip is the standard library's. The others come with ``pip install 'splashdam[compression]'`` and are imported
when first used. All libraries release the GIL while they work.

Every decompressor has ``room`` for a number of bytes and stops before more come out. A length that the data
claims for itself is compared with what data of its size can hold before memory is reserved for it.

Sources: ``org.apache.kafka.common.compress``; RFC 1952 (gzip); xerial snappy-java's ``SnappyOutputStream``
and the snappy format description; the LZ4 frame format; RFC 8878 (zstd).
"""

from __future__ import annotations

import importlib
import zlib
from struct import Struct
from typing import Any, NamedTuple

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import KafkaConfigurationError, UnsupportedCodecError
from splashdam.model.options import nearest_name
from splashdam.model.values import Buffer
from splashdam.record.batch import Codec
from splashdam.record.kernel import zstd_frame
from splashdam.record.kernel.reading.zstd_frame import UNKNOWN_KIND

MAX_DECOMPRESSED_BYTES = 100_000_000
"""Default limit of a batch's decompressed size: Kafka's default limit of one response."""

_USUAL_RATIO = 4


class OverLimitError(CorruptMessageError):
    """A batch exceeds the limit of decompressed bytes.

    A subclass because readers without a limit of their own treat it as a corrupt batch; validation tells the
    two apart, since the batch may be valid under a larger limit.
    """


class Compression(NamedTuple):
    """A codec and its level; level None is the codec's default (gzip 6, lz4 fast, zstd 3)."""

    codec: Codec
    level: int | None = None

    @classmethod
    def parse(cls, name: str | None, level: int | None = None) -> Compression:
        """Make a `Compression` of a producer's options.

        Args:
            name: ``none``, ``gzip``, ``snappy``, ``lz4``, ``zstd``, or None for ``none``.
            level: gzip 1–9, lz4 1–17, zstd -131072–22; other codecs have none.

        Raises:
            KafkaConfigurationError: the codec is unknown, its library is missing, or the level is invalid.
        """
        names = [codec.name.lower() for codec in Codec]
        name = "none" if name is None else name
        if name not in names:
            choices = ", ".join(names)
            raise KafkaConfigurationError(
                f"compression_type={name!r}: must be one of {choices}.{nearest_name(name, names)}"
            )
        codec = Codec(names.index(name))
        _check_level(codec, level)
        if not available(codec):
            raise KafkaConfigurationError(f"compression_type={name!r}: {_missing(codec)}")
        return cls(codec, level)


NO_COMPRESSION = Compression(Codec.NONE)


def _check_level(codec: Codec, level: int | None) -> None:
    if level is None:
        return
    name = codec.name.lower()
    levels = _LEVELS.get(codec)
    if levels is None:
        raise KafkaConfigurationError(f"compression level {level}: {name} has no levels")
    if level not in levels and not (codec is Codec.GZIP and level == GZIP_DEFAULT_LEVEL):
        raise KafkaConfigurationError(f"compression level {level}: {name} has {levels[0]} to {levels[-1]}")


def available(codec: Codec) -> bool:
    """Return whether the codec's library can be imported."""
    try:
        importlib.import_module(_LIBRARIES.get(codec, "zlib"))
    except ImportError:
        return False
    return True


def _missing(codec: Codec) -> str:
    return f"the library {_LIBRARIES[codec]!r} is not installed (pip install 'splashdam[compression]')"


def compress(data: Buffer, compression: Compression) -> bytes:
    """Compress ``data`` in Kafka's framing of the codec.

    Raises:
        UnsupportedCodecError: the codec's library is not installed.
    """
    if compression.codec is Codec.NONE:
        return bytes(data)
    pack, _ = _CODECS[compression.codec]
    try:
        return pack(data, compression.level)
    except ImportError as error:
        raise UnsupportedCodecError(_missing(compression.codec)) from error


def decompress(codec: Codec, data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Decompress ``data``, within a limit.

    Memory use is at most about twice ``max_bytes``; a length that the data claims is not trusted.

    Raises:
        OverLimitError: the result would exceed ``max_bytes``.
        CorruptMessageError: the data is damaged or truncated.
        UnsupportedCodecError: the codec's library is not installed.
    """
    if codec is Codec.NONE:
        if len(data) > max_bytes:
            raise OverLimitError(f"{len(data)} bytes of records, the limit is {max_bytes}")
        return bytes(data)
    _, unpack = _CODECS[codec]
    try:
        return unpack(data, max_bytes)
    except ImportError as error:
        raise UnsupportedCodecError(_missing(codec)) from error
    except _OverLimit:
        raise OverLimitError(
            f"{codec.name.lower()}: decompresses to more than the limit of {max_bytes} bytes"
        ) from None
    except _Damaged as error:
        raise CorruptMessageError(f"{codec.name.lower()}: {error}") from error.__cause__


def likely_unpacked_bytes(codec: int, data: Buffer) -> int:
    """Estimate the decompressed size, from the size that the data claims or the usual ratio; not reliable.

    Args:
        codec: number of the codec, known or not.
        data: what follows a batch's header.
    """
    claimed = 0
    if codec == Codec.GZIP:
        claimed = gzip_claim(data)
    elif codec == Codec.ZSTD:
        claimed = zstd_claim(data)
    if codec and not claimed:
        claimed = _USUAL_RATIO * len(data)
    return min(max(claimed, len(data)), MAX_DECOMPRESSED_BYTES)


GZIP_DEFAULT_LEVEL = -1
_GZIP_STEP_BYTES = 4096
_GZIP_WINDOW = 31  # zlib's code for a window of 32 KiB with gzip header and trailer

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK_BYTES = 32 * 1024
# The densest element of a snappy block is a copy of 64 bytes that takes 3.
_SNAPPY_BEST_OUT, _SNAPPY_BEST_IN = 64, 3

_FIRST_CHUNK_BYTES, _LARGEST_CHUNK_BYTES = 1 << 16, 1 << 22

_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_DESCRIPTOR_AT = 4
_ZSTD_LARGEST_HEADER = 18
_ZSTD_UNKNOWN_SIZE = (1 << 64) - 1

_INT32 = Struct(">i")

_MOST_PIECES = 16_384
"""Limit of members, blocks or frames in one batch; 100 MB have 3,052 snappy blocks of 32 KiB."""


class _Damaged(Exception):
    """The bytes are not valid for the codec."""


class _OverLimit(_Damaged):
    """The result would exceed the limit."""


# gzip: RFC 1952 members


def gzip_compress(data: Buffer, level: int | None) -> bytes:
    """Compress to one gzip member without name or time; level None is zlib's default (6)."""
    return zlib.compress(data, GZIP_DEFAULT_LEVEL if level is None else level, _GZIP_WINDOW)


def gzip_decompress(data: Buffer, room: int) -> bytes:
    """Decompress all members of ``data``, as Java's reader does.

    The input is fed in growing steps, since zlib copies whatever follows the end of a member.
    """
    view = memoryview(data)
    parts: list[bytes] = []
    position = 0
    while True:
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        size, step = 0, _GZIP_STEP_BYTES
        while not unpacker.eof:
            fed = view[position : position + step]
            if not fed:
                raise _Damaged("the data is truncated")
            try:
                # One byte beyond the limit tells that it is exceeded.
                part = unpacker.decompress(fed, room + 1)
            except zlib.error as error:
                raise _Damaged(str(error)) from error
            if len(part) > room:
                raise _OverLimit
            room -= len(part)
            size += len(part)
            parts.append(part)
            position += len(fed) - len(unpacker.unused_data)
            step *= 2
        _refuse_nothing(size, alone=len(view) == position and len(parts) == 1)
        _refuse_many(len(parts))
        if position == len(view):
            return b"".join(parts)


def _refuse_many(pieces: int) -> None:
    """Raise if there are too many pieces: each costs some microseconds, however small."""
    if pieces > _MOST_PIECES:
        raise _Damaged(f"it comes in more than {_MOST_PIECES} pieces")


def gzip_claim(data: Buffer) -> int:
    """Return the decompressed size that the last member claims, 0 for none."""
    return int.from_bytes(memoryview(data)[-4:], "little")


def _refuse_nothing(size: int, *, alone: bool) -> None:
    """Raise for an empty piece among others: it costs as much time as a large one."""
    if not size and not alone:
        raise _Damaged("a piece of it is empty")


# snappy: xerial's stream of blocks


def snappy_compress(data: Buffer, _level: int | None) -> bytes:
    """Compress to xerial's format: a header, then blocks of 32 KiB, each with its length."""
    from cramjam import snappy

    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def snappy_decompress(data: Buffer, room: int) -> bytes:
    """Decompress a xerial stream, whatever its version numbers, or one bare block without a header."""
    from cramjam import DecompressionError

    view = memoryview(data)
    try:
        if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
            return _snappy_block(view, room)
        return _xerial_blocks(view, room)
    except DecompressionError as error:
        raise _Damaged(str(error)) from error


def _xerial_blocks(view: memoryview, room: int) -> bytes:
    if len(view) < len(_XERIAL_HEADER):
        raise _Damaged("the data is cut off")
    parts: list[bytes] = []
    position = len(_XERIAL_HEADER)
    while position < len(view):
        start = position + _INT32.size
        if start > len(view):
            raise _Damaged("the data is cut off")
        (size,) = _INT32.unpack_from(view, position)
        position = start + size
        if not 0 <= size <= len(view) - start:
            raise _Damaged(f"a block of {size} bytes, {len(view) - start} are left")
        parts.append(_snappy_block(view[start:position], room))
        room -= len(parts[-1])
        _refuse_nothing(len(parts[-1]), alone=len(parts) == 1 and position == len(view))
        _refuse_many(len(parts))
    return b"".join(parts)


def _snappy_block(block: memoryview, room: int) -> bytes:
    from cramjam import snappy

    size = snappy.decompress_raw_len(block)
    if size > room:
        raise _OverLimit
    # Before memory is taken for a size that the block only claims.
    if size * _SNAPPY_BEST_IN > len(block) * _SNAPPY_BEST_OUT:
        raise _Damaged(f"{len(block)} bytes cannot hold {size}")
    return bytes(snappy.decompress_raw(block))


# lz4: one frame of independent blocks


def lz4_compress(data: Buffer, level: int | None) -> bytes:
    """Compress to one frame: independent 64 KiB blocks, no checksums, no content size; level None is fast."""
    from lz4 import frame

    packed: bytes = frame.compress(
        data,
        compression_level=frame.COMPRESSIONLEVEL_MIN if level is None else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        # Kafka's reader in Java refuses linked blocks.
        block_linked=False,
        store_size=False,
    )
    return packed


def lz4_decompress(data: Buffer, room: int) -> bytes:
    """Decompress the one frame in ``data``, in growing chunks."""
    from lz4 import frame

    unpacker: Any = frame.LZ4FrameDecompressor()
    chunks: list[bytes] = []
    size = _FIRST_CHUNK_BYTES
    fed: Buffer = data
    while not unpacker.eof:
        try:
            chunk = unpacker.decompress(fed, max_length=min(size, room + 1))
        except RuntimeError as error:
            raise _Damaged(str(error)) from error
        room -= len(chunk)
        if room < 0:
            raise _OverLimit
        if not chunk and not unpacker.eof and unpacker.needs_input:
            raise _Damaged("the data is cut off")
        chunks.append(chunk)
        # The library keeps the rest of its input.
        fed = b""
        size = min(2 * size, _LARGEST_CHUNK_BYTES)
    if unpacker.unused_data:
        raise _Damaged(f"{len(unpacker.unused_data)} bytes behind the end")
    return b"".join(chunks)


# zstd: frames


_idle_compressors: dict[int, list[Any]] = {}
_idle_decompressors: list[Any] = []
# A context serves one thread at a time, so it is taken out of the list while in use (list.pop and list.append
# are atomic). Making a new one costs as much as compressing 4 KiB.


def zstd_compress(data: Buffer, level: int | None) -> bytes:
    """Compress to one frame with content size; level None is 3."""
    import zstandard

    level = 3 if level is None else level
    idle = _idle_compressors.setdefault(level, [])
    try:
        packer = idle.pop()
    except IndexError:
        packer = zstandard.ZstdCompressor(level=level)
    packed: bytes = packer.compress(data)
    idle.append(packer)
    return packed


def zstd_decompress(data: Buffer, room: int) -> bytes:
    """Decompress all frames of ``data``."""
    import zstandard

    try:
        unpacker = _idle_decompressors.pop()
    except IndexError:
        unpacker = zstandard.ZstdDecompressor()
    view = memoryview(data)
    parts: list[bytes] = []
    try:
        while view:
            size, most = _zstd_frame(view)
            frame, view = view[:size], view[size:]
            claimed = zstandard.get_frame_parameters(frame).content_size
            if claimed != _ZSTD_UNKNOWN_SIZE and claimed > most:
                raise _Damaged(f"a frame of {size} bytes cannot hold {claimed}")
            if claimed != _ZSTD_UNKNOWN_SIZE and claimed > room:
                raise _OverLimit
            # Never 0, with which the library takes only frames that say their size.
            parts.append(unpacker.decompress(frame, max_output_size=min(most, room) or 1))
            room -= len(parts[-1])
            if room < 0:
                raise _OverLimit
            _refuse_nothing(len(parts[-1]), alone=len(parts) == 1 and not view)
            _refuse_many(len(parts))
    except zstandard.ZstdError as error:
        raise _Damaged(str(error)) from error
    _idle_decompressors.append(unpacker)
    return b"".join(parts)


def zstd_claim(data: Buffer) -> int:
    """Return the decompressed size that the first frame claims, 0 for none.

    Read from the frame header descriptor and the field that it announces (RFC 8878, 3.1.1.1).
    """
    head = bytes(memoryview(data)[:_ZSTD_LARGEST_HEADER])
    if len(head) <= _ZSTD_DESCRIPTOR_AT:
        return 0
    descriptor = head[_ZSTD_DESCRIPTOR_AT]
    flag, is_single = descriptor >> 6, descriptor >> 5 & 1
    start = _ZSTD_DESCRIPTOR_AT + 1 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
    size = (is_single, 2, 4, 8)[flag]
    return int.from_bytes(head[start : start + size], "little") + (256 if size == 2 else 0)


def _zstd_frame(view: memoryview) -> tuple[int, int]:
    """Return the size of the frame at the start of ``view``, and the most that its blocks can hold.

    The library reports neither: it trusts the size that a frame claims, and does not notice a truncated end.
    """
    import zstandard

    has_checksum = zstandard.get_frame_parameters(view).has_checksum
    size, blocks = zstd_frame(view, 0, zstandard.frame_header_size(view), has_checksum)
    if size < 0:
        raise _Damaged("a block of an unknown kind" if size == UNKNOWN_KIND else "the data is cut off")
    return size, blocks * _ZSTD_BLOCK_BYTES


_LEVELS = {Codec.GZIP: range(1, 10), Codec.LZ4: range(1, 18), Codec.ZSTD: range(-131072, 23)}
_LIBRARIES = {Codec.SNAPPY: "cramjam", Codec.LZ4: "lz4", Codec.ZSTD: "zstandard"}
_CODECS = {
    Codec.GZIP: (gzip_compress, gzip_decompress),
    Codec.SNAPPY: (snappy_compress, snappy_decompress),
    Codec.LZ4: (lz4_compress, lz4_decompress),
    Codec.ZSTD: (zstd_compress, zstd_decompress),
}
