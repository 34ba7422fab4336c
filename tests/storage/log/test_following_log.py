"""A log that follows another: batches as they come, cuts, a high watermark below its end."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.storage.logs import DIRECTORY, NOW_MS, batch, open_log, read_headers, values_of

from splashdam.model.broker_errors import CorruptMessageError, KafkaStorageError
from splashdam.record.batch import INT64
from splashdam.storage.files.log_file import storage_errors
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.leader_epochs import EpochEnd
from splashdam.storage.log import Log
from splashdam.storage.settings import LogSettings
from splashdam.storage.transaction_marker import TransactionMarker

SMALL = LogSettings(segment_bytes=400, index_interval_bytes=100)
ABORT, COMMIT = TransactionMarker(1, 0, False, 0), TransactionMarker(1, 0, True, 0)


class Others:
    """Replicas that say nothing."""

    advances = 0
    leader_epoch = 0
    term = 0

    def check_leading(self) -> None:
        """This one leads."""

    def check_enough_in_sync(self) -> None:
        """They are."""

    def advance(self) -> None:
        """Counts."""
        self.advances += 1

    def log_failed(self) -> None:
        """Nobody hears of it."""

    async def wait_replicated(self, offset: int, term: int) -> None:
        """Nobody asks."""

    async def wait_deleted(self, offset: int) -> None:
        """Waiting for a deletion is not needed here either."""


def written_log(files: MemoryFiles, count: int = 20, settings: LogSettings = SMALL) -> Log:
    """A leader's log of single records ``0``, ``1``, …; the leader epoch rises with every fifth."""
    log = open_log(files, settings=settings)
    for number in range(count):
        log.append_as_leader(
            batch(b"%d" % number, producer_id=7, sequence=number), now_ms=NOW_MS, leader_epoch=number // 5
        )
    return log


def bytes_of(log: Log, offset: int = 0) -> memoryview:
    """All batches from an offset on."""
    return memoryview(b"".join(bytes(data) for head, data in log.batches() if head.base_offset >= offset))


def contents(log: Log) -> tuple[object, ...]:
    """Everything that should be the same in two logs."""
    return (
        log.log_start_offset,
        log.log_end_offset,
        bytes(bytes_of(log)),
        [(each.producer_id, each.epoch, list(each.batches)) for each in log.producers],
        [(each.base_offset, each.size_bytes, each.max_timestamp) for each in log.segments],
        log.aborted_transactions(0, 1 << 60),
        log.end_of_epoch(0),
        log.last_epoch,
    )


def files_of(files: MemoryFiles, log: Log) -> dict[str, bytes | None]:
    """Logs and indexes on the disk."""
    names = [entry.name for entry in files.list_directory(log.directory)]
    return {
        name: files.read_bytes(f"{log.directory}/{name}")
        for name in sorted(names)
        if name.endswith(("log", "index", "checkpoint"))
    }


def test_a_follower_has_the_leaders_bytes_and_state() -> None:
    """Offsets, epochs, producers; a batch that is cut short is left for the next fetch."""
    leader, files = written_log(MemoryFiles()), MemoryFiles()
    follower = open_log(files, settings=SMALL)
    data = bytes_of(leader)
    taken = follower.append_as_follower(data[:-3], now_ms=NOW_MS)
    assert follower.log_end_offset == 19
    follower.append_as_follower(data[taken:], now_ms=NOW_MS)
    assert contents(follower) == contents(leader)
    follower.close()
    assert contents(open_log(files, settings=SMALL, clean=True)) == contents(leader)


