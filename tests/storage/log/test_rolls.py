"""When a segment ends and what its end leaves behind; index entries by the strict interval rule."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.running.examples import examples
from support.storage.logs import DIRECTORY, NOW_MS, batch, open_log, read_headers

from splashdam.model.options import MAX_LONG
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.producers.snapshots import decode_snapshot
from splashdam.storage.settings import HOUR_MS, LogSettings

ONE_BATCH = len(batch(b"00"))


def append(log: Log, *timestamps: int, now_ms: int = NOW_MS, producer_id: int = -1) -> None:
    for sequence, timestamp in enumerate(timestamps):
        each = batch(b"00", timestamp_ms=timestamp, producer_id=producer_id, sequence=sequence)
        log.append_as_leader(each, now_ms=now_ms)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_by_size() -> None:
    """A segment may be filled to the last byte, and no further."""
    log = open_log(MemoryFiles(), settings=LogSettings(segment_bytes=3 * ONE_BATCH))
    append(log, *(7 * [NOW_MS]))
    assert bases(log) == [0, 3, 6]
    assert log.segments[0].size_bytes == 3 * ONE_BATCH


def test_by_time_of_the_records() -> None:
    """The incoming batch's largest timestamp against the first batch's; the wall clock does not matter."""
    log = open_log(MemoryFiles(), settings=LogSettings(segment_ms=1000))
    append(log, 5000, 6000, now_ms=0)
    append(log, 4000, now_ms=10**9)
    assert bases(log) == [0]
    append(log, 6001, now_ms=0)
    assert bases(log) == [0, 3]


def test_by_the_wall_clock_where_records_have_no_time() -> None:
    """Since the segment was made."""
    log = open_log(MemoryFiles(), settings=LogSettings(segment_ms=1000))
    append(log, -1, -1, now_ms=NOW_MS + 1000)
    assert bases(log) == [0]
    append(log, -1, now_ms=NOW_MS + 1001)
    assert bases(log) == [0, 2]


def test_time_goes_on_through_a_restart() -> None:
    """The first batch of a loaded segment is looked up."""
    files = MemoryFiles()
    log = open_log(files, settings=LogSettings(segment_ms=1000))
    append(log, 5000)
    log.close()
    log = open_log(files, settings=LogSettings(segment_ms=1000), clean=True)
    append(log, 6000, 6001)
    assert bases(log) == [0, 2]


def test_jitter_shortens_each_segment_by_another_amount() -> None:
    """Never by more than segment.jitter.ms, nor below 1 ms; the same for the same segment at every start."""
    settings = LogSettings(segment_ms=HOUR_MS, segment_jitter_ms=HOUR_MS // 4)
    ages = [settings.roll_after_ms(f"/data/t-{number}/{0:020d}.log") for number in range(200)]
    assert all(HOUR_MS * 3 // 4 < age <= HOUR_MS for age in ages)
    assert len(set(ages)) > 190
    assert ages[0] == settings.roll_after_ms(f"/data/t-0/{0:020d}.log")
    assert LogSettings(segment_ms=5, segment_jitter_ms=MAX_LONG).roll_after_ms("/x") in range(1, 6)
    log = open_log(MemoryFiles(), settings=settings)
    limit = settings.roll_after_ms(f"{DIRECTORY}/{0:020d}.log")
    append(log, 0, limit)
    assert bases(log) == [0]
    append(log, limit + 1)
    assert bases(log) == [0, 2]


def test_by_a_full_offset_index() -> None:
    """Records without timestamps leave the time index empty."""
    settings = LogSettings(segment_index_bytes=24, index_interval_bytes=0)
    log = open_log(MemoryFiles(), settings=settings)
    append(log, *(9 * [-1]))
    assert bases(log)[1] == 4
    assert [len(segment.offset_index) for segment in log.segments[:-1]] == [3] * (len(log.segments) - 1)


def test_by_a_full_time_index() -> None:
    """It is full one entry earlier, for the final one."""
    settings = LogSettings(segment_index_bytes=48, index_interval_bytes=0)
    log = open_log(MemoryFiles(), settings=settings)
    append(log, *range(NOW_MS, NOW_MS + 9))
    assert bases(log)[1] == 4
    assert (len(log.segments[0].offset_index), len(log.segments[0].time_index)) == (3, 3)


def test_by_an_offset_too_far_from_the_base() -> None:
    """Index entries hold 31 bits: a batch that ends further away begins a segment of its own."""
    files = MemoryFiles()
    log = open_log(files)
    append(log, NOW_MS)
    log.close()
    path = f"{DIRECTORY}/{0:020d}.log"
    data = files.read_bytes(path)
    assert data is not None
    far = struct.pack(">q", 2**31 - 2) + data[8:]  # as compaction may leave it
    files.write_atomic(path, data + far)
    log = open_log(files)
    append(log, NOW_MS)
    assert bases(log) == [0]
    append(log, NOW_MS)
    assert bases(log) == [0, 2**31]
    assert [header.base_offset for header in read_headers(log)] == [0, 2**31 - 2, 2**31 - 1, 2**31]


async def test_files_of_a_closed_segment() -> None:
    """Final time entry, indexes without zeros, producers at the new base; its flush is the housekeeping's."""
    files = MemoryFiles()
    told: list[int] = []
    files.make_directory(DIRECTORY)
    log = open_log(
        files,
        settings=LogSettings(segment_bytes=3 * ONE_BATCH, index_interval_bytes=ONE_BATCH),
        on_work=lambda log: told.append(log.log_end_offset),
    )
    append(log, NOW_MS, NOW_MS + 2, NOW_MS + 1, NOW_MS, producer_id=4)
    name = f"{DIRECTORY}/{0:020d}"
    assert files.read_bytes(name + ".timeindex") == struct.pack(">qi", NOW_MS + 2, 1)
    assert files.read_bytes(name + ".index") == struct.pack(">ii", 2, 2 * ONE_BATCH)
    snapshot = files.read_bytes(f"{DIRECTORY}/{3:020d}.snapshot")
    assert snapshot is not None
    assert [(entry.producer_id, entry.last_sequence) for entry in decode_snapshot(snapshot)] == [(4, 2)]
    assert (told, log.needs_flush, log.recovery_point) == ([3], True, 0)
    await log.sync()
    assert (log.needs_flush, log.recovery_point) == (False, 4)


