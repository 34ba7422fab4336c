"""Several data directories: who lies where, what each keeps, moves between them, and one that fails."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest
from support.storage.failing_directory import FailingDirectory
from support.storage.logs import NOW_MS, batch, values_of

from splashdam.model.broker_errors import (
    CorruptMessageError,
    KafkaStorageError,
    OutOfOrderSequenceNumberError,
)
from splashdam.model.errors import IllegalStateError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.checkpoints import (
    CLEANER_OFFSET_NAME,
    HIGH_WATERMARK_NAME,
    RECOVERY_POINT_NAME,
    OffsetCheckpoint,
)
from splashdam.storage.directories.identity import load_identity
from splashdam.storage.directories.log_directories import KNOWN_NAME
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.log_files import LogFiles
from splashdam.storage.manager import moves as log_moves
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.producers.state import ProducerStates

HOME, SECOND, THIRD = "/home", "/second", "/third"
T0 = TopicPartition("t", 0)


def manager_of(files: MemoryFiles, *log_dirs: str) -> LogManager:
    """A broker's logs; its home is one of the directories unless others are named."""
    return LogManager.open(files, HOME, now_ms=NOW_MS, log_dirs=log_dirs or (HOME, SECOND, THIRD))


def where(manager: LogManager) -> dict[TopicPartition, str]:
    return {each: os.path.dirname(log.directory) for each, log in manager.logs.items()}


def fill(manager: LogManager, start: int, stop: int) -> list[bytes]:
    values = [b"%04d" % number for number in range(start, stop)]
    for value in values:
        manager.logs[T0].append_as_leader(batch(value), now_ms=NOW_MS)
    return values


async def work(manager: LogManager, turns: int = 8) -> None:
    """Housekeeping."""
    for turn in range(turns):
        await manager.step(turn * 200.0, NOW_MS + turn * 200)


def test_partitions_go_where_there_are_fewest() -> None:
    """As in Kafka, in the order of log.dirs; each directory has its own identity in the same cluster."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.create_topic("t", 4, now_ms=NOW_MS)
    assert list(where(manager).values()) == [HOME, SECOND, THIRD, HOME]
    manager.create_topic("u", 5, now_ms=NOW_MS)
    assert Counter(where(manager).values()) == {HOME: 3, SECOND: 3, THIRD: 3}
    before = where(manager)
    assert manager.close() is None
    identities = [load_identity(files, root, node_id=7) for root in (HOME, SECOND, THIRD)]
    assert len({each.directory_id for each in identities}) == 3
    assert {(each.cluster_id, each.node_id) for each in identities} == {(manager.identity.cluster_id, 1)}
    kept = OffsetCheckpoint(files, f"{SECOND}/{RECOVERY_POINT_NAME}").read()
    assert set(kept) == {each for each, root in before.items() if root == SECOND}
    assert where(manager_of(files)) == before


def test_how_far_logs_were_compacted_is_kept_where_they_lie() -> None:
    """Or with several directories every log would be compacted from its start, again and again."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.create_topic("t", 2, now_ms=NOW_MS)
    cleaned = {T0: 3, TopicPartition("t", 1): 4}
    manager.checkpoints.cleaner_offsets.write(cleaned)
    assert manager.checkpoints.cleaner_offsets.read() == cleaned
    assert manager.close() is None
    for (each, offset), root in zip(cleaned.items(), (HOME, SECOND), strict=True):
        assert OffsetCheckpoint(files, f"{root}/{CLEANER_OFFSET_NAME}").read() == {each: offset}
    assert manager_of(files).checkpoints.cleaner_offsets.read() == cleaned


def test_a_home_that_is_not_named_takes_nothing_new() -> None:
    """Its partitions stay in use."""
    files = MemoryFiles()
    manager = manager_of(files, HOME)
    manager.create_topic("t", 1, now_ms=NOW_MS)
    manager.close()
    manager = manager_of(files, SECOND)
    manager.create_topic("u", 2, now_ms=NOW_MS)
    assert Counter(where(manager).values()) == {HOME: 1, SECOND: 2}
    assert [each.is_cordoned for each in manager.directories.all] == [True, False]


