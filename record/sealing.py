"""Seal encoded records into a batch that can be sent: compression, header, checksum."""

from __future__ import annotations

from collections.abc import Iterable

from splashdam.model.errors import IllegalArgumentError, IllegalStateError
from splashdam.model.values import Buffer, HeaderPairs
from splashdam.record import batch as layout
from splashdam.record.batch import Codec
from splashdam.record.checksum import crc32c
from splashdam.record.compression import NO_COMPRESSION, Compression, compress
from splashdam.record.kernel import BatchBuffer, record_size_upper_bound


def seal(
    buffer: BatchBuffer,
    compression: Compression = NO_COMPRESSION,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> memoryview:
    """Make a batch of the records in ``buffer``, with base offset 0 and leader epoch 0.

    Without compression the header is written into the buffer and nothing is copied: do not append while the
    result is in use. As in the Java producer, a batch is compressed even if that makes it larger.

    Args:
        buffer: the records.
        compression: codec and level.
        producer_id: -1 for none; likewise ``producer_epoch`` and ``base_sequence``.
        transactional: whether the batch belongs to a transaction.
        control: whether the batch is a marker, which only brokers write.

    Returns:
        The whole batch, writable.

    Raises:
        IllegalStateError: the buffer has no record.
    """
    if not buffer.record_count:
        raise IllegalStateError("a batch without records cannot be sealed")
    sealed = buffer.view()
    if compression.codec is not Codec.NONE:
        sealed = _compressed(sealed[layout.HEADER_BYTES :], compression)
    attributes = int(compression.codec)
    if transactional:
        attributes |= layout.TRANSACTIONAL_BIT
    if control:
        attributes |= layout.CONTROL_BIT
    layout.HEADER.pack_into(
        sealed,
        0,
        0,  # base offset: the broker assigns it
        len(sealed) - layout.LENGTH_END,
        0,  # leader epoch: the broker's too
        layout.MAGIC,
        0,  # checksum: below
        attributes,
        buffer.record_count - 1,
        buffer.base_timestamp_ms,
        buffer.max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        buffer.record_count,
    )
    plain = compression.codec is Codec.NONE
    # After the header, which the checksum covers from the attributes on.
    checksum = buffer.checksum() if plain else crc32c(sealed[layout.CRC_FROM :])
    layout.UINT32.pack_into(sealed, layout.CRC_AT, checksum)
    return sealed


def seal_records(records: Buffer, header: layout.BatchHeader, compression: Compression) -> bytes:
    """Make a batch of encoded records; the header is kept except for codec, length and checksum.

    Args:
        records: decompressed records; not checked.
        header: of the batch that they come from.
        compression: codec and level of the new batch.

    Raises:
        UnsupportedCodecError: the codec's library is not installed.
    """
    sealed = _compressed(records, compression)
    attributes = header.attributes & ~layout.CODEC_MASK | compression.codec
    header = header._replace(attributes=attributes, batch_length=len(sealed) - layout.LENGTH_END)
    layout.HEADER.pack_into(sealed, 0, *header)
    layout.stamp_crc(sealed, 0, len(sealed))
    return bytes(sealed)


def _compressed(records: Buffer, compression: Compression) -> memoryview:
    packed = compress(records, compression)
    sealed = memoryview(bytearray(layout.HEADER_BYTES + len(packed)))
    sealed[layout.HEADER_BYTES :] = packed
    return sealed


def restamp_producer(batch: memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Set new producer fields in a sealed batch, after an epoch bump, and update its checksum.

    Safe only if the broker certainly rejected the batch or has forgotten its epoch, and while it is not in
    flight.
    """
    layout.PRODUCER.pack_into(batch, layout.PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    layout.stamp_crc(batch, 0, len(batch))


def build_batch(
    records: Iterable[tuple[int, Buffer | None, Buffer | None, HeaderPairs | None]],
    compression: Compression = NO_COMPRESSION,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Make a whole batch of ``(timestamp_ms, key, value, headers)`` tuples; more arguments as in ``seal``.

    Raises:
        IllegalStateError: there is no record.
        IllegalArgumentError: a record became larger meanwhile: another thread changes its bytes.
        TypeError: a record's part has the wrong type.
    """
    listed = list(records)
    needed = sum(record_size_upper_bound(key, value, headers) for _, key, value, headers in listed)
    buffer = BatchBuffer(layout.HEADER_BYTES + needed)
    for timestamp_ms, key, value, headers in listed:
        if not buffer.try_append(timestamp_ms, key, value, headers):
            raise IllegalArgumentError("a record was changed while the batch was built")
    sealed = seal(
        buffer,
        compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
    )
    return bytes(sealed)
