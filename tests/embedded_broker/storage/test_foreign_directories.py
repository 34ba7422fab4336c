"""What lies in a data directory and is not ours, and a directory that is another process's."""

from __future__ import annotations

import math
import os

import pytest
from log_kit import NOW_MS, batch

from splashdam.embedded_broker.storage.log_manager import LogManager
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.testing.memory_files import MemoryFiles

ROOT = "/data"


def open_manager(files: MemoryFiles) -> LogManager:
    return LogManager.open(files, ROOT, now_ms=NOW_MS)


def put(files: MemoryFiles, directory: str) -> str:
    """Makes a directory with a file that is nobody's log; returns the file's path."""
    files.make_directory(f"{ROOT}/{directory}")
    files.write_atomic(f"{ROOT}/{directory}/file", b"precious")
    return f"{ROOT}/{directory}/file"


@pytest.mark.parametrize(
    "name",
    [
        "to-delete",
        "x-0.abc-delete",
        f"x.{'0f' * 16}-delete",
        f"x-0.{'0F' * 16}-delete",
        f"x-0.{'0f' * 16}-delete2",
    ],
)
def test_a_start_removes_no_directory_that_is_merely_called_delete(name: str) -> None:
    """Only the whole name that a broker gives."""
    files = MemoryFiles()
    path = put(files, name)
    open_manager(files).close()
    assert files.read_bytes(path) == b"precious"


def test_a_topic_is_not_made_in_a_directory_that_holds_something() -> None:
    """Deleting it would destroy that; nothing of the attempt is left, and an empty directory is fine."""
    files = MemoryFiles()
    manager = open_manager(files)
    path = put(files, "photos-1")
    files.make_directory(f"{ROOT}/videos-0")
    with pytest.raises(KafkaStorageError, match="/data/photos-1 is there already"):
        manager.create_topic("photos", 2, now_ms=NOW_MS)
    assert not manager.topics
    assert not files.list_directory(f"{ROOT}/photos-0")
    manager.create_topic("videos", 1, now_ms=NOW_MS)
    assert files.read_bytes(path) == b"precious"


def test_a_deleted_topic_takes_no_directory_of_another_number_along() -> None:
    """photos-2024 is no partition of a topic with one partition, neither at its deletion nor at a start."""
    files = MemoryFiles()
    path = put(files, "photos-2024")
    manager = open_manager(files)
    manager.create_topic("photos", 1, now_ms=NOW_MS)
    manager.close()
    manager = open_manager(files)
    assert manager.topics["photos"].partitions == (0,)
    manager.delete_topic("photos")
    manager.close()
    open_manager(files).close()
    assert files.read_bytes(path) == b"precious"


async def test_a_forked_child_leaves_its_parents_directory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No clean-shutdown marker, no checkpoint: the parent goes on writing."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    manager.logs[TopicPartition("a", 0)].append_as_leader(batch(b"x"), now_ms=NOW_MS)
    before, pid = files.operations, os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert await manager.step(1e9, NOW_MS) == math.inf
    manager.close()
    assert files.operations == before
    monkeypatch.undo()
    manager.close()
    assert files.read_bytes(f"{ROOT}/.kafka_cleanshutdown") is not None
