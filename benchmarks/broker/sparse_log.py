"""Writes the files of a large log without its bytes: what a look-up reads is real, the rest is holes.

A log of full segments, as a leader writes it from batches of 16 KiB. Its indexes, snapshots and leader epochs
are whole. A ``.log`` has its full length, but holds only some batches; the rest are holes, which take no room
on a file system with sparse files. The log refuses a hole as a batch, so nothing can be measured that is not
there.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from pathlib import Path

from splashdam.record.sealing import build_batch
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.leader_epochs import LeaderEpochs
from splashdam.storage.producers.snapshots import SnapshotFiles
from splashdam.storage.producers.state import ProducerStates
from splashdam.storage.segments.indexes import OFFSET_ENTRY, TIME_ENTRY
from splashdam.storage.segments.segment import INDEX, LOG, TIME_INDEX, segment_path

BATCH_BYTES, BATCH_RECORDS = 16 * 1024, 16
"""Kafka's default ``batch.size``, full of records of about 1 KB."""

_VALUE_BYTES, _LAST_VALUE_BYTES = 1011, 1014
"""So that a batch has exactly `BATCH_BYTES`."""

FIRST_MS, STEP_MS = 1_700_000_000_000, 10
"""Timestamp of the first batch, and from each to the next."""


def timestamp_of(batch: int) -> int:
    """Return the timestamp of all records of a batch, by its number in the log."""
    return FIRST_MS + batch * STEP_MS


def batch_at(number: int, base_offset: int | None = None) -> bytes:
    """Return a batch by its number, with its offset in the log or another one."""
    sizes = [_VALUE_BYTES] * (BATCH_RECORDS - 1) + [_LAST_VALUE_BYTES]
    batch = build_batch([(timestamp_of(number), None, b"x" * size, None) for size in sizes])
    if len(batch) != BATCH_BYTES:
        raise SystemExit(f"a batch has {len(batch):,} bytes, not {BATCH_BYTES:,}")
    return struct.pack(">q", number * BATCH_RECORDS if base_offset is None else base_offset) + batch[8:]


def write_log(
    folder: Path, segments: int, batches: int, active_batches: int, is_real: Callable[[int], bool]
) -> int:
    """Write a log as it is after a clean stop; return its end offset.

    Args:
        folder: an empty folder.
        segments: number of closed segments.
        batches: batches of each; 2 or more.
        active_batches: batches of the active segment; 2 or more.
        is_real: whether to write the batch with a number; the first and the last two of each segment are
            always written.
    """
    files, directory = DiskFiles(fsync=False), str(folder)
    LeaderEpochs(files, directory).assign(0, 0)
    snapshots = SnapshotFiles(files, directory)
    for number, count in enumerate([*[batches] * segments, active_batches]):
        first = number * batches
        if number:
            snapshots.write(first * BATCH_RECORDS, ProducerStates())
        _write_segment(directory, first, count, is_real)
    end = (segments * batches + active_batches) * BATCH_RECORDS
    snapshots.write(end, ProducerStates())
    return end


def _write_segment(directory: str, first: int, count: int, is_real: Callable[[int], bool]) -> None:
    base = first * BATCH_RECORDS
    with open(segment_path(directory, base, LOG), "wb") as log:
        log.truncate(count * BATCH_BYTES)
        for number in range(count):
            if number in (0, count - 2, count - 1) or is_real(first + number):
                log.seek(number * BATCH_BYTES)
                log.write(batch_at(first + number))
    # Each batch is larger than ``index.interval.bytes`` and later than the one before, so all are indexed but
    # the first.
    lasts = range(2 * BATCH_RECORDS - 1, count * BATCH_RECORDS, BATCH_RECORDS)
    positions = range(BATCH_BYTES, count * BATCH_BYTES, BATCH_BYTES)
    times = range(timestamp_of(first + 1), timestamp_of(first + count), STEP_MS)
    with open(segment_path(directory, base, INDEX), "wb") as index:
        index.write(b"".join(itertools.starmap(OFFSET_ENTRY.pack, zip(lasts, positions, strict=True))))
    with open(segment_path(directory, base, TIME_INDEX), "wb") as index:
        index.write(b"".join(itertools.starmap(TIME_ENTRY.pack, zip(times, lasts, strict=True))))
