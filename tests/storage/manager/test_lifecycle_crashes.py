"""One fault at every write, rename and sync of a data directory's whole life, and a crash behind it.

The life has appends, rolls, flushes, retention, DeleteRecords, delayed deletion and checkpoints, as a broker
calls them. Whatever happens: what was flushed and not deleted is there, what was deleted and answered is not,
each record stands at its offset, and nothing needs a hand.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import attrs
import pytest
from support.running.fault_points import FaultPoints
from support.storage.logs import NOW_MS, batch, read_all

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.files.memory import Fault, MemoryFiles, PowerCutError
from splashdam.storage.log import Log
from splashdam.storage.manager.log_manager import LogManager
from splashdam.storage.settings import DirectorySettings

A0 = TopicPartition("a", 0)
CONFIGS = {
    "segment.bytes": "160",
    "index.interval.bytes": "80",
    "retention.bytes": "500",
    "file.delete.delay.ms": "2000",
}
SETTINGS = DirectorySettings(
    log_retention_check_interval_ms=1000,
    log_flush_offset_checkpoint_interval_ms=2000,
    log_flush_start_offset_checkpoint_interval_ms=3000,
    replica_high_watermark_checkpoint_interval_ms=1500,
)


@attrs.define
class Known:
    """The answers that clients got before the end."""

    acknowledged: int = 0
    flushed: int = 0
    deleted: int = 0
    """Everything below was deleted, and that was answered."""
    may_be_gone: int = 0
    """Everything below was deleted or had to go by retention, answered or not."""


def value(number: int) -> bytes:
    return b"%02d" % number


async def live(files: MemoryFiles, known: Known) -> None:
    """A broker's life from the first start to the end, told to ``known`` step by step."""
    manager = LogManager.open(files, "/data", now_ms=NOW_MS, settings=SETTINGS)
    manager.create_topic("a", 1, CONFIGS, now_ms=NOW_MS)
    log = manager.logs[A0]
    for number in range(24):
        data = batch(value(number), producer_id=1, sequence=number, timestamp_ms=NOW_MS + number)
        log.append_as_leader(data, now_ms=NOW_MS)
        known.acknowledged = number + 1
        if number % 4 == 3:
            wanted = log.log_end_offset
            known.may_be_gone = max(known.may_be_gone, wanted - 5)
            await manager.step(number * 250.0, NOW_MS + number)
            known.may_be_gone = max(known.may_be_gone, log.log_start_offset)
        if number in (9, 17):
            known.may_be_gone = max(known.may_be_gone, number - 3)
            log.advance_log_start(number - 3)
            await manager.persist_log_starts([log])
            known.deleted = number - 3
            known.flushed = max(known.flushed, number - 3)
        if number % 7 == 6:
            await log.sync()
            known.flushed = number + 1
    manager.close()
    if files.size_bytes("/data/.kafka_cleanshutdown") is not None:
        known.flushed = 24


def reopened(files: MemoryFiles) -> Log | None:
    """The log as the next broker finds it, or None if its topic never came to be."""
    return LogManager.open(files, "/data", now_ms=NOW_MS, settings=SETTINGS).logs.get(A0)


async def check(files: MemoryFiles, known: Known, survived: int) -> None:
    """``survived``: so many of the records must have outlived the crash."""
    log = reopened(files)
    if log is None:
        assert known.acknowledged == 0
        return
    assert known.deleted <= log.log_start_offset <= max(known.may_be_gone, known.acknowledged - 5, 0)
    assert log.log_end_offset >= survived
    records = [record for record in read_all(log) if record.offset >= log.log_start_offset]
    assert all(record.value == value(record.offset) for record in records)
    there = {record.offset for record in records}
    assert there >= set(range(max(known.may_be_gone, log.log_start_offset), survived))
    assert sorted(there) == [record.offset for record in records]
    if there:
        repeat = max(there)
        data = batch(value(repeat), producer_id=1, sequence=repeat, timestamp_ms=NOW_MS + repeat)
        result = log.append_as_leader(data, now_ms=NOW_MS)
        assert (result.base_offset, result.duplicate) == (repeat, True)
    for number in range(log.log_end_offset, log.log_end_offset + 3):
        data = batch(value(number), producer_id=2, sequence=number, timestamp_ms=NOW_MS + number)
        assert log.append_as_leader(data, now_ms=NOW_MS).base_offset == number
    names = [name for name, _ in files.list_directory("/data/a-0")]
    assert not [name for name in names if name.endswith((".deleted", ".tmp"))]
    assert not [name for name, _ in files.list_directory("/data") if name.endswith(".tmp")]


async def operations() -> int:
    files = MemoryFiles()
    await live(files, Known())
    return files.operations


async def test_killed_at_any_operation(fault_points: FaultPoints) -> None:
    """Every acknowledged record that was not deleted is there."""
    for operation in fault_points.of(range(await operations())):
        files, known = MemoryFiles(), Known()
        files.inject(Fault(None, after=operation, landed_bytes=70))
        with pytest.raises(PowerCutError):
            await live(files, known)
        files.kill()
        await check(files, known, survived=known.acknowledged)


@pytest.mark.parametrize("seed", range(2))
async def test_power_cut_at_any_operation(seed: int, fault_points: FaultPoints) -> None:
    """Every flushed record that was not deleted is there, whatever else the disk kept."""
    for operation in fault_points.of(range(await operations())):
        files, known, random = MemoryFiles(), Known(), Random(seed * 10_000 + operation)
        files.inject(Fault(None, after=operation, landed_bytes=random.randint(0, 80)))
        with pytest.raises(PowerCutError):
            await live(files, known)
        files.crash(random if seed else None)
        await check(files, known, survived=known.flushed)


@pytest.mark.parametrize(("error_number", "times"), [(errno.ENOSPC, 1), (errno.EIO, 3)])
async def test_the_disk_refuses_any_operation(
    error_number: int, times: int, fault_points: FaultPoints
) -> None:
    """The broker goes on or is restarted; a kill behind it loses nothing that was acknowledged."""
    for operation in fault_points.of(range(await operations())):
        files, known = MemoryFiles(), Known()
        files.inject(Fault(error_number, after=operation, times=times, landed_bytes=9))
        with suppress(KafkaStorageError):
            await live(files, known)
        files.kill()
        await check(files, known, survived=known.acknowledged)
