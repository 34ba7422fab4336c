"""Topics and settings that change while their logs are in use."""

from __future__ import annotations

import errno
from functools import partial

import attrs
import pytest
from support.broker.broker_talk import batch
from support.storage.logs import NOW_MS

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.settings import DirectorySettings, LogSettings

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def manager_of(files: MemoryFiles) -> LogManager:
    return LogManager.open(files, "/data", now_ms=NOW_MS)


def change(manager: LogManager, partitions: int, **configs: str) -> None:
    topic = attrs.evolve(manager.topics["a"], partitions=tuple(range(partitions)), configs=configs)
    manager.change_topics(topic, now_ms=NOW_MS)


def test_more_partitions_are_there_at_once_and_after_a_crash() -> None:
    """With the topic's id; those before them keep their records."""
    files = MemoryFiles()
    manager = manager_of(files)
    topic_id = manager.create_topic("a", 1, now_ms=NOW_MS)
    manager.logs[A0].append_as_leader(batch(b"x"), now_ms=NOW_MS)
    manager.logs[A0].flush()
    change(manager, 3)
    files.crash()
    manager = manager_of(files)
    assert [str(each) for each in sorted(manager.logs)] == ["a-0", "a-1", "a-2"]
    assert {log.topic_id for log in manager.logs.values()} == {topic_id}
    assert manager.logs[A0].log_end_offset == 1


def test_partitions_that_the_disk_refuses_are_not_there() -> None:
    """They are not there after the next start either."""
    for after in range(9):
        files = MemoryFiles()
        manager = manager_of(files)
        manager.create_topic("a", 1, now_ms=NOW_MS)
        files.inject(Fault(errno.ENOSPC, after=after, times=1))
        with pytest.raises(KafkaStorageError):
            change(manager, 2)
        assert manager.topics["a"].partitions == (0,)
        assert set(manager.logs) == {A0}
        files.heal()
        manager.close()
        assert set(manager_of(files).logs) == {A0}


def test_options_apply_to_the_segment_that_is_written() -> None:
    """segment.bytes at the next batch, retention at the next look, and illegal ones never."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    log = manager.logs[A0]
    for _ in range(2):
        log.append_as_leader(batch(b"x"), now_ms=NOW_MS)
    change(manager, 1, **{"segment.bytes": "100", "flush.ms": "5"})
    assert manager.smallest_flush_ms == 5
    log.append_as_leader(batch(b"x"), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    change(manager, 1, **{"retention.bytes": "0"})
    assert log.delete_old_segments(wall_ms=NOW_MS, now_ms=0)
    with pytest.raises(KafkaConfigurationError):
        change(manager, 1, **{"retention.bytes": "x"})
    assert manager.topics["a"].configs == {"retention.bytes": "0"}
    assert log.settings.retention_bytes == 0


async def test_settings_of_the_directory_apply_to_due_work() -> None:
    """A shorter interval counts from now on, and the defaults of topics that set nothing themselves."""
    manager = manager_of(MemoryFiles())
    manager.create_topic("a", 1, {"segment.bytes": "100"}, now_ms=NOW_MS)
    before_ms = await manager.step(0, NOW_MS)
    settings = DirectorySettings(log_initial_task_delay_ms=0, replica_high_watermark_checkpoint_interval_ms=7)
    defaults = LogSettings(retention_ms=9, segment_bytes=5_000)
    manager.reconfigure(settings, defaults.with_configs)
    assert await manager.step(1, NOW_MS) <= 7 < before_ms
    log = manager.logs[A0]
    assert (log.settings.retention_ms, log.settings.segment_bytes) == (9, 100)
    with pytest.raises(KafkaConfigurationError):
        manager.reconfigure(settings, partial(_refuse, log.settings))
    assert log.settings.retention_ms == 9


def _refuse(settings: LogSettings, configs: object) -> LogSettings:
    raise KafkaConfigurationError("no")
