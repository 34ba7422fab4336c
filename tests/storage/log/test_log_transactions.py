"""Transactions that stand in a log: what is stable, what was aborted, and that a restart knows it."""

from __future__ import annotations

import struct

import pytest
from support.storage.logs import DIRECTORY, NOW_MS, batch, open_log, read_headers

from splashdam.model.broker_errors import InvalidTxnStateError
from splashdam.record.batch import parse_header
from splashdam.record.sealing import build_batch
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.segments.indexes import AbortedTransaction
from splashdam.storage.settings import LogSettings

ABORT, COMMIT, LEADER_CHANGE = 0, 1, 2
LOG_PATH = f"{DIRECTORY}/{0:020d}.log"


def marker(producer_id: int, kind: int, *, key: bytes | None = None) -> bytes:
    """A control batch as a transaction coordinator writes it."""
    key = struct.pack(">hh", 0, kind) if key is None else key
    value = struct.pack(">hi", 0, 9)
    record = (NOW_MS, key or None, value, None)
    return build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


def data(producer_id: int, sequence: int = 0) -> bytes:
    return batch(b"v", producer_id=producer_id, sequence=sequence, transactional=True)


def files_with(*batches: bytes) -> MemoryFiles:
    """A partition directory whose only file holds these batches, one offset each."""
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    content = b"".join(struct.pack(">q", offset) + each[8:] for offset, each in enumerate(batches))
    files.write_atomic(LOG_PATH, content)
    return files


def reopened(files: MemoryFiles, log: Log, *, clean: bool) -> Log:
    if clean:
        log.close()
    files.kill()
    return open_log(files, clean=clean)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "after a crash"])
def test_an_open_transaction_holds_the_last_stable_offset_back(clean: bool) -> None:
    """From its first record on, through every restart, until it ends."""
    files = files_with(batch(b"x"), data(1), data(2), marker(1, COMMIT), data(2, 1))
    log = open_log(files)
    for _ in range(2):
        assert (log.high_watermark, log.last_stable_offset) == (5, 2)
        assert len(read_headers(log)) == 5
        with pytest.raises(InvalidTxnStateError):
            log.append_as_leader(batch(b"v", producer_id=2, sequence=2), now_ms=NOW_MS)
        log = reopened(files, log, clean=clean)
    assert log.append_as_leader(data(2, 2), now_ms=NOW_MS).base_offset == 5
    assert log.last_stable_offset == 2


def test_aborted_transactions_are_listed_with_the_stable_offset() -> None:
    """Two at once: the first to end leaves the other open."""
    files = files_with(data(1), data(2), marker(1, ABORT), data(3), marker(2, ABORT), marker(3, COMMIT))
    log = open_log(files)
    first, second = AbortedTransaction(1, 0, 2, 1), AbortedTransaction(2, 1, 4, 3)
    assert log.aborted_transactions(0, 6) == [first, second]
    assert log.aborted_transactions(3, 6) == [second]
    assert log.aborted_transactions(0, 1) == [first]
    assert log.last_stable_offset == 6


def test_aborted_transactions_in_several_segments() -> None:
    """Each marker is listed in its own segment."""
    settings = LogSettings(segment_bytes=200)
    files = files_with(data(1), marker(1, ABORT))
    log = open_log(files, settings=settings)
    log.append_as_leader(batch(b"x" * 100), now_ms=NOW_MS)
    log.append_as_leader(batch(b"x" * 100), now_ms=NOW_MS)
    assert len(log.segments) == 3
    assert log.aborted_transactions(0, 4) == [AbortedTransaction(1, 0, 1, 2)]
    assert log.aborted_transactions(2, 4) == []


def test_markers_that_end_nothing() -> None:
    """Markers without an open transaction, of an unknown kind, or without a key only take an offset."""
    strange = marker(4, COMMIT, key=b"")
    files = files_with(marker(1, ABORT), marker(2, LEADER_CHANGE), strange, batch(b"x"))
    log = open_log(files)
    assert parse_header(strange).is_control
    assert log.aborted_transactions(0, 4) == []
    assert (log.log_end_offset, log.last_stable_offset) == (4, 4)


def test_a_torn_list_of_aborted_transactions_is_rebuilt_after_a_crash() -> None:
    """As the other indexes."""
    files = files_with(data(1), marker(1, ABORT), data(1, 1), marker(1, ABORT))
    open_log(files).close()
    before = files.read_bytes(LOG_PATH.replace(".log", ".txnindex"))
    assert before is not None
    files.write_atomic(LOG_PATH.replace(".log", ".txnindex"), before[:-1])
    open_log(files).close()
    assert files.read_bytes(LOG_PATH.replace(".log", ".txnindex")) == before
