"""Compression of record batches: which codec, at which level, and the one way in and out.

gzip is the standard library's. The others come with ``pip install splashdam[compression]`` and are imported
when first used.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import KafkaConfigurationError, UnsupportedCodecError
from splashdam.model.options import nearest_name
from splashdam.model.values import Buffer
from splashdam.record import codecs
from splashdam.record.batch import Codec

MAX_DECOMPRESSED_BYTES = 100_000_000
"""What a batch may decompress to unless told otherwise: Kafka's default limit for one response."""

_USUAL_RATIO = 4


class OverLimitError(CorruptMessageError):
    """More comes out than the limit; with a larger one it may be right."""


_LEVELS = {Codec.GZIP: range(1, 10), Codec.LZ4: range(1, 18), Codec.ZSTD: range(-131072, 23)}
_LIBRARIES = {Codec.SNAPPY: "cramjam", Codec.LZ4: "lz4", Codec.ZSTD: "zstandard"}
_CODECS = {
    Codec.GZIP: (codecs.gzip_compress, codecs.gzip_decompress),
    Codec.SNAPPY: (codecs.snappy_compress, codecs.snappy_decompress),
    Codec.LZ4: (codecs.lz4_compress, codecs.lz4_decompress),
    Codec.ZSTD: (codecs.zstd_compress, codecs.zstd_decompress),
}


class Compression(NamedTuple):
    """A codec and its level. ``level`` None is the codec's default (gzip 6, lz4 fast, zstd 3)."""

    codec: Codec
    level: int | None = None

    @classmethod
    def parse(cls, name: str | None, level: int | None = None) -> Compression:
        """From the options of a producer.

        Args:
            name: ``none``, ``gzip``, ``snappy``, ``lz4``, ``zstd``, or None for ``none``.
            level: gzip 1–9, lz4 1–17, zstd -131072–22; the others have none.

        Raises:
            KafkaConfigurationError: the codec is unknown or its library is missing, or the level is not
                one of this codec's.
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
    if level not in levels and not (codec is Codec.GZIP and level == codecs.GZIP_DEFAULT_LEVEL):
        raise KafkaConfigurationError(f"compression level {level}: {name} has {levels[0]} to {levels[-1]}")


def available(codec: Codec) -> bool:
    """Whether the codec's library can be imported."""
    try:
        importlib.import_module(_LIBRARIES.get(codec, "zlib"))
    except ImportError:
        return False
    return True


def _missing(codec: Codec) -> str:
    return f"the library {_LIBRARIES[codec]!r} is not installed (pip install splashdam[compression])"


def compress(data: Buffer, compression: Compression) -> bytes:
    """The bytes of ``data`` as Kafka frames them for this codec.

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
    """The reverse of ``compress``, within a limit.

    At no time more than about twice ``max_bytes`` are held, and never more because a length says so.

    Raises:
        OverLimitError: it decompresses to more than ``max_bytes``.
        CorruptMessageError: the data is damaged or cut off.
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
    except codecs.OverLimitError:
        raise OverLimitError(
            f"{codec.name.lower()}: decompresses to more than the limit of {max_bytes} bytes"
        ) from None
    except codecs.DamagedError as error:
        raise CorruptMessageError(f"{codec.name.lower()}: {error}") from error.__cause__


def likely_unpacked_bytes(codec: int, data: Buffer) -> int:
    """What ``data`` unpacks to if it says the truth and is packed as usual: nothing to rely on.

    Args:
        codec: its number, known or not.
        data: what follows a batch's header.
    """
    claimed = 0
    if codec == Codec.GZIP:
        claimed = codecs.gzip_claim(data)
    elif codec == Codec.ZSTD:
        claimed = codecs.zstd_claim(data)
    if codec and not claimed:
        claimed = _USUAL_RATIO * len(data)
    return min(max(claimed, len(data)), MAX_DECOMPRESSED_BYTES)
