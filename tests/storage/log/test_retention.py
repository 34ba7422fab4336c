"""Old segments go: by the log's start, by size, by time; and how their files leave."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing
from support.storage.logs import DIRECTORY, NOW_MS, batch, log_files, open_log, values_of

from splashdam.model.broker_errors import KafkaStorageError, OffsetOutOfRangeError
from splashdam.storage.files.disk import SENDFILE_MIN_BYTES, DiskFiles
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.retention import (
    RETENTION_POLICIES,
    LogFacts,
    SegmentFacts,
    expired_segments,
)
from splashdam.storage.settings import LogSettings

BELOW_START, BEYOND_SIZE, TOO_OLD = (policy.reason for policy in RETENTION_POLICIES)
ONE_BATCH = len(batch(b"00"))
SETTINGS = LogSettings(segment_bytes=2 * ONE_BATCH, file_delete_delay_ms=500)


def facts(*sizes: int, timestamps: tuple[int, ...] = ()) -> list[SegmentFacts]:
    """Segments of ten offsets each; the last one is active."""
    times = timestamps or (NOW_MS,) * len(sizes)
    return [
        SegmentFacts(10 * number, 10 * number + 10, size, lambda time=time: time, number == len(sizes) - 1)
        for number, (size, time) in enumerate(zip(sizes, times, strict=True))
    ]


def expired(
    segments: list[SegmentFacts], settings: LogSettings, *, start: int = 0, high_watermark: int | None = None
) -> list[str]:
    limit = segments[-1].end_offset if high_watermark is None else high_watermark
    size = sum(segment.size_bytes for segment in segments)
    return expired_segments(segments, LogFacts(settings, start, limit, size, NOW_MS))


@pytest.mark.parametrize(
    ("retention_bytes", "count"), [(-1, 0), (301, 0), (300, 0), (201, 0), (200, 1), (100, 2), (0, 3)]
)
def test_by_size_never_below_retention_bytes(retention_bytes: int, count: int) -> None:
    """A segment goes only where what is left is still that large; at 0 the active one goes, too."""
    settings = LogSettings(retention_bytes=retention_bytes)
    assert expired(facts(100, 100, 100), settings) == [BEYOND_SIZE] * count


@pytest.mark.parametrize(
    ("ages_ms", "count"),
    [((101, 101, 101), 3), ((101, 100, 101), 1), ((100, 101, 101), 0), ((101, 101, 0), 2)],
)
def test_by_time_from_the_oldest_on(ages_ms: tuple[int, ...], count: int) -> None:
    """Older than retention.ms, not as old; the first that stays keeps those behind it."""
    segments = facts(50, 50, 50, timestamps=tuple(NOW_MS - age for age in ages_ms))
    assert expired(segments, LogSettings(retention_ms=100)) == [TOO_OLD] * count
    assert expired(segments, LogSettings(retention_ms=-1)) == []


@pytest.mark.parametrize(("start", "count"), [(9, 0), (10, 1), (19, 1), (20, 2), (30, 2)])
def test_by_the_start_of_the_log(start: int, count: int) -> None:
    """Segments that lie wholly below it, but not the active one; for compacted topics, too."""
    for policy in ("delete", "compact", "compact,delete"):
        settings = LogSettings(cleanup_policy=policy, retention_ms=-1)
        assert expired(facts(50, 50, 50), settings, start=start) == [BELOW_START] * count


def test_compacted_topics_know_neither_size_nor_time() -> None:
    """Unless they have both policies."""
    segments = facts(50, 50, timestamps=(0, 0))
    assert expired(segments, LogSettings(cleanup_policy="compact", retention_bytes=0)) == []
    assert len(expired(segments, LogSettings(cleanup_policy="compact,delete", retention_bytes=0))) == 2


def test_policies_add_up() -> None:
    """Each looks at what those before it have left."""
    segments = facts(100, 100, 100, 100, timestamps=(NOW_MS, NOW_MS, 0, NOW_MS))
    assert expired(segments, LogSettings(retention_bytes=200, retention_ms=5), start=10) == [
        BELOW_START,
        BEYOND_SIZE,
        TOO_OLD,
    ]


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    """An empty active segment is never removed."""
    assert expired(facts(1, 1, 1), LogSettings(retention_bytes=0), high_watermark=29) == [BEYOND_SIZE] * 2
    assert expired(facts(1, 1, 0), LogSettings(retention_bytes=0)) == [BEYOND_SIZE] * 2


# --- the files ----------------------------------------------------------------------------------------------


def filled(files: MemoryFiles | DiskFiles, directory: str = DIRECTORY, **options: int) -> Log:
    """Seven batches of one record: segments 0, 2 and 4, and 6 active with half its size."""
    log = open_log(files, directory, settings=attrs.evolve(SETTINGS, **options))
    for number in range(7):
        log.append_as_leader(batch(b"%02d" % number, timestamp_ms=NOW_MS + number), now_ms=NOW_MS)
    return log


def names(files: MemoryFiles) -> list[str]:
    return [entry.name.lstrip("0") or "0" for entry in files.list_directory(DIRECTORY)]


def test_files_are_renamed_and_unlinked_after_the_delay() -> None:
    """Log, indexes and snapshot; the log starts with the next segment at once."""
    files = MemoryFiles()
    log = filled(files, retention_bytes=3 * ONE_BATCH)
    assert log.delete_old_segments(wall_ms=NOW_MS, now_ms=1000) == 2
    assert (log.log_start_offset, log.segments[0].base_offset, log.log_start_checkpoint) == (4, 4, None)
    assert [name for name in names(files) if name.endswith(".deleted")] == [
        ".index.deleted", ".log.deleted", ".timeindex.deleted",
        "2.index.deleted", "2.log.deleted", "2.snapshot.deleted", "2.timeindex.deleted",
    ]  # fmt: skip
    assert values_of(log) == [b"04", b"05", b"06"]
    with pytest.raises(OffsetOutOfRangeError, match="3 is outside 4 to 7"):
        log.read(3, 100)
    assert log.next_unlink_ms == 1500
    log.unlink_deleted(1499)
    assert any(name.endswith(".deleted") for name in names(files))
    log.unlink_deleted(1500)
    assert not any(name.endswith(".deleted") for name in names(files))
    assert log.delete_old_segments(wall_ms=NOW_MS, now_ms=2000) == 0


def test_an_active_segment_that_is_too_old_is_closed_first() -> None:
    """The log is empty then, goes on where it was, and does so after a restart, too."""
    files = MemoryFiles()
    log = filled(files, retention_ms=1000)
    assert log.delete_old_segments(wall_ms=NOW_MS + 1006, now_ms=0) == 3
    assert log.log_start_offset == 6
    assert log.delete_old_segments(wall_ms=NOW_MS + 1007, now_ms=0) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (7, 7, 0)
    assert log.delete_old_segments(wall_ms=NOW_MS + 9999, now_ms=0) == 0
    files.kill()
    log = open_log(files, settings=SETTINGS)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert log.append_as_leader(batch(b"07"), now_ms=NOW_MS).base_offset == 7


def test_records_without_timestamps_are_as_old_as_their_file() -> None:
    """The time of the last write counts then."""
    files = MemoryFiles()
    files.now_ms = NOW_MS - 5
    log = open_log(files, settings=LogSettings(retention_ms=10))
    log.append_as_leader(batch(b"x", timestamp_ms=-1), now_ms=NOW_MS)
    assert log.delete_old_segments(wall_ms=NOW_MS + 5, now_ms=0) == 0
    assert log.delete_old_segments(wall_ms=NOW_MS + 6, now_ms=0) == 1


def test_the_time_of_a_file_on_disk(tmp_path: Path) -> None:
    """In milliseconds since the epoch; None for a missing file."""
    path = tmp_path / "file"
    assert DiskFiles().modified_ms(str(path)) is None
    path.touch()
    assert DiskFiles().modified_ms(str(path)) == path.stat().st_mtime_ns // 1_000_000


def test_reads_go_on_while_their_segment_is_removed(tmp_path: Path) -> None:
    """A slice owns its descriptor: rename and unlink do not reach it."""
    value = bytes(range(256)) * (SENDFILE_MIN_BYTES // 256 + 1)
    log = open_log(
        DiskFiles(), str(tmp_path), settings=LogSettings(segment_bytes=2 * len(value), retention_bytes=0)
    )
    log.append_as_leader(batch(value), now_ms=NOW_MS)
    log.append_as_leader(batch(value), now_ms=NOW_MS)
    piece = log.read(0, 2 * len(value))
    assert piece.fileno() is not None
    before = piece.read()
    assert log.delete_old_segments(wall_ms=NOW_MS, now_ms=0) == 2
    assert piece.read() == before
    log.unlink_deleted(60_000)
    assert [name for name in log_files(tmp_path) if name.endswith(".deleted")] == []
    assert piece.read() == before
    piece.close()
    log.close()


async def test_a_segment_is_removed_while_a_flush_of_it_is_under_way(tmp_path: Path) -> None:
    """The flush ends without an error, and the log goes on."""
    for files, directory in ((MemoryFiles(), DIRECTORY), (DiskFiles(), str(tmp_path))):
        log = filled(files, directory, retention_bytes=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.sync)
            await trio.testing.wait_all_tasks_blocked()
            assert log.delete_old_segments(wall_ms=NOW_MS, now_ms=0) == 4
        log.append_as_leader(batch(b"07"), now_ms=NOW_MS)
        await log.sync()
        assert log.recovery_point == 8
        log.close()


@pytest.mark.parametrize("times", [1, 2, None])
def test_a_disk_that_refuses_a_rename_is_asked_again(times: int | None) -> None:
    """No gap arises: what is still there after a crash is the end of the log, whatever was renamed."""
    for operation in range(20):
        files = MemoryFiles()
        log = filled(files, retention_bytes=ONE_BATCH)
        files.inject(Fault(errno.EIO, after=operation, times=times))
        try:
            log.delete_old_segments(wall_ms=NOW_MS, now_ms=0)
        except KafkaStorageError:
            files.kill()
            again = open_log(files, settings=SETTINGS)
            assert values_of(again) == [b"%02d" % number for number in range(again.log_start_offset, 7)]
            continue
        files.heal()
        log.unlink_deleted(500)
        assert not any(name.endswith(".deleted") for name in names(files))


def test_a_file_that_could_not_be_renamed_is_renamed_and_unlinked_later() -> None:
    """The checkpoint of the log's start holds until then: the name alone would bring the segment back."""
    files = MemoryFiles()
    log = filled(files, retention_bytes=ONE_BATCH)
    log.flush()
    files.inject(Fault(errno.EIO, after=12, times=1))
    with pytest.raises(KafkaStorageError, match="could not rename"):
        log.delete_old_segments(wall_ms=NOW_MS, now_ms=0)
    assert (log.log_start_offset, log.log_start_checkpoint) == (6, 6)
    log.unlink_deleted(499)
    assert log.log_start_checkpoint is None
    assert [name for name in names(files) if name.endswith(".log")] == ["6.log"]
    log.unlink_deleted(500)
    assert not any(name.endswith(".deleted") for name in names(files))


def test_removals_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Which segment, and why."""
    log = filled(MemoryFiles(), retention_bytes=3 * ONE_BATCH)
    with caplog.at_level(logging.INFO):
        log.delete_old_segments(wall_ms=NOW_MS, now_ms=0)
    assert caplog.text.count(BEYOND_SIZE) == 2
    assert f"{0:020d}.log" in caplog.text


def test_segments_go_from_a_full_disk() -> None:
    """They are what makes room: nothing has to be written for that, but for a new active segment."""
    files = MemoryFiles()
    log = filled(files, retention_bytes=0)
    files.capacity_bytes = 0
    assert log.delete_old_segments(wall_ms=NOW_MS, now_ms=0) == 3
    assert (log.log_start_offset, values_of(log)) == (6, [b"06"])
    assert log.delete_old_segments(wall_ms=NOW_MS, now_ms=0) == 0
    log.unlink_deleted(500)
    files.capacity_bytes = None
    assert log.delete_old_segments(wall_ms=NOW_MS, now_ms=0) == 1
    assert log.log_start_offset == 7
    log.close()
    assert open_log(files, settings=SETTINGS, clean=True).log_end_offset == 7
