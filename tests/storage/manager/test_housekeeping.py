"""What a data directory needs while it is used: flushes, checkpoints, forgotten producers, few open files."""

from __future__ import annotations

import errno
import math
from pathlib import Path
from typing import Any

import pytest
from support.running.alone import files_open_below
from support.storage.logs import NOW_MS, batch, values_of

from splashdam.model.values import TopicPartition
from splashdam.storage.directories.checkpoints import RootCheckpoints
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.settings import DirectorySettings, LogSettings

ROOT = "/data"
A0 = TopicPartition("a", 0)


def open_manager(files: MemoryFiles) -> LogManager:
    return LogManager.open(files, ROOT, now_ms=NOW_MS)


def append(manager: LogManager, topic_partition: TopicPartition, value: bytes) -> None:
    manager.logs[topic_partition].append_as_leader(batch(value), now_ms=NOW_MS)


async def test_a_turn_of_housekeeping_flushes_closed_segments() -> None:
    """At once; the recovery point is checkpointed when that is due."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, {"segment.bytes": "200"}, now_ms=NOW_MS)
    for _ in range(5):
        append(manager, A0, b"x" * 50)
    assert manager.logs[A0].needs_flush
    assert await manager.step(0, NOW_MS) == 5_000
    assert manager.logs[A0].recovery_point == 5
    assert files.read_bytes(f"{ROOT}/recovery-point-offset-checkpoint") is None
    assert await manager.step(5_000, NOW_MS) == 5_000
    assert files.read_bytes(f"{ROOT}/replication-offset-checkpoint") == b"0\n1\na 0 5\n"
    assert await manager.step(29_000, NOW_MS) == 1_000
    assert await manager.step(30_000, NOW_MS) == 4_000
    assert files.read_bytes(f"{ROOT}/recovery-point-offset-checkpoint") == b"0\n1\na 0 5\n"


async def test_silent_producers_are_forgotten() -> None:
    """After producer.id.expiration.ms, looked at every ten minutes."""
    manager = LogManager.open(
        MemoryFiles(), ROOT, now_ms=NOW_MS, settings=DirectorySettings(producer_id_expiration_ms=1000)
    )
    manager.create_topic("a", 1, now_ms=NOW_MS)
    log = manager.logs[A0]
    log.append_as_leader(batch(b"x", producer_id=4, timestamp_ms=0), now_ms=NOW_MS)
    assert [entry.producer_id for entry in log.producers] == [4]
    await manager.step(0, NOW_MS)
    await manager.step(30_000, NOW_MS + 999)
    assert [entry.producer_id for entry in log.producers] == [4]
    await manager.step(629_999, NOW_MS + 1_000)
    assert len(log.producers) == 1
    await manager.step(630_000, NOW_MS + 1_000)
    assert len(log.producers) == 0


async def test_housekeeping_goes_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and tried again when it is due next."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, {"segment.bytes": "200"}, now_ms=NOW_MS)
    for _ in range(5):
        append(manager, A0, b"x" * 50)
    files.inject(Fault(errno.EIO, times=1))
    await manager.step(0, NOW_MS)
    assert "flushing a segment of a-0" in caplog.text
    files.inject(Fault(errno.ENOSPC, times=1))
    await manager.step(5_000, NOW_MS)
    assert "checkpointing high watermarks" in caplog.text
    await manager.step(10_000, NOW_MS)
    assert files.read_bytes(f"{ROOT}/replication-offset-checkpoint") == b"0\n1\na 0 5\n"


def test_an_idle_partition_keeps_no_file_open(tmp_path: Path) -> None:
    """Twenty partitions cost the lock, and at most two files for each that has records."""
    for opened in range(3):
        manager = LogManager.open(DiskFiles(), str(tmp_path / "data"), now_ms=NOW_MS)
        if not opened:
            manager.create_topic("a", 20, now_ms=NOW_MS)
        assert len(files_open_below(tmp_path)) <= 2 + 2 * opened  # the lock and the registry
        append(manager, TopicPartition("a", opened), b"x")
        manager.close()
        assert files_open_below(tmp_path) == []


def test_a_whole_life_on_a_real_disk(tmp_path: Path) -> None:
    """The same through the disk's files."""
    root = str(tmp_path / "deep" / "data")
    manager = LogManager.open(
        DiskFiles(), root, now_ms=NOW_MS, settings_for=LogSettings(segment_bytes=500).with_configs
    )
    manager.create_topic("a", 2, now_ms=NOW_MS)
    manager.create_topic("b", 1, now_ms=NOW_MS)
    for number in range(30):
        append(manager, A0, b"%d" % number)
    manager.delete_topic("b")
    manager.close()
    manager = LogManager.open(DiskFiles(), root, now_ms=NOW_MS)
    assert values_of(manager.logs[A0]) == [b"%d" % number for number in range(30)]
    assert sorted(manager.topics) == ["a"]
    manager.close()


