"""A data directory as a whole: topics made and removed, restarts, housekeeping, crashes in between."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from support.running.alone import files_open_below
from support.storage.logs import NOW_MS, batch, values_of

from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidTopicError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from splashdam.model.errors import IllegalStateError, KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.storage.manager.log_manager import LogManager

ROOT = "/data"
A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)


def open_manager(files: MemoryFiles) -> LogManager:
    return LogManager.open(files, ROOT, now_ms=NOW_MS)


def append(manager: LogManager, topic_partition: TopicPartition, value: bytes) -> None:
    manager.logs[topic_partition].append_as_leader(batch(value), now_ms=NOW_MS)


def names(files: MemoryFiles, path: str = ROOT) -> list[str]:
    return [name for name, _ in files.list_directory(path)]


# --- topics -------------------------------------------------------------------------------------------------


def test_a_topic_comes_back_after_a_restart() -> None:
    """Id, partitions, options and records; the directory's identity too."""
    files = MemoryFiles()
    manager = open_manager(files)
    topic_id = manager.create_topic("a", 3, {"segment.bytes": "1000"}, now_ms=NOW_MS)
    append(manager, TopicPartition("a", 2), b"x")
    identity = manager.identity
    manager.close()
    manager = open_manager(files)
    topic = manager.topics["a"]
    assert (topic.topic_id, topic.partitions, dict(topic.configs)) == (
        topic_id,
        (0, 1, 2),
        {"segment.bytes": "1000"},
    )
    assert manager.logs[A0].settings.segment_bytes == 1000
    assert values_of(manager.logs[TopicPartition("a", 2)]) == [b"x"]
    assert manager.identity == identity
    assert {log.topic_id for log in manager.logs.values()} == {topic_id}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a" * 250, "a\n", "-" * 249 + "/"])
def test_illegal_names_are_refused(name: str) -> None:
    """As Kafka refuses them."""
    manager = open_manager(MemoryFiles())
    with pytest.raises(InvalidTopicError):
        manager.create_topic(name, 1, now_ms=NOW_MS)
    assert not manager.topics


@pytest.mark.parametrize("name", ["a", "-", "_", "a.b-c_D9", "...", "x-1", "a" * 249])
def test_legal_names_are_accepted_and_survive(name: str) -> None:
    """Even those that look like partition directories."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic(name, 1, now_ms=NOW_MS)
    append(manager, TopicPartition(name, 0), b"x")
    manager.close()
    assert values_of(open_manager(files).logs[TopicPartition(name, 0)]) == [b"x"]


def test_names_that_differ_in_dot_and_underscore_collide() -> None:
    """Kafka's metrics could not tell them apart."""
    manager = open_manager(MemoryFiles())
    manager.create_topic("a.b_c", 1, now_ms=NOW_MS)
    with pytest.raises(InvalidTopicError, match=r"'a_b\.c' collides with 'a\.b_c'"):
        manager.create_topic("a_b.c", 1, now_ms=NOW_MS)


