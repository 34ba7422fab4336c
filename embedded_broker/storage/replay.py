"""Rebuilding producer state from what stands in the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from splashdam.embedded_broker.storage.producer_state import CompletedTransaction, ProducerStates
from splashdam.embedded_broker.storage.scan import iter_headers
from splashdam.embedded_broker.storage.segment import LogSegment
from splashdam.embedded_broker.storage.transaction_marker import parse_marker
from splashdam.model.values import Buffer
from splashdam.record.batch import BatchHeader

_TAIL_SEGMENTS, _TAIL_ENTRIES, _TAIL_BYTES = 16, 64, 8 * 1024 * 1024


def replay_batch(
    states: ProducerStates, header: BatchHeader, read_batch: Callable[[], Buffer]
) -> CompletedTransaction | None:
    """Takes one batch of the log into ``states``; returns the transaction it ends, if it does.

    Raises:
        CorruptMessageError: a marker makes no sense.
    """
    if header.producer_id < 0:
        return None
    if not header.is_control:
        states.record(header, header.base_offset, now_ms=0)
        return None
    marker = parse_marker(read_batch(), header.producer_id, header.producer_epoch)
    if marker is None:
        return None
    return states.end_transaction(marker, header.base_offset, header.max_timestamp, now_ms=0)


def complete_batches(states: ProducerStates, segments: Sequence[LogSegment], up_to: int) -> None:
    """Fills in the batches before the last one of each producer, which snapshots leave out.

    A producer may have five batches in flight when its broker ends, so repeats of any of them must be known
    after the next start. (Kafka knows the last alone.) They stand close to the end of the log, so only its
    last bytes are looked at, and of a segment no more than its last index entries.

    Raises:
        CorruptMessageError: the log is damaged.
        KafkaStorageError: it cannot be read.
    """
    tail, stretches, room = ProducerStates(), [], _TAIL_BYTES
    below = [segment for segment in segments if segment.base_offset < up_to]
    for segment in reversed(below[-_TAIL_SEGMENTS:]):
        head = segment.find(up_to)
        end = segment.size_bytes if head is None else head.position
        start = segment.offset_index.position_before(end, entries=_TAIL_ENTRIES, max_bytes=room)
        stretches.append((segment, start, end))
        room -= end - start
        if start > 0 or room <= 0:
            break
    for segment, start, end in reversed(stretches):
        for position, header in iter_headers(segment.log, start):
            if position >= end:
                break
            if header.producer_id >= 0 and not header.is_control:
                tail.record(header, header.base_offset, now_ms=0)
    states.complete_from(tail)


def replay_segment(states: ProducerStates, segment: LogSegment, from_offset: int, to_offset: int) -> None:
    """Takes the batches of a segment with offsets in [``from_offset``, ``to_offset``) into ``states``.

    Raises:
        CorruptMessageError: the log is damaged.
        KafkaStorageError: it cannot be read.
    """
    head = segment.find(from_offset)
    if head is None:
        return
    for position, header in iter_headers(segment.log, head.position):
        if header.base_offset >= to_offset:
            return
        replay_batch(states, header, partial(segment.log.read, position, header.size_bytes))