async def test_a_turn_without_work_looks_at_no_log() -> None:
    """It comes up to twenty times a second where segments fill fast, and there may be thousands of logs."""

    class Unlooked(dict[TopicPartition, Log]):
        def values(self) -> Any:
            raise AssertionError

    manager = open_manager(MemoryFiles())
    configs = {"segment.bytes": "200", "retention.bytes": "0", "file.delete.delay.ms": "40"}
    manager.create_topic("a", 50, configs, now_ms=NOW_MS)
    await manager.step(0, NOW_MS)
    for _ in range(5):
        append(manager, A0, b"x" * 50)
    log, logs = manager.logs[A0], manager.logs
    manager.logs = Unlooked()
    await manager.step(10, NOW_MS)
    assert (log.recovery_point, list(manager.logs_with_work)) == (5, [])
    assert await manager.step(20, NOW_MS) == 4_980
    log.delete_old_segments(wall_ms=NOW_MS, now_ms=30)
    assert list(manager.logs_with_work) == [log]
    await manager.step(1_080, NOW_MS)
    assert (log.next_unlink_ms, list(manager.logs_with_work)) == (math.inf, [])
    manager.logs = logs
    manager.close()


async def test_flush_ms_is_not_forgotten_when_the_clock_is_put_back() -> None:
    """By a day: the log was not flushed for a day."""
    manager = open_manager(MemoryFiles())
    manager.create_topic("a", 1, {"flush.ms": "1000"}, now_ms=NOW_MS)
    manager.create_topic("b", 1, now_ms=NOW_MS)
    day_ms = 24 * 60 * 60 * 1000
    append(manager, A0, b"x")
    append(manager, TopicPartition("b", 0), b"x")
    await manager.step(0, NOW_MS - day_ms)
    await manager.step(1_000, NOW_MS - day_ms + 1_000)
    assert manager.logs[A0].recovery_point == 1
    assert manager.logs[TopicPartition("b", 0)].recovery_point == 0


async def test_the_flush_ms_of_a_deleted_topic_has_no_effect() -> None:
    """The smallest of those that are left counts."""
    manager = open_manager(MemoryFiles())
    manager.create_topic("a", 1, {"flush.ms": "30"}, now_ms=NOW_MS)
    manager.create_topic("b", 1, {"flush.ms": "3000"}, now_ms=NOW_MS)
    assert await manager.step(0, NOW_MS) == 30
    manager.delete_topic("a")
    assert await manager.step(1, NOW_MS) == 2_999


async def test_checkpoints_cost_little_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """High watermarks are looked at and not written; starts of logs are written with recovery points."""
    done: list[str] = []

    def count(name: str) -> None:
        write: Any = getattr(RootCheckpoints, name)

        def counted(checkpoints: RootCheckpoints, logs: Any) -> None:
            done.append(name)
            write(checkpoints, logs)

        monkeypatch.setattr(RootCheckpoints, name, counted)

    for name in ("write_high_watermarks", "write_recovery_points", "write_log_starts"):
        count(name)
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    for second in range(0, 180, 5):
        await manager.step(second * 1_000, NOW_MS)
    assert sorted(done) == [
        "write_high_watermarks",
        *["write_log_starts"] * 3,
        *["write_recovery_points"] * 3,
    ]
    done.clear()
    append(manager, A0, b"x")
    await manager.step(185_000, NOW_MS)
    assert done == ["write_high_watermarks"]
    assert files.read_bytes(f"{ROOT}/replication-offset-checkpoint") == b"0\n1\na 0 1\n"


async def test_high_watermarks_are_written_again_after_a_failure() -> None:
    """Though they are the same as when the disk refused them."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    append(manager, A0, b"x")
    await manager.step(0, NOW_MS)
    files.inject(Fault(errno.ENOSPC, times=1))
    await manager.step(5_000, NOW_MS)
    assert files.read_bytes(f"{ROOT}/replication-offset-checkpoint") is None
    await manager.step(10_000, NOW_MS)
    assert files.read_bytes(f"{ROOT}/replication-offset-checkpoint") == b"0\n1\na 0 1\n"


async def test_high_watermarks_are_those_of_the_logs_that_there_are() -> None:
    """Another topic with the same ones in the place of the first is another one."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    await manager.step(0, NOW_MS)
    await manager.step(5_000, NOW_MS)
    manager.delete_topic("a")
    manager.create_topic("b", 1, now_ms=NOW_MS)
    await manager.step(10_000, NOW_MS)
    assert files.read_bytes(f"{ROOT}/replication-offset-checkpoint") == b"0\n1\nb 0 0\n"