def test_other_refusals_of_a_creation() -> None:
    """An existing name, no partitions, unknown options; nothing is left of the attempt."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    before = names(files)
    with pytest.raises(TopicAlreadyExistsError):
        manager.create_topic("a", 1, now_ms=NOW_MS)
    with pytest.raises(BrokerResponseError) as caught:
        manager.create_topic("b", 0, now_ms=NOW_MS)
    assert caught.value.code == ErrorCode.INVALID_PARTITIONS
    with pytest.raises(KafkaConfigurationError, match=r"segment\.bytes"):
        manager.create_topic("b", 1, {"segment.bites": "1"}, now_ms=NOW_MS)
    assert names(files) == before


def test_a_deleted_topic_is_gone_and_its_name_is_free() -> None:
    """The new topic has a new id and starts at offset 0, also after a crash right away."""
    files = MemoryFiles()
    manager = open_manager(files)
    first = manager.create_topic("a", 2, now_ms=NOW_MS)
    manager.create_topic("b", 1, now_ms=NOW_MS)
    append(manager, A0, b"old")
    append(manager, B0, b"other")
    log = manager.logs[A0]
    manager.checkpoints.write_recovery_points(manager.logs)
    piece = log.read(0, 1000)
    manager.delete_topic("a")
    assert piece.read()
    with pytest.raises(IllegalStateError):
        log.read(0, 1000)
    with pytest.raises(UnknownTopicOrPartitionError):
        manager.delete_topic("a")
    assert [name for name in names(files) if name.startswith("a")] == []
    second = manager.create_topic("a", 1, now_ms=NOW_MS)
    assert second != first
    append(manager, A0, b"new")
    files.kill()
    manager = open_manager(files)
    assert sorted(map(str, manager.logs)) == ["a-0", "b-0"]
    assert values_of(manager.logs[A0]) == [b"new"]
    assert values_of(manager.logs[B0]) == [b"other"]


def directories(files: MemoryFiles) -> list[str]:
    return [name for name, is_directory in files.list_directory(ROOT) if is_directory]


@pytest.mark.parametrize("times", [1, 3, None])
def test_the_disk_refuses_while_a_topic_is_made(times: int | None) -> None:
    """At any operation: an error, no such topic; with room again the next attempt succeeds and lasts."""
    for operation in range(60):
        files = MemoryFiles()
        manager = open_manager(files)
        manager.create_topic("b", 1, now_ms=NOW_MS)
        files.inject(Fault(errno.ENOSPC, after=operation, times=times))
        try:
            manager.create_topic("a", 2, now_ms=NOW_MS)
        except KafkaStorageError:
            assert set(manager.topics) == {"b"}
            assert set(manager.logs) == {B0}
            if times == 1:
                assert directories(files) == ["b-0"]
            files.heal()
            manager.create_topic("a", 2, now_ms=NOW_MS)
        else:
            assert operation > 15
            return
        append(manager, A0, b"x")
        files.kill()
        manager = open_manager(files)
        assert set(manager.topics) == {"a", "b"}
        assert values_of(manager.logs[A0]) == [b"x"]
    raise AssertionError("the workload has more operations than were tried")


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("times", [1, None])
def test_the_disk_refuses_while_a_topic_is_deleted(times: int | None, restart: bool) -> None:
    """The topic is still whole, or it is gone for good; a new one of its name is never mistaken for it."""
    for operation in range(60):
        files = MemoryFiles()
        manager = open_manager(files)
        manager.create_topic("a", 2, now_ms=NOW_MS)
        append(manager, A0, b"old")
        manager.checkpoints.write_recovery_points(manager.logs)
        files.inject(Fault(errno.EIO, after=operation, times=times))
        begun = files.operations
        is_deleted = True
        try:
            manager.delete_topic("a")
        except KafkaStorageError:
            is_deleted = False
        if files.operations - begun <= operation:  # nothing has failed
            assert operation > 8
            return
        files.heal()
        if restart:
            files.kill()
            manager = open_manager(files)
        if "a" in manager.topics:
            assert not is_deleted
            assert values_of(manager.logs[A0]) == [b"old"]
            manager.delete_topic("a")
        manager.create_topic("a", 2, now_ms=NOW_MS)
        append(manager, A0, b"new")
        files.kill()
        manager = open_manager(files)
        assert values_of(manager.logs[A0]) == [b"new"]
        assert directories(files) == ["a-0", "a-1"]
    raise AssertionError("the workload has more operations than were tried")


def test_a_topic_could_not_be_deleted_on_a_full_disk() -> None:
    """To delete one is how room is made: it is gone at once, with its files, and stays so."""
    files = MemoryFiles()
    manager = open_manager(files)
    for name in ("a", "b"):
        manager.create_topic(name, 1, now_ms=NOW_MS)
    for _ in range(5):
        append(manager, A0, b"." * 1_000)
    append(manager, B0, b"kept")
    full_bytes = files.capacity_bytes = files.used_bytes
    manager.delete_topic("a")
    assert files.used_bytes < full_bytes - 4_000
    assert directories(files) == ["b-0"]
    files.capacity_bytes = None
    files.kill()
    manager = open_manager(files)
    assert list(manager.topics) == ["b"]
    assert values_of(manager.logs[B0]) == [b"kept"]


@pytest.mark.parametrize("last_change", ["created", "deleted"])
def test_a_directory_did_not_open_on_a_full_disk(last_change: str) -> None:
    """Changes of topics are gathered in one file once there is room; what was deleted makes room first."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    append(manager, A0, b"." * 5_000)
    if last_change == "deleted":
        files.inject(Fault(errno.ENOSPC, after=2, times=None))  # when it is on disk that the topic goes
        manager.delete_topic("a")
        files.heal()
        assert directories(files) == ["a-0"]
    files.kill()
    files.capacity_bytes = files.used_bytes
    manager = open_manager(files)
    assert list(manager.topics) == (["a"] if last_change == "created" else [])
    assert directories(files) == (["a-0"] if last_change == "created" else [])


