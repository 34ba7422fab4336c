"""One fault at every single operation of a cleaning, and a crash behind it.

After each of them the log opens, no key has lost its newest record, no record has changed, none is served
whose key was deleted and the tombstone is gone, and the next cleaning goes through.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import attrs
import pytest
from support.running.fault_points import FaultPoints
from support.storage.compacted_logs import COMPACTED, begin, clean, compacted_log, left, put, roll
from support.storage.logs import DIRECTORY, NOW_MS, open_log

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.cleaning.cleaning import Cleaning
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.storage.log import Log
from splashdam.storage.transaction_marker import TransactionMarker

SMALL = {"segment_bytes": 700, "index_interval_bytes": 100, "file_delete_delay_ms": 0}
KEYS = [b"%d" % number for number in range(6)]
DELETED = b"gone"
LATER_MS = NOW_MS + 5_000


def filled() -> tuple[MemoryFiles, Log, int]:
    """A log with a tombstone whose horizon is over, and more since: groups of several segments."""
    files = MemoryFiles()
    log = compacted_log(files, **SMALL)
    chance = Random(3)
    put(log, (DELETED, b"x" * 50), (KEYS[0], b"first"))
    for number in range(12):
        put(log, (chance.choice(KEYS), b"%d" % number * 20), (b"only %d" % number, b"y" * 5))
    put(log, (DELETED, None), (KEYS[1], b"z"))
    roll(log)
    end = clean(files, log)
    for number in range(12):
        put(log, (chance.choice(KEYS), b"%d" % number * 10), (chance.choice(KEYS), b"y" * 40))
    put(log, (KEYS[2], b"aborted"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.append_marker(TransactionMarker(7, 0, False, 0), now_ms=NOW_MS)
    roll(log)
    put(log, (b"active", b"1"))
    log.flush()
    for name in ("/", "/data", DIRECTORY):
        files.sync_directory(name)
    assert len(log.segments) > 5
    log.settings = attrs.evolve(log.settings, segment_bytes=1_300)  # now two or three fit into one
    return files, log, end


FILES, LOG, FIRST_DIRTY = filled()
BEFORE = {offset: (key, value) for offset, key, value in left(LOG)}
NEWEST = {key: value for _, key, value in sorted(left(LOG)) if value not in (None, b"aborted")}
END = LOG.log_end_offset


def clean_and_unlink(files: MemoryFiles, log: Log, first_dirty: int) -> None:
    clean(files, log, first_dirty=first_dirty, now_ms=LATER_MS)
    log.unlink_deleted(10**9)


def operations() -> int:
    files, log, first_dirty = filled()
    before = files.operations
    clean_and_unlink(files, log, first_dirty)
    return files.operations - before


OPERATIONS = range(operations())
SLOW = pytest.mark.slow


def check(log: Log) -> None:
    """Invariants, whether nothing, a part or all of the cleaning was done."""
    found = left(log)
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    assert log.log_end_offset == END
    for offset, key, value in found:
        assert BEFORE[offset] == (key, value)
    newest = {key: value for _, key, value in found if value not in (None, b"aborted")}
    is_deleted = any(key == DELETED and value is None for _, key, value in found)
    if newest.pop(DELETED, None) is not None:
        assert is_deleted
    assert newest.keys() >= (NEWEST.keys() - {DELETED})
    for key, value in NEWEST.items():
        if key != DELETED and key is not None and not key.startswith(b"\0\0"):
            assert newest[key] == value
    aborted = [offset for offset, _, value in found if value == b"aborted"]
    covered = log.aborted_transactions(0, END)
    assert all(any(each.first_offset <= offset <= each.last_offset for each in covered) for offset in aborted)


def check_reopened(files: MemoryFiles, *, clean_shutdown: bool = False, recovery_point: int = END) -> None:
    """Opens, cleans again, opens once more."""
    settings = attrs.evolve(COMPACTED, **SMALL)
    log = open_log(files, settings=settings, recovery_point=recovery_point, clean=clean_shutdown)
    check(log)
    names = {entry.name for entry in files.list_directory(DIRECTORY)}
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    log.flush()
    clean(files, log, now_ms=LATER_MS)
    check(log)
    assert DELETED not in {key for _, key, _ in left(log)}
    log.close()
    files.kill()
    log = open_log(files, settings=settings, clean=True)
    check(log)
    log.close()


@pytest.mark.parametrize("seed", [None, 1, pytest.param(2, marks=SLOW)], ids=lambda seed: f"seed {seed}")
def test_the_power_goes_at_every_operation(seed: int | None, fault_points: FaultPoints) -> None:
    """Unsynced bytes are lost, all of them or as chance decides."""
    for after in fault_points.of(OPERATIONS):
        files, log, first_dirty = filled()
        files.inject(Fault(None, after=after))
        with pytest.raises(PowerCutError):
            clean_and_unlink(files, log, first_dirty)
        files.crash(None if seed is None else Random(seed * 1000 + after))
        check_reopened(files, recovery_point=END if after % 2 else 0)


def test_killed_at_every_operation(fault_points: FaultPoints) -> None:
    """Everything that was written is there."""
    for after in fault_points.of(OPERATIONS):
        files, log, first_dirty = filled()
        files.inject(Fault(None, after=after))
        with pytest.raises(PowerCutError):
            clean_and_unlink(files, log, first_dirty)
        files.kill()
        check_reopened(files, recovery_point=0)


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=SLOW), 40])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_the_disk_refuses_every_operation_in_turn(number: int, times: int, fault_points: FaultPoints) -> None:
    """The log goes on, reading and appending, and so does cleaning once the disk is well again."""
    for after in fault_points.of(OPERATIONS):
        files, log, first_dirty = filled()
        files.inject(Fault(number, after=after, times=times))
        refused_at = _clean_as_far_as_it_goes(files, log, first_dirty)
        check(log)
        files.heal()
        log.unlink_deleted(10**9)
        assert not log.swapper.is_unfinished
        check(log)
        if refused_at is not None:
            refused_at.discard()
        clean(files, log, first_dirty=first_dirty, now_ms=LATER_MS)
        check(log)
        names = {entry.name for entry in files.list_directory(DIRECTORY)}
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        log.close()
        files.kill()
        check_reopened(files, clean_shutdown=True)


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=SLOW), 40])
def test_killed_while_the_disk_refuses(times: int, fault_points: FaultPoints) -> None:
    """No step that was left out is missed after the next start."""
    for after in fault_points.of(OPERATIONS):
        files, log, first_dirty = filled()
        files.inject(Fault(errno.EIO, after=after, times=times))
        _clean_as_far_as_it_goes(files, log, first_dirty)
        check(log)
        files.kill()
        check_reopened(files, recovery_point=0)


def _clean_as_far_as_it_goes(files: MemoryFiles, log: Log, first_dirty: int) -> Cleaning | None:

    cleaning = begin(files, log, first_dirty=first_dirty, now_ms=LATER_MS)
    try:
        for turn in cleaning.turns():
            turn()
        log.unlink_deleted(10**9)
    except KafkaStorageError:
        return cleaning
    return None


@pytest.mark.parametrize("after", range(8))
def test_a_copy_that_never_came_to_count_was_removed_over_the_next_one(after: int) -> None:
    """The names of both are the same: what the disk refused to rename goes before the next copy is made."""
    files = MemoryFiles()
    log = compacted_log(files)
    put(log, (b"k", b"old"), (b"other", b"x"))
    put(log, (b"k", b"new"))
    roll(log)
    cleaning = begin(files, log)
    turns = cleaning.turns()
    while not any(name.endswith(".timeindex.cleaned") for name, _ in files.list_directory(DIRECTORY)):
        next(turns)()
    files.inject(Fault(errno.EIO, after=after, times=2))
    with suppress(KafkaStorageError):
        for turn in turns:
            turn()
    files.heal()
    clean(files, log)
    assert left(open_log(files, settings=COMPACTED, recovery_point=3)) == [
        (1, b"other", b"x"),
        (2, b"k", b"new"),
    ]


def test_records_deleted_in_the_midst_of_the_active_segment_once_had_it_cleaned() -> None:
    """Its base is below the start of the log then, but it goes on taking records."""
    files = MemoryFiles()
    log = compacted_log(files)
    put(log, (b"a", b"1"))
    roll(log)
    put(log, (b"b", b"1"), (b"b", b"2"))
    log.flush()
    log.advance_log_start(2)
    clean(files, log)
    put(log, (b"c", b"3"))
    assert left(log) == [(1, b"b", b"1"), (2, b"b", b"2"), (3, b"c", b"3")]


def test_the_swap_of_a_copy_once_let_a_power_cut_leave_a_hole() -> None:
    """It syncs the directory, and so the name of a segment, before the one in front of that was flushed."""
    files = MemoryFiles()
    log = compacted_log(files)
    put(log, (b"a", b"1"))
    roll(log)
    for name in ("/", "/data", DIRECTORY):
        files.sync_directory(name)
    put(log, (b"b", b"2"))
    log.roll(NOW_MS)
    clean(files, log)
    files.crash()
    log = open_log(files, settings=COMPACTED, recovery_point=1)
    assert left(log) == [(0, b"a", b"1"), (1, b"b", b"2")][: log.log_end_offset]
