"""A log while all is well: offsets, repeats, rolls, reads by offset and by timestamp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.storage.logs import DIRECTORY, NOW_MS, batch, open_log, read_all, read_headers, values_of

from splashdam.model.broker_errors import OffsetOutOfRangeError
from splashdam.model.errors import IllegalStateError
from splashdam.record.batch import BatchHeader, crc_ok, iter_headers, parse_header
from splashdam.record.sealing import build_batch
from splashdam.storage.files.log_file import LogFile
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import EARLIEST, LATEST, MAX_TIMESTAMP, Log
from splashdam.storage.segments import segment as segment_module
from splashdam.storage.segments.batch_scan import Head, iter_heads
from splashdam.storage.segments.indexes import MAX_RELATIVE_OFFSET, IndexFile
from splashdam.storage.segments.segment_list import WARM_SEGMENTS
from splashdam.storage.settings import LogSettings

SMALL = LogSettings(segment_bytes=1000, index_interval_bytes=200)


def filled(
    count: int, options: LogSettings = SMALL, *, step_ms: int = 10, files: MemoryFiles | None = None
) -> Log:
    """A log of ``count`` batches of two records with rising timestamps."""
    log = open_log(files or MemoryFiles(), settings=options)
    for number in range(count):
        records = [(NOW_MS + step_ms * number + n, b"k", b"%d-%d" % (number, n), None) for n in (0, 1)]
        log.append_as_leader(build_batch(records), now_ms=NOW_MS)
    return log


# --- append -------------------------------------------------------------------------------------------------


def test_offsets_are_assigned_in_order() -> None:
    """Each batch begins where the one before ended."""
    log = open_log(MemoryFiles())
    first = log.append_as_leader(batch(b"1", b"2", b"3"), now_ms=NOW_MS)
    second = log.append_as_leader(batch(b"4"), now_ms=NOW_MS)
    assert (first.base_offset, first.last_offset, first.log_append_time_ms) == (0, 2, -1)
    assert (second.base_offset, second.last_offset, second.duplicate) == (3, 3, False)
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (4, 4, 4)
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3]


def test_only_offset_and_epoch_are_changed_and_the_input_is_not() -> None:
    """The bytes on disk are the producer's; what it sent may be read-only memory."""
    log = open_log(MemoryFiles())
    log.append_as_leader(batch(b"x"), now_ms=NOW_MS)
    sent = batch(b"1", b"2", producer_id=5)
    log.append_as_leader(memoryview(sent), now_ms=NOW_MS, leader_epoch=3)
    stored = log.read(1, 10_000).read()
    assert stored[16:] == sent[16:]
    assert stored[8:12] == sent[8:12]
    header = parse_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 3)
    assert crc_ok(stored, 0, header)
    assert sent == batch(b"1", b"2", producer_id=5)


def test_a_repeat_is_answered_with_the_first_offsets_and_not_written() -> None:
    """Even after other batches, and across a roll."""
    log = open_log(MemoryFiles(), settings=SMALL)
    sent = [batch(b"x" * 300, producer_id=1, sequence=n) for n in range(5)]
    results = [log.append_as_leader(data, now_ms=NOW_MS) for data in sent]
    log.append_as_leader(batch(b"other"), now_ms=NOW_MS)
    assert len(log.segments) > 1
    end = log.log_end_offset
    for data, result in zip(sent, results, strict=True):
        again = log.append_as_leader(data, now_ms=NOW_MS)
        newest = parse_header(data).max_timestamp
        assert again == result._replace(duplicate=True, log_append_time_ms=newest)
    assert log.log_end_offset == end


def test_log_append_time_stamps_batch_and_answer() -> None:
    """Every record reads as the broker's time; the checksum fits; a repeat gets the first time."""
    log = open_log(MemoryFiles(), settings=LogSettings(message_timestamp_type="LogAppendTime"))
    sent = batch(b"1", b"2", producer_id=1, timestamp_ms=5)
    result = log.append_as_leader(sent, now_ms=NOW_MS)
    assert result.log_append_time_ms == NOW_MS
    stored = log.read(0, 10_000).read()
    assert crc_ok(stored, 0, parse_header(stored))
    assert {record.timestamp_ms for record in read_all(log)} == {NOW_MS}
    again = log.append_as_leader(sent, now_ms=NOW_MS + 1)
    assert (again.log_append_time_ms, again.duplicate) == (NOW_MS, True)
    assert log.offset_for_timestamp(NOW_MS)[:2] == (0, NOW_MS)


