"""Opening what a crash left. Each test is named after the crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.storage.logs import DIRECTORY, NOW_MS, batch, log_files, open_log, read_headers, values_of

from splashdam.model.broker_errors import (
    CorruptMessageError,
    KafkaStorageError,
    OutOfOrderSequenceNumberError,
)
from splashdam.record.batch import stamp_crc
from splashdam.record.sealing import build_batch
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.settings import LogSettings

SMALL = LogSettings(segment_bytes=10 * len(batch(b"00")), index_interval_bytes=200)  # ten batches a segment


def path(base: int, suffix: str) -> str:
    return f"{DIRECTORY}/{base:020d}{suffix}"


def append(log: Log, count: int, start: int = 0) -> None:
    """Idempotent batches of one record, whose sequence, value and timestamp is a running number."""
    for number in range(start, start + count):
        data = batch(b"%02d" % number, producer_id=1, sequence=number, timestamp_ms=NOW_MS + number)
        log.append_as_leader(data, now_ms=NOW_MS)


def filled(count: int = 40, options: LogSettings = SMALL) -> MemoryFiles:
    """Files of a log with ``count`` batches whose process was killed."""
    files = MemoryFiles()
    append(open_log(files, settings=options), count)
    files.kill()
    return files


def content(files: MemoryFiles) -> dict[str, bytes | None]:
    return {name: files.read_bytes(f"{DIRECTORY}/{name}") for name, _ in files.list_directory(DIRECTORY)}


def check_goes_on(log: Log, count: int) -> None:
    """The first ``count`` batches are there, are known as repeats, and the next one follows."""
    assert values_of(log) == [b"%02d" % number for number in range(count)]
    for number in range(max(0, count - 5), count):
        data = batch(b"%02d" % number, producer_id=1, sequence=number, timestamp_ms=NOW_MS + number)
        result = log.append_as_leader(data, now_ms=NOW_MS)
        assert (result.duplicate, result.base_offset) == (True, number)
    if count:
        with pytest.raises(OutOfOrderSequenceNumberError):
            log.append_as_leader(batch(b"gap", producer_id=1, sequence=count + 1), now_ms=NOW_MS)
    append(log, 3, start=count)
    assert values_of(log) == [b"%02d" % number for number in range(count + 3)]


def test_killed_between_two_appends() -> None:
    """Everything is there, and retries are recognised."""
    check_goes_on(open_log(filled(), settings=SMALL), 40)


def test_killed_with_a_torn_tail_at_every_byte() -> None:
    """Whatever part of the last batch is missing, all before it is kept."""
    files = MemoryFiles()
    log = open_log(files)
    append(log, 3)
    whole_end = log.segments[-1].size_bytes
    append(log, 1, start=3)
    data = files.read_bytes(path(0, ".log"))
    assert data is not None
    for end in range(whole_end, len(data)):
        files.kill()
        files.write_atomic(path(0, ".log"), data[:end])
        log = open_log(files)
        assert log.log_end_offset == 3
        assert files.size_bytes(path(0, ".log")) == whole_end
        if end % 10 == 0:
            check_goes_on(log, 3)


@pytest.mark.parametrize("zeros", [1, 16, 17, 60, 61, 62, 100_000])
def test_power_lost_with_a_tail_of_zeros(zeros: int) -> None:
    """The length was on disk before the bytes were."""
    files = filled(5)
    data = files.read_bytes(path(0, ".log"))
    assert data is not None
    files.write_atomic(path(0, ".log"), data + bytes(zeros))
    log = open_log(files, settings=SMALL)
    assert files.size_bytes(path(0, ".log")) == len(data)
    check_goes_on(log, 5)


def test_power_lost_with_every_byte_of_the_last_batch_damaged() -> None:
    """Checksum, length or offset tell; only the leader epoch is not covered by anything."""
    files = MemoryFiles()
    log = open_log(files)
    append(log, 2)
    start = log.segments[-1].size_bytes
    append(log, 1, start=2)
    data = files.read_bytes(path(0, ".log"))
    assert data is not None
    for position in range(start, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x20
        files.kill()
        files.write_atomic(path(0, ".log"), bytes(damaged))
        log = open_log(files)
        # A higher base offset looks like the gap that compaction leaves.
        is_gap = position - start < 8 and log.log_end_offset > 3
        is_epoch = 12 <= position - start < 16
        assert log.log_end_offset == 2 or is_gap or is_epoch


def test_damage_in_the_middle_cuts_there_and_removes_the_rest() -> None:
    """The first bad batch ends the log; no later segment stays."""
    files = filled()
    data = bytearray(files.read_bytes(path(10, ".log")) or b"")
    data[150] ^= 1
    files.write_atomic(path(10, ".log"), bytes(data))
    log = open_log(files, settings=SMALL)
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    names = set(content(files))
    assert not any(name.startswith(f"{20:020d}") for name in names)
    assert log.log_end_offset == 12
    check_goes_on(log, 12)


def test_nothing_below_the_recovery_point_is_checked() -> None:
    """Flushed records are trusted: a start reads from the recovery point on."""
    files = filled()
    data = bytearray(files.read_bytes(path(10, ".log")) or b"")
    data[150] ^= 1
    files.write_atomic(path(10, ".log"), bytes(data))
    log = open_log(files, settings=SMALL, recovery_point=20)
    assert log.log_end_offset == 40
    assert log.recovery_point == 20


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a crash"])
def test_damage_in_a_trusted_segment_does_not_stop_a_start(
    clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even without snapshots: producers are known as far as the log can be read, no record is removed."""
    files = filled()
    data = bytearray(files.read_bytes(path(10, ".log")) or b"")
    data[80:84] = b"\x7f\xff\xff\xff"  # the length of its second batch
    files.write_atomic(path(10, ".log"), bytes(data))
    for base in (10, 20, 30):
        files.unlink(path(base, ".snapshot"))
    log = open_log(files, settings=SMALL, clean=clean, recovery_point=20)
    assert "producer state lacks the batches behind it" in caplog.text
    assert values_of(log, 20) == [b"%02d" % number for number in range(20, 40)]
    assert [entry.last_sequence for entry in log.producers] == [39]
    with pytest.raises(CorruptMessageError, match="impossible batch length"):
        log.read(12, 1000)


