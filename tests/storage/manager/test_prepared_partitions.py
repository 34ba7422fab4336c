"""Partitions that are made before their topic has them: a topic is whole or not there, whatever happens."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import attrs
import pytest
from support.running.fault_points import FaultPoints
from support.storage.failing_directory import FailingDirectory
from support.storage.logs import NOW_MS, batch, values_of

from splashdam.model.broker_errors import (
    KafkaStorageError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.identity import REGISTRY_NAME
from splashdam.storage.directories.partition_metadata import new_uuid
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.manager.topic_registry import NewTopic, Topic

ROOT = "/data"
SECOND = "/second"
PARTITIONS = 30


def open_manager(files: MemoryFiles, *log_dirs: str) -> LogManager:
    return LogManager.open(files, ROOT, now_ms=NOW_MS, log_dirs=log_dirs)


def directories(files: MemoryFiles, root: str = ROOT) -> list[str]:
    return [name for name, is_directory in files.list_directory(root) if is_directory]


def make(manager: LogManager, name: str = "large", first: int = 0) -> Iterator[int]:
    """Prepares a topic, or its partitions from ``first`` on, then lets it have them."""
    known = manager.topics.get(name)
    topic = Topic(name, new_uuid() if known is None else known.topic_id, tuple(range(PARTITIONS)))
    coming = yield from manager.prepare(topic, range(first, PARTITIONS), now_ms=NOW_MS)
    try:
        if known is None:
            new = NewTopic(name, PARTITIONS, topic_id=topic.topic_id)
            assert manager.create_topics([new], now_ms=NOW_MS) == [topic.topic_id]
        else:
            manager.change_topics(attrs.evolve(known, partitions=topic.partitions), now_ms=NOW_MS)
    finally:
        manager.give_up(coming)


def all_of(steps: Iterator[int]) -> list[int]:
    return list(steps)


def check_whole_or_not_there(manager: LogManager, files: MemoryFiles, kept: int) -> None:
    """``large`` has ``kept`` partitions or all, with a log and a directory each; nothing else is there."""
    topic = manager.topics.get("large")
    numbers = () if topic is None else topic.partitions
    assert numbers in (tuple(range(kept)), tuple(range(PARTITIONS)))
    assert set(manager.logs) == {TopicPartition("large", number) for number in numbers}
    assert directories(files) == sorted(map(str, manager.logs))


def test_prepared_partitions_are_invisible_before_all_exist() -> None:
    """No step makes more than twelve, and the registry has the topic in one change."""
    files = MemoryFiles()
    manager = open_manager(files)
    made = 0
    for count in make(manager):
        assert count <= 12
        made = len(directories(files))
        assert not manager.topics
        assert not manager.logs
    assert made == PARTITIONS
    check_whole_or_not_there(manager, files, 0)
    assert not manager.prepared
    assert not manager.registry.resources
    manager.logs[TopicPartition("large", 29)].append_as_leader(batch(b"v"), now_ms=NOW_MS)
    manager.close()
    again = open_manager(files)
    assert values_of(again.logs[TopicPartition("large", 29)]) == [b"v"]
    check_whole_or_not_there(again, files, 0)


@pytest.mark.parametrize("kept", [0, 7])
@pytest.mark.parametrize(
    "end",
    [MemoryFiles.kill, lambda files: files.crash(Random(7)), MemoryFiles.crash],
    ids=["killed", "some of it lost", "all of it lost"],
)
def test_ended_in_the_middle(
    end: Callable[[MemoryFiles], None], kept: int, fault_points: FaultPoints
) -> None:
    """At every operation of the disk; the name can be used after that."""
    for operation in fault_points.of(range(0, 3000, 5)):
        files = MemoryFiles()
        manager = open_manager(files)
        if kept:
            manager.create_topic("large", kept, now_ms=NOW_MS)
            manager.logs[TopicPartition("large", 0)].append_as_leader(batch(b"kept"), now_ms=NOW_MS)
            manager.logs[TopicPartition("large", 0)].flush()
            manager.checkpoints.write_recovery_points(manager.logs)
        files.inject(Fault(None, after=operation))
        begun, is_whole = files.operations, False
        with suppress(PowerCutError):
            all_of(make(manager, first=kept))
            is_whole = True
        if files.operations - begun <= operation:
            assert operation > 100
            return
        end(files)
        manager = open_manager(files)
        check_whole_or_not_there(manager, files, kept)
        assert not is_whole or len(manager.logs) == PARTITIONS
        assert not manager.registry.resources
        if kept:
            assert values_of(manager.logs[TopicPartition("large", 0)]) == [b"kept"]
        elif not manager.topics:
            all_of(make(manager))
            assert len(manager.logs) == PARTITIONS
        manager.close()
    raise AssertionError("the workload has more operations than were tried")


@pytest.mark.parametrize("kept", [0, 7])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("times", [1, None])
def test_the_disk_refuses(error: int, times: int | None, kept: int, fault_points: FaultPoints) -> None:
    """Nothing of them is left once the disk is well again, in this life and in the next one."""
    refused = 0
    for operation in fault_points.of(range(0, 3000, 7)):
        files = MemoryFiles()
        manager = open_manager(files)
        if kept:
            manager.create_topic("large", kept, now_ms=NOW_MS)
        files.inject(Fault(error, after=operation, times=times))
        begun = files.operations
        is_refused = False
        try:
            all_of(make(manager, first=kept))
        except KafkaStorageError:
            is_refused = True
            refused += 1
        if files.operations - begun <= operation:
            assert refused * fault_points.apart > 15
            return
        files.heal()
        deque(manager.removals.steps(), maxlen=0)
        if manager.removals.has_unfinished_work:
            manager.removals.retry()
        assert is_refused == (len(manager.logs) != PARTITIONS)
        check_whole_or_not_there(manager, files, kept)
        files.kill()
        manager = open_manager(files)
        check_whole_or_not_there(manager, files, kept)
        assert not manager.registry.resources
    raise AssertionError("the workload has more operations than were tried")


def test_the_name_is_taken_meanwhile() -> None:
    """Given up, it is free at once: what there is of it goes first."""
    files = MemoryFiles()
    manager = open_manager(files)
    steps = make(manager)
    for _ in range(3):
        next(steps)
    with pytest.raises(RequestTimedOutError, match="'large' are being created or removed"):
        manager.create_topic("large", 1, now_ms=NOW_MS)
    steps.close()
    assert manager.is_busy("large")
    with pytest.raises(RequestTimedOutError, match="being created or removed"):
        manager.create_topic("large", 1, now_ms=NOW_MS)
    deque(manager.removals.steps(), maxlen=0)
    manager.create_topic("large", 1, now_ms=NOW_MS)
    assert directories(files) == ["large-0"]
    assert not manager.registry.resources


def test_a_small_extension_does_not_take_given_up_partitions() -> None:
    """The removal once took the directories of its logs, with acknowledged records."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("large", 2, now_ms=NOW_MS)
    steps = make(manager, first=2)
    for _ in range(4):
        next(steps)
    steps.close()
    small = attrs.evolve(manager.topics["large"], partitions=tuple(range(5)))
    with pytest.raises(RequestTimedOutError):
        manager.change_topics(small, now_ms=NOW_MS)
    deque(manager.removals.steps(), maxlen=0)
    manager.change_topics(small, now_ms=NOW_MS)
    assert directories(files) == sorted(map(str, manager.logs))
    assert len(manager.logs) == 5


