"""What a produced batch goes through before the log takes it: its checks, and the codec of its topic.

Nothing here belongs to the broker's loop: a batch, its topic's options and the time go in, an error or the
batch as it is stored comes out. So all of it may run beside the loop (``turns.py``), where the batch has to
be unpacked, walked along record by record, or packed anew (``compression.type``; by default, 'producer',
every batch stays as its producer packed it).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from splashdam.embedded_broker.storage.append_checks import (
    check_batch,
    check_header,
    check_records,
    check_size,
)
from splashdam.embedded_broker.topic_configs import TopicSettings
from splashdam.embedded_broker.turns import Work
from splashdam.model.broker_errors import UnsupportedCompressionTypeError
from splashdam.model.errors import KafkaConfigurationError, UnsupportedCodecError
from splashdam.model.values import Buffer
from splashdam.record.batch import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES, BatchHeader, parse_header
from splashdam.record.compression import (
    MAX_DECOMPRESSED_BYTES,
    Codec,
    Compression,
    likely_unpacked_bytes,
    most_unpacked_bytes,
)
from splashdam.record.reader import read_records
from splashdam.record.sealing import build_batch, seal_records
from splashdam.record.validation import ValidRecords

_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_AT + 1
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
    settings: TopicSettings


def is_taken_as_it_is(batch: Buffer, settings: TopicSettings) -> bool:
    """Whether nothing has to be unpacked or packed: the log checks such a batch itself, in one short walk."""
    is_plain = len(batch) < HEADER_BYTES or not batch[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK
    return is_plain and settings.compression_type in ("producer", "uncompressed")


def admission(batch: Buffer, settings: TopicSettings, now_ms: int) -> Work[Admitted]:
    """What has to be done with a batch that is not taken as it is.

    The work raises BrokerResponseError where the log would refuse the batch, or a codec's library is missing.

    Args:
        batch: one batch as a producer sent it; it stays as it is until the work is done.
        settings: of the topic.
        now_ms: wall clock, milliseconds since the epoch.
    """
    factor = _packing_factor(batch, settings)
    body = memoryview(batch)[HEADER_BYTES:]
    codec = batch[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK if len(body) else 0
    return Work(
        likely_unpacked_bytes(codec, body) * factor,
        partial(_admit, batch, settings, now_ms, factor),
        most_unpacked_bytes(codec, body),
    )


def _packing_factor(batch: Buffer, settings: TopicSettings) -> int:
    name = settings.compression_type
    packed = batch[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK if len(batch) >= HEADER_BYTES else 0
    if name in ("producer", "uncompressed") or packed == Codec[name.upper()]:
        return 1
    is_slow = name == "zstd" and settings.compression_zstd_level >= _FIRST_SLOW_ZSTD_LEVEL
    return _SLOW_PACKING_FACTOR if is_slow else _PACKING_FACTOR


def _admit(batch: Buffer, settings: TopicSettings, now_ms: int, factor: int, most_bytes: int) -> Admitted:
    """Checks and packs; `OverLimitError` where a limit below the usual one does not do."""
    max_bytes = most_bytes if most_bytes >= MAX_DECOMPRESSED_BYTES else most_bytes // factor
    if not _is_packed_anew(batch, settings):
        batch, header = check_batch(batch, settings, now_ms, max_bytes=max_bytes)
        return Admitted(batch, header, settings)
    header = check_header(batch, settings)
    try:
        compression = _compression_of(settings)
        valid = check_records(batch, header, settings, now_ms, max_bytes=max_bytes, any_offsets=True)
        repacked = _repacked(batch, header, valid, compression)
    except (KafkaConfigurationError, UnsupportedCodecError) as error:
        raise UnsupportedCompressionTypeError(str(error)) from error
    check_size(len(repacked), settings)  # before anybody keeps it
    return Admitted(repacked, parse_header(repacked), settings)


def _is_packed_anew(batch: Buffer, settings: TopicSettings) -> bool:
    name = settings.compression_type
    if name == "producer" or len(batch) < HEADER_BYTES:
        return False
    codec = Codec.NONE if name == "uncompressed" else Codec[name.upper()]
    return batch[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK != codec


def _compression_of(settings: TopicSettings) -> Compression:
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
        header = header._replace(max_timestamp=valid.max_timestamp_ms)
        return seal_records(valid.records, header, compression)
    return build_batch(
        [(record.timestamp_ms, record.key, record.value, record.headers) for record in read_records(batch)],
        compression,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
