"""What compaction keeps and what it takes away, one rule at a time."""

from __future__ import annotations

import pytest
from support.storage.compacted_logs import clean, compacted_log, keyed, left, put, roll
from support.storage.logs import DIRECTORY, NOW_MS, read_all, read_headers

from splashdam.model.broker_errors import InvalidRecordError
from splashdam.record.batch import DELETE_HORIZON_BIT, Codec
from splashdam.record.compression import Compression
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.segments.indexes import AbortedTransaction
from splashdam.storage.segments.segment import segment_path
from splashdam.storage.transaction_marker import TransactionMarker

A, B, C = b"a", b"b", b"c"


def test_the_newest_record_of_each_key_stays_at_its_offset() -> None:
    """Also those of the active segment, which is not looked at and so takes none away."""
    files = MemoryFiles()
    log = compacted_log(files)
    put(log, (A, b"1"), (B, b"1"), (A, b"2"))
    put(log, (C, b"1"), (B, b"2"))
    roll(log)
    put(log, (C, b"2"))
    assert clean(files, log) == 5
    assert left(log) == [(2, A, b"2"), (3, C, b"1"), (4, B, b"2"), (5, C, b"2")]
    assert [(header.base_offset, header.last_offset) for header in read_headers(log)] == [
        (0, 2),
        (3, 4),
        (5, 5),
    ]


def test_unchanged_batches_are_copied_byte_for_byte() -> None:
    """Batches and, since all are untouched, every file of the segment."""
    files = MemoryFiles()
    log = compacted_log(files, index_interval_bytes=0)
    for number in range(20):
        put(log, (b"%d" % number, b"x"), timestamp_ms=NOW_MS + number)
    roll(log)
    paths = log.segments[0].paths()[:3]
    before = [files.read_bytes(path) for path in paths]
    clean(files, log)
    assert [files.read_bytes(path) for path in paths] == before


@pytest.mark.parametrize("codec", list(Codec))
def test_codec_timestamps_and_headers_stay(codec: Codec) -> None:
    """The rest of a batch keeps its codec; timestamps are relative to the first record that is left."""
    files = MemoryFiles()
    log = compacted_log(files)
    for moment, value in ((NOW_MS - 5, b"old"), (NOW_MS - 9, b"new")):
        put(log, (A, value), (b"only " + value, b"x"), timestamp_ms=moment, compression=Compression(codec))
    roll(log)
    clean(files, log)
    assert [(each.offset, each.timestamp_ms) for each in read_all(log)] == [
        (1, NOW_MS - 5),
        (2, NOW_MS - 9),
        (3, NOW_MS - 9),
    ]
    first = read_headers(log)[0]
    assert (first.codec, first.record_count, first.last_offset_delta) == (codec, 1, 1)
    assert (first.base_timestamp, first.max_timestamp) == (NOW_MS - 5, NOW_MS - 5)


def test_the_broker_s_append_time_stays() -> None:
    """It is in the header alone, and each record has it."""
    files = MemoryFiles()
    log = compacted_log(files, message_timestamp_type="LogAppendTime")
    log.append_as_leader(keyed((A, b"1"), (B, b"1"), timestamp_ms=5), now_ms=NOW_MS)
    log.append_as_leader(keyed((A, b"2"), timestamp_ms=6), now_ms=NOW_MS + 7)
    roll(log)
    clean(files, log)
    assert [(each.offset, each.timestamp_ms) for each in read_all(log)] == [(1, NOW_MS), (2, NOW_MS + 7)]
    assert all(header.is_log_append_time for header in read_headers(log))


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    """One that is there, from the time before the topic was compacted, goes."""
    files = MemoryFiles()
    log = compacted_log(files, cleanup_policy="delete")
    put(log, (None, b"1"), (A, b"1"))
    roll(log)
    log.close()
    log = compacted_log(files)
    log.flush()
    with pytest.raises(InvalidRecordError, match="has no key"):
        put(log, (None, b"1"))
    clean(files, log)
    assert left(log) == [(1, A, b"1")]