@given(st.data())
def test_a_truncated_log_is_as_if_the_rest_had_never_been_there(data: st.DataObject) -> None:
    """Segments, indexes, epochs, producers, the transaction index; also after a crash, and going on."""

    def build(steps: list[int], upto: int) -> tuple[MemoryFiles, Log]:
        files = MemoryFiles()
        log = open_log(files, settings=SMALL)
        for number, step in enumerate(steps[:upto]):
            epoch = number // 4
            if step == 3:
                log.append_marker(ABORT, now_ms=NOW_MS + number, leader_epoch=epoch)
            else:
                sequence = sum(each != 3 for each in steps[:number])
                log.append_as_leader(
                    batch(
                        b"v" * (20 * step + 1),
                        producer_id=1,
                        sequence=sequence,
                        timestamp_ms=NOW_MS + (number * 37) % 50,
                        transactional=True,
                    ),
                    now_ms=NOW_MS,
                    leader_epoch=epoch,
                )
        return files, log

    steps = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=24))
    offset = data.draw(st.integers(0, len(steps)))
    files, log = build(steps, len(steps))
    log.truncate_to(offset, now_ms=NOW_MS)
    _, expected = build(steps, offset)
    assert contents(log)[:4] == contents(expected)[:4]
    assert contents(log)[5:] == contents(expected)[5:]
    rest = bytes_of(build(steps, len(steps))[1], offset)
    if data.draw(st.booleans()):
        files.kill()
        log = open_log(files, settings=SMALL, recovery_point=log.recovery_point)
        assert contents(log)[:4] == contents(expected)[:4]
    log.append_as_follower(rest, now_ms=NOW_MS)
    log.advance_high_watermark(len(steps))
    _, whole = build(steps, len(steps))
    assert (log.log_end_offset, contents(log)[3]) == (whole.log_end_offset, contents(whole)[3])
    assert bytes(bytes_of(log)) == bytes(bytes_of(whole))
    for each in range(len(steps)):
        assert [head.base_offset for head in read_headers(log, each)] == list(range(each, len(steps)))


@given(st.integers(0, 20), st.integers(0, 2**16))
def test_a_power_cut_after_a_truncation_leaves_no_gap_and_nothing_foreign(offset: int, seed: int) -> None:
    """The files are then a beginning of the old log, or of the new one."""
    files = MemoryFiles()
    log = written_log(files)
    log.flush()
    files.sync_directory("/data")
    files.sync_directory("/")
    log.truncate_to(offset, now_ms=NOW_MS)
    recovery_point = log.recovery_point
    log.append_as_leader(batch(b"new"), now_ms=NOW_MS, leader_epoch=9)
    files.crash(Random(seed))
    log = open_log(files, settings=SMALL, recovery_point=recovery_point)
    found = values_of(log)
    old = [b"%d" % number for number in range(20)]
    assert found == old[: len(found)] or found == [*old[:offset], b"new"]
    for header, _ in log.batches():
        assert log.end_of_epoch(header.partition_leader_epoch).epoch == header.partition_leader_epoch
        assert log.last_epoch <= 3 or found[-1:] == [b"new"]


def test_a_truncation_that_a_power_cut_undid_is_found_again() -> None:
    """The file of epochs said that the new leader's epoch wrote what came back; so nobody cut it again."""
    files = MemoryFiles()
    log = open_log(files)
    for number in range(4):
        log.append_as_leader(batch(b"old %d" % number), now_ms=NOW_MS, leader_epoch=1)
    log.flush()
    files.sync_directory("/data")
    files.sync_directory("/")
    log.truncate_to(3, now_ms=NOW_MS)
    log.append_as_leader(batch(b"new 3"), now_ms=NOW_MS, leader_epoch=2)
    files.crash()
    log = open_log(files, recovery_point=3)
    assert values_of(log)[3] == b"old 3"
    assert (log.last_epoch, log.end_of_epoch(1)) == (1, EpochEnd(1, 4))


def test_a_log_below_its_leaders_start_starts_again_there() -> None:
    """Nothing of the old one is left, on the disk neither, and the next batch may come from there."""
    leader, files = written_log(MemoryFiles()), MemoryFiles()
    follower = written_log(files, 7)
    follower.truncate_fully_and_start_at(12, now_ms=NOW_MS)
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (12, 12, 12)
    assert follower.last_epoch == -1
    assert len(follower.producers) == 0
    follower.append_as_follower(bytes_of(leader, 12), now_ms=NOW_MS)
    follower.advance_high_watermark(20)
    assert values_of(follower) == [b"%d" % number for number in range(12, 20)]
    follower.close()
    again = open_log(files, settings=SMALL, clean=True)
    assert (again.log_start_offset, again.log_end_offset) == (12, 20)
    assert not [
        entry for entry in files.list_directory(DIRECTORY) if entry.name.startswith("00000000000000000000")
    ]


@pytest.mark.parametrize("offset", [0, 7])
def test_starting_again_at_the_first_segment(offset: int) -> None:
    """The files of the same name are those of the new segment."""
    files = MemoryFiles()
    follower = open_log(files, settings=SMALL)
    if offset:
        follower.truncate_fully_and_start_at(offset, now_ms=NOW_MS)
    follower.append_as_leader(batch(b"x", b"y"), now_ms=NOW_MS)
    follower.truncate_fully_and_start_at(offset, now_ms=NOW_MS)
    follower.append_as_leader(batch(b"z"), now_ms=NOW_MS)
    assert values_of(follower) == [b"z"]
    files.kill()
    assert values_of(open_log(files, settings=SMALL)) == [b"z"]


