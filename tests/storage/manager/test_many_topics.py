"""Many topics and partitions at once: all or none, and no turn of the disk for each."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.running.patches import guard
from support.storage.logs import NOW_MS, open_log

from splashdam.model.broker_errors import InvalidTopicError, KafkaStorageError, TopicAlreadyExistsError
from splashdam.model.values import Buffer
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.memory import Fault, MemoryFiles, MemoryLogFile
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.manager.topic_registry import NewTopic, TopicRegistry


def open_manager(files: MemoryFiles) -> LogManager:
    return LogManager.open(files, "/data", now_ms=NOW_MS)


def test_many_partitions_need_few_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry and the data directory are synced, not each partition; all survive a power cut."""
    files, synced = MemoryFiles(), []
    manager = open_manager(files)
    sync_directory = files.sync_directory
    monkeypatch.setattr(files, "sync_directory", lambda path: (synced.append(path), sync_directory(path)))
    topic_id = manager.create_topic("a", 100, now_ms=NOW_MS)
    assert synced == ["/data", "/data"]
    files.crash()
    manager = open_manager(files)
    assert len(manager.logs) == 100
    assert {log.topic_id for log in manager.logs.values()} == {topic_id}


@pytest.mark.parametrize("left", [b"", bytes(43)])
def test_a_topic_id_lost_in_a_power_cut_comes_from_the_registry(left: bytes) -> None:
    """A file that was never synced may be empty or zeros."""
    files = MemoryFiles()
    topic_id = open_manager(files).create_topic("a", 1, now_ms=NOW_MS)
    files.kill()
    files.write_atomic("/data/a-0/partition.metadata", left)
    manager = open_manager(files)
    assert manager.topics["a"].topic_id == topic_id
    assert len(files.read_bytes("/data/a-0/partition.metadata") or b"") == 43


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (["a", "b.c", "b_c"], InvalidTopicError),
        (["a", "x_y"], InvalidTopicError),
        (["a", "a"], TopicAlreadyExistsError),
        (["a", "x.y"], TopicAlreadyExistsError),
    ],
)
def test_of_several_topics_all_are_made_or_none(names: list[str], error: type[Exception]) -> None:
    """They are checked against what is there and against each other."""
    manager = open_manager(MemoryFiles())
    manager.create_topic("x.y", 1, now_ms=NOW_MS)
    with pytest.raises(error):
        manager.create_topics([NewTopic(name, 1) for name in names], now_ms=NOW_MS)
    assert set(manager.topics) == {"x.y"}
    assert len(manager.create_topics([NewTopic("a", 1), NewTopic("b", 2)], now_ms=NOW_MS)) == 2
    assert len(manager.logs) == 4


def test_a_disk_that_refuses_one_of_several_topics() -> None:
    """Nothing is left of the others."""
    files = MemoryFiles()
    manager = open_manager(files)
    files.inject(Fault(errno.ENOSPC, after=12))
    with pytest.raises(KafkaStorageError):
        manager.create_topics([NewTopic("a", 1), NewTopic("b", 2)], now_ms=NOW_MS)
    assert not manager.topics
    assert not manager.logs
    assert not [name for name, is_directory in files.list_directory("/data") if is_directory]


def test_more_topics_at_once_than_a_system_call_takes_pieces(tmp_path: Path) -> None:
    """1,500 lines of the registry went to one call, which takes 1,024: none of the topics was made."""
    manager = LogManager.open(DiskFiles(fsync=False), str(tmp_path), now_ms=NOW_MS, hosts=lambda _: False)
    manager.create_topics([NewTopic(f"t{number}", 1) for number in range(1_500)], now_ms=NOW_MS)
    manager.close(orderly=False)
    manager = LogManager.open(DiskFiles(fsync=False), str(tmp_path), now_ms=NOW_MS, hosts=lambda _: False)
    assert len(manager.topics) == 1_500
    manager.close()


def test_creating_topics_one_by_one_is_linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs the registry one line and two syncs, the thousandth as the first."""
    files, sizes, syncs = MemoryFiles(), [], []
    manager = open_manager(files)
    write, sync = MemoryLogFile._write_at, MemoryLogFile._sync

    def written(file: MemoryLogFile, buffers: Sequence[Buffer], position: int) -> int:
        sizes.append(sum(map(len, buffers)))
        return write(file, buffers, position)

    monkeypatch.setattr(MemoryLogFile, "_write_at", written)
    monkeypatch.setattr(MemoryLogFile, "_sync", lambda file: (syncs.append(file.path), sync(file))[1])
    monkeypatch.setattr(TopicRegistry, "_replace", guard("the registry is written whole"))
    costs = []
    for number in range(300):
        manager.create_topic(f"topic-{number:04d}", 1, now_ms=NOW_MS)
        costs.append((sum(sizes), len(syncs)))
        sizes.clear()
        syncs.clear()
    assert set(costs[1:]) == {costs[1]}
    assert costs[1][1] == 1


def test_half_written_replacements_are_removed() -> None:
    """In a partition's directory; foreign files stay."""
    files = MemoryFiles()
    open_log(files).close()
    ours = ["partition.metadata.tmp", "leader-epoch-checkpoint.tmp", f"{7:020d}.snapshot.tmp"]
    for name in (*ours, "notes.tmp"):
        files.write_atomic(f"/data/t-0/{name}", b"half")
    open_log(files)
    left = {name for name, _ in files.list_directory("/data/t-0")}
    assert not left & set(ours)
    assert "notes.tmp" in left
