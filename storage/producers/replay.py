"""Rebuild producer state from snapshots and the batches of the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.values import Buffer
from splashdam.record.batch import BatchHeader
from splashdam.storage.producers.snapshots import SnapshotFiles
from splashdam.storage.producers.state import CompletedTransaction, ProducerStates
from splashdam.storage.segments.batch_scan import iter_headers
from splashdam.storage.segments.segment import LogSegment
from splashdam.storage.transaction_marker import parse_marker

_logger = logging.getLogger(__name__)

_TAIL_SEGMENTS, _TAIL_ENTRIES, _TAIL_BYTES = 16, 64, 8 * 1024 * 1024


def replay_batch(
    states: ProducerStates, header: BatchHeader, read_batch: Callable[[], Buffer], now_ms: int = 0
) -> CompletedTransaction | None:
    """Add one batch of the log to ``states``; return the transaction that it ends, or None.

    Args:
        states: the producer state of the log.
        header: the batch's header.
        read_batch: returns the batch's bytes; called for markers only.
        now_ms: wall clock for the producer's expiration; 0 during recovery, before ``restart_clocks``.

    Raises:
        CorruptMessageError: a marker is damaged.
    """
    if header.producer_id < 0:
        return None
    if not header.is_control:
        states.record(header, header.base_offset, now_ms)
        return None
    marker = parse_marker(read_batch(), header.producer_id, header.producer_epoch)
    if marker is None:
        return None
    return states.end_transaction(marker, header.base_offset, header.max_timestamp, now_ms)


def complete_batches(states: ProducerStates, segments: Sequence[LogSegment], up_to: int) -> None:
    """Add the batches before the last one of each producer, which snapshots leave out.

    A producer may have five batches in flight when its broker ends, so a retry of each must be recognised
    after the next start. (Kafka recognises only the last.) They are near the end of the log, so only its last
    bytes are read, and of each segment only what its last index entries cover.

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
    """Add the batches of a segment in [``from_offset``, ``to_offset``) to ``states``.

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


def producers_at(snapshots: SnapshotFiles, segments: Sequence[LogSegment], offset: int) -> ProducerStates:
    """Return the state of everything below ``offset``: the newest snapshot, and the batches after it.

    If a segment is damaged, its batches behind the damage are missing from the state.
    """
    # From the first segment on, even if the log starts later: the batches are still on disk. Kafka drops
    # them, and appends a retry a second time when retention has removed all records.
    start, states = snapshots.load_newest(offset, segments[0].base_offset)
    if len(states):
        with _damage_logged():
            complete_batches(states, segments, start)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if segment.base_offset >= offset:
            break
        if following is None or following.base_offset > start:
            with _damage_logged():
                replay_segment(states, segment, start, offset)
    return states


def make_producers_durable(snapshots: SnapshotFiles, segments: Sequence[LogSegment], offset: int) -> None:
    """Write and sync the state below ``offset``, because the batches below it are about to be removed.

    The snapshot of a closed segment is not synced when it is written, so a power cut could lose it.

    Raises:
        KafkaStorageError: it could not be written.
    """
    if not snapshots.make_durable(offset):
        snapshots.write(offset, producers_at(snapshots, segments, offset))
        snapshots.make_durable(offset)


@contextmanager
def _damage_logged() -> Iterator[None]:
    try:
        yield
    except CorruptMessageError as error:
        _logger.warning("%s; producer state lacks the batches behind it", error.message)