# --- tombstones ---------------------------------------------------------------------------------------------


def test_a_tombstone_stays_readable_until_its_horizon() -> None:
    """Its first cleaning says when it may go: delete.retention.ms later; its timestamp stays what it was."""
    files = MemoryFiles()
    log = compacted_log(files)
    put(log, (A, b"1"), (B, b"1"))
    put(log, (A, None), (C, b"1"))
    roll(log)
    end = clean(files, log, now_ms=NOW_MS + 50)
    assert left(log) == [(1, B, b"1"), (2, A, None), (3, C, b"1")]
    header = read_headers(log)[1]
    assert header.delete_horizon_ms == NOW_MS + 1_050
    assert [record.timestamp_ms for record in read_all(log)] == [NOW_MS] * 3
    clean(files, log, now_ms=NOW_MS + 1_049, first_dirty=end)
    assert left(log)[1] == (2, A, None)
    assert read_headers(log)[1].delete_horizon_ms == NOW_MS + 1_050
    clean(files, log, now_ms=NOW_MS + 1_050, first_dirty=end)
    assert left(log) == [(1, B, b"1"), (3, C, b"1")]


def test_a_tombstone_that_is_old_news_goes_at_once() -> None:
    """The key was written again."""
    files = MemoryFiles()
    log = compacted_log(files)
    put(log, (A, None), (B, b"1"))
    put(log, (A, b"2"))
    roll(log)
    clean(files, log)
    assert left(log) == [(1, B, b"1"), (2, A, b"2")]
    assert not any(header.attributes & DELETE_HORIZON_BIT for header in read_headers(log))


# --- empty batches ------------------------------------------------------------------------------------------


def test_the_end_of_a_round_is_kept_by_an_empty_batch() -> None:
    """Or nothing would say that offsets came so far."""
    files = MemoryFiles()
    log = compacted_log(files)
    put(log, (A, b"1"))
    put(log, (A, None))
    roll(log)
    clean(files, log, now_ms=NOW_MS)
    clean(files, log, now_ms=NOW_MS + 1_000)
    assert left(log) == []
    (header,) = read_headers(log)
    assert (header.base_offset, header.last_offset, header.record_count, header.base_timestamp) == (
        1,
        1,
        0,
        -1,
    )
    assert (header.attributes, header.size_bytes) == (0, 61)