def test_each_directory_is_locked() -> None:
    """Also against a broker whose home is another one; what was taken is given back."""
    files = MemoryFiles()
    manager_of(files)
    with pytest.raises(IllegalStateError, match=SECOND):
        LogManager.open(files, "/other", now_ms=NOW_MS, log_dirs=[SECOND])
    LogManager.open(files, "/other", now_ms=NOW_MS)


def test_a_directory_of_another_cluster_is_not_used() -> None:
    """It is offline; nothing is put there."""
    files = MemoryFiles()
    LogManager.open(files, SECOND, now_ms=NOW_MS).close()
    manager = manager_of(files, HOME, SECOND)
    failure = manager.directories.all[1].failure
    assert failure is not None
    assert "belongs to node" in failure.message
    manager.create_topic("t", 2, now_ms=NOW_MS)
    assert set(where(manager).values()) == {HOME}


def test_topics_are_deleted_everywhere() -> None:
    """Their names are free again."""
    files = MemoryFiles()
    manager = manager_of(files)
    for _ in range(2):
        manager.create_topic("t", 5, now_ms=NOW_MS)
        manager.delete_topic("t")
        for root in (HOME, SECOND, THIRD):
            assert not any(is_directory for _, is_directory in files.list_directory(root))


# --- moves --------------------------------------------------------------------------------------------------


def begin(manager: LogManager, root: str) -> None:
    directory = manager.directories.at(root)
    assert directory is not None
    manager.moves.begin(T0, directory, now_ms=NOW_MS)


async def test_a_log_moves_while_it_is_used() -> None:
    """With producers and epochs; readers and writers hold the same log before and after."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.create_topic("t", 1, {"segment.bytes": "1000"}, now_ms=NOW_MS)
    log = manager.logs[T0]
    sent = fill(manager, 0, 60)
    log.append_as_leader(batch(b"once", producer_id=7), now_ms=NOW_MS)
    log.begin_leader_epoch(3)
    begin(manager, SECOND)
    assert any(name.endswith("-future") for name, _ in files.list_directory(SECOND))
    sent += [b"once", *fill(manager, 60, 63)]
    await work(manager)
    assert where(manager) == {T0: SECOND}
    assert manager.logs[T0] is log
    assert [name for name, is_directory in files.list_directory(HOME) if is_directory] == []
    assert [name for name, is_directory in files.list_directory(SECOND) if is_directory] == ["t-0"]
    assert log.append_as_leader(batch(b"once", producer_id=7), now_ms=NOW_MS).duplicate
    sent += fill(manager, 63, 90)
    assert values_of(log) == sent
    assert manager.close() is None
    files.crash()
    manager = manager_of(files)
    assert where(manager) == {T0: SECOND}
    assert values_of(manager.logs[T0]) == sent
    assert (manager.logs[T0].leader_epoch, len(manager.logs[T0].producers)) == (3, 1)
    assert not manager.registry.resources


async def test_high_watermarks_are_kept_where_a_log_lies_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a move whose last step the disk refused, though none of them has moved since."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.create_topic("t", 1, now_ms=NOW_MS)
    fill(manager, 0, 3)
    manager.write_high_watermarks()

    def refused(*_: object) -> None:
        raise KafkaStorageError("the old directory stays")

    monkeypatch.setattr(log_moves, "remove_partition_directory", refused)
    begin(manager, SECOND)
    await work(manager)
    assert where(manager) == {T0: SECOND}
    manager.write_high_watermarks()
    assert OffsetCheckpoint(files, f"{SECOND}/{HIGH_WATERMARK_NAME}").read() == {T0: 3}


async def test_a_move_ends_where_it_is_sent_last() -> None:
    """Another directory instead, or back home: then the copy goes."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.create_topic("t", 1, now_ms=NOW_MS)
    fill(manager, 0, 3)
    for root in (SECOND, THIRD):
        begin(manager, root)
    assert not [name for name, _ in files.list_directory(SECOND) if "future" in name]
    begin(manager, HOME)
    assert not manager.moves.futures
    await work(manager)
    assert where(manager) == {T0: HOME}
    begin(manager, THIRD)
    manager.delete_topic("t")
    assert not any(is_directory for _, is_directory in files.list_directory(THIRD))


