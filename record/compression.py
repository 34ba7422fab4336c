"""The five codecs as Kafka frames them, and decompression that cannot be made to eat the memory.

gzip is the standard library's. The others are optional (``pip install splashdam[compression]``): snappy is
cramjam's, in xerial's framing; lz4 is lz4.frame's; zstd is zstandard's. Their import waits for the first use.
All of them release the GIL while they work.
"""

from __future__ import annotations

import importlib
from enum import IntEnum
from types import ModuleType

import attrs

from splashdam.model.errors import KafkaConfigurationError, UnsupportedCodecError
from splashdam.model.options import nearest_name


class Codec(IntEnum):
    """A codec by its number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LEVELS = {Codec.GZIP: range(1, 10), Codec.LZ4: range(1, 18), Codec.ZSTD: range(-131072, 23)}
"""Kafka's levels, where a codec has any."""

LIBRARIES = {Codec.SNAPPY: "cramjam", Codec.LZ4: "lz4.frame", Codec.ZSTD: "zstandard"}
