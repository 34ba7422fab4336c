"""Many topics deleted: what that costs, and what is left of them whenever it is interrupted."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random

import attrs
import pytest
from support.running.fault_points import FaultPoints
from support.running.patches import guard
from support.storage.failing_directory import FailingDirectory
from support.storage.logs import NOW_MS, batch, values_of

from splashdam.model.broker_errors import KafkaStorageError, UnknownTopicOrPartitionError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories import checkpoints
from splashdam.storage.directories.checkpoints import RECOVERY_POINT_NAME, OffsetCheckpoint
from splashdam.storage.files.memory import Fault, MemoryFiles, MemoryLogFile, PowerCutError
from splashdam.storage.manager import deletions, log_manager
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.manager.topic_registry import NewTopic

ROOT = "/data"


def open_manager(files: MemoryFiles, *topics: str, partitions: int = 2) -> LogManager:
    """With topics that have a record in each partition, all of it safe."""
    manager = LogManager.open(files, ROOT, now_ms=NOW_MS)
    if topics:
        manager.create_topics([NewTopic(name, partitions) for name in topics], now_ms=NOW_MS)
    for topic_partition, log in manager.logs.items():
        if topic_partition.topic in topics:
            log.append_as_leader(batch(topic_partition.topic.encode()), now_ms=NOW_MS)
            log.flush()
    manager.checkpoints.write_recovery_points(manager.logs)
    return manager


def directories(files: MemoryFiles) -> list[str]:
    return [name for name, is_directory in files.list_directory(ROOT) if is_directory]


def names(count: int, beginning: str = "t") -> list[str]:
    return [f"{beginning}{number}" for number in range(count)]


def test_a_deletion_looked_at_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 topics beside 300: 517,000 looks at directories, and 640,000 lines of checkpoints read."""
    files = MemoryFiles()
    manager = open_manager(files, *names(20), *names(20, "other"))
    manager.delete_topic("t0")
    looked: list[str] = []
    is_link = files.is_link
    monkeypatch.setattr(files, "is_link", lambda path: (looked.append(path), is_link(path))[1])
    monkeypatch.setattr(deletions, "find_partitions", guard("the whole directory is looked at"))
    monkeypatch.setattr(deletions, "remove_deleted", guard("the whole directory is looked at"))
    monkeypatch.setattr(checkpoints, "parse_entry", guard("a checkpoint is read"))
    for name in names(20)[1:]:
        manager.delete_topic(name)
    assert len(looked) == 19 * 2
    assert directories(files) == sorted(
        f"{name}-{number}" for name in names(20, "other") for number in (0, 1)
    )


