"""One fault at every single write, rename, truncation and sync of a workload, and a crash behind it.

What was acknowledged survives a killed process, what was flushed survives a power cut, nothing wrong is ever
served, and no log needs a hand.
"""

from __future__ import annotations

import errno
import gc
import weakref
from contextlib import suppress
from pathlib import Path
from random import Random

import attrs
import pytest
import trio
import trio.testing
from support.running.fault_points import FaultPoints
from support.storage.logs import DIRECTORY, NOW_MS, batch, open_log, values_of

from splashdam.model.broker_errors import KafkaStorageError, OutOfOrderSequenceNumberError
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.storage.log import Log, LogState
from splashdam.storage.settings import LogSettings

BATCHES = 13
SETTINGS = LogSettings(segment_bytes=4 * len(batch(b"00")), index_interval_bytes=80)


@attrs.define
class Outcome:
    """The acknowledged and the flushed batches, as client and operator know them at the end."""

    acknowledged: int = 0
    flushed: int = 0


def numbered(number: int) -> bytes:
    return batch(b"%02d" % number, producer_id=1, sequence=number, timestamp_ms=NOW_MS + number)


def expected(count: int) -> list[bytes]:
    return [b"%02d" % number for number in range(count)]


def run(files: MemoryFiles, outcome: Outcome, *, retries: int = 0) -> None:
    """Opens a log, appends with rolls between, flushes now and then, and closes."""
    log = open_log(files, settings=SETTINGS)
    files.sync_directory("/data")
    files.sync_directory("/")
    for number in range(BATCHES):
        append(log, number, retries)
        outcome.acknowledged = number + 1
        if number % 5 == 3:
            log.flush()
            outcome.flushed = number + 1
    log.close()
    outcome.flushed = BATCHES


def append(log: Log, number: int, retries: int) -> None:
    """Appends one batch; a failure must leave the log as it was."""
    for _ in range(retries):
        try:
            log.append_as_leader(numbered(number), now_ms=NOW_MS)
        except KafkaStorageError:
            assert values_of(log) == expected(number)
            assert log.log_end_offset == number
        else:
            return
    log.append_as_leader(numbered(number), now_ms=NOW_MS)


def check_reopened(files: MemoryFiles, at_least: int, recovery_point: int = 0) -> None:
    """A prefix is there that holds what it must; the client's retries complete it, each batch once."""
    log = open_log(files, settings=SETTINGS, recovery_point=recovery_point)
    kept = log.log_end_offset
    assert kept >= at_least
    assert values_of(log) == expected(kept)
    for number in range(max(0, kept - 5), BATCHES):
        result = log.append_as_leader(numbered(number), now_ms=NOW_MS)
        assert (result.base_offset, result.duplicate) == (number, number < kept)
    assert values_of(log) == expected(BATCHES)
    log.close()
    again = open_log(files, settings=SETTINGS, clean=True)
    assert values_of(again) == expected(BATCHES)


def count_operations() -> int:
    files = MemoryFiles()
    run(files, Outcome())
    return files.operations


OPERATIONS = range(count_operations())


@pytest.mark.parametrize("landed_bytes", [0, 7, 70])
def test_killed_in_the_middle_of_any_operation(landed_bytes: int, fault_points: FaultPoints) -> None:
    """kill -9: every acknowledged batch is there, and the one under way is there once or not at all."""
    for operation in fault_points.of(OPERATIONS):
        files, outcome = MemoryFiles(), Outcome()
        files.inject(Fault(None, after=operation, landed_bytes=landed_bytes))
        with pytest.raises(PowerCutError):
            run(files, outcome)
        files.kill()
        check_reopened(files, outcome.acknowledged)