def test_truncation_lowers_recovery_point_and_high_watermark() -> None:
    """Recovery point and high watermark; a sync that began before it promises nothing of what comes now."""
    log = written_log(MemoryFiles())
    log.flush()
    assert (log.recovery_point, log.high_watermark) == (20, 20)
    log.truncate_to(11, now_ms=NOW_MS)
    assert (log.recovery_point, log.high_watermark, log.log_end_offset) == (11, 11, 11)


def test_a_checkpoint_before_a_cut_vouched_for_a_batch_that_was_cut() -> None:
    """The offset lay inside a batch, so the log ended below the recovery point until the next checkpoint."""
    log = open_log(MemoryFiles())
    log.append_as_leader(batch(b"a", b"b"), now_ms=NOW_MS)
    log.append_as_leader(batch(b"c", b"d"), now_ms=NOW_MS)
    log.flush()
    log.flusher.expect_cut(3)
    checkpoint = log.recovery_point
    log.truncate_to(3, now_ms=NOW_MS)
    assert (checkpoint <= log.log_end_offset, log.log_end_offset) == (True, 2)


def test_damage_and_wrong_order_are_refused() -> None:
    """A follower takes no batch that it has already, and none with a wrong checksum."""
    leader, follower = written_log(MemoryFiles()), open_log(MemoryFiles())
    data = bytes_of(leader)
    follower.append_as_follower(data, now_ms=NOW_MS)
    with pytest.raises(CorruptMessageError, match="out of order"):
        follower.append_as_follower(data, now_ms=NOW_MS)
    damaged = bytearray(data)
    damaged[-1] ^= 1
    other = open_log(MemoryFiles())
    with pytest.raises(CorruptMessageError, match="damaged"):
        other.append_as_follower(memoryview(damaged), now_ms=NOW_MS)
    assert other.log_end_offset == 19


def test_the_high_watermark_of_a_replicated_log_moves_only_by_its_leader() -> None:
    """It never moves back nor beyond the end; alone it is the end again."""
    log = open_log(MemoryFiles())
    others = Others()
    log.begin_replication(others)
    log.append_as_leader(batch(b"1", b"2"), now_ms=NOW_MS)
    assert (log.high_watermark, others.advances, values_of(log)) == (0, 1, [])
    assert log.advance_high_watermark(1)
    assert not log.advance_high_watermark(0)
    assert log.advance_high_watermark(5)
    assert log.high_watermark == 2
    log.append_as_leader(batch(b"3"), now_ms=NOW_MS)
    log.end_replication()
    assert log.high_watermark == 3


def test_a_transaction_is_undecided_until_its_marker_is_replicated() -> None:
    """The last stable offset waits for it, also after a restart from the checkpoint."""
    files = MemoryFiles()
    log = open_log(files)
    log.begin_replication(Others())
    log.append_as_leader(batch(b"a"), now_ms=NOW_MS)
    log.append_as_leader(batch(b"b", producer_id=1, transactional=True), now_ms=NOW_MS)
    log.append_marker(COMMIT, now_ms=NOW_MS)
    log.advance_high_watermark(2)
    assert (log.high_watermark, log.last_stable_offset) == (2, 1)
    log.close()
    again = open_log(files, clean=True, high_watermark=2)
    assert (again.high_watermark_checkpoint, again.high_watermark) == (2, 3)
    again.begin_replication(Others())
    assert (again.high_watermark, again.last_stable_offset) == (2, 1)
    again.advance_high_watermark(3)
    assert again.last_stable_offset == 3


def test_a_marker_without_other_replicas_decides_at_once() -> None:
    """The leader alone is in sync: the high watermark is above the marker before it is noted."""
    log = open_log(MemoryFiles())

    class Alone(Others):
        def advance(self) -> None:
            log.advance_high_watermark(log.log_end_offset)

    log.begin_replication(Alone())
    log.append_as_leader(batch(b"a", producer_id=1, transactional=True), now_ms=NOW_MS)
    assert log.last_stable_offset == 0
    log.append_marker(COMMIT, now_ms=NOW_MS)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)


