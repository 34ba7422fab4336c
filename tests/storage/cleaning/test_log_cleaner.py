"""The cleaner of a data directory: which log when, what happens to the log meanwhile, and what goes wrong."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from support.storage.compacted_logs import DAY_MS, begin, compacted_log, keyed, left, put, roll
from support.storage.logs import NOW_MS

from splashdam.model.values import TopicPartition
from splashdam.storage.cleaning.cleaning import CleaningAbortedError
from splashdam.storage.cleaning.log_cleaner import cleanable_of
from splashdam.storage.files.disk import DiskFiles, Files
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.settings import DirectorySettings

ROOT = "/data"
A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "2000"}
CHECKPOINT = f"{ROOT}/cleaner-offset-checkpoint"


def manager_of(files: Files, *topics: str, root: str = ROOT, **settings: object) -> LogManager:
    """A data directory with compacted topics of one partition."""
    chosen = DirectorySettings(log_initial_task_delay_ms=0, **settings)  # type: ignore[arg-type]  # of any
    manager = LogManager.open(files, root, now_ms=NOW_MS, settings=chosen)
    for topic in topics:
        if topic not in manager.topics:
            manager.create_topic(topic, 1, COMPACT, now_ms=NOW_MS)
    return manager


def fill(log: Log, batches: int, *, keys: int = 3, timestamp_ms: int = NOW_MS, first: int = 0) -> None:
    """Batches of one record with 100 bytes; the same few keys again and again."""
    for number in range(first, first + batches):
        batch = keyed((b"%d" % (number % keys), b"%03d" % number + b"x" * 97), timestamp_ms=timestamp_ms)
        log.append_as_leader(batch, now_ms=NOW_MS)
    log.flush()


async def settle(manager: LogManager, now_ms: float, wall_ms: int = NOW_MS) -> float:
    """Turns until nothing is due; returns how long that lasts."""
    while not (delay_ms := await manager.step(now_ms, wall_ms)):
        pass
    return delay_ms


async def test_dirty_logs_are_cleaned_and_the_checkpoint_says_how_far() -> None:
    """Every log.cleaner.backoff.ms the cleaner looks for more."""
    files = MemoryFiles()
    manager = manager_of(files, "a", "b", log_cleaner_backoff_ms=700)
    fill(manager.logs[A0], 40)
    before = left(manager.logs[A0])
    await settle(manager, 0)
    log = manager.logs[A0]
    active = log.segments[-1].base_offset
    newest = {key: (offset, key, value) for offset, key, value in before if offset < active}
    assert left(log) == [*newest.values(), *(each for each in before if each[0] >= active)]
    assert files.read_bytes(CHECKPOINT) == b"0\n1\na 0 %d\n" % active
    fill(log, 40)
    size = log.size_bytes
    await settle(manager, 699)
    assert log.size_bytes == size
    await settle(manager, 700)
    assert log.size_bytes < size
    manager.close()


async def test_a_cleaner_that_is_switched_off_cleans_nothing() -> None:
    """log.cleaner.enable=false."""
    manager = manager_of(MemoryFiles(), "a", log_cleaner_enable=False)
    fill(manager.logs[A0], 40)
    size = manager.logs[A0].size_bytes
    await settle(manager, 0)
    await settle(manager, 10**6)
    assert manager.logs[A0].size_bytes == size


async def test_the_filthiest_log_comes_first(caplog: pytest.LogCaptureFixture) -> None:
    """A log below min.cleanable.dirty.ratio is not cleaned at all."""
    manager = manager_of(MemoryFiles(), "a", "b")
    fill(manager.logs[A0], 60, keys=1000)
    fill(manager.logs[B0], 60, keys=1000)
    await settle(manager, 0)
    fill(manager.logs[A0], 70, first=1000, keys=2000)
    fill(manager.logs[B0], 200, first=1000, keys=2000)
    with caplog.at_level(logging.INFO):
        await settle(manager, 15_000)
    begun = [
        record.getMessage().split()[1] for record in caplog.records if "bytes are dirty" in record.message
    ]
    assert begun == ["b-0", "a-0"]
    fill(manager.logs[A0], 30, first=1000, keys=2000)
    size = manager.logs[A0].size_bytes
    await settle(manager, 30_000)
    assert manager.logs[A0].size_bytes == size


def test_segments_cleanable_by_age() -> None:
    """min.compaction.lag.ms keeps the young, max.compaction.lag.ms wants the old whatever the ratio says."""
    manager = manager_of(MemoryFiles(), "a")
    manager.create_topic(
        "b",
        1,
        {
            **COMPACT,
            "min.compaction.lag.ms": str(DAY_MS),
            "max.compaction.lag.ms": str(2 * DAY_MS),
            "min.cleanable.dirty.ratio": "1.0",
        },
        now_ms=NOW_MS,
    )
    log = manager.logs[B0]
    fill(log, 20, timestamp_ms=NOW_MS - 2 * DAY_MS)
    fill(log, 20, timestamp_ms=NOW_MS)
    fill(log, 20, timestamp_ms=NOW_MS - 2 * DAY_MS)
    young = next(each.base_offset for each in log.segments if log.largest_timestamp(each) == NOW_MS)
    target = cleanable_of(log, None, NOW_MS)
    assert (target.first_dirty, target.first_uncleanable, target.is_due) == (0, young, False)
    assert cleanable_of(log, None, NOW_MS + 1).is_due
    assert cleanable_of(log, None, NOW_MS + DAY_MS).first_uncleanable == log.segments[-1].base_offset


def test_nothing_is_cleaned_that_is_not_on_stable_storage() -> None:
    """An older record must not go before the newer one is safe."""
    log = compacted_log(MemoryFiles())
    put(log, (b"k", b"old"))
    roll(log)
    put(log, (b"k", b"new"))
    log.roll(NOW_MS)
    put(log, (b"k", b"active"))
    assert cleanable_of(log, None, NOW_MS).first_uncleanable == 1
    log.flush()
    assert cleanable_of(log, None, NOW_MS).first_uncleanable == 2


@pytest.mark.parametrize("checkpointed", [None, -1, 10**6])
def test_a_checkpoint_that_cannot_be_true_counts_as_none(checkpointed: int | None) -> None:
    """The whole log is dirty then."""
    manager = manager_of(MemoryFiles(), "a")
    fill(manager.logs[A0], 40)
    assert cleanable_of(manager.logs[A0], checkpointed, NOW_MS).first_dirty == 0


async def test_bytes_per_second_are_limited() -> None:
    """log.cleaner.io.max.bytes.per.second: after some turns of work the cleaner waits."""
    manager = manager_of(
        MemoryFiles(),
        "a",
        log_cleaner_io_max_bytes_per_second=100_000.0,
        log_cleaner_io_buffer_size=1_000,
    )
    fill(manager.logs[A0], 400)
    size, now_ms, waited = manager.logs[A0].size_bytes, 0.0, []
    while len(waited) < 10:
        waited.append(await manager.step(now_ms, NOW_MS))
        now_ms += waited[-1]
    assert all(10 < delay_ms < 200 for delay_ms in waited)
    while not manager.logs[A0].segments[0].size_bytes < 1_900:
        now_ms += await manager.step(now_ms, NOW_MS)
    assert now_ms >= 1_000 * size / 100_000


async def test_a_damaged_log_is_left_alone_and_others_are_cleaned(caplog: pytest.LogCaptureFixture) -> None:
    """It is told once, and stays readable up to the damage."""
    files = MemoryFiles()
    manager = manager_of(files, "a", "b")
    fill(manager.logs[A0], 40)
    fill(manager.logs[B0], 40)
    path = manager.logs[A0].segments[1].paths()[0]
    files._names.files[path].data[100] ^= 1
    size = manager.logs[B0].size_bytes
    for moment in (0, 15_000, 30_000):
        await settle(manager, moment)
    assert manager.cleaner.uncleanable == [A0]
    assert manager.logs[B0].size_bytes < size
    assert caplog.text.count("a-0 is damaged, not cleaned any more") == 1
    assert not [each for each in files.list_directory(f"{ROOT}/a-0") if each.name.endswith(".cleaned")]
    manager.delete_topic("a")
    await settle(manager, 45_000)
    assert manager.cleaner.uncleanable == []


async def test_reading_and_appending_go_on_while_a_log_is_cleaned() -> None:
    """Between any two turns every newest record is there, and what is appended comes behind."""
    files = MemoryFiles()
    manager = manager_of(files, "a")
    log = manager.logs[A0]
    fill(log, 100)
    cleaning = begin(files, log, log_cleaner_io_buffer_size=500)
    turns = 0
    for turn in cleaning.turns():
        fill(log, 1, first=1_000 + turns)
        records = left(log)
        newest = {key: offset for offset, key, _ in records}
        assert (
            sorted(newest.values()) == [log.log_end_offset - 3 + number for number in range(3)] or turns < 3
        )
        assert [offset for offset, _, _ in records] == sorted({offset for offset, _, _ in records})
        turn()
        turns += 1
    assert turns > 20
    assert left(log)[-1][0] == 99 + turns


async def test_records_are_deleted_while_their_log_is_cleaned(caplog: pytest.LogCaptureFixture) -> None:
    """The cleaning ends early and leaves nothing behind; a later one does the rest."""
    files = MemoryFiles()
    manager = manager_of(files, "a", log_cleaner_io_buffer_size=500)
    log = manager.logs[A0]
    fill(log, 200)
    await manager.step(0, NOW_MS)
    log.advance_log_start(100)
    assert log.delete_old_segments(wall_ms=NOW_MS, now_ms=0) > 2
    with caplog.at_level(logging.INFO):
        await settle(manager, 0)
    assert "the cleaning of a-0 was aborted" in caplog.text
    assert log.log_start_offset == 100
    assert len({key for _, key, _ in left(log)}) == 3
    assert not [each for each in files.list_directory(f"{ROOT}/a-0") if each.name.endswith(".cleaned")]


@pytest.mark.parametrize("after", range(4))
async def test_a_topic_is_deleted_while_its_log_is_cleaned(after: int) -> None:
    """It is created again: the new topic's log is another one, and starts dirty."""
    files = MemoryFiles()
    manager = manager_of(files, "a", log_cleaner_io_buffer_size=500)
    fill(manager.logs[A0], 150)
    for _ in range(after):
        await manager.step(0, NOW_MS)
    manager.delete_topic("a")
    manager.create_topic("a", 1, COMPACT, now_ms=NOW_MS)
    fill(manager.logs[A0], 5)
    await settle(manager, 0)
    assert len(left(manager.logs[A0])) == 5
    assert (files.read_bytes(CHECKPOINT) or b"0\n0\n") == b"0\n0\n"


