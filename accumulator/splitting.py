"""Split a batch that is too large for the broker (MESSAGE_TOO_LARGE) or for a request into smaller ones.

The sender asks for it in ``sender/completion.py``; ``RecordAccumulator.split_and_reenqueue`` queues the
parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from splashdam.accumulator.batch import BatchEvent, ProducerBatch, sequence_after
from splashdam.model.errors import IllegalStateError
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.kernel import BatchBuffer, record_size_upper_bound
from splashdam.record.reader import Record, read_records


def split_batch(batch: ProducerBatch, batch_bytes: int) -> list[ProducerBatch]:
    """Split ``batch`` into at least two smaller batches, in order.

    Each part holds at most ``batch_bytes`` and about half of the batch, so that repeated splitting ends; its
    first record fits whatever its size. The parts keep creation time, attempts, producer id and epoch, and
    share the batch's sequence numbers and its memory charge. A compressed batch has released most of its
    charge, but its parts are uncompressed and need it again: ``batch.charged_bytes`` is then negative, by the
    missing bytes.
    """
    if batch.sealed is None or batch.record_count < 2:
        raise IllegalStateError(f"{batch} with {batch.record_count} records cannot be split")
    # The limits are exactly what the batch holds, so it cannot exceed them.
    # The sealed bytes are read, since the append buffer was dropped when the batch was first sealed.
    records = read_records(batch.sealed, max_bytes=batch.uncompressed_bytes, max_records=batch.record_count)
    sizes = [record_size_upper_bound(record.key, record.value, record.headers) for record in records]
    # Half plus half a record: otherwise an odd number of equal records would make three parts.
    half_bytes = (sum(sizes) + max(sizes) + 1) // 2
    limit_bytes = max(min(batch_bytes - HEADER_BYTES, half_bytes), 1)
    bounds = _bounds(sizes, limit_bytes)
    parts = []
    for start, end in itertools.pairwise(bounds):
        part = _part(batch, records[start:end], sum(sizes[start:end]))
        part.place = batch.place + start
        if batch.sequenced:
            part.base_sequence = sequence_after(batch.base_sequence, start)
        parts.append(part)
    batch.advance(BatchEvent.SPLIT)
    _share_charge(batch, parts)
    batch.outcome.split(bounds, [part.outcome for part in parts])
    return parts


def _bounds(sizes: Sequence[int], limit_bytes: int) -> list[int]:
    """Return the index of each part's first record, and the number of records."""
    bounds, used = [0], 0
    for index, size in enumerate(sizes):
        if used and used + size > limit_bytes:
            bounds.append(index)
            used = 0
        used += size
    return [*bounds, len(sizes)]


def _part(batch: ProducerBatch, records: list[Record], size_bytes: int) -> ProducerBatch:
    buffer = BatchBuffer(HEADER_BYTES + size_bytes)
    for record in records:
        if not buffer.try_append(record.timestamp_ms, record.key, record.value, record.headers):
            raise IllegalStateError(f"a record for {batch.topic_partition} exceeds its upper bound")
    part = ProducerBatch(batch.topic_partition, buffer, batch.created_ms, charged_bytes=0)
    part.close()
    part.attempts = batch.attempts
    part.leader_epoch = batch.leader_epoch
    part.producer_id = batch.producer_id
    part.producer_epoch = batch.producer_epoch
    part.last_error = batch.last_error
    part.transactional = batch.transactional
    part.maybe_written = part.part_in_doubt = batch.maybe_written
    return part


def _share_charge(batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
    for part in parts:
        part.charged_bytes = part.size_bytes
        batch.charged_bytes -= part.charged_bytes
    # What is left goes with the last part; what is missing stays with the batch, and the caller owes it.
    parts[-1].charged_bytes += max(batch.charged_bytes, 0)
    batch.charged_bytes = min(batch.charged_bytes, 0)
