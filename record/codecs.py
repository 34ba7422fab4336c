"""How each codec frames its bytes in Kafka, and how they are taken apart without trusting a length in them.

Every decompressor has ``room`` for so many bytes and gives up before more than that much comes out. A
length that the data claims for itself is compared with what data of its size can hold before memory is
reserved for it. All libraries release the GIL while they work.

Sources: ``org.apache.kafka.common.compress``; RFC 1952 (gzip); xerial snappy-java's ``SnappyOutputStream``
and the snappy format description; the LZ4 frame format; RFC 8878 (zstd).
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Any

from splashdam.model.values import Buffer
from splashdam.record.kernel import zstd_frame
from splashdam.record.kernel.reading.zstd_frame import UNKNOWN_KIND

GZIP_DEFAULT_LEVEL = -1
_GZIP_STEP_BYTES = 4096
_GZIP_WINDOW = 31  # zlib's way to say: 32 KiB window, gzip header and trailer

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
"""Members, blocks or frames of one batch; snappy's blocks hold 32 KiB, so 100 MB have 3,052 of them."""


class DamagedError(Exception):
    """The bytes are not what the codec makes."""


class OverLimitError(DamagedError):
    """More comes out than the limit."""


# gzip: RFC 1952 members


def gzip_compress(data: Buffer, level: int | None) -> bytes:
    """One gzip member without name or time; level None is zlib's default (6)."""
    return zlib.compress(data, GZIP_DEFAULT_LEVEL if level is None else level, _GZIP_WINDOW)


def gzip_decompress(data: Buffer, room: int) -> bytes:
    """The content of all members of ``data``; Java's reader takes several for one stream, too.

    It is fed in steps that grow, since whatever lies behind a member is copied when that ends.
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
                raise DamagedError("the data is cut off")
            try:
                part = unpacker.decompress(fed, room + 1)
            except zlib.error as error:
                raise DamagedError(str(error)) from error
            if len(part) > room:
                raise OverLimitError
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
    """Each piece costs the interpreter some microseconds, whatever little it holds."""
    if pieces > _MOST_PIECES:
        raise DamagedError(f"it comes in more than {_MOST_PIECES} pieces")


def gzip_claim(data: Buffer) -> int:
    """What the last member says of its size, 0 for nothing."""
    return int.from_bytes(memoryview(data)[-4:], "little")


def _refuse_nothing(size: int, *, alone: bool) -> None:
    """A small piece that holds nothing costs as much as a large one, so only one that is all may be empty."""
    if not size and not alone:
        raise DamagedError("a piece of it holds nothing")


# snappy: xerial's stream of blocks


def snappy_compress(data: Buffer, _level: int | None) -> bytes:
    """Header, then blocks of 32 KiB, each with its compressed length in front."""
    from cramjam import snappy

    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def snappy_decompress(data: Buffer, room: int) -> bytes:
    """A xerial stream (its version numbers are not looked at), or one bare block without a header."""
    from cramjam import DecompressionError

    view = memoryview(data)
    try:
        if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
            return _snappy_block(view, room)
        return _xerial_blocks(view, room)
    except DecompressionError as error:
        raise DamagedError(str(error)) from error


def _xerial_blocks(view: memoryview, room: int) -> bytes:
    if len(view) < len(_XERIAL_HEADER):
        raise DamagedError("the data is cut off")
    parts: list[bytes] = []
    position = len(_XERIAL_HEADER)
    while position < len(view):
        start = position + _INT32.size
        if start > len(view):
            raise DamagedError("the data is cut off")
        (size,) = _INT32.unpack_from(view, position)
        position = start + size
        if not 0 <= size <= len(view) - start:
            raise DamagedError(f"a block of {size} bytes, {len(view) - start} are left")
        parts.append(_snappy_block(view[start:position], room))
        room -= len(parts[-1])
        _refuse_nothing(len(parts[-1]), alone=len(parts) == 1 and position == len(view))
        _refuse_many(len(parts))
    return b"".join(parts)


def _snappy_block(block: memoryview, room: int) -> bytes:
    from cramjam import snappy

    size = snappy.decompress_raw_len(block)
    if size > room:
        raise OverLimitError
    if size * _SNAPPY_BEST_IN > len(block) * _SNAPPY_BEST_OUT:
        raise DamagedError(f"{len(block)} bytes cannot hold {size}")
    return bytes(snappy.decompress_raw(block))


# lz4: one frame of independent blocks


def lz4_compress(data: Buffer, level: int | None) -> bytes:
    """One frame: independent blocks of 64 KiB, no checksums, no content size; level None is the fast mode."""
    from lz4 import frame

    packed: bytes = frame.compress(
        data,
        compression_level=frame.COMPRESSIONLEVEL_MIN if level is None else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return packed


def lz4_decompress(data: Buffer, room: int) -> bytes:
    """The content of the one frame that ``data`` is, taken out in chunks that grow."""
    from lz4 import frame

    unpacker: Any = frame.LZ4FrameDecompressor()
    chunks: list[bytes] = []
    size = _FIRST_CHUNK_BYTES
    fed: Buffer = data
    while not unpacker.eof:
        try:
            chunk = unpacker.decompress(fed, max_length=min(size, room + 1))
        except RuntimeError as error:
            raise DamagedError(str(error)) from error
        room -= len(chunk)
        if room < 0:
            raise OverLimitError
        if not chunk and not unpacker.eof and unpacker.needs_input:
            raise DamagedError("the data is cut off")
        chunks.append(chunk)
        fed = b""
        size = min(2 * size, _LARGEST_CHUNK_BYTES)
    if unpacker.unused_data:
        raise DamagedError(f"{len(unpacker.unused_data)} bytes behind the end")
    return b"".join(chunks)


# zstd: frames


_idle_compressors: dict[int, list[Any]] = {}
_idle_decompressors: list[Any] = []
# A context serves one thread at a time, so it is out of the list while in use (list.pop and list.append are
# atomic); a new one costs as much as compressing 4 KiB.


def zstd_compress(data: Buffer, level: int | None) -> bytes:
    """One frame that names its content's size; level None is 3."""
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
    """The content of all frames of ``data``."""
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
                raise DamagedError(f"a frame of {size} bytes cannot hold {claimed}")
            if claimed != _ZSTD_UNKNOWN_SIZE and claimed > room:
                raise OverLimitError
            parts.append(unpacker.decompress(frame, max_output_size=min(most, room) or 1))
            room -= len(parts[-1])
            if room < 0:
                raise OverLimitError
            _refuse_nothing(len(parts[-1]), alone=len(parts) == 1 and not view)
            _refuse_many(len(parts))
    except zstandard.ZstdError as error:
        raise DamagedError(str(error)) from error
    _idle_decompressors.append(unpacker)
    return b"".join(parts)


def zstd_claim(data: Buffer) -> int:
    """What the first frame says of its size, 0 for nothing.

    Told from the descriptor and the field it announces, as in RFC 8878, 3.1.1.1.
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
    """Bytes of the frame at the start of ``view``, and the most that its blocks can hold.

    The library tells neither: it would take a frame's word for its size, and not miss a cut-off end.
    """
    import zstandard

    has_checksum = zstandard.get_frame_parameters(view).has_checksum
    size, blocks = zstd_frame(view, 0, zstandard.frame_header_size(view), has_checksum)
    if size < 0:
        raise DamagedError("a block of an unknown kind" if size == UNKNOWN_KIND else "the data is cut off")
    return size, blocks * _ZSTD_BLOCK_BYTES