async def test_a_copy_that_failed_was_tried_and_logged_ten_times_a_second(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A log with a damaged batch cannot be copied, however often it is tried; a repaired one is."""
    manager = manager_of(MemoryFiles())
    manager.create_topic("t", 1, now_ms=NOW_MS)
    written = fill(manager, 0, 3)
    begin(manager, SECOND)

    def damaged(*_: object) -> bool:
        raise CorruptMessageError("batch 1 is damaged")

    with monkeypatch.context() as patched:
        patched.setattr(log_moves, "copy_some", damaged)
        await work(manager, turns=100)
    assert len([each for each in caplog.messages if each.startswith("moving t-0: ")]) == 2
    await manager.step(30_000.0, NOW_MS + 30_000)
    await manager.step(30_200.0, NOW_MS + 30_200)
    assert where(manager) == {T0: SECOND}
    assert values_of(manager.logs[T0]) == written


async def test_a_move_to_another_directory_paused_because_the_one_before_had_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second directory is full, so the log is sent to the third: that waited for up to ten seconds."""
    manager = manager_of(MemoryFiles())
    manager.create_topic("t", 1, now_ms=NOW_MS)
    fill(manager, 0, 3)
    begin(manager, SECOND)

    def full(*_: object) -> bool:
        raise KafkaStorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(log_moves, "copy_some", full)
        await work(manager, turns=1)
    begin(manager, THIRD)
    await work(manager)
    assert where(manager) == {T0: THIRD}
    assert not manager.moves._pause_until_ms


async def test_a_copy_whose_truncation_was_refused_kept_the_producers_of_what_was_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended where the log does, so it seemed complete, and its close wrote a snapshot of them."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.create_topic("t", 1, now_ms=NOW_MS)
    log = manager.logs[T0]
    for number in range(6):
        log.append_as_leader(batch(b"%d" % number, producer_id=7, sequence=number), now_ms=NOW_MS)
    begin(manager, SECOND)
    manager.cleaner.is_cleaning = lambda log: True  # so it cannot end yet
    await work(manager, 3)
    del manager.cleaner.is_cleaning
    log.truncate_to(2, now_ms=NOW_MS)

    def refused(*_: object) -> ProducerStates:
        raise KafkaStorageError("the disk refuses")

    with monkeypatch.context() as patched:
        patched.setattr(LogFiles, "producers_at", refused)
        with pytest.raises(KafkaStorageError):
            manager.moves.futures[T0].truncate_to(2, now_ms=NOW_MS)
    await work(manager)
    assert where(manager) == {T0: SECOND}
    assert manager.close() is None
    with pytest.raises(OutOfOrderSequenceNumberError):
        manager_of(files).logs[T0].append_as_leader(batch(b"5", producer_id=7, sequence=5), now_ms=NOW_MS)


async def test_a_copy_follows_a_log_that_is_cut() -> None:
    """As a follower's may be; and one whose start has moved on begins there."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.create_topic("t", 1, now_ms=NOW_MS)
    log = manager.logs[T0]
    fill(manager, 0, 6)
    begin(manager, SECOND)
    manager.cleaner.is_cleaning = lambda log: True  # so it cannot end yet
    await work(manager, 3)
    assert manager.moves.futures[T0].log_end_offset == 6
    log.truncate_to(2, now_ms=NOW_MS)
    log.append_as_leader(batch(b"other"), now_ms=NOW_MS, leader_epoch=1)
    await work(manager, 3)
    assert values_of(manager.moves.futures[T0]) == [] or manager.moves.futures[T0].log_end_offset == 3
    del manager.cleaner.is_cleaning
    await work(manager)
    assert where(manager) == {T0: SECOND}
    assert values_of(log) == [b"0000", b"0001", b"other"]


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_move_goes_on_after_a_restart(is_clean: bool) -> None:
    """After a stop of the broker, and after a kill."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.create_topic("t", 1, now_ms=NOW_MS)
    sent = fill(manager, 0, 20)
    begin(manager, SECOND)
    if is_clean:
        manager.close()
    else:
        files.kill()
    manager = manager_of(files)
    assert set(manager.moves.futures) == {T0}
    await work(manager)
    assert where(manager) == {T0: SECOND}
    assert values_of(manager.logs[T0]) == sent


async def test_the_power_goes_at_every_step_of_a_move() -> None:
    """The log is whole in one of the two directories after each, and the move is over in the end."""
    places = set()
    for after in range(200):
        files = MemoryFiles()
        manager = manager_of(files, HOME, SECOND)
        manager.create_topic("t", 1, now_ms=NOW_MS)
        sent = fill(manager, 0, 5)
        manager.logs[T0].flush()
        begin(manager, SECOND)
        files.inject(Fault(None, after=after))
        await work(manager, 4)  # what fails is logged
        assert files._fault is not None
        if files._fault.after > 0:
            assert where(manager) == {T0: SECOND}
            assert places == {HOME, SECOND}
            return
        files.crash(Random(after) if after % 2 else None)
        manager = manager_of(files, HOME, SECOND)
        places.add(where(manager)[T0])
        assert values_of(manager.logs[T0]) == sent
        await work(manager, 4)
        assert values_of(manager.logs[T0]) == sent
        manager.close()
    raise AssertionError("the move takes more steps than were tried")


async def test_the_power_went_in_a_swap_and_deleted_records_were_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy counted before its directory knew the log start offset that DeleteRecords had moved."""
    for after in range(200):
        files = MemoryFiles()
        manager = manager_of(files, HOME, SECOND)
        manager.create_topic("t", 1, now_ms=NOW_MS)
        sent = fill(manager, 0, 5)
        manager.logs[T0].flush()
        begin(manager, SECOND)
        with monkeypatch.context() as slow:
            slow.setattr(log_moves, "_READ_BYTES", 1)
            slow.setattr(log_moves, "_READS_IN_TURN", 4)
            await work(manager, 1)
        assert manager.moves.futures[T0].log_end_offset == 4
        manager.logs[T0].advance_log_start(3)
        manager.checkpoints.write_log_starts(manager.logs)
        files.inject(Fault(None, after=after))
        await work(manager)
        assert files._fault is not None
        if files._fault.after > 0:
            return
        files.crash(Random(after) if after % 2 else None)
        assert values_of(manager_of(files, HOME, SECOND).logs[T0]) == sent[3:]
    raise AssertionError("the move takes more steps than were tried")


async def test_the_target_fails_at_every_step_of_a_move() -> None:
    """Then the log stays where it is, and goes on; or it has moved, and is offline with its directory."""
    outcomes = set()
    for after in range(60):
        files = FailingDirectory()
        manager = manager_of(files, HOME, SECOND)
        manager.create_topic("t", 1, now_ms=NOW_MS)
        sent = fill(manager, 0, 5)
        begin(manager, SECOND)
        files.breaking, files.breaks_after = SECOND, after
        await work(manager, 4)
        outcomes.add(T0 in manager.logs)
        if T0 in manager.logs:
            assert where(manager)[T0] == (SECOND if not files.broken else HOME)
            sent += fill(manager, 5, 7)
            assert values_of(manager.logs[T0]) == sent
        else:
            assert T0 in manager.offline
        manager.close()
        files.broken, files.breaks_after = "", None
        if T0 in manager.logs:
            manager = manager_of(files, HOME, SECOND)
            assert values_of(manager.logs[T0]) == sent
    assert True in outcomes


# --- a directory that fails ---------------------------------------------------------------------------------


async def test_a_directory_that_fails_costs_its_partitions_alone() -> None:
    """56 for them, the others go on; new ones go elsewhere, and the next start has all again."""
    files = FailingDirectory()
    manager = manager_of(files)
    gone: list[TopicPartition] = []
    manager.offline.on_offline = gone.extend
    manager.create_topic("t", 6, now_ms=NOW_MS)
    for log in manager.logs.values():
        log.append_as_leader(batch(b"a"), now_ms=NOW_MS)
    files.broken = SECOND
    with pytest.raises(KafkaStorageError):
        manager.logs[TopicPartition("t", 1)].append_as_leader(batch(b"b"), now_ms=NOW_MS)
    assert sorted(gone) == [TopicPartition("t", 1), TopicPartition("t", 4)]
    assert not set(gone) & set(manager.logs)
    with pytest.raises(KafkaStorageError, match="offline"):
        manager.offline.check(TopicPartition("t", 4))
    await work(manager, 2)
    manager.create_topic("u", 2, now_ms=NOW_MS)
    assert SECOND not in where(manager).values()
    manager.logs[T0].append_as_leader(batch(b"b"), now_ms=NOW_MS)
    assert manager.close() is None
    manager = manager_of(files)  # it is broken still
    assert T0 in manager.logs
    assert all(each in manager.offline and each not in manager.logs for each in gone)
    manager.close()
    files.broken = ""
    manager = manager_of(files)
    assert values_of(manager.logs[TopicPartition("t", 1)]) == [b"a"]
    assert values_of(manager.logs[T0]) == [b"a", b"b"]


@pytest.mark.parametrize("is_made_again", [True, False])
async def test_a_topic_deleted_while_a_directory_is_away(is_made_again: bool) -> None:
    """It does not come back with the directory; a topic of its name may be made meanwhile."""
    files = FailingDirectory()
    manager = manager_of(files)
    manager.create_topic("t", 3, now_ms=NOW_MS)
    files.broken = SECOND
    with pytest.raises(KafkaStorageError):
        manager.logs[TopicPartition("t", 1)].append_as_leader(batch(b"b"), now_ms=NOW_MS)
    manager.delete_topic("t")
    if is_made_again:
        manager.create_topic("t", 3, now_ms=NOW_MS)
        assert len(manager.logs) == 3
    manager.close()
    files.broken = ""
    manager = manager_of(files)
    assert set(manager.topics) == ({"t"} if is_made_again else set())
    assert len(manager.logs) == (3 if is_made_again else 0)
    assert not any(is_directory for _, is_directory in files.list_directory(SECOND))
    assert not manager.registry.resources


async def test_without_its_home_a_broker_cannot_go_on() -> None:
    """As Kafka without its metadata.log.dir."""
    files = FailingDirectory()
    manager = manager_of(files)
    manager.create_topic("t", 3, now_ms=NOW_MS)
    files.broken = HOME
    with pytest.raises(KafkaStorageError):
        manager.logs[T0].append_as_leader(batch(b"b"), now_ms=NOW_MS)
    with pytest.raises(KafkaStorageError, match=HOME):
        await manager.step(0, NOW_MS)


async def test_one_directory_alone_goes_on_as_before() -> None:
    """A write that the disk refuses once may succeed another time."""
    files = FailingDirectory()
    manager = manager_of(files, HOME)
    manager.create_topic("t", 1, now_ms=NOW_MS)
    files.broken = f"{HOME}/t-0"
    with pytest.raises(KafkaStorageError):
        fill(manager, 0, 1)
    files.broken = ""
    assert fill(manager, 0, 2) == values_of(manager.logs[T0])


def test_partitions_of_a_directory_left_out_of_log_dirs_are_not_created_again() -> None:
    """They were empty, and from then on there twice: no start went well any more. Now it is said which."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.create_topic("t", 3, now_ms=NOW_MS)
    before = where(manager)
    assert manager.close() is None
    with pytest.raises(KafkaStorageError, match=f"{SECOND} holds partitions .* add it there"):
        manager_of(files, HOME)
    manager = manager_of(files)
    assert where(manager) == before
    assert manager.close() is None


def test_a_directory_without_partitions_may_be_left_out() -> None:
    """There is nothing to lose; and one directory alone leaves no note."""
    files = MemoryFiles()
    manager = manager_of(files)
    manager.create_topic("t", 1, now_ms=NOW_MS)
    assert manager.close() is None
    assert files.read_bytes(f"{HOME}/{KNOWN_NAME}") == f"{SECOND}\n{THIRD}\n".encode()
    assert manager_of(files, HOME).close() is None
    assert files.read_bytes(f"{HOME}/{KNOWN_NAME}") == b""
