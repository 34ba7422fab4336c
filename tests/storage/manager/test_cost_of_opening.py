"""What opening a log reads: little after a clean shutdown, the unflushed part after a crash."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.running.alone import files_open_below
from support.running.patches import perhaps
from support.storage.logs import DIRECTORY, NOW_MS, batch, open_log, values_of

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.storage.directories.identity import remove_half_written
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.memory import MemoryFiles, MemoryLogFile
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.settings import LogSettings

VALUE = b"x" * 20_000
SETTINGS = LogSettings(segment_bytes=100_000)


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Bytes read of each file so far."""
    counted: Counter[str] = Counter()
    read_at = MemoryLogFile._read_at

    def counting(file: MemoryLogFile, position: int, count: int) -> bytes:
        data = read_at(file, position, count)
        counted[file.path.removeprefix(DIRECTORY + "/")] += len(data)
        return data

    monkeypatch.setattr(MemoryLogFile, "_read_at", counting)
    return counted


def filled(files: MemoryFiles, batches: int = 40) -> None:
    """Segments of four batches, all of an idempotent producer, and a clean end."""
    log = open_log(files, settings=SETTINGS)
    for number in range(batches):
        log.append_as_leader(batch(VALUE, producer_id=1, sequence=number), now_ms=NOW_MS)
    log.close()


def test_after_a_clean_end_little_is_read(bytes_read: Counter[str]) -> None:
    """Heads of the tail, and of the last batches of producers in sixteen segments at most."""
    files = MemoryFiles()
    filled(files, batches=120)
    bytes_read.clear()
    log = open_log(files, settings=SETTINGS, clean=True)
    assert len(log.segments) == 30
    assert len(bytes_read) == 16
    assert max(bytes_read.values()) < 100_000
    assert (log.log_end_offset, log.recovery_point) == (120, 120)


@pytest.mark.parametrize(("recovery_point", "segments"), [(39, 1), (30, 3), (1, 10)])
def test_after_a_crash_flushed_segments_are_not_read(
    bytes_read: Counter[str], recovery_point: int, segments: int
) -> None:
    """Every segment from the one that holds the recovery point on; of the one in front of it two heads."""
    files = MemoryFiles()
    filled(files)
    files.kill()
    bytes_read.clear()
    log = open_log(files, settings=SETTINGS, recovery_point=recovery_point)
    whole = [name for name, count in bytes_read.items() if count > 80_000]
    assert sorted(whole) == [f"{4 * number:020d}.log" for number in range(10 - segments, 10)]
    assert len([count for count in bytes_read.values() if 50_000 < count <= 80_000]) <= 1
    assert log.recovery_point == recovery_point
    assert len(values_of(log)) == 40


def test_an_empty_log_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length says all, and each file is looked at once; most of ten thousand new partitions are empty."""
    directory = str(tmp_path / "t-0")
    open_log(DiskFiles(), directory).close()
    done: Counter[str] = Counter()
    for name in ("open_log", "size_bytes"):
        counting = _counting(getattr(DiskFiles, name), name, done)
        monkeypatch.setattr(DiskFiles, name, perhaps(counting, because="the number of calls is what counts"))
    log = open_log(DiskFiles(), directory, clean=True)
    assert done == {"size_bytes": 4}
    assert log.log_end_offset == 0
    log.close()


@pytest.mark.parametrize("kind", ["pipe", "link", "dangling"])
def test_an_empty_log_that_is_no_file_is_refused_at_the_start(tmp_path: Path, kind: str) -> None:
    """Since it is not opened there, the first append met it."""
    directory = tmp_path / "t-0"
    open_log(DiskFiles(), str(directory)).close()
    path = directory / f"{0:020d}.log"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(os.devnull if kind == "link" else tmp_path / "nothing")
    with pytest.raises(KafkaStorageError, match=r"\.log is (not a regular file|a symbolic link)"):
        open_log(DiskFiles(), str(directory), clean=True)


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_the_collector_rests_during_a_start_after_a_clean_end(
    monkeypatch: pytest.MonkeyPatch, is_on: bool, is_clean: bool
) -> None:
    """A third of a start with 10,000 logs went into it. A recovery may take minutes, so there it stays on."""
    files, seen = MemoryFiles(), []
    manager = LogManager.open(files, "/data", now_ms=NOW_MS)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    if is_clean:
        manager.close()
    else:
        files.kill()
    open_found = LogManager._open_found

    def noted(manager: LogManager, *args: Any) -> None:
        seen.append(gc.isenabled())
        open_found(manager, *args)

    monkeypatch.setattr(LogManager, "_open_found", noted)
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        LogManager.open(files, "/data", now_ms=NOW_MS).close()
        assert (seen, gc.isenabled()) == ([is_on and not is_clean], is_on)
    finally:
        (gc.enable if was_on else gc.disable)()


def test_one_directory_that_was_not_closed_keeps_the_collector_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two, the recovery of one may take minutes."""
    files, called = MemoryFiles(), []
    for name in ("disable", "enable"):
        monkeypatch.setattr(gc, name, partial(called.append, name))
    for is_clean in (True, False):
        LogManager.open(files, "/a", log_dirs=["/a", "/b"], now_ms=NOW_MS).close()
        called.clear()
        if not is_clean:
            files.unlink("/b/.kafka_cleanshutdown")
        LogManager.open(files, "/a", log_dirs=["/a", "/b"], now_ms=NOW_MS).close()
        assert ("disable" in called) == is_clean