def expected_indexes(batches: Iterable[tuple[int, int, int]], interval: int) -> tuple[bytes, bytes]:
    """Kafka's rule, written down a second time: size, last offset and largest timestamp of each batch."""
    offsets = times = b""
    position = since = 0
    largest, at, last_entry = -1, 0, -1
    for size, last_offset, timestamp in batches:
        if timestamp > largest:
            largest, at = timestamp, last_offset
        if since > interval:
            offsets += struct.pack(">ii", last_offset, position)
            if largest > last_entry:
                times += struct.pack(">qi", largest, at)
                last_entry = largest
            since = 0
        since += size
        position += size
    if largest > last_entry:
        times += struct.pack(">qi", largest, at)
    return offsets, times


@hypothesis_settings(max_examples=examples(60), deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 50)), min_size=1, max_size=40),
    interval=st.sampled_from([0, 100, 150, 400]),
    restart_every=st.integers(3, 50),
)
def test_indexes_are_those_of_the_rule_whatever_restarts_were_between(
    sizes: list[tuple[int, int]], interval: int, restart_every: int
) -> None:
    """A rebuild from the log alone gives the same bytes."""
    files = MemoryFiles()
    settings = LogSettings(index_interval_bytes=interval)
    log = open_log(files, settings=settings)
    for number, (size, timestamp) in enumerate(sizes):
        log.append_as_leader(batch(b"x" * size, timestamp_ms=timestamp), now_ms=NOW_MS)
        if number % restart_every == restart_every - 1:
            log.close()
            log = open_log(files, settings=settings, clean=True)
    facts = [(each.size_bytes, each.last_offset, each.max_timestamp) for each in read_headers(log)]
    log.close()
    name = f"{DIRECTORY}/{0:020d}"
    written = files.read_bytes(name + ".index"), files.read_bytes(name + ".timeindex")
    assert written == expected_indexes(facts, interval)
    for suffix in (".index", ".timeindex"):
        files.unlink(name + suffix)
    open_log(files, settings=settings).close()
    assert (files.read_bytes(name + ".index"), files.read_bytes(name + ".timeindex")) == written


@pytest.mark.parametrize("ended", ["clean", "after a crash"])
def test_an_empty_active_segment_is_not_closed(ended: str) -> None:
    """Rolling it would make a segment of the same name."""
    files = MemoryFiles()
    log = open_log(files)
    log.roll(NOW_MS)
    assert bases(log) == [0]
    append(log, NOW_MS)
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert bases(log) == [0, 1]
    if ended == "clean":
        log.close()
    files.kill()
    assert bases(open_log(files, clean=ended == "clean")) == [0, 1]


def test_each_restart_wrote_a_time_entry_more_for_records_of_time_zero() -> None:
    """A final entry of time 0 at the base offset was not found again, so that its like stood behind it."""
    files = MemoryFiles()
    log = open_log(files)
    for _ in range(3):
        log.append_as_leader(batch(b"a", timestamp_ms=0), now_ms=NOW_MS)
        log.close()
        assert files.read_bytes(f"{DIRECTORY}/{0:020}.timeindex") == bytes(12)
        log = open_log(files, clean=True, recovery_point=log.log_end_offset)
