"""The topic option ``compression.type``: the broker packs batches anew that came with another codec.

By default ('producer') every batch stays as its producer packed it.
"""

from __future__ import annotations

from splashdam.embedded_broker.storage.append_checks import check_batch
from splashdam.embedded_broker.topic_configs import TopicSettings
from splashdam.model.broker_errors import UnsupportedCompressionTypeError
from splashdam.model.errors import KafkaConfigurationError, UnsupportedCodecError
from splashdam.model.values import Buffer
from splashdam.record.batch import BatchHeader
from splashdam.record.compression import Compression
from splashdam.record.reader import read_records, scan_batch, unpack_records
from splashdam.record.sealing import build_batch, seal_records


def with_topic_codec(batch: Buffer, settings: TopicSettings, now_ms: int) -> Buffer:
    """The batch as the topic stores it: itself unless ``compression.type`` names another codec.

    Args:
        batch: one batch as a producer sent it.
        settings: of the topic.
        now_ms: wall clock, milliseconds since the epoch.

    Raises:
        BrokerResponseError: the batch is one that the log would refuse, or a codec's library is missing.
    """
    if settings.compression_type == "producer":
        return batch
    header = check_batch(batch, settings, now_ms)
    try:
        compression = _compression_of(settings)
        return batch if header.codec is compression.codec else _repacked(batch, header, compression)
    except (KafkaConfigurationError, UnsupportedCodecError) as error:
        raise UnsupportedCompressionTypeError(str(error)) from error


def _compression_of(settings: TopicSettings) -> Compression:
    levels = {
        "gzip": settings.compression_gzip_level if settings.compression_gzip_level > 0 else None,
        "lz4": settings.compression_lz4_level,
        "zstd": settings.compression_zstd_level,
    }
    name = settings.compression_type
    return Compression.parse("none" if name == "uncompressed" else name, levels.get(name))


def _repacked(batch: Buffer, header: BatchHeader, compression: Compression) -> bytes:
    """The same records under another codec; none of them is decoded unless their offsets have gaps."""
    scan = scan_batch(batch)
    if scan.misplaced < 0:
        header = header._replace(max_timestamp=scan.max_timestamp_ms)
        return seal_records(unpack_records(batch, 0, header), header, compression)
    return build_batch(
        [(record.timestamp_ms, record.key, record.value, record.headers) for record in read_records(batch)],
        compression,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
    )