def test_a_leader_epoch_is_on_disk_with_its_first_record() -> None:
    """Not before: a broker may begin to lead thousands of partitions; the log knows it all the same."""
    files = MemoryFiles()
    log = open_log(files)
    log.append_as_leader(batch(b"a"), now_ms=NOW_MS)
    log.begin_leader_epoch(3)
    log.begin_leader_epoch(4)
    path = f"{DIRECTORY}/leader-epoch-checkpoint"
    assert files.read_bytes(path) == b"0\n1\n0 0\n"
    assert (log.last_epoch, log.leader_epoch_start, log.end_of_epoch(4)) == (4, 1, (4, 1))
    log.append_as_leader(batch(b"b"), now_ms=NOW_MS)
    assert files.read_bytes(path) == b"0\n2\n0 0\n4 1\n"
    files.kill()
    assert open_log(files).end_of_epoch(0) == (0, 1)


def test_an_epoch_without_records_goes_where_the_log_is_cut_to_its_end() -> None:
    """It was led here without a word; the new leader has never heard of it."""
    log = written_log(MemoryFiles(), 3)
    log.begin_leader_epoch(7)
    log.truncate_to(3, now_ms=NOW_MS)
    assert (log.last_epoch, log.log_end_offset) == (0, 3)


@pytest.mark.parametrize("first", [[], [0]])
def test_offsets_that_compaction_removed_may_be_more_than_a_segment_holds(first: list[int]) -> None:
    """The batch behind 2^31 of them was appended to the old segment: recovery cut it, a roll overflowed."""
    files = MemoryFiles()
    log = open_log(files)
    far = 2**31 + 100
    for offset in [*first, far]:
        data = bytearray(batch(b"%d" % offset))
        INT64.pack_into(data, 0, offset)
        log.append_as_follower(memoryview(data), now_ms=NOW_MS)
    log.roll(NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, far, far + 1]
    files.kill()
    log = open_log(files)
    log.advance_high_watermark(log.log_end_offset)
    assert (log.log_end_offset, values_of(log)) == (far + 1, [b"%d" % offset for offset in [*first, far]])