def test_partitions_are_made_for_one_topic_alone() -> None:
    """Another one of its name, or with other numbers, does not get them."""
    files = MemoryFiles()
    manager = open_manager(files)
    topic = Topic("large", new_uuid(), tuple(range(PARTITIONS)))
    prepared = manager.prepare(topic, topic.partitions, now_ms=NOW_MS)
    all_of(prepared)
    for partitions, topic_id in ((PARTITIONS, new_uuid()), (PARTITIONS - 1, topic.topic_id)):
        with pytest.raises(RequestTimedOutError):
            manager.create_topics([NewTopic("large", partitions, topic_id=topic_id)], now_ms=NOW_MS)
    assert not manager.topics
    manager.create_topics([NewTopic("large", PARTITIONS, topic_id=topic.topic_id)], now_ms=NOW_MS)
    check_whole_or_not_there(manager, files, 0)


def test_leftovers_of_a_removal_do_not_fail_the_next_start() -> None:
    """A later making of the same topic wrote over the note of the first one."""
    files = MemoryFiles()
    manager = open_manager(files)
    steps = make(manager)
    all_of_first = [next(steps) for _ in range(4)]
    assert all_of_first
    left = len(directories(files))
    files.inject(Fault(errno.EACCES, times=None))
    steps.close()
    deque(manager.removals.steps(), maxlen=0)
    files.heal()
    assert len(directories(files)) == left
    all_of(make(manager, "other"))
    files.kill()
    manager = open_manager(files)
    assert set(manager.topics) == {"other"}
    assert directories(files) == sorted(map(str, manager.logs))
    assert not manager.registry.resources


