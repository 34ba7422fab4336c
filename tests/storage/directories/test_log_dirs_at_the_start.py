"""Data directories that are found at a start as nobody expects them."""

from __future__ import annotations

import pytest
from support.storage.failing_directory import FailingDirectory
from support.storage.logs import NOW_MS

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.manager.log_manager import LogManager

HOME, SECOND, THIRD = "/home", "/second", "/third"


def manager_of(files: MemoryFiles, *log_dirs: str) -> LogManager:
    return LogManager.open(files, HOME, now_ms=NOW_MS, log_dirs=log_dirs)


def test_directories_in_the_home_were_warned_of_at_each_start(caplog: pytest.LogCaptureFixture) -> None:
    """Those of log.dirs are known, however they are called; others are still told."""
    files = MemoryFiles()
    log_dirs = (f"{HOME}/a", f"{HOME}/disk-1", f"{HOME}/disks/b")
    manager = manager_of(files, *log_dirs)
    manager.create_topic("t", 3, now_ms=NOW_MS)
    manager.create_topic("u", 3, now_ms=NOW_MS)
    manager.delete_topic("u")
    manager.close()
    manager = manager_of(files, *log_dirs)
    assert set(manager.logs) == {TopicPartition("t", number) for number in range(3)}
    assert not caplog.messages
    manager.close()
    files.make_directory(f"{HOME}/mine")
    manager_of(files, *log_dirs)
    assert caplog.messages == [f"{HOME}/mine is not a partition of a topic; ignoring it"]


def test_a_broker_whose_only_log_dir_failed_started_and_took_nothing() -> None:
    """It refuses, and says which; with another one that works it starts. The locks are given back."""
    files = FailingDirectory()
    files.broken = SECOND
    with pytest.raises(KafkaStorageError, match=rf"no directory of log.dirs can be used: {SECOND}: .*"):
        manager_of(files, SECOND)
    manager = manager_of(files, SECOND, THIRD)
    assert [each.root for each in manager.directories.online] == [HOME, THIRD]
