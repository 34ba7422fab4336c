"""Files that were made, renamed or removed: directories are synced before anything rests on their names."""

from __future__ import annotations

import os
from random import Random

from support.storage.logs import DIRECTORY, NOW_MS, TP, batch, open_log

from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.settings import LogSettings
from splashdam.storage.transaction_marker import TransactionMarker

ABORT = TransactionMarker(producer_id=1, producer_epoch=0, is_commit=False, coordinator_epoch=0)


def opened(files: MemoryFiles, **configs: str) -> tuple[LogManager, Log]:
    """A data directory with one partition, made where it is missing."""
    manager = LogManager.open(files, "/data", now_ms=NOW_MS)
    if TP not in manager.logs:
        manager.create_topic("t", 1, configs, now_ms=NOW_MS)
    return manager, manager.logs[TP]


def test_the_first_txnindex_of_a_segment_survives_a_power_cut_behind_a_clean_end() -> None:
    """Without its name aborted records were served as committed: nobody checks after a clean end."""
    files = MemoryFiles()
    manager, log = opened(files)
    log.flush()
    log.append_as_leader(batch(b"x", producer_id=1, transactional=True), now_ms=NOW_MS)
    log.append_marker(ABORT, now_ms=NOW_MS)
    aborted = log.aborted_transactions(0, 2)
    assert len(aborted) == 1
    manager.close()
    files.crash()
    _, log = opened(files)
    assert log.aborted_transactions(0, 2) == aborted


async def test_deleted_records_do_not_come_back_with_the_old_names_of_their_segments() -> None:
    """The names said where the log starts, so the checkpoint did not: one of them must last."""
    files = MemoryFiles()
    manager, log = opened(files, **{"segment.bytes": "100"})
    for _ in range(6):
        log.append_as_leader(batch(b"x" * 20), now_ms=NOW_MS)
    log.flush()
    log.advance_log_start(4)
    await manager.persist_log_starts([log])
    assert log.delete_old_segments(wall_ms=NOW_MS, now_ms=0) == 4
    await manager.persist_log_starts([log])
    files.crash()
    _, log = opened(files)
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)


def test_segments_that_recovery_removed_do_not_come_back_behind_a_shorter_log() -> None:
    """The cut lasted before the removal did: what lay behind the hole was served again."""
    files = MemoryFiles()
    settings = LogSettings(segment_bytes=300)
    for made in files.make_directory(DIRECTORY):
        files.sync_directory(os.path.dirname(made))
    log = open_log(files, settings=settings)
    for _ in range(9):
        log.append_as_leader(batch(b"x" * 20), now_ms=NOW_MS)
    assert len(log.segments) > 2
    log.close()
    path = f"{DIRECTORY}/{0:020d}.log"
    files.write_atomic(path, (files.read_bytes(path) or b"")[:-1])
    for number in range(20):
        cut = open_log(files, settings=settings)
        assert len(cut.segments) == 1
        end = cut.log_end_offset
        files.crash(Random(number))
        assert open_log(files, settings=settings).log_end_offset == end
