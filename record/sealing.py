"""Sealing: what turns encoded records into a batch that can be sent (header, compression, checksum)."""

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
    """Makes a batch of the records in ``buffer``: base offset 0, leader epoch 0, checksum right.

    Without compression the header is written into the buffer itself and nothing is copied: append no more
    while the result is in use. As in the Java producer, a batch is compressed even where it grows by it.

    Args:
        buffer: the records.
        compression: codec and level.
        producer_id: -1 for none; likewise ``producer_epoch`` and ``base_sequence``.
        transactional: the batch belongs to a transaction.
        control: the batch holds a marker (brokers alone write those).

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
    checksum = buffer.checksum() if plain else crc32c(sealed[layout.CRC_FROM :])
    layout.UINT32.pack_into(sealed, layout.CRC_AT, checksum)
    return sealed


def seal_records(records: Buffer, header: layout.BatchHeader, compression: Compression) -> bytes:
    """Makes a batch of encoded records; the header stays as given, but for codec, length and checksum.

    Args:
        records: what followed a header, unpacked; not looked at.
        header: of the batch they came from.
        compression: codec and level of the batch they go into.

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
    """Gives a sealed batch new producer fields (after an epoch bump) and the checksum that goes with them.

    Safe only after the broker certainly refused the batch or forgot its epoch, and while nobody sends it.
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
    """One whole batch from ``(timestamp_ms, key, value, headers)`` tuples; the fields are those of ``seal``.

    Raises:
        IllegalStateError: there is no record.
        IllegalArgumentError: a record became larger meanwhile: somebody else changes its bytes.
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