def test_a_removed_segment_that_kept_its_name_does_not_take_a_new_one_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A follower starts again at an offset whose old segment could not be renamed: later the new one was."""
    files = MemoryFiles()
    log = written_log(files)
    log.advance_log_start(log.segments[1].base_offset)

    def refuse(old: str, _new: str) -> None:
        with storage_errors("rename", old):
            raise OSError(errno.ENOSPC, "the disk is full")

    with monkeypatch.context() as full:
        full.setattr(files, "rename", refuse)
        with pytest.raises(KafkaStorageError):
            log.delete_old_segments(wall_ms=NOW_MS, now_ms=0)
    log.truncate_fully_and_start_at(0, now_ms=NOW_MS)
    log.append_as_leader(batch(b"new"), now_ms=NOW_MS)
    log.unlink_deleted(log.settings.file_delete_delay_ms + 1)
    files.kill()
    assert values_of(open_log(files)) == [b"new"]


@pytest.mark.parametrize("after", range(4))
def test_a_log_that_could_not_be_cut_ends_where_its_records_do(after: int) -> None:
    """The log was cut, then an index was not: it went on at its old end, behind a hole."""
    files = MemoryFiles()
    log = written_log(files, settings=LogSettings(index_interval_bytes=100))
    files.inject(Fault(errno.EIO, after))
    with pytest.raises(KafkaStorageError):
        log.truncate_to(3, now_ms=NOW_MS)
    assert values_of(log) == [b"%d" % number for number in range(log.log_end_offset)]


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_refused_cut_of_whole_segments_left_a_hole(power_cut: bool) -> None:
    """Segments were removed, then the cut of the one before was refused: the log still ended behind them."""
    whole = written_log(MemoryFiles())
    whole.truncate_to(3, now_ms=NOW_MS)
    for after in range(100):
        files = MemoryFiles()
        files.make_directory(DIRECTORY)
        for path in ("/data", "/"):
            files.sync_directory(path)
        log = written_log(files)
        log.flush()
        files.inject(Fault(errno.EIO, after))
        try:
            log.truncate_to(3, now_ms=NOW_MS)
        except KafkaStorageError:
            assert values_of(log) == [b"%d" % number for number in range(log.log_end_offset)]
            if power_cut:
                files.crash(Random(after))
                log = open_log(files, settings=SMALL)
                assert values_of(log) == [b"%d" % number for number in range(log.log_end_offset)]
            log.truncate_to(3, now_ms=NOW_MS)
            assert contents(log) == contents(whole)
            log.flush()
            files.crash()
            assert values_of(open_log(files, settings=SMALL)) == [b"0", b"1", b"2"]
        else:
            break
    assert 10 < after < 99


def test_retries_of_what_a_refused_truncation_had_cut_off_were_taken_for_duplicates() -> None:
    """The log took records before the rest of the truncation: a leader would acknowledge what is lost."""
    for after in range(100):
        log, _, was_refused = truncated(after, lambda log: log.truncate_to(3, now_ms=NOW_MS))
        if not was_refused:
            break
        with pytest.raises(KafkaStorageError):
            log.append_as_leader(batch(b"19", producer_id=7, sequence=19), now_ms=NOW_MS)
        with pytest.raises(KafkaStorageError):
            log.append_as_follower(memoryview(b""), now_ms=NOW_MS)
        log.finish_truncation(now_ms=NOW_MS)
        assert not log.append_as_leader(batch(b"3", producer_id=7, sequence=3), now_ms=NOW_MS).duplicate
        assert values_of(log) == [b"0", b"1", b"2", b"3"]
    assert 10 < after < 99


def test_the_close_of_a_half_truncated_log_kept_the_producers_of_what_was_cut_off() -> None:
    """It wrote a snapshot of them, and the start after a clean shutdown believed it."""
    for after in range(100):
        log, files, was_refused = truncated(after, lambda log: log.truncate_to(3, now_ms=NOW_MS))
        if not was_refused:
            break
        with pytest.raises(KafkaStorageError):
            log.close()
        log = open_log(files, settings=SMALL)
        end = log.log_end_offset
        retry = batch(b"again", producer_id=7, sequence=end)
        assert not log.append_as_leader(retry, now_ms=NOW_MS).duplicate
    assert 10 < after < 99


def test_a_log_that_could_not_start_anew_took_records_behind_those_that_had_to_go() -> None:
    """Its epochs went first, so the next fetch could not tell that the leader has other records."""
    for after in range(100):
        log, files, was_refused = truncated(
            after, lambda log: log.truncate_fully_and_start_at(50, now_ms=NOW_MS)
        )
        if not was_refused:
            break
        with pytest.raises(KafkaStorageError):
            log.append_as_follower(memoryview(b""), now_ms=NOW_MS)
        log.finish_truncation(now_ms=NOW_MS)
        assert (log.log_start_offset, log.log_end_offset, log.last_epoch, len(log.producers)) == (
            50,
            50,
            -1,
            0,
        )
        files.kill()
        assert values_of(open_log(files, settings=SMALL)) == []
    assert 10 < after < 99


def truncated(after: int, truncate: Callable[[Log], None]) -> tuple[Log, MemoryFiles, bool]:
    """A log of 20 records after a truncation; the disk refused one operation if there were so many."""
    files = MemoryFiles()
    log = written_log(files)
    files.inject(Fault(errno.ENOSPC, after))
    try:
        truncate(log)
    except KafkaStorageError:
        return log, files, True
    return log, files, False


def test_a_cut_whose_epochs_a_full_disk_refused_left_the_producers_of_what_was_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their retries were taken for duplicates, and a cleaning did not learn of the cut."""
    files = MemoryFiles()
    log = open_log(files)
    for producer_id in range(6):
        log.append_as_leader(batch(b"x", producer_id=producer_id), now_ms=NOW_MS, leader_epoch=producer_id)
        log.roll(NOW_MS)

    def refuse(path: str, *_: object, **__: object) -> None:
        with storage_errors("write", path):
            raise OSError(errno.ENOSPC, "the disk is full")

    with monkeypatch.context() as full:
        full.setattr(files, "write_atomic", refuse)
        with pytest.raises(KafkaStorageError):
            log.truncate_to(3, now_ms=NOW_MS)
    assert [each.producer_id for each in log.producers] == [0, 1, 2]
    assert (log.log_end_offset, log.truncations) == (3, 1)
    snapshots = [each.name for each in files.list_directory(DIRECTORY) if each.name.endswith(".snapshot")]
    assert sorted(int(name.partition(".")[0]) for name in snapshots) == [1, 2, 3]
    log.truncate_to(log.log_end_offset, now_ms=NOW_MS)
    assert log.last_epoch == 2


def test_a_refused_epoch_does_not_count_the_one_before_as_synced() -> None:
    """The first epoch is synced with the first flush: after the refusal a power cut took it."""
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    for path in ("/data", "/"):
        files.sync_directory(path)
    log = open_log(files)
    log.append_as_leader(batch(b"a"), now_ms=NOW_MS, leader_epoch=3)
    log.roll(NOW_MS)
    files.inject(Fault(errno.ENOSPC))
    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch(b"b"), now_ms=NOW_MS, leader_epoch=4)
    log.flush()
    recovery_point = log.recovery_point
    files.crash()
    assert open_log(files, recovery_point=recovery_point).last_epoch == 3