@pytest.mark.parametrize("seed", range(4))
def test_power_cut_at_any_operation(seed: int, fault_points: FaultPoints) -> None:
    """Flushed records are there, whatever part of the rest the disk kept."""
    for operation in fault_points.of(OPERATIONS):
        files, outcome, random = MemoryFiles(), Outcome(), Random(seed * 1000 + operation)
        files.inject(Fault(None, after=operation, landed_bytes=random.randint(0, 80)))
        with pytest.raises(PowerCutError):
            run(files, outcome)
        files.crash(random if seed else None)
        check_reopened(files, outcome.flushed, recovery_point=outcome.flushed)


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
def test_any_operation_fails(error_number: int, times: int, fault_points: FaultPoints) -> None:
    """The error is KafkaStorageError, the log stays readable, a retry is safe, and so is a restart."""
    for operation in fault_points.of(OPERATIONS):
        files, outcome = MemoryFiles(), Outcome()
        files.inject(Fault(error_number, after=operation, times=times, landed_bytes=9))
        with suppress(KafkaStorageError):  # opening, a flush or the end failed: the broker is restarted
            run(files, outcome, retries=times)
        files.kill()
        check_reopened(files, outcome.acknowledged)


def fill(log: Log) -> int:
    """Appends until the disk is full; returns how many batches it took."""
    for number in range(BATCHES):
        try:
            log.append_as_leader(numbered(number), now_ms=NOW_MS)
        except KafkaStorageError:
            return number
    return BATCHES


def test_the_disk_is_full_and_is_given_room_again() -> None:
    """Appends fail and leave nothing; reads go on; with room the same log goes on, rolls and all."""
    files = MemoryFiles(capacity_bytes=900)
    log = open_log(files, settings=SETTINGS)
    number = fill(log)
    assert 4 < number < BATCHES
    for _ in range(3):
        with pytest.raises(KafkaStorageError):
            log.append_as_leader(numbered(number), now_ms=NOW_MS)
        assert values_of(log) == expected(number)
    files.capacity_bytes = None
    for later in range(number, BATCHES):
        log.append_as_leader(numbered(later), now_ms=NOW_MS)
    log.close()
    check_reopened(files, BATCHES)


@pytest.mark.parametrize("operation", range(4))
def test_a_new_segment_could_not_be_made_and_a_smaller_batch_still_fits(operation: int) -> None:
    """Nothing is left of the segment that was begun, so the log is whole after a clean restart."""
    files = MemoryFiles()
    log = open_log(files, settings=SETTINGS)
    for number in range(3):
        log.append_as_leader(numbered(number), now_ms=NOW_MS)
    files.inject(Fault(errno.ENOSPC, after=operation))
    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch(b"x" * 100, producer_id=1, sequence=3), now_ms=NOW_MS)
    log.append_as_leader(numbered(3), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0]
    log.close()
    check_reopened(files, 4)


@pytest.mark.parametrize("recovery_point", [0, 3, 4, None], ids=lambda each: f"recovery point {each}")
def test_a_segment_that_could_neither_be_made_nor_removed_hides_nothing(recovery_point: int | None) -> None:
    """The log went on in the old one; the empty new one was taken for its end at the next start."""
    files = MemoryFiles()
    log = open_log(files, settings=SETTINGS)
    for number in range(3):
        log.append_as_leader(numbered(number), now_ms=NOW_MS)
    files.inject(Fault(errno.ENOSPC, after=4, times=2))
    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch(b"x" * 100, producer_id=1, sequence=3), now_ms=NOW_MS)
    assert files.size_bytes(f"{DIRECTORY}/{3:020d}.log") == 0
    log.append_as_leader(numbered(3), now_ms=NOW_MS)
    if recovery_point is None:
        log.close()
    files.kill()
    log = open_log(files, settings=SETTINGS, clean=recovery_point is None, recovery_point=recovery_point or 0)
    assert values_of(log) == expected(4)
    log.close()
    check_reopened(files, 4)


def test_a_tail_that_could_not_be_cut_never_ends_up_inside_the_log() -> None:
    """No roll, flush or close goes past it: recovery would cut there and remove all that follows."""
    files = MemoryFiles()
    log = open_log(files, settings=SETTINGS)
    log.append_as_leader(numbered(0), now_ms=NOW_MS)
    files.inject(Fault(errno.EIO, times=3, landed_bytes=30))
    with pytest.raises(KafkaStorageError, match="append"):
        log.append_as_leader(numbered(1), now_ms=NOW_MS)
    with pytest.raises(KafkaStorageError, match="truncate"):
        log.roll(NOW_MS)
    log.roll(NOW_MS)
    log.append_as_leader(numbered(1), now_ms=NOW_MS)
    files.kill()
    check_reopened(files, 2)


