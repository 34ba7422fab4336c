"""What a start may call safe: bytes and names that an earlier process wrote and nobody synced are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from support.running.alone import files_open_below
from support.storage.logs import DIRECTORY, NOW_MS, batch, open_log, values_of

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.segments.segment import LogSegment
from splashdam.storage.settings import LogSettings

SMALL = LogSettings(segment_bytes=4 * len(batch(b"00")))


def test_records_of_a_killed_broker_survive_a_power_cut_after_a_clean_end() -> None:
    """Recovery syncs the logs it read, or the clean marker would vouch for bytes in memory alone."""
    files = MemoryFiles()
    settings_for = SMALL.with_configs
    manager = LogManager.open(files, "/data", now_ms=NOW_MS, settings_for=settings_for)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    values = [b"%02d" % number for number in range(10)]
    for value in values:
        manager.logs[TopicPartition("a", 0)].append_as_leader(batch(value), now_ms=NOW_MS)
    files.kill()
    LogManager.open(files, "/data", now_ms=NOW_MS, settings_for=settings_for).close()
    files.crash()
    manager = LogManager.open(files, "/data", now_ms=NOW_MS, settings_for=settings_for)
    assert values_of(manager.logs[TopicPartition("a", 0)]) == values


async def test_a_cancelled_sync_forgets_no_new_names() -> None:
    """The next flush syncs the directory that the cancelled one did not come to."""
    files = MemoryFiles()
    log = open_log(files, settings=SMALL)
    files.sync_directory("/data")
    files.sync_directory("/")
    for number in range(6):
        log.append_as_leader(batch(b"%02d" % number), now_ms=NOW_MS)
    with trio.CancelScope() as scope:
        scope.cancel()
        await log.sync()
    assert scope.cancelled_caught
    log.flush()
    files.crash()
    assert log.recovery_point == 6
    assert f"{4:020d}.log" in [name for name, _ in files.list_directory(DIRECTORY)]
    assert len(values_of(open_log(files, settings=SMALL, recovery_point=6))) == 6


def test_a_new_data_directory_survives_a_power_cut_with_its_parents() -> None:
    """Each directory that was made has its name synced, or a flushed log could not be found again."""
    files = MemoryFiles()
    manager = LogManager.open(files, "/some/where/data", now_ms=NOW_MS)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    files.crash()
    assert list(LogManager.open(files, "/some/where/data", now_ms=NOW_MS).topics) == ["a"]


def test_small_segments_do_not_use_up_the_descriptors(tmp_path: Path) -> None:
    """Without any housekeeping: what is closed is flushed when too much of it waits."""
    log = open_log(DiskFiles(), str(tmp_path / "t-0"), settings=SMALL)
    for number in range(400):
        log.append_as_leader(batch(b"%02d" % (number % 100)), now_ms=NOW_MS)
        assert len(files_open_below(tmp_path)) <= 3 * 28
    assert len(log.segments) == 100
    assert log.recovery_point > 300
    log.close()


async def test_a_flush_while_a_sync_is_under_way(tmp_path: Path) -> None:
    """Segments that fill meanwhile are flushed and closed; the sync that listed them goes through."""
    log = open_log(DiskFiles(), str(tmp_path / "t-0"), settings=SMALL)
    for number in range(60):
        log.append_as_leader(batch(b"%02d" % number), now_ms=NOW_MS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.sync)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(200):
            log.append_as_leader(batch(b"%02d" % (number % 100)), now_ms=NOW_MS)
    log.append_as_leader(batch(b"99"), now_ms=NOW_MS)
    await log.sync()
    assert log.recovery_point == 261
    log.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a crash"])
@pytest.mark.parametrize("recovery_point", [0, 6])
def test_a_checkpointed_start_behind_the_end_deletes_nothing(
    clean: bool, recovery_point: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It is ignored with an error, and the producers are known all the same."""
    files = MemoryFiles()
    log = open_log(files, settings=SMALL)
    for number in range(6):
        log.append_as_leader(batch(b"%02d" % number, producer_id=1, sequence=number), now_ms=NOW_MS)
    log.close()
    log = open_log(files, settings=SMALL, clean=clean, recovery_point=recovery_point, log_start_offset=1000)
    assert (log.log_start_offset, len(values_of(log))) == (0, 6)
    assert [entry.last_sequence for entry in log.producers] == [5]
    assert "log start offset 1000 is above the log end offset" in caplog.text


def test_a_log_that_cannot_be_loaded_keeps_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would close it."""
    log = open_log(DiskFiles(), str(tmp_path / "t-0"), settings=SMALL)
    log.append_as_leader(batch(b"1", producer_id=1), now_ms=NOW_MS)
    log.abandon()

    def refuse(*_: object, **__: object) -> None:
        raise KafkaStorageError("no")

    monkeypatch.setattr(LogSegment, "prepare_for_append", refuse)
    with pytest.raises(KafkaStorageError, match="no"):
        open_log(DiskFiles(), str(tmp_path / "t-0"), settings=SMALL)
    assert files_open_below(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["meta.properties", "splashdam-topics.json", "splashdam-meta.json", "a-0/partition.metadata"]
)
def test_a_damaged_small_file_can_be_moved_away(name: str) -> None:
    """The error says so, and it helps."""
    files = MemoryFiles()
    manager = LogManager.open(files, "/data", now_ms=NOW_MS)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    manager.logs[TopicPartition("a", 0)].append_as_leader(batch(b"x"), now_ms=NOW_MS)
    manager.close()
    files.write_atomic(f"/data/{name}", b"nonsense")
    with pytest.raises(
        KafkaStorageError, match=f"{name} .*; move this file away, and the broker creates it again"
    ):
        LogManager.open(files, "/data", now_ms=NOW_MS)
    files.unlink(f"/data/{name}")
    manager = LogManager.open(files, "/data", now_ms=NOW_MS)
    assert values_of(manager.logs[TopicPartition("a", 0)]) == [b"x"]


def test_a_recovery_leaves_the_snapshot_to_the_close(tmp_path: Path) -> None:
    """After a crash a start writes no producers: the next recovery would remove them. The close does."""
    directory = tmp_path / "t-0"
    log = open_log(DiskFiles(), str(directory), settings=SMALL)
    log.append_as_leader(batch(b"1", producer_id=1), now_ms=NOW_MS)
    log.abandon()
    log = open_log(DiskFiles(), str(directory), settings=SMALL)
    assert not list(directory.glob("*.snapshot"))
    assert [each.producer_id for each in log.producers] == [1]
    log.close()
    assert [each.name for each in directory.glob("*.snapshot")] == ["00000000000000000001.snapshot"]
    log = open_log(DiskFiles(), str(directory), settings=SMALL, clean=True)
    assert [each.producer_id for each in log.producers] == [1]
    log.abandon()