def test_a_deleted_topic_gets_no_more() -> None:
    """Its extension ends with the next step."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("large", 2, now_ms=NOW_MS)
    steps = make(manager, first=2)
    for _ in range(3):
        next(steps)
    manager.delete_topic("large")
    with pytest.raises(UnknownTopicOrPartitionError, match="deleted meanwhile"):
        next(steps)
    deque(manager.removals.steps(), maxlen=0)
    manager.removals.retry()
    assert directories(files) == []


def test_a_topic_with_gaps_gets_those_that_it_lacks() -> None:
    """One that was taken over from a cluster."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("large", 6, now_ms=NOW_MS)
    manager.close()
    for number in (1, 3, 4):
        files.remove_tree(f"{ROOT}/large-{number}")
    files.unlink(f"{ROOT}/{REGISTRY_NAME}")
    manager = open_manager(files)
    known = manager.topics["large"]
    assert known.partitions == (0, 2, 5)
    longer = attrs.evolve(known, partitions=tuple(range(PARTITIONS)))
    lacking = [number for number in longer.partitions if number not in known.partitions]
    all_of(manager.prepare(longer, lacking, now_ms=NOW_MS))
    manager.change_topics(longer, now_ms=NOW_MS)
    check_whole_or_not_there(manager, files, 0)


def test_left_in_order_in_the_middle() -> None:
    """The next start removes what there is."""
    files = MemoryFiles()
    manager = open_manager(files)
    steps = make(manager)
    for _ in range(3):
        next(steps)
    assert manager.close() is None
    steps.close()
    assert directories(files)
    manager = open_manager(files)
    check_whole_or_not_there(manager, files, 0)
    assert not manager.topics


def test_a_directory_that_is_taken_stays() -> None:
    """It is looked at before anything is noted or made."""
    files = MemoryFiles()
    manager = open_manager(files)
    files.make_directory(f"{ROOT}/large-29")
    files.write_atomic(f"{ROOT}/large-29/mine", b"!")
    with pytest.raises(KafkaStorageError, match="move it away"):
        all_of(make(manager))
    deque(manager.removals.steps(), maxlen=0)
    assert directories(files) == ["large-29"]
    files.kill()
    open_manager(files)
    assert files.read_bytes(f"{ROOT}/large-29/mine") == b"!"


def test_its_directory_fails_meanwhile() -> None:
    """The topic is refused; what is left in that directory goes when it is seen again."""
    files = FailingDirectory()
    manager = open_manager(files, ROOT, SECOND)
    steps = make(manager)
    for _ in range(4):
        next(steps)
    files.broken = SECOND
    with pytest.raises(KafkaStorageError):
        all_of(steps)
    deque(manager.removals.steps(), maxlen=0)
    assert not manager.topics
    files.broken = ""
    assert directories(files, SECOND)
    files.kill()
    again = open_manager(files, ROOT, SECOND)
    assert (dict(again.topics), dict(again.logs)) == ({}, {})
    assert directories(files) == directories(files, SECOND) == []


def test_a_note_that_makes_no_sense() -> None:
    """The start says so, and names the file."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.registry.put_resources({("coming-partitions", "1"): {"topic": "t", "first": "no number"}})
    manager.close()
    with pytest.raises(KafkaStorageError, match=REGISTRY_NAME):
        open_manager(files)


def test_a_large_topic_goes_in_steps() -> None:
    """Its name is used again in the middle: the rest of it goes first."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("large", 100, now_ms=NOW_MS)
    manager.delete_topics(["large"])
    assert (dict(manager.topics), dict(manager.logs)) == ({}, {})
    assert len(directories(files)) == 100
    steps = manager.removals.steps()
    assert next(steps) <= 12
    manager.free_names()  # is the housekeeping's now
    assert manager.registry.deleting == {"large"}
    manager.create_topic("large", 2, now_ms=NOW_MS)
    assert all_of(steps) == []
    assert directories(files) == ["large-0", "large-1"]
    assert not manager.removals.has_unfinished_work


def test_a_small_deletion_does_not_finish_a_large_one() -> None:
    """Not in one step: the rest is left to the housekeeping, or to a request that comes back for it."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topics([NewTopic("large", 100), NewTopic("small", 1)], now_ms=NOW_MS)
    manager.delete_topics(["large"])
    manager.delete_topics(["small"])
    assert len(directories(files)) == 101
    manager.free_names()
    assert len(directories(files)) == 101
    assert manager.is_busy("small")
    all_of(manager.removals.steps())
    manager.free_names()
    assert directories(files) == []
    assert not manager.is_busy("small")
