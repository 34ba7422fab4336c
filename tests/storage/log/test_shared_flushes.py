"""Many who wait for stable storage share one sync, and all of them hear of its failure."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing
from support.storage.logs import DIRECTORY, NOW_MS, batch, open_log, values_of

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.files.memory import Fault, MemoryFiles, MemoryLogFile
from splashdam.storage.log import Log, LogState
from splashdam.storage.settings import LogSettings


class SlowDisk:
    """Syncs take until ``go_on``; as on disk, they cover what was written when they began."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.go_on = trio.Event()

    async def sync(self, file: MemoryLogFile) -> None:
        end = file.end
        await self.go_on.wait()
        self.synced.append(file.path)
        file.sync_now()
        file._synced_end = end


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    """Under every file in memory."""
    slow = SlowDisk()

    async def sync(file: MemoryLogFile) -> None:
        await slow.sync(file)

    monkeypatch.setattr(MemoryLogFile, "sync", sync)
    return slow


async def append_and_sync(log: Log, number: int) -> None:
    log.append_as_leader(batch(b"%d" % number), now_ms=NOW_MS)
    mine = log.log_end_offset
    await log.sync()
    assert log.recovery_point >= mine


async def test_many_waiters_share_a_sync(disk: SlowDisk) -> None:
    """The first waiter syncs alone; the hundred that came meanwhile share one more sync."""
    log = open_log(MemoryFiles())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(append_and_sync, log, 0)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(1, 101):
            nursery.start_soon(append_and_sync, log, number)
        await trio.testing.wait_all_tasks_blocked()
        assert (log.log_end_offset, log.recovery_point) == (101, 0)
        disk.go_on.set()
    assert disk.synced.count(f"{DIRECTORY}/{0:020d}.log") == 2
    assert log.recovery_point == 101
    before = len(disk.synced)
    await log.sync()
    assert len(disk.synced) == before


async def test_busy_waiters_take_turns(disk: SlowDisk) -> None:
    """One that comes back at once leads again, and keeps nobody waiting whose records are safe by then."""
    log = open_log(MemoryFiles())
    disk.go_on.set()

    async def client(number: int) -> None:
        for _ in range(10):
            await append_and_sync(log, number)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(client, number)
    assert log.recovery_point == 200
    assert disk.synced.count(f"{DIRECTORY}/{0:020d}.log") <= 30


async def test_all_waiters_get_a_failure(disk: SlowDisk) -> None:
    """Nobody is told that a record is safe after a sync has failed."""
    files = MemoryFiles()
    log = open_log(files)
    failures: list[KafkaStorageError] = []

    async def fail(number: int) -> None:
        try:
            await append_and_sync(log, number)
        except KafkaStorageError as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(fail, number)
        await trio.testing.wait_all_tasks_blocked()
        files.inject(Fault(errno.EIO))
        disk.go_on.set()
    assert (len(failures), log.state) == (5, LogState.FAILED)


async def test_a_waiter_that_gives_up_leaves_the_others_to_go_on(disk: SlowDisk) -> None:
    """The client that led the sync is gone; the next one leads."""
    log = open_log(MemoryFiles())
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as client:
            client.start_soon(append_and_sync, log, 0)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(append_and_sync, log, 1)
            await trio.testing.wait_all_tasks_blocked()
            client.cancel_scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert log.recovery_point == 0
        disk.go_on.set()
    assert log.recovery_point == 2


def test_flush_messages_count_from_the_recovery_point() -> None:
    """So many records may be unsafe at most."""
    log = open_log(MemoryFiles(), settings=LogSettings(flush_messages=3))
    for expected in (False, False, True):
        log.append_as_leader(batch(b"x"), now_ms=NOW_MS)
        assert log.must_flush is expected
    log.flush()
    assert not log.must_flush
    log.append_as_leader(batch(b"x", b"y", b"z"), now_ms=NOW_MS)
    assert log.must_flush


def slow_files() -> MemoryFiles:
    """Each sync takes a second, and covers what was written before it."""
    files = MemoryFiles()
    files.sync_s = lambda: 1.0
    files.make_directory(DIRECTORY)
    files.sync_directory("/data")
    files.sync_directory("/")
    return files


async def test_a_segment_closed_during_a_sync_waits_for_the_next_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It was synced as far as it was when the sync began; once it counted as flushed, and was lost so."""
    files = slow_files()
    log = open_log(files, settings=LogSettings(flush_messages=1))
    log.append_as_leader(batch(b"0"), now_ms=NOW_MS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.sync)
        await trio.testing.wait_all_tasks_blocked()
        log.append_as_leader(batch(b"1"), now_ms=NOW_MS)
        log.roll(NOW_MS)
        log.append_as_leader(batch(b"2"), now_ms=NOW_MS)
    assert (log.recovery_point, log.needs_flush) == (1, True)
    await log.sync()
    assert (log.recovery_point, log.needs_flush) == (3, False)
    assert all(segment.is_synced for segment in log.segments)
    files.crash()
    assert values_of(open_log(files, recovery_point=3)) == [b"0", b"1", b"2"]


async def test_a_blocking_flush_of_a_segment_that_a_sync_is_at_work_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The sync that comes back later takes nothing back, and vouches for nothing that came after it."""
    files = slow_files()
    log = open_log(files)
    log.append_as_leader(batch(b"0"), now_ms=NOW_MS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.sync)
        await trio.testing.wait_all_tasks_blocked()
        log.append_as_leader(batch(b"1"), now_ms=NOW_MS)
        log.flush()
        log.append_as_leader(batch(b"2"), now_ms=NOW_MS)
        log.roll(NOW_MS)
    assert (log.recovery_point, log.needs_flush) == (2, True)
    await log.sync()
    files.crash()
    assert values_of(open_log(files, recovery_point=3)) == [b"0", b"1", b"2"]


async def test_a_cut_during_a_sync_waits_for_the_next_one(autojump_clock: trio.testing.MockClock) -> None:
    """A failed append leaves bytes behind the end and cuts them off; that is not on the disk yet."""
    files = slow_files()
    log = open_log(files)
    log.append_as_leader(batch(b"0"), now_ms=NOW_MS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.sync)
        await trio.testing.wait_all_tasks_blocked()
        files.inject(Fault(errno.ENOSPC, landed_bytes=9))
        with pytest.raises(KafkaStorageError):
            log.append_as_leader(batch(b"1"), now_ms=NOW_MS)
    assert not log.segments[0].is_synced
    log.flush()
    assert log.segments[0].is_synced


async def test_a_flush_during_a_sync_that_fails_makes_nothing_safe(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The system reports a lost page to one of the two only. The other moved the recovery point for good."""
    files = slow_files()
    log = open_log(files)
    failures: list[KafkaStorageError] = []

    async def append(number: int) -> None:
        try:
            await append_and_sync(log, number)
        except KafkaStorageError as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        for number in range(2):
            nursery.start_soon(append, number)
        await trio.testing.wait_all_tasks_blocked()
        log.flush()
        files.inject(Fault(errno.EIO))
    assert (len(failures), log.state, log.recovery_point) == (2, LogState.FAILED, 0)