def test_deletions_together_share_their_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for the registry and one for the directory, however many; names cost one more of everything."""
    files, synced = MemoryFiles(), []
    manager = open_manager(files, *names(10), "other")
    sync, sync_directory = MemoryLogFile._sync, files.sync_directory
    monkeypatch.setattr(MemoryLogFile, "_sync", lambda file: (synced.append(file.path), sync(file))[1])
    monkeypatch.setattr(files, "sync_directory", lambda path: (synced.append(path), sync_directory(path))[1])
    manager.delete_topics(names(5))
    assert synced == [f"{ROOT}/splashdam-topics.changes", ROOT]
    assert manager.registry.deleting == set(names(5))
    manager.delete_topics(names(10)[5:])
    written: list[str] = []
    write = files.write_atomic
    monkeypatch.setattr(
        files, "write_atomic", lambda path, data: (written.append(path), write(path, data))[1]
    )
    manager.free_names()
    assert written == [f"{ROOT}/{RECOVERY_POINT_NAME}"]
    assert not manager.registry.has_unfinished_work
    assert directories(files) == ["other-0", "other-1"]
    manager.free_names()
    assert len(written) == 1


def test_one_of_several_is_unknown() -> None:
    """Nothing has changed."""
    manager = open_manager(MemoryFiles(), "a")
    with pytest.raises(UnknownTopicOrPartitionError):
        manager.delete_topics(["a", "b"])
    assert len(manager.logs) == 2


def test_a_name_is_used_before_it_was_freed() -> None:
    """The new topic finds nothing of the one before, neither files nor checkpoints."""
    files = MemoryFiles()
    manager = open_manager(files, "a", "b")
    manager.delete_topics(["a", "b"])
    manager.create_topic("a", 1, now_ms=NOW_MS)
    assert not manager.registry.deleting
    assert not OffsetCheckpoint(files, f"{ROOT}/{RECOVERY_POINT_NAME}").read()
    files.kill()
    manager = open_manager(files)
    assert values_of(manager.logs[TopicPartition("a", 0)]) == []
    assert directories(files) == ["a-0"]


def delete_some(manager: LogManager, deleted: list[str]) -> None:
    """Deletes topics in two groups; ``deleted`` says of which that could be answered."""
    for group in (["a", "b"], ["c"]):
        manager.delete_topics(group)
        deleted += group
    manager.free_names()


@pytest.mark.parametrize(
    "end",
    [MemoryFiles.kill, lambda files: files.crash(Random(7)), MemoryFiles.crash],
    ids=["killed", "some of it lost", "all of it lost"],
)
def test_ended_in_the_middle_of_deletions(
    end: Callable[[MemoryFiles], None], fault_points: FaultPoints
) -> None:
    """Topics are whole or gone, those whose deletion was answered are gone; the others stay as they were."""
    for operation in fault_points.of(range(200)):
        files, deleted = MemoryFiles(), []
        manager = open_manager(files, "a", "b", "c", "kept")
        files.inject(Fault(None, after=operation))
        begun = files.operations
        with suppress(PowerCutError):  # most of them are logged
            delete_some(manager, deleted)
        if files.operations - begun <= operation:
            assert operation > 20
            return
        end(files)
        manager = open_manager(files)
        assert not set(deleted) & set(manager.topics)
        assert not manager.registry.deleting
        assert directories(files) == sorted(map(str, manager.logs))
        for topic_partition, log in manager.logs.items():
            assert values_of(log) == [topic_partition.topic.encode()]
        assert {"kept"} <= set(manager.topics)
        for name in {"a", "b", "c"} - set(manager.topics):
            manager.create_topic(name, 2, now_ms=NOW_MS)
            assert values_of(manager.logs[TopicPartition(name, 0)]) == []
        manager.close()
    raise AssertionError("the workload has more operations than were tried")


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("times", [1, None])
def test_the_disk_refuses_some_deletions(
    error: int, times: int | None, restart: bool, fault_points: FaultPoints
) -> None:
    """All of a group are whole, or all are gone; with the disk well again nothing is left of them."""
    for operation in fault_points.of(range(200)):
        files = MemoryFiles()
        manager = open_manager(files, "a", "b", "kept")
        files.inject(Fault(error, after=operation, times=times))
        begun = files.operations
        is_refused = False
        try:
            manager.delete_topics(["a", "b"])
        except KafkaStorageError:
            is_refused = True
        manager.free_names()
        if files.operations - begun <= operation:
            assert operation > 15
            return
        files.heal()
        if restart:
            files.kill()
            manager = open_manager(files)
        assert set(manager.topics) - {"kept"} in (set(), {"a", "b"})
        assert is_refused or set(manager.topics) == {"kept"}
        if manager.registry.has_unfinished_work:
            manager.removals.retry()
        for name in {"a", "b"} - set(manager.topics):
            assert not [each for each in directories(files) if each.startswith(name)]
            manager.create_topic(name, 2, now_ms=NOW_MS)
            assert values_of(manager.logs[TopicPartition(name, 1)]) == []
        files.kill()
        manager = open_manager(files)
        assert set(manager.topics) == {"a", "b", "kept"}
        assert values_of(manager.logs[TopicPartition("kept", 1)]) == [b"kept"]
    raise AssertionError("the workload has more operations than were tried")


def test_partitions_that_could_not_be_unmade_go_with_their_topic() -> None:
    """The registry does not name them, and a start would take them for a topic."""
    left = 0
    for operation in range(40):
        files = MemoryFiles()
        manager = open_manager(files, "a")
        longer = attrs.evolve(manager.topics["a"], partitions=tuple(range(6)))
        files.inject(Fault(errno.EIO, after=operation, times=None))
        with suppress(KafkaStorageError):
            manager.change_topics(longer, now_ms=NOW_MS)
        files.heal()
        left += len(directories(files)) > len(manager.logs)
        if manager.registry.has_unfinished_work:
            manager.removals.retry()
        manager.delete_topics(["a"])
        manager.free_names()
        assert directories(files) == []
        files.kill()
        assert not open_manager(files).topics
    assert left


def test_a_checkpoint_that_may_have_been_replaced_is_read_again() -> None:
    """The names of the directory could not be synced, when the file was there already."""
    files = MemoryFiles()
    checkpoint = OffsetCheckpoint(files, "/c")
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    checkpoint.write({b: 1})
    for operation in range(10):
        files.inject(Fault(errno.EIO, after=operation))
        with suppress(KafkaStorageError):
            checkpoint.write({a: 1, b: operation + 2})
        files.heal()
        checkpoint.forget(["a"])
        assert a not in OffsetCheckpoint(files, "/c").read()
        assert b in OffsetCheckpoint(files, "/c").read()


# --- one of several data directories is offline -------------------------------------------------------------

SECOND = "/second"


def open_two(files: FailingDirectory) -> LogManager:
    return LogManager.open(files, ROOT, now_ms=NOW_MS, log_dirs=(ROOT, SECOND))


def lose_the_second(files: FailingDirectory, manager: LogManager) -> None:
    files.broken = SECOND
    with suppress(KafkaStorageError):
        manager.directories.check_exist()
    manager.offline.process_failures()


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("after", range(6))
def test_a_deletion_that_was_refused_was_carried_out_by_the_next_start(error_number: int, after: int) -> None:
    """The note about the offline directory was written, the deletion was not; all of the topic went."""
    files = FailingDirectory()
    manager = open_two(files)
    manager.create_topics([NewTopic(name, 2) for name in "ab"], now_ms=NOW_MS)
    for topic_partition, log in manager.logs.items():
        log.append_as_leader(batch(topic_partition.topic.encode()), now_ms=NOW_MS)
    lose_the_second(files, manager)
    files.inject(Fault(error_number, after=after, times=100))
    with suppress(KafkaStorageError):
        manager.delete_topics("ab")
    files.heal()
    left = sorted(manager.topics)
    files.broken = ""
    with suppress(KafkaStorageError):
        manager.close()
    files.kill()
    again = open_two(files)
    if error_number == errno.EIO and not again.topics:
        left = []  # the home has failed with it: nobody knows what of the change was written
    assert sorted(again.topics) == left
    assert {str(tp): log.log_end_offset for tp, log in again.logs.items()} == {
        f"{name}-{number}": 1 for name in left for number in (0, 1)
    }


@pytest.mark.parametrize("after", range(9))
def test_a_topic_came_back_whose_directory_failed_while_it_was_removed(after: int) -> None:
    """The others freed its name, and nobody had noted that something was left."""
    files = FailingDirectory()
    manager = open_two(files)
    manager.create_topic("a", 2, now_ms=NOW_MS)
    files.breaking, files.breaks_after = SECOND, after
    with suppress(KafkaStorageError):
        manager.delete_topic("a")
    with suppress(KafkaStorageError):
        manager.removals.retry()
    files.broken, files.breaks_after = "", None
    files.kill()
    again = open_two(files)
    assert (dict(again.topics), dict(again.logs)) == ({}, {})


def test_the_start_of_a_deleted_log_hid_records_of_a_new_topic() -> None:
    """Its directory was offline when it was deleted; the new one's first records were below that start."""
    files = FailingDirectory()
    manager = open_two(files)
    manager.create_topic("a", 2, now_ms=NOW_MS)
    for log in manager.logs.values():
        for _ in range(100):
            log.append_as_leader(batch(b"old"), now_ms=NOW_MS)
        log.flush()
        log.advance_log_start(50)
    manager.checkpoints.write_all(manager.logs)
    lose_the_second(files, manager)
    manager.delete_topic("a")
    files.broken = ""
    files.kill()
    manager = open_two(files)
    manager.create_topic("a", 2, now_ms=NOW_MS)
    for log in manager.logs.values():
        for _ in range(60):
            log.append_as_leader(batch(b"new"), now_ms=NOW_MS)
    files.kill()
    again = open_two(files)
    assert {(log.log_start_offset, log.log_end_offset) for log in again.logs.values()} == {(0, 60)}


def test_a_deletion_of_nothing_writes_nothing() -> None:
    """On a full disk it left the registry in defer_sync."""
    files = MemoryFiles()
    manager = open_manager(files, "t")
    files.inject(Fault(errno.ENOSPC, times=None))
    manager.delete_topics([])
    assert not manager.registry.has_unfinished_work


def test_the_child_of_a_fork_frees_no_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the parent's registry, and wrote at a place that was the parent's by then."""
    files = MemoryFiles()
    manager = open_manager(files, "t", "u")
    manager.delete_topics(["t"])
    with monkeypatch.context() as patched:
        patched.setattr(log_manager.os, "getpid", lambda: -1)
        files.inject(Fault(errno.EIO, times=None))  # nothing is asked of the disk
        manager.free_names()
        files.heal()
    assert manager.registry.deleting == {"t"}
    manager.free_names()
    assert not manager.registry.deleting