def work(files: MemoryFiles, done: list[str]) -> None:
    """Makes topics, writes, removes one; ``done`` says how far it came."""
    manager = open_manager(files)
    done.append("opened")
    manager.create_topic("a", 2, now_ms=NOW_MS)
    done.append("a made")
    append(manager, A0, b"a0")
    manager.logs[A0].flush()
    done.append("a written")
    manager.create_topic("b", 2, now_ms=NOW_MS)
    append(manager, B0, b"b0")
    done.append("b written")
    manager.delete_topic("a")
    done.append("a removed")
    manager.close()
    done.append("closed")


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
def test_ended_in_the_middle_of_any_operation(power_cut: bool) -> None:
    """The next start needs no hand: topics are there whole or not at all, what was made safe is there."""
    files, done = MemoryFiles(), []
    work(files, done)
    total = files.operations
    for operation in range(total):
        files, done = MemoryFiles(), []
        files.inject(Fault(None, after=operation, landed_bytes=5))
        with pytest.raises(PowerCutError):
            work(files, done)
        files.crash() if power_cut else files.kill()
        manager = open_manager(files)
        for topic in manager.topics.values():
            assert topic.partitions == (0, 1)
            assert all(TopicPartition(topic.name, number) in manager.logs for number in topic.partitions)
        if "a made" in done and "b written" not in done:
            assert "a" in manager.topics
        if "a written" in done and "b written" not in done:
            assert values_of(manager.logs[A0]) == [b"a0"]
        if "b written" in done and not power_cut:
            assert values_of(manager.logs[B0]) == [b"b0"]
        if "a removed" in done:
            assert set(manager.topics) == {"b"}
        for name in {"a", "b"} - set(manager.topics):
            manager.create_topic(name, 2, now_ms=NOW_MS)
        manager.close()
        assert set(open_manager(files).topics) == {"a", "b"}


# --- start and end ------------------------------------------------------------------------------------------


def test_a_clean_end_leaves_the_marker_and_the_checkpoints() -> None:
    """In Kafka's formats; the marker goes with the next start."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    append(manager, A0, b"x")
    manager.close()
    manager.close()
    assert files.read_bytes(f"{ROOT}/recovery-point-offset-checkpoint") == b"0\n1\na 0 1\n"
    assert files.read_bytes(f"{ROOT}/replication-offset-checkpoint") == b"0\n1\na 0 1\n"
    assert files.read_bytes(f"{ROOT}/log-start-offset-checkpoint") == b"0\n0\n"
    assert files.read_bytes(f"{ROOT}/.kafka_cleanshutdown") is not None
    open_manager(files)
    assert files.read_bytes(f"{ROOT}/.kafka_cleanshutdown") is None


def test_a_log_that_cannot_be_closed_leaves_no_marker(caplog: pytest.LogCaptureFixture) -> None:
    """The others are closed all the same, the lock is free, and the next start recovers."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    append(manager, A0, b"x")
    files.inject(Fault(errno.EIO, times=None))
    manager.close()
    files.heal()
    assert "closing the log of a-0" in caplog.text
    assert files.read_bytes(f"{ROOT}/.kafka_cleanshutdown") is None
    assert values_of(open_manager(files).logs[A0]) == [b"x"]


def test_the_log_start_survives_a_restart() -> None:
    """Through its checkpoint, where it lies inside the first segment."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    for value in (b"0", b"1", b"2"):
        append(manager, A0, value)
    assert manager.logs[A0].advance_log_start(2) == 2
    manager.close()
    assert files.read_bytes(f"{ROOT}/log-start-offset-checkpoint") == b"0\n1\na 0 2\n"
    log = open_manager(files).logs[A0]
    assert (log.log_start_offset, values_of(log)) == (2, [b"2"])


def test_a_failed_start_frees_the_directory() -> None:
    """The next one may try again."""
    files = MemoryFiles()
    open_manager(files).close()
    files.write_atomic(f"{ROOT}/meta.properties", b"nonsense")
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match=r"meta\.properties"):
            open_manager(files)


def test_a_failed_start_gives_every_file_back(tmp_path: Path) -> None:
    """Logs that were open already when another could not be opened are closed."""
    root = tmp_path / "data"
    manager = LogManager.open(DiskFiles(), str(root), now_ms=NOW_MS)
    manager.create_topic("a", 3, now_ms=NOW_MS)
    manager.close()
    (root / "a-2" / "x.log").touch()
    with pytest.raises(KafkaStorageError, match=r"x\.log is no file of a log"):
        LogManager.open(DiskFiles(), str(root), now_ms=NOW_MS)
    assert files_open_below(tmp_path) == []


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b'{"version": 2}', b'{"version": 1, "topics": {"a": 1}, "deleting": []}']
)
def test_a_damaged_registry_of_topics_is_an_error(data: bytes) -> None:
    """To go on would forget the topics' options."""
    files = MemoryFiles()
    open_manager(files).close()
    files.write_atomic(f"{ROOT}/splashdam-topics.json", data)
    with pytest.raises(KafkaStorageError, match=r"splashdam-topics\.json"):
        open_manager(files)