def test_a_new_leader_epoch_is_noted_with_its_first_offset() -> None:
    """In the checkpoint, at the epoch's first append."""
    files = MemoryFiles()
    log = open_log(files)
    assert log.leader_epoch == 0
    for epoch in (None, 2, None, 2, 5):
        log.append_as_leader(batch(b"x"), now_ms=NOW_MS, leader_epoch=epoch)
    assert files.read_bytes(f"{DIRECTORY}/leader-epoch-checkpoint") == b"0\n3\n0 0\n2 1\n5 4\n"
    assert [header.partition_leader_epoch for header in read_headers(log)] == [0, 2, 2, 2, 5]
    assert log.offset_for_timestamp(EARLIEST).leader_epoch == 0


# --- roll ---------------------------------------------------------------------------------------------------


def test_a_segment_is_closed_before_it_would_be_too_large() -> None:
    """No segment exceeds segment.bytes; each is named after its first offset."""
    log = filled(50)
    assert len(log.segments) > 3
    assert all(segment.size_bytes <= SMALL.segment_bytes for segment in log.segments)
    for segment in log.segments:
        head = segment.find(segment.base_offset)
        assert head is not None
        assert (head.position, head.base_offset) == (0, segment.base_offset)
    assert values_of(log) == [b"%d-%d" % (n, m) for n in range(50) for m in (0, 1)]


def test_a_batch_may_fill_a_segment_exactly() -> None:
    """The next one then begins a new segment."""
    data = batch(b"x")
    log = open_log(MemoryFiles(), settings=LogSettings(segment_bytes=2 * len(data)))
    for _ in range(4):
        log.append_as_leader(data, now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_is_closed_when_an_index_is_full() -> None:
    """With room for three offset entries, or for one time entry beside the final one."""
    options = LogSettings(index_interval_bytes=0, segment_index_bytes=24)
    log = open_log(MemoryFiles(), settings=options)
    for number in range(9):
        log.append_as_leader(batch(b"x", timestamp_ms=NOW_MS + number), now_ms=NOW_MS)
    # The first batch of a segment has no entry, the second fills the time index.
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8]


def test_a_segment_is_closed_by_the_records_time() -> None:
    """Not by the wall clock, as long as there are timestamps."""
    log = open_log(MemoryFiles(), settings=LogSettings(segment_ms=1000))
    for age_ms in (0, 1000, 500, 1001, 1002):
        log.append_as_leader(batch(b"x", timestamp_ms=NOW_MS + age_ms), now_ms=NOW_MS + 10**9)
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_a_segment_without_timestamps_is_closed_by_the_wall_clock() -> None:
    """Counted from when it was made or loaded."""
    log = open_log(MemoryFiles(), settings=LogSettings(segment_ms=1000))
    for now_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001):
        log.append_as_leader(batch(b"x", timestamp_ms=-1), now_ms=now_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_is_closed_before_a_relative_offset_overflows() -> None:
    """Index entries hold 31 bits."""
    log = open_log(MemoryFiles())
    log.append_as_leader(batch(b"x"), now_ms=NOW_MS)
    log.log_end_offset = MAX_RELATIVE_OFFSET
    log.append_as_leader(batch(b"x"), now_ms=NOW_MS)
    assert len(log.segments) == 1
    log.append_as_leader(batch(b"x"), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, MAX_RELATIVE_OFFSET + 1]


def test_a_roll_leaves_a_final_time_entry_and_a_snapshot() -> None:
    """The closed segment's largest timestamp is indexed; the snapshot bears the new base."""
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(b"x", producer_id=1), now_ms=NOW_MS)
    log.roll(NOW_MS)
    assert log.segments[0].time_index.last_timestamp == NOW_MS
    names = [name for name, _ in files.list_directory(DIRECTORY)]
    assert "00000000000000000001.snapshot" in names
    assert {f"00000000000000000001{suffix}" for suffix in (".log", ".index", ".timeindex")} <= set(names)
    log.roll(NOW_MS)
    assert len(log.segments) == 2  # the active segment is empty: nothing to close


# --- read ---------------------------------------------------------------------------------------------------


def test_an_offset_inside_a_batch_returns_the_whole_batch() -> None:
    """Readers skip the records below."""
    log = filled(3)
    piece = log.read(3, 10_000)
    headers = [header for _, header in iter_headers(piece.read())]
    assert [header.base_offset for header in headers] == [2, 4]


def test_bounds_of_a_read() -> None:
    """At the end: nothing; outside: an error that names the range."""
    log = filled(3)
    assert log.read(6, 1000).size_bytes == 0
    for offset in (-1, 7):
        with pytest.raises(OffsetOutOfRangeError, match=f"offset {offset} is outside 0 to 6 of t-0"):
            log.read(offset, 1000)
    log.log_start_offset = 3
    with pytest.raises(OffsetOutOfRangeError):
        log.read(2, 1000)
    assert parse_header(log.read(3, 1000).read()).base_offset == 2