def test_a_recovery_point_beyond_the_log_is_lowered() -> None:
    """The checkpoint was newer than what the disk kept."""
    log = open_log(filled(5), settings=SMALL, recovery_point=1000)
    assert log.recovery_point == 5
    check_goes_on(log, 5)


def test_killed_logs_are_rebuilt_to_the_very_same_files() -> None:
    """Indexes and snapshots after a crash equal those of a clean end."""
    clean = MemoryFiles()
    log = open_log(clean, settings=SMALL)
    append(log, 40)
    log.close()
    killed = filled()
    open_log(killed, settings=SMALL).close()
    assert content(killed) == content(clean)


def test_restarts_do_not_change_a_rebuild() -> None:
    """Clean restarts between the appends leave no trace in the indexes."""
    files = MemoryFiles()
    for start in range(0, 40, 8):
        log = open_log(files, settings=SMALL, clean=start > 0)
        append(log, 8, start=start)
        log.close()
    killed = filled()
    open_log(killed, settings=SMALL).close()
    restarted, rebuilt = content(files), content(killed)
    assert {name: data for name, data in restarted.items() if name in rebuilt} == rebuilt


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a crash"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("base", [0, 10, 30])
def test_a_missing_index_is_rebuilt(base: int, suffix: str, clean: bool) -> None:
    """Also after a clean shutdown, also in a closed segment."""
    files = filled()
    open_log(files, settings=SMALL).close()
    before = content(files)
    files.unlink(path(base, suffix))
    log = open_log(files, settings=SMALL, clean=clean)
    assert values_of(log) == [b"%02d" % number for number in range(40)]
    log.close()
    assert content(files) == before