def test_partitions_of_one_topic_with_different_ids_are_an_error() -> None:
    """Directories of two clusters were mixed."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 2, now_ms=NOW_MS)
    manager.close()
    files.write_atomic(f"{ROOT}/a-1/partition.metadata", b"version: 0\ntopic_id: StFlzgWJQLaSZk3q7GHfkA")
    with pytest.raises(KafkaStorageError, match=r"a-1 belongs to another topic 'a'"):
        open_manager(files)


def test_other_directories_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """With a warning where a name is no partition's or nothing of a log is inside; what is deleted goes."""
    files = MemoryFiles()
    open_manager(files).close()
    moved = [f"x-0.{'0f' * 16}-{ending}" for ending in ("stray", "future", "delete")]
    for name in ("lost+found", "photos-2024", *moved):
        files.make_directory(f"{ROOT}/{name}")
        files.write_atomic(f"{ROOT}/{name}/file", b"1")
    manager = open_manager(files)
    assert not manager.topics
    left = names(files)
    assert {"lost+found", "photos-2024", *moved[:2]} <= set(left)
    assert moved[2] not in left
    assert "lost+found is not a partition" in caplog.text
    assert "photos-2024 is not a partition" in caplog.text


def test_a_partition_without_metadata_gets_an_id() -> None:
    """A directory of .log files alone is enough."""
    files = MemoryFiles()
    manager = open_manager(files)
    manager.create_topic("a", 1, now_ms=NOW_MS)
    append(manager, A0, b"x")
    manager.close()
    for name in ("a-0/partition.metadata", "splashdam-topics.json"):
        files.unlink(f"{ROOT}/{name}")
    manager = open_manager(files)
    assert values_of(manager.logs[A0]) == [b"x"]
    assert files.size_bytes(f"{ROOT}/a-0/partition.metadata") == 43


@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EDQUOT])
def test_a_topic_that_a_full_disk_refused_stays_away_after_kill_9(error_number: int) -> None:
    """At any operation, on a disk that stays full: it was answered with 56, and once came back."""
    for operation in range(60):
        files = MemoryFiles()
        manager = open_manager(files)
        manager.create_topic("b", 1, now_ms=NOW_MS)
        files.inject(Fault(error_number, after=operation))
        try:
            manager.create_topic("a", 2, now_ms=NOW_MS)
        except KafkaStorageError:
            assert directories(files) == ["b-0"]
        else:
            assert operation > 15
            return
        files.kill()
        manager = open_manager(files)
        assert set(manager.topics) == {"b"}
        assert set(manager.logs) == {B0}


def test_a_topic_that_does_not_fit_leaves_nothing() -> None:
    """The disk has room for less and less; what is refused is gone for good, without any room."""
    refused = 0
    for room in range(0, 400, 9):
        files = MemoryFiles()
        manager = open_manager(files)
        manager.create_topic("b", 1, now_ms=NOW_MS)
        files.capacity_bytes = files.used_bytes + room
        try:
            manager.create_topic("a", 2, now_ms=NOW_MS)
        except KafkaStorageError:
            refused += 1
            files.kill()
            files.capacity_bytes = None
            assert set(open_manager(files).topics) == {"b"}
    assert refused > 5


async def test_an_undo_that_the_disk_refused_is_tried_again_when_there_is_room() -> None:
    """By the housekeeping, whether or not anybody asks for another topic."""
    tried = 0
    for operation in range(60):
        files = MemoryFiles()
        manager = open_manager(files)
        manager.create_topic("b", 1, now_ms=NOW_MS)
        files.inject(Fault(errno.EIO, after=operation, times=5))
        try:
            manager.create_topic("a", 2, now_ms=NOW_MS)
        except KafkaStorageError:
            tried += manager.registry.has_unfinished_work
            files.heal()
            await manager.step(10_000, NOW_MS)
            assert not manager.registry.has_unfinished_work
        else:
            break
        files.kill()
        assert set(open_manager(files).topics) == {"b"}
    assert tried > 5
