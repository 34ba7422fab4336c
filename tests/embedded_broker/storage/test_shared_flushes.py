"""Many who wait for stable storage share one sync, and all of them hear of its failure."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing
from log_kit import DIRECTORY, NOW_MS, batch, open_log

from splashdam.embedded_broker.storage.append_result import LogState
from splashdam.embedded_broker.storage.log import Log
from splashdam.embedded_broker.storage.settings import LogSettings
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.testing.memory_files import Fault, MemoryFiles, MemoryLogFile


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
    """The first syncs alone; the other hundred, who came meanwhile, wait for one more together."""
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


async def test_all_waiters_hear_of_a_failure(disk: SlowDisk) -> None:
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