def test_a_start_that_failed_left_the_collector_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process goes on, perhaps with another directory."""
    files, called = MemoryFiles(), []
    LogManager.open(files, "/data", now_ms=NOW_MS).close()

    def refuse(*_: object) -> None:
        raise KafkaStorageError("no")

    monkeypatch.setattr(LogManager, "_open_logs", refuse)
    for name in ("disable", "enable"):
        monkeypatch.setattr(gc, name, partial(called.append, name))
    monkeypatch.setattr(gc, "isenabled", lambda: True)
    with pytest.raises(KafkaStorageError):
        LogManager.open(files, "/data", now_ms=NOW_MS)
    assert called == ["disable", "enable"]


def test_an_index_that_is_missing_costs_its_segment_alone(bytes_read: Counter[str]) -> None:
    """Also after a clean end; both indexes come out as they were."""
    files = MemoryFiles()
    filled(files)
    before = {
        suffix: files.read_bytes(f"{DIRECTORY}/{8:020d}{suffix}") for suffix in (".index", ".timeindex")
    }
    files.unlink(f"{DIRECTORY}/{8:020d}.index")
    bytes_read.clear()
    open_log(files, settings=SETTINGS, clean=True)
    assert [name for name, count in bytes_read.items() if count > 100_000] == [f"{8:020d}.log"]
    for suffix, data in before.items():
        assert files.read_bytes(f"{DIRECTORY}/{8:020d}{suffix}") == data


def test_half_written_files_of_the_root_are_removed() -> None:
    """Those of ours and of Kafka; other people's stay."""
    files = MemoryFiles()
    ours = [
        "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
        "cleaner-offset-checkpoint", "meta.properties", ".kafka_cleanshutdown", "splashdam-topics.json",
        "producer-ids-checkpoint", "splashdam-meta.json",
    ]  # fmt: skip
    files.make_directory("/data")
    for name in (*ours, "notes"):
        files.write_atomic(f"/data/{name}.tmp", b"half")
    LogManager.open(files, "/data", now_ms=NOW_MS).close()
    assert [name for name, _ in files.list_directory("/data") if name.endswith(".tmp")] == ["notes.tmp"]
    remove_half_written(files, "/nowhere")