def test_limits_of_a_read() -> None:
    """At least one whole batch if asked for, at most ``max_bytes`` otherwise."""
    log = filled(3)
    size = parse_header(log.read(0, 1).read()).size_bytes
    assert log.read(0, 1).size_bytes == size
    assert log.read(0, size + 5).size_bytes == size + 5
    assert log.read(0, 1, min_one_batch=False).size_bytes == 0
    assert log.read(0, size, min_one_batch=False).size_bytes == size


def test_nothing_is_read_beyond_the_bound() -> None:
    """The high watermark by default, a lower one where it is given, even with ``min_one_batch``."""
    log = filled(40)
    assert len(log.segments) > 2
    for bound in range(0, 80, 2):
        read = [header.base_offset for header in _headers_up_to(log, bound)]
        assert read == list(range(0, bound, 2))
        assert log.read(bound, 1000, up_to=bound).size_bytes == 0
    log.high_watermark = 10
    assert [record.offset for record in read_all(log)] == list(range(10))


def _headers_up_to(log: Log, bound: int) -> list[BatchHeader]:
    found: list[BatchHeader] = []
    offset = 0
    while data := log.read(offset, 10_000, up_to=bound).read():
        headers = [header for _, header in iter_headers(data)]
        found += headers
        offset = headers[-1].next_offset
    return found


def test_reads_go_on_in_closed_segments_that_let_go_of_their_files() -> None:
    """However many segments there are, few keep anything open."""
    log = filled(300)
    assert len(log.segments) > 20
    for offset in range(0, 600, 7):
        assert parse_header(log.read(offset, 100).read()).last_offset >= offset
    warm = [segment for segment in log.segments[:-1] if segment._log is not None and segment.is_synced]
    assert len(warm) <= 8


def test_a_closed_log_refuses_every_call_but_close() -> None:
    """With words that say so."""
    log = filled(1)
    log.close()
    log.close()
    for call in (
        lambda: log.append_as_leader(batch(b"x"), now_ms=NOW_MS),
        lambda: log.read(0, 1),
        lambda: log.offset_for_timestamp(LATEST),
        lambda: log.roll(NOW_MS),
        log.flush,
    ):
        with pytest.raises(IllegalStateError, match="on the log of t-0: it is closed"):
            call()


# --- timestamps ---------------------------------------------------------------------------------------------


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of index files, one for each time that one is read."""
    found: list[str] = []
    load = IndexFile.load

    def loaded(file: IndexFile) -> bytes:
        found.append(file.path)
        return load(file)

    monkeypatch.setattr(IndexFile, "load", loaded)
    return found


def stopped_and_started(count: int) -> Log:
    """A log of ``count`` batches of which no index was read yet."""
    files = MemoryFiles()
    filled(count, files=files).close()
    return open_log(files, settings=SMALL, clean=True, recovery_point=2 * count)


@pytest.mark.parametrize("timestamp_ms", [NOW_MS + 2_900, MAX_TIMESTAMP])
def test_a_step_of_a_search_by_time_read_the_indexes_of_four_segments(
    timestamp_ms: int, loads: list[str]
) -> None:
    """After a start each segment's largest timestamp is read from its indexes, full ones are 1.3 MB."""
    log = stopped_and_started(300)
    assert len(log.segments) > 20
    loads.clear()
    steps, read = 0, len(loads)
    for _ in log.search_timestamp(timestamp_ms):
        steps += 1
        assert len(loads) - read <= 2
        read = len(loads)
    assert steps >= len(log.segments) - 3
    log.close()


@pytest.mark.parametrize("timestamp_ms", [NOW_MS + 2_900, MAX_TIMESTAMP])
def test_a_search_by_time_gets_on_whatever_becomes_of_the_segments(timestamp_ms: int) -> None:
    """Between two steps segments are released, and old ones removed; the start lies within a segment."""
    log = stopped_and_started(300)
    log.advance_log_start(50)
    steps = 0
    for _ in log.search_timestamp(timestamp_ms):
        steps += 1
        assert steps < 500
        for segment in log.segments[:-1]:
            segment.release()
        if steps % 4 == 0 and len(log.segments) > 10:
            log.advance_log_start(log.segments[2].base_offset + 1)
    assert steps > 3
    log.close()


def test_a_search_by_time_dropped_the_indexes_that_it_needs_itself(loads: list[str]) -> None:
    """Segments that are only compared do not take the places of those whose files are used."""
    log = stopped_and_started(300)
    wanted = NOW_MS + 2_500
    found = log.offset_for_timestamp(wanted)
    assert found.timestamp_ms == wanted
    assert len(loads) > 2 * WARM_SEGMENTS
    loads.clear()
    assert log.offset_for_timestamp(wanted) == found
    assert loads == []
    log.close()