def test_the_last_sequence_of_a_known_producer_is_kept() -> None:
    """A repeat is still told after cleaning and a crash; of a producer that was forgotten nothing stays."""
    files = MemoryFiles()
    log = compacted_log(files)
    for producer_id in (4, 5):
        for sequence in range(2):
            put(log, (A, b"x"), producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    put(log, (A, b"last"))
    put(log, (B, b"last"))
    roll(log)
    log.producers.restart_clocks(0)
    log.producers.expire(NOW_MS, 1)
    put(log, (C, b"x"), producer_id=5, producer_epoch=0, base_sequence=2)
    files.kill()
    log = compacted_log(files)
    log.flush()
    states = [entry for entry in log.producers if entry.producer_id == 4]
    log.producers.restart_clocks(NOW_MS)
    assert len(states) == 1
    clean(files, log)
    kept = [(each.producer_id, each.base_sequence, each.record_count) for each in read_headers(log)]
    assert kept == [(4, 1, 0), (-1, -1, 1), (-1, -1, 1), (5, 2, 1)]
    files.kill()
    log = compacted_log(files)
    again = keyed((A, b"x"), producer_id=4, producer_epoch=0, base_sequence=1)
    assert log.append_as_leader(again, now_ms=NOW_MS).duplicate


# --- transactions -------------------------------------------------------------------------------------------


def transaction(log, *pairs, producer_id: int, commit: bool, sequence: int = 0) -> None:  # type: ignore[no-untyped-def]  # see put
    put(
        log, *pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )  # fmt: skip
    log.append_marker(TransactionMarker(producer_id, 0, commit, 0), now_ms=NOW_MS)


def forget_producers(log) -> None:  # type: ignore[no-untyped-def]  # a Log
    log.producers.restart_clocks(0)
    log.producers.expire(NOW_MS, 1)


def test_aborted_records_go_and_take_nothing_with_them() -> None:
    """Neither their keys' older records nor, in the same round, their marker and its index entry."""
    files = MemoryFiles()
    log = compacted_log(files)
    put(log, (A, b"1"))
    transaction(log, (A, b"aborted"), (B, b"aborted"), producer_id=7, commit=False)
    put(log, (C, b"1"))
    roll(log)
    forget_producers(log)
    end = clean(files, log)
    headers = read_headers(log)
    assert [(header.base_offset, header.is_control) for header in headers] == [
        (0, False),
        (3, True),
        (4, False),
    ]
    assert log.aborted_transactions(0, 5) == [AbortedTransaction(7, 1, 3, 4)]
    clean(files, log, first_dirty=end)
    assert read_headers(log)[1].delete_horizon_ms == NOW_MS + 1_000
    assert log.aborted_transactions(0, 5) == []
    assert files.size_bytes(segment_path(DIRECTORY, 0, ".txnindex")) is None
    clean(files, log, first_dirty=end, now_ms=NOW_MS + 1_000)
    assert [header.base_offset for header in read_headers(log)] == [0, 4]
    assert (left(log)[0], left(log)[-1]) == ((0, A, b"1"), (4, C, b"1"))


def test_a_commit_marker_stays_while_records_of_it_do() -> None:
    """When a cleaning finds nothing of it any more, the marker gets a horizon of its own."""
    files = MemoryFiles()
    log = compacted_log(files)
    transaction(log, (A, b"1"), producer_id=7, commit=True)
    put(log, (B, b"1"))
    roll(log)
    forget_producers(log)
    end = clean(files, log)
    assert [header.base_offset for header in read_headers(log)] == [0, 1, 2]
    put(log, (A, b"2"))
    roll(log)
    end = clean(files, log, first_dirty=end)
    assert [header.base_offset for header in read_headers(log)] == [1, 2, 3]
    clean(files, log, first_dirty=end)
    assert [header.delete_horizon_ms for header in read_headers(log)] == [NOW_MS + 1_000, None, None]
    assert [header.base_offset for header in read_headers(log)] == [1, 2, 3]
    clean(files, log, first_dirty=end, now_ms=NOW_MS + 1_000)
    assert [header.base_offset for header in read_headers(log)] == [2, 3]


def test_an_open_transaction_is_not_touched_and_nothing_behind_it() -> None:
    """The last stable offset is where cleaning ends, by whole segments."""
    files = MemoryFiles()
    log = compacted_log(files)
    put(log, (A, b"1"))
    put(log, (A, b"2"))
    roll(log)
    put(log, (A, b"3"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    roll(log)
    put(log, (A, b"4"))
    roll(log)
    assert clean(files, log) == 2
    assert [record.value for record in read_all(log)] == [b"2", b"3", b"4"]


def test_a_producer_s_later_transaction_is_not_taken_for_its_aborted_one() -> None:
    """Also where cleaning begins between the two."""
    files = MemoryFiles()
    log = compacted_log(files)
    transaction(log, (A, b"aborted"), producer_id=7, commit=False)
    roll(log)
    end = clean(files, log)
    transaction(log, (A, b"1"), (B, b"1"), producer_id=7, commit=True, sequence=1)
    transaction(log, (A, b"2"), producer_id=7, commit=True, sequence=3)
    roll(log)
    clean(files, log, first_dirty=end)
    data = [record for record in left(log) if record[1] in (A, B)]
    assert data == [(3, B, b"1"), (5, A, b"2")]