def test_a_partition_that_is_only_opened_and_closed_costs_no_write_and_no_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its directory is listed once: the sixth listing of a thousand partitions took as long as the first."""
    files = MemoryFiles()
    filled(files, batches=2)
    before = {name: files.read_bytes(f"{DIRECTORY}/{name}") for name, _ in files.list_directory(DIRECTORY)}
    done: Counter[str] = Counter()
    for owner, name in (
        (MemoryFiles, "list_directory"),
        (MemoryFiles, "sync_directory"),
        (MemoryFiles, "write_atomic"),
        (MemoryLogFile, "_write_at"),
        (MemoryLogFile, "_truncate_to"),
        (MemoryLogFile, "_sync"),
    ):
        counting = _counting(getattr(owner, name), name, done)
        monkeypatch.setattr(owner, name, perhaps(counting, because="that it is not called is what counts"))
    open_log(files, settings=SETTINGS, clean=True).close()
    assert done == {"list_directory": 1}
    assert before == {name: files.read_bytes(f"{DIRECTORY}/{name}") for name in before}


def _counting(method: Callable[..., Any], name: str, done: Counter[str]) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        done[name] += 1
        return method(*args, **options)

    return counted


def test_after_an_append_the_final_time_entry_is_where_it_belongs() -> None:
    """The one that an earlier end left gives way to that of the later end, as if it had never been there."""
    twice, once = MemoryFiles(), MemoryFiles()
    for number in range(2):
        log = open_log(twice, settings=SETTINGS, clean=number > 0)
        log.append_as_leader(batch(b"v", timestamp_ms=NOW_MS + number), now_ms=NOW_MS)
        log.close()
    log = open_log(once, settings=SETTINGS)
    for number in range(2):
        log.append_as_leader(batch(b"v", timestamp_ms=NOW_MS + number), now_ms=NOW_MS)
    log.close()
    path = f"{DIRECTORY}/{0:020d}.timeindex"
    assert twice.read_bytes(path) == once.read_bytes(path)
    assert len(once.read_bytes(path) or b"") == 12


def test_an_idle_partition_keeps_no_file_open_after_a_restart(tmp_path: Path) -> None:
    """A thousand that had an idempotent producer each kept a descriptor, and systems allow for 1,024."""
    directory = str(tmp_path / "t-0")
    log = open_log(DiskFiles(), directory)
    log.append_as_leader(batch(b"v", producer_id=1), now_ms=NOW_MS)
    log.close()
    log = open_log(DiskFiles(), directory, clean=True)
    opened = files_open_below(directory)
    log.close()
    assert opened == []


def test_a_start_after_a_kill_waits_for_no_sync_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three for each of a thousand logs were twenty seconds; the first flush of a log makes up for it."""
    files = MemoryFiles()
    manager = LogManager.open(files, "/data", now_ms=NOW_MS)
    manager.create_topic("a", 100, now_ms=NOW_MS)
    for log in manager.logs.values():
        log.append_as_leader(batch(VALUE, producer_id=1), now_ms=NOW_MS)
    files.kill()
    done: Counter[str] = Counter()
    monkeypatch.setattr(MemoryLogFile, "_sync", _counting(MemoryLogFile._sync, "sync", done))
    manager = LogManager.open(files, "/data", now_ms=NOW_MS)
    assert done["sync"] == 0
    assert all(not log.is_synced for log in manager.logs.values())
    first = next(iter(manager.logs.values()))
    first.flush()
    assert done["sync"] == 1
    files.crash()
    manager = LogManager.open(files, "/data", now_ms=NOW_MS)
    ends = {where: log.log_end_offset for where, log in manager.logs.items()}
    assert ends.pop(first.topic_partition) == 1
    assert set(ends.values()) == {0}


def test_a_sync_after_a_kill_covers_earlier_records() -> None:
    """With flush.messages=1 an acknowledgement says that everything up to it survives a power cut."""
    files, settings = MemoryFiles(), LogSettings(flush_messages=1)
    log = open_log(files, settings=settings)
    log.append_as_leader(batch(b"before", producer_id=1), now_ms=NOW_MS)
    for parent in ("/", "/data"):
        files.sync_directory(parent)
    files.kill()
    log = open_log(files, settings=settings)
    assert log.append_as_leader(batch(b"before", producer_id=1), now_ms=NOW_MS).duplicate
    assert log.must_flush
    log.flush()
    files.crash()
    assert values_of(open_log(files, settings=settings)) == [b"before"]


def test_the_indexes_of_a_segment_found_after_a_kill_are_synced_with_it() -> None:
    """Once it is closed and flushed nothing makes them anew."""
    files = MemoryFiles()
    log = open_log(files, settings=SETTINGS)
    for number in range(3):
        log.append_as_leader(batch(VALUE, producer_id=1, sequence=number), now_ms=NOW_MS)
    for parent in ("/", "/data"):
        files.sync_directory(parent)
    files.kill()
    log = open_log(files, settings=SETTINGS)
    log.roll(NOW_MS)
    log.append_as_leader(batch(VALUE, producer_id=1, sequence=3), now_ms=NOW_MS)
    log.flush()
    before = {
        name: files.read_bytes(f"{DIRECTORY}/{0:020d}{name}") for name in (".log", ".index", ".timeindex")
    }
    files.crash()
    assert before == {name: files.read_bytes(f"{DIRECTORY}/{0:020d}{name}") for name in before}
    assert len(before[".timeindex"] or b"") == 12


def test_a_partition_found_after_a_kill_keeps_no_file_open(tmp_path: Path) -> None:
    """Unsynced files are known without a descriptor."""
    directory = str(tmp_path / "t-0")
    log = open_log(DiskFiles(), directory)
    log.append_as_leader(batch(b"v", producer_id=1), now_ms=NOW_MS)
    log.abandon()
    log = open_log(DiskFiles(), directory)
    opened = files_open_below(directory)
    log.close()
    assert opened == []