def test_an_index_that_points_beyond_the_log_is_rebuilt() -> None:
    """In the active segment of a log that claims a clean shutdown."""
    files = filled(5)
    open_log(files, settings=SMALL).close()
    files.write_atomic(path(0, ".index"), bytes.fromhex("0000000100ffffff"))
    check_goes_on(open_log(files, settings=SMALL, clean=True), 5)


def test_a_torn_tail_beside_a_clean_marker_is_repaired() -> None:
    """Somebody cut the file after the broker had left in order."""
    files = filled(5)
    open_log(files, settings=SMALL).close()
    data = files.read_bytes(path(0, ".log"))
    assert data is not None
    files.write_atomic(path(0, ".log"), data[:-5])
    check_goes_on(open_log(files, settings=SMALL, clean=True), 4)


def test_an_index_without_its_log_is_removed() -> None:
    """Left by a deletion that was interrupted."""
    files = filled(5)
    for suffix in (".index", ".timeindex", ".txnindex"):
        files.write_atomic(path(3, suffix), b"12345678")
    check_goes_on(open_log(files, settings=SMALL), 5)
    assert files.size_bytes(path(3, ".index")) is None


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a crash"])
@pytest.mark.parametrize("data", [b"", b"damaged", None])
def test_without_a_usable_snapshot_producers_come_from_the_log(data: bytes | None, clean: bool) -> None:
    """Kafka forgets its producers beside a clean marker without a snapshot; we read the headers."""
    files = filled()
    open_log(files, settings=SMALL).close()
    for name in content(files):
        if name.endswith(".snapshot"):
            if data is None:
                files.unlink(f"{DIRECTORY}/{name}")
            else:
                files.write_atomic(f"{DIRECTORY}/{name}", data)
    check_goes_on(open_log(files, settings=SMALL, clean=clean), 40)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a crash"])
@pytest.mark.parametrize("count", [8, 10, 12, 31])
def test_the_last_five_batches_are_known_after_any_restart(count: int, clean: bool) -> None:
    """A snapshot holds the last one alone; the others are read from the end of the log, across a roll too."""
    files = filled(count)
    open_log(files, settings=SMALL).close()
    recovery_point = count - count % 10
    check_goes_on(open_log(files, settings=SMALL, clean=clean, recovery_point=recovery_point), count)


def test_snapshots_from_behind_the_end_are_removed() -> None:
    """They speak of batches that were cut."""
    files = filled(5)
    files.write_atomic(path(99, ".snapshot"), b"")
    files.write_atomic(path(3, ".snapshot"), b"")
    log = open_log(files, settings=SMALL)
    assert not [name for name in content(files) if name.endswith(".snapshot")]
    log.close()
    assert [name for name in content(files) if name.endswith(".snapshot")] == [f"{5:020d}.snapshot"]


def test_killed_between_making_a_segment_and_appending_to_it() -> None:
    """The new segment is empty and becomes the active one."""
    files = MemoryFiles()
    log = open_log(files, settings=SMALL)
    append(log, 5)
    log.roll(NOW_MS)
    files.kill()
    log = open_log(files, settings=SMALL)
    assert [segment.base_offset for segment in log.segments] == [0, 5]
    check_goes_on(log, 5)


def test_an_empty_segment_inside_another_is_removed() -> None:
    """Left by a roll that failed and could not clean up behind itself."""
    files = filled(5)
    files.write_atomic(path(3, ".log"), b"")
    log = open_log(files, settings=SMALL)
    assert [segment.base_offset for segment in log.segments] == [0]
    check_goes_on(log, 5)


@pytest.mark.parametrize("name", ["x.log", "1x.index", "copy of 0.timeindex", ".snapshot"])
def test_a_name_that_no_log_has_is_an_error(name: str) -> None:
    """As in Kafka: somebody should look before anything is removed."""
    files = filled(1)
    files.write_atomic(f"{DIRECTORY}/{name}", b"")
    with pytest.raises(KafkaStorageError, match="is no file of a log"):
        open_log(files, settings=SMALL)