async def test_a_sync_fails_and_the_log_promises_nothing_more() -> None:
    """It stays readable and takes no appends: after a failed fsync a second one proves nothing."""
    files = MemoryFiles()
    log = open_log(files, settings=SETTINGS)
    for number in range(3):
        log.append_as_leader(numbered(number), now_ms=NOW_MS)
    files.inject(Fault(errno.EIO))
    with pytest.raises(KafkaStorageError, match="sync"):
        await log.sync()
    assert log.state is LogState.FAILED
    assert log.recovery_point == 0
    assert values_of(log) == expected(3)
    with pytest.raises(KafkaStorageError, match="read-only, because a sync to disk failed"):
        log.append_as_leader(numbered(3), now_ms=NOW_MS)
    with pytest.raises(KafkaStorageError, match="closed as it is"):
        log.close()
    assert log.state is LogState.CLOSED
    files.kill()
    check_reopened(files, 3)


async def test_a_flush_moves_the_recovery_point() -> None:
    """Closed segments and the active one, blocking or not; then even a power cut loses nothing."""
    files = MemoryFiles()
    log = open_log(files, settings=SETTINGS)
    files.sync_directory("/data")
    files.sync_directory("/")
    for number in range(6):
        log.append_as_leader(numbered(number), now_ms=NOW_MS)
    assert (log.needs_flush, log.recovery_point) == (True, 0)
    await log.sync()
    assert (log.needs_flush, log.recovery_point) == (False, 6)
    log.append_as_leader(numbered(6), now_ms=NOW_MS)
    log.flush()
    assert log.recovery_point == 7
    files.crash()
    assert files.list_directory(DIRECTORY)
    check_reopened(files, 7, recovery_point=7)


async def test_a_log_is_closed_while_a_sync_is_under_way(tmp_path: Path) -> None:
    """The sync ends without an error: closing flushed what it was about, on disk and in memory."""
    for files, directory in ((MemoryFiles(), DIRECTORY), (DiskFiles(), str(tmp_path / "t-0"))):
        log = open_log(files, directory, settings=SETTINGS)
        for number in range(6):
            log.append_as_leader(numbered(number), now_ms=NOW_MS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.sync)
            await trio.testing.wait_all_tasks_blocked()
            log.close()
        await log.sync()
        assert log.state is LogState.CLOSED


