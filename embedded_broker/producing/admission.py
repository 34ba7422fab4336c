"""What a produced batch goes through before the log takes it: its checks, and the codec of its topic.

Nothing here belongs to the broker's loop: a batch, its topic's options and the time go in, an error or the
batch as it is stored comes out. So all of it may run beside the loop (``answering/turns.py``), where the
batch has to be unpacked, walked along record by record, or packed anew (``compression.type``; by default,
'producer', every batch stays as its producer packed it).
"""

from __future__ import annotations

from typing import NamedTuple

import attrs

from splashdam.model.broker_errors import UnsupportedCompressionTypeError
from splashdam.model.errors import KafkaConfigurationError, UnsupportedCodecError
from splashdam.model.values import Buffer
from splashdam.record.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    Codec,
    parse_header,
)
from splashdam.record.compression import MAX_DECOMPRESSED_BYTES, Compression, likely_unpacked_bytes
from splashdam.record.reader import read_records
from splashdam.record.sealing import build_batch, seal_records
from splashdam.record.validation import ValidRecords
from splashdam.storage.append_checks import (
    check_batch,
    check_header,
    check_records,
    check_size,
)
from splashdam.storage.settings import LogSettings

ATTRIBUTES_LOW_BYTE = ATTRIBUTES_AT + 1
_PACKING_FACTOR, _SLOW_PACKING_FACTOR = 16, 256
"""To pack a byte takes as long as to unpack so many, by levels that unpack fast and by those that do not."""
_FIRST_SLOW_ZSTD_LEVEL = 10


class Admitted(NamedTuple):
    """A batch that its log may take.

    Attributes:
        batch: as it is stored.
        header: its header.
        settings: the options it was held against; with others it has to be admitted anew.
    """

    batch: Buffer
    header: BatchHeader
    settings: LogSettings


def is_taken_as_it_is(batch: Buffer, settings: LogSettings) -> bool:
    """Whether nothing has to be unpacked or packed: the log checks such a batch itself, in one short walk."""
    is_plain = len(batch) < HEADER_BYTES or not batch[ATTRIBUTES_LOW_BYTE] & CODEC_MASK
    return is_plain and settings.compression_type in ("producer", "uncompressed")


@attrs.frozen
class Admission:
    """What has to be done with a batch that is not taken as it is; a `turns.Work`.

    Attributes:
        batch: one batch as a producer sent it; it stays as it is until the work is done.
        settings: of the topic.
        now_ms: wall clock, milliseconds since the epoch.
        size_bytes: see `turns.Work`.
    """

    batch: Buffer
    settings: LogSettings
    now_ms: int
    size_bytes: int

    @classmethod
    def of(cls, batch: Buffer, settings: LogSettings, now_ms: int) -> Admission:
        """That of a batch with a whole header."""
        body, codec = memoryview(batch)[HEADER_BYTES:], batch[ATTRIBUTES_LOW_BYTE] & CODEC_MASK
        size_bytes = likely_unpacked_bytes(codec, body) * _packing_factor(batch, settings)
        return cls(batch, settings, now_ms, size_bytes)

    def do(self, max_bytes: int) -> Admitted:
        """Checks and packs.

        Raises:
            BrokerResponseError: the log would refuse the batch, or a codec's library is missing.
            OverLimitError: the limit is below the usual one, and does not do.
        """
        batch, settings = self.batch, self.settings
        if max_bytes < MAX_DECOMPRESSED_BYTES:
            max_bytes //= _packing_factor(batch, settings)
        if not _is_packed_anew(batch, settings):
            batch, header = check_batch(batch, settings, self.now_ms, max_bytes=max_bytes)
            return Admitted(batch, header, settings)
        packed = _packed_anew(batch, settings, self.now_ms, max_bytes)
        check_size(len(packed), settings)  # before anybody keeps it
        return Admitted(packed, parse_header(packed), settings)


def _packing_factor(batch: Buffer, settings: LogSettings) -> int:
    name = settings.compression_type
    packed = batch[ATTRIBUTES_LOW_BYTE] & CODEC_MASK
    if name in ("producer", "uncompressed") or packed == Codec[name.upper()]:
        return 1
    is_slow = name == "zstd" and settings.compression_zstd_level >= _FIRST_SLOW_ZSTD_LEVEL
    return _SLOW_PACKING_FACTOR if is_slow else _PACKING_FACTOR


def _packed_anew(batch: Buffer, settings: LogSettings, now_ms: int, max_bytes: int) -> bytes:
    header = check_header(batch, settings)
    try:
        compression = _compression_of(settings)
        valid = check_records(batch, header, settings, now_ms, max_bytes=max_bytes, any_offsets=True)
        return _repacked(batch, header, valid, compression)
    except (KafkaConfigurationError, UnsupportedCodecError) as error:
        raise UnsupportedCompressionTypeError(str(error)) from error


def _is_packed_anew(batch: Buffer, settings: LogSettings) -> bool:
    name = settings.compression_type
    if name == "producer":
        return False
    codec = Codec.NONE if name == "uncompressed" else Codec[name.upper()]
    return batch[ATTRIBUTES_LOW_BYTE] & CODEC_MASK != codec


def _compression_of(settings: LogSettings) -> Compression:
    levels = {
        "gzip": settings.compression_gzip_level if settings.compression_gzip_level > 0 else None,
        "lz4": settings.compression_lz4_level,
        "zstd": settings.compression_zstd_level,
    }
    name = settings.compression_type
    return Compression.parse("none" if name == "uncompressed" else name, levels.get(name))


def _repacked(batch: Buffer, header: BatchHeader, valid: ValidRecords, compression: Compression) -> bytes:
    """The same records under another codec; they are decoded only where they are numbered anew."""
    if valid.scan.misplaced < 0:
        header = header._replace(
            attributes=header.attributes & ~LOG_APPEND_TIME_BIT, max_timestamp=valid.max_timestamp_ms
        )
        return seal_records(valid.records, header, compression)
    return build_batch(
        [(record.timestamp_ms, record.key, record.value, record.headers) for record in read_records(batch)],
        compression,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