def test_special_timestamps() -> None:
    """Latest, earliest, and the record with the largest timestamp."""
    log = open_log(MemoryFiles())
    for special in (LATEST, EARLIEST):
        assert log.offset_for_timestamp(special)[:2] == (0, -1)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == (-1, -1, -1)
    times = [5, 9, 7, 9, 3]
    log.append_as_leader(build_batch([(time, b"k", b"v", None) for time in times]), now_ms=NOW_MS)
    log.log_start_offset = 1
    assert log.offset_for_timestamp(LATEST) == (5, -1, 0)
    assert log.offset_for_timestamp(EARLIEST) == (1, -1, 0)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == (1, 9, 0)
    assert log.offset_for_timestamp(4) == (1, 9, 0)
    assert log.offset_for_timestamp(10) == (-1, -1, -1)


def test_the_largest_timestamp_is_found_while_segments_are_removed() -> None:
    """A segment that retention had removed between two turns was opened: its file is gone."""
    files = MemoryFiles()
    options = LogSettings(segment_bytes=100)
    log = open_log(files, settings=options)
    for number in range(12):
        log.append_as_leader(build_batch([(number, b"k", b"v", None)]), now_ms=number)
    log.close()
    log = open_log(files, settings=options, clean=True)  # largest timestamps are not known
    search = log.search_timestamp(MAX_TIMESTAMP)
    due: Any = next(search)
    log.advance_log_start(8)
    assert log.delete_old_segments(wall_ms=11, now_ms=0)
    found: Any = None
    while found is None:
        try:
            due = search.send(None if isinstance(due, int) else due.do(1 << 20))
        except StopIteration as ended:
            found = ended.value
    assert found[:2] == (11, 11)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), min_size=1, max_size=40),
    st.integers(0, 3),
    st.booleans(),
)
def test_by_timestamp_is_the_first_in_offset_order(
    batches: list[list[int]], start: int, reopened: bool
) -> None:
    """Against a plain search: timestamps in any order, several segments, before and after a restart."""
    files = MemoryFiles()
    options = LogSettings(segment_bytes=600, index_interval_bytes=100)
    log = open_log(files, settings=options)
    for times in batches:
        log.append_as_leader(build_batch([(time, b"k", b"v", None) for time in times]), now_ms=NOW_MS)
    if reopened:
        log.close()
        log = open_log(files, settings=options, clean=True)
    log.log_start_offset = min(start, log.log_end_offset)
    flat = [(offset, time) for offset, time in enumerate(time for times in batches for time in times)]
    flat = flat[log.log_start_offset :]
    for target in range(52):
        expected = next(((offset, time) for offset, time in flat if time >= target), (-1, -1))
        assert log.offset_for_timestamp(target)[:2] == expected
    largest = max((time for _, time in flat), default=-1)
    expected = next(((offset, time) for offset, time in flat if time == largest), (-1, -1))
    assert log.offset_for_timestamp(MAX_TIMESTAMP)[:2] == expected


# --- the newest batches -------------------------------------------------------------------------------------


def test_a_read_of_the_newest_batch_walked_from_the_last_index_entry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Consumers that keep up read it, and it was some twenty batch heads behind that entry."""
    log = filled(50, LogSettings())
    walks: list[int] = []

    def counted(file: LogFile, position: int, end: int) -> Iterator[Head]:
        walks.append(position)
        return iter_heads(file, position, end)

    monkeypatch.setattr(segment_module, "iter_heads", counted)
    assert values_of(log, 98) == [b"49-0", b"49-1"]
    assert values_of(log, 85)[0] == b"42-0"
    assert walks == []
    assert values_of(log, 10)[0] == b"5-0"
    assert walks


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 12)), max_size=25))
def test_the_newest_batches_are_known_rightly(steps: list[tuple[int, int]]) -> None:
    """Appends, rolls and truncations: every offset is found where a walk along the segment finds it."""
    log = open_log(MemoryFiles(), settings=SMALL)
    for count, cut in steps:
        log.append_as_leader(batch(*[b"x" * (40 * count)] * count), now_ms=NOW_MS)
        if cut > 9:
            log.truncate_to(max(0, log.log_end_offset - cut), now_ms=NOW_MS)
    for each in log.segments:
        walked = list(iter_heads(each.log, 0, each.size_bytes))
        for offset in range(each.base_offset, log.log_end_offset + 1):
            expected = next((head for head in walked if head.last_offset >= offset), None)
            found = each.find(offset)
            assert (found and found[:4]) == (expected and expected[:4])