def test_a_power_cut_takes_a_snapshot_then_retention_the_batches_then_the_power_goes_again() -> None:
    """Once, the producer was forgotten and a gap in its sequences was taken."""
    files = MemoryFiles()
    log = open_log(files)
    files.sync_directory("/data")
    files.sync_directory("/")
    log.append_as_leader(batch(b"0", producer_id=1), now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.append_as_leader(batch(b"1"), now_ms=NOW_MS)
    log.flush()
    files.crash()
    log = open_log(files, recovery_point=2)
    log.flush()
    log.advance_log_start(1)
    assert log.delete_old_segments(wall_ms=NOW_MS, now_ms=0) == 1
    log.unlink_deleted(log.next_unlink_ms)
    files.crash()
    log = open_log(files, log_start_offset=1)
    with pytest.raises(OutOfOrderSequenceNumberError):
        log.append_as_leader(batch(b"3", producer_id=1, sequence=2), now_ms=NOW_MS)
    assert log.append_as_leader(batch(b"2", producer_id=1, sequence=1), now_ms=NOW_MS).base_offset == 2


def test_a_closed_segment_that_a_power_cut_emptied_once_left_a_hole() -> None:
    """Without a cleaner, records behind lost records were never flushed either."""
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(b"0"), now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.flush()
    log.append_as_leader(batch(b"1"), now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.append_as_leader(batch(b"2"), now_ms=NOW_MS)
    for name in ("/", "/data", DIRECTORY):
        files.sync_directory(name)
    files.crash()
    log = open_log(files, recovery_point=1)
    assert (log.log_end_offset, values_of(log)) == (1, [b"0"])


def on_a_new_disk() -> tuple[MemoryFiles, Log]:
    """A log with one batch that is flushed."""
    files = MemoryFiles()
    log = open_log(files, settings=SETTINGS)
    files.sync_directory("/data")
    files.sync_directory("/")
    append(log, 0, 0)
    log.flush()
    return files, log


LENGTH = len(numbered(0))
FIRST, SECOND = f"{DIRECTORY}/{0:020}", f"{DIRECTORY}/{1:020}"


def open_after_a_crash(files: MemoryFiles, recovery_point: int = 0, log_start_offset: int = 0) -> Log:
    return open_log(
        files, settings=SETTINGS, recovery_point=recovery_point, log_start_offset=log_start_offset
    )


@pytest.mark.parametrize("zeros", [LENGTH // 2, 2 * LENGTH])
@pytest.mark.parametrize("is_index_there", [True, False])
def test_a_half_made_segment_does_not_hide_a_torn_end(is_index_there: bool, zeros: int) -> None:
    """The disk refused a roll, and the log went on; a power cut brought the name of the new segment back.

    That segment begins at the recovery point, so what was appended in its place was not looked at, and a
    reader met zeros there. An index that was on the disk before its batches hid them, too.
    """
    files, log = on_a_new_disk()
    append(log, 1, 0)
    append(log, 2, 0)
    files.kill()
    files.open_log(SECOND + ".log", create=True)
    files._names.files[FIRST + ".log"].data[LENGTH:] = bytes(zeros)
    index = files._names.files[FIRST + ".index"].data
    assert index, "the index speaks of the batches that are lost"
    if not is_index_there:
        index.clear()
    log = open_after_a_crash(files, recovery_point=1)
    assert values_of(log) == expected(1)
    append(log, 1, 0)
    assert values_of(log) == expected(2)


def test_a_start_that_is_ignored_hides_no_torn_segment() -> None:
    """A checkpoint says that the log starts behind its end: then it does not say what need not be checked."""
    files, log = on_a_new_disk()
    for number in range(1, 6):
        append(log, number, 0)
    assert len(log.segments) == 2
    files.kill()
    files._names.files[FIRST + ".log"].data[LENGTH * 3 // 2 : LENGTH * 2] = bytes(LENGTH - LENGTH // 2)
    log = open_after_a_crash(files, log_start_offset=100)
    assert log.log_start_offset == 0
    assert values_of(log) == expected(1)


@pytest.mark.parametrize("start", [0, 1])
def test_a_gap_that_a_cleaner_left_is_no_loss(start: int) -> None:
    """Without a recovery point nobody knows what was flushed; the log's start does not say it either."""
    files, log = on_a_new_disk()
    log.roll(NOW_MS)
    behind = bytearray(numbered(6))
    behind[:8] = (6).to_bytes(8, "big")
    log.append_as_follower(memoryview(behind), now_ms=NOW_MS)
    log.flush()
    files.kill()
    for suffix in (".log", ".index", ".timeindex"):
        files.rename(SECOND + suffix, f"{DIRECTORY}/{6:020}{suffix}")
    log = open_after_a_crash(files, log_start_offset=start)
    assert values_of(log) == [b"00", b"06"][start:]


def test_a_clean_shutdown_keeps_the_producers_of_expired_batches() -> None:
    """The close wrote their snapshot anew and did not sync it; a power cut then took all that told of it."""
    files, log = on_a_new_disk()
    log.roll(NOW_MS)
    log.flush()
    files.crash()
    log = open_after_a_crash(files, recovery_point=1)
    log.delete_old_segments(wall_ms=NOW_MS + 8 * 86_400_000, now_ms=0)
    assert log.log_start_offset == 1
    log.close()
    log = open_log(files, settings=SETTINGS, clean=True, recovery_point=1)
    files.crash()
    assert open_after_a_crash(files).append_as_leader(numbered(0), now_ms=NOW_MS).duplicate


def test_leftovers_of_a_removed_segment_do_not_move_the_end_back() -> None:
    """It was never flushed and is torn; the empty segment behind it says where the log ended."""
    files, log = on_a_new_disk()
    append(log, 1, 0)
    log.roll(NOW_MS)
    log.flush()
    files.kill()
    files._names.files[FIRST + ".log"].data[LENGTH * 3 // 2 :] = bytes(LENGTH // 2)
    assert open_after_a_crash(files, recovery_point=2, log_start_offset=2).log_end_offset == 2


def test_a_removed_segment_that_came_back_torn_takes_nothing_with_it() -> None:
    """The disk refused its removal; a start took it in again; then the power went, and the recovery points.

    Recovery cut it, and with its end went the flushed records behind it.
    """
    files, log = on_a_new_disk()
    append(log, 1, 0)  # never flushed: it is removed first
    log.roll(NOW_MS)
    log.advance_log_start(2)
    files.inject(Fault(errno.ENOSPC, after=2, times=2))
    with pytest.raises(KafkaStorageError, match="rename"):
        log.delete_old_segments(wall_ms=NOW_MS, now_ms=0)
    files.heal()
    append(log, 2, 0)
    log.close()
    start = log.log_start_checkpoint
    assert start == 2
    log = open_log(files, settings=SETTINGS, clean=True, recovery_point=3, log_start_offset=start)
    files.crash(Random(0))
    log = open_after_a_crash(files, log_start_offset=start)
    assert values_of(log) == expected(3)[2:]


def test_a_torn_end_that_came_back_in_front_of_a_segment_is_cut() -> None:
    """A recovery had cut it, the log rolled there, and a power cut undid the cut: readers met zeros."""
    files, log = on_a_new_disk()
    log.roll(NOW_MS)
    append(log, 1, 0)
    files.kill()
    files._names.files[FIRST + ".log"].data += bytes(30)
    log = open_after_a_crash(files, recovery_point=1)
    assert values_of(log) == expected(2)
    files.crash()
    assert values_of(open_after_a_crash(files, recovery_point=1)) == expected(1)


def test_a_removed_segment_that_came_back_does_not_hide_the_snapshot_behind_it() -> None:
    """The snapshot at the log's start alone told of the producers of expired batches."""
    files, log = on_a_new_disk()
    log.delete_old_segments(wall_ms=NOW_MS + 8 * 86_400_000, now_ms=0)
    files.kill()
    files.open_log(FIRST + ".log", create=True)
    files._names.files[FIRST + ".log"].data += batch(b"00") + bytes(30)
    log = open_after_a_crash(files, recovery_point=1, log_start_offset=1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    assert log.append_as_leader(numbered(0), now_ms=NOW_MS).duplicate


def test_leader_epochs_are_those_of_all_batches_where_a_start_is_ignored() -> None:
    """The first look, from that start on, had told of the newest epoch, and older ones were skipped then."""
    files = MemoryFiles()
    log = open_log(files, settings=SETTINGS)
    for number, epoch in enumerate((3, 3, 3, 3, 5, 5)):
        log.append_as_leader(numbered(number), now_ms=NOW_MS, leader_epoch=epoch)
    files.kill()
    files.unlink(f"{DIRECTORY}/leader-epoch-checkpoint")
    log = open_after_a_crash(files, log_start_offset=100)
    assert log._epochs.entries == ((3, 0), (5, 4))


def test_a_batch_that_a_full_disk_refused_leaves_the_memory() -> None:
    """Only its sequence is remembered; the error's traceback kept a megabyte for each producer."""

    class Request(bytearray):
        """Bytes that a weak reference can point to."""

    files = MemoryFiles()
    log = open_log(files)
    request = Request(batch(b"x", producer_id=1))
    seen = weakref.ref(request)
    files.inject(Fault(errno.ENOSPC))
    with suppress(KafkaStorageError):
        log.append_as_leader(request, now_ms=NOW_MS)
    del request
    gc.collect()
    assert seen() is None