def test_other_files_in_the_directory_are_left_alone() -> None:
    """Notes of an administrator, for example."""
    files = filled(1)
    files.write_atomic(f"{DIRECTORY}/README", b"hello")
    check_goes_on(open_log(files, settings=SMALL), 1)
    assert files.read_bytes(f"{DIRECTORY}/README") == b"hello"


# --- interrupted deletion and compaction --------------------------------------------------------------------


def test_killed_before_deleted_files_were_removed() -> None:
    """They go, and nothing else."""
    files = filled(5)
    files.write_atomic(path(0, ".log.deleted"), b"old")
    check_goes_on(open_log(files, settings=SMALL), 5)
    assert path(0, ".log.deleted").rpartition("/")[2] not in content(files)


def test_killed_while_a_cleaner_wrote_its_copy() -> None:
    """The copy goes, with those of its group that were renamed already; the sources stay."""
    files = filled(20)
    before = files.read_bytes(path(0, ".log"))
    files.write_atomic(path(0, ".log.cleaned"), b"half")
    files.write_atomic(path(0, ".index.swap"), b"12345678")
    check_goes_on(open_log(files, settings=SMALL), 20)
    assert files.read_bytes(path(0, ".log")) == before


@pytest.mark.parametrize("sources_left", [True, False])
def test_killed_while_a_cleaned_segment_was_swapped_in(sources_left: bool) -> None:
    """The cleaned segment takes the place of all its sources, whether they are still there or not."""
    files = filled(25)
    cleaned = build_batch([(NOW_MS, b"k", b"kept", None)])
    replaced = bytearray(cleaned)
    replaced[23:27] = (19).to_bytes(4, "big")  # it stands for offsets 0 to 19
    stamp_crc(replaced, 0, len(replaced))
    files.write_atomic(path(0, ".log.swap"), bytes(replaced))
    files.write_atomic(path(0, ".index.swap"), b"")
    files.write_atomic(path(0, ".timeindex.swap"), b"")
    if not sources_left:
        for base in (0, 10):
            for suffix in (".log", ".index", ".timeindex"):
                files.unlink(path(base, suffix))
    log = open_log(files, settings=SMALL, clean=True)
    assert values_of(log) == [b"kept", *(b"%02d" % number for number in range(20, 25))]
    assert [header.base_offset for header in read_headers(log)] == [0, *range(20, 25)]
    assert not any(name.endswith(".swap") for name in content(files))


# --- log start ----------------------------------------------------------------------------------------------


def test_the_log_starts_where_the_checkpoint_says() -> None:
    """Inside a segment, too."""
    log = open_log(filled(), settings=SMALL, clean=True, log_start_offset=15)
    assert log.log_start_offset == 15
    assert values_of(log)[-1] == b"39"


def test_an_empty_log_begins_where_the_checkpoint_says() -> None:
    """Everything below the start is deleted records, whose offsets are not given again."""
    files = filled(0)
    log = open_log(files, settings=SMALL, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert values_of(log) == []
    log.append_as_leader(batch(b"x"), now_ms=NOW_MS)
    assert log.log_end_offset == 101
    assert sorted(name for name in content(files) if name.endswith(".log")) == [f"{100:020d}.log"]


# --- on disk ------------------------------------------------------------------------------------------------


def test_a_torn_tail_on_a_real_disk(tmp_path: Path) -> None:
    """The same through the disk's files, twice in a row."""
    directory = tmp_path / "t-0"
    log = open_log(DiskFiles(), str(directory), settings=SMALL)
    append(log, 25)
    log.close()
    for end in (24, 23):
        name = directory / f"{20:020d}.log"
        name.write_bytes(name.read_bytes()[:-3])
        log = open_log(DiskFiles(), str(directory), settings=SMALL)
        assert log.log_end_offset == end
        assert values_of(log) == [b"%02d" % number for number in range(log.log_end_offset)]
        log.close()
    assert f"{20:020d}.log" in log_files(directory)