async def test_a_broker_leaves_while_a_log_is_cleaned() -> None:
    """Nothing half made is left in the directory."""
    files = MemoryFiles()
    manager = manager_of(files, "a", log_cleaner_io_buffer_size=500)
    fill(manager.logs[A0], 150)
    for _ in range(9):
        await manager.step(0, NOW_MS)
    assert any(each.name.endswith(".cleaned") for each in files.list_directory(f"{ROOT}/a-0"))
    manager.close()
    assert not any(each.name.endswith(".cleaned") for each in files.list_directory(f"{ROOT}/a-0"))
    files.kill()
    manager = manager_of(files, "a")
    assert len({key for _, key, _ in left(manager.logs[A0])}) == 3


async def test_compacted_and_deleted() -> None:
    """cleanup.policy=compact,delete: what is too old goes, too, whichever record of its key it is."""
    manager = manager_of(MemoryFiles())
    configs = {**COMPACT, "cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)}
    manager.create_topic("a", 1, configs, now_ms=NOW_MS)
    log = manager.logs[A0]
    fill(log, 30, keys=1_000, timestamp_ms=NOW_MS - 2 * DAY_MS)
    fill(log, 40, timestamp_ms=NOW_MS)
    await settle(manager, 0)
    values = left(log)
    assert values[0][0] >= 15
    assert len({key for _, key, _ in values if values}) < 25
    assert len(values) < 50


async def test_on_a_real_disk_with_threads(tmp_path: Path) -> None:
    """The same through the disk's files, closed and opened again."""
    root = str(tmp_path / "data")
    manager = manager_of(DiskFiles(), "a", root=root, log_cleaner_io_buffer_size=2_000)
    log = manager.logs[A0]
    fill(log, 300)
    modified_ms = [segment.modified_ms for segment in log.segments]
    await settle(manager, 0)
    found = left(log)
    assert len({key for _, key, _ in found}) == 3
    assert len(found) < 40
    assert log.segments[0].modified_ms in modified_ms
    manager.close()
    manager = manager_of(DiskFiles(), "a", root=root)
    assert left(manager.logs[A0]) == found
    manager.close()


def test_a_log_that_is_truncated_while_it_is_cleaned_stays_cut() -> None:
    """The cut was in the last segment of the copy, which brought back the records behind it."""
    files = MemoryFiles()
    log = compacted_log(files)
    for number in range(4):
        put(log, (b"%d" % number, b"v"))
    roll(log)
    put(log, (b"4", b"v"))
    log.flush()
    cleaning = begin(files, log)
    turns = cleaning.turns()
    while not cleaning.figures.segments_after:
        next(turns)()
    log.truncate_to(2, now_ms=NOW_MS)
    with pytest.raises(CleaningAbortedError):
        next(turns)
    put(log, (b"new", b"v"))
    assert left(log) == [(0, b"0", b"v"), (1, b"1", b"v"), (2, b"new", b"v")]
