"""Measures the log by itself, without broker and network: appends, recovery and compaction."""

from __future__ import annotations

import time
from pathlib import Path

import crc32c
import trio
from broker import raw_client

from splashdam.cli.measuring.clock import peak_rss_bytes
from splashdam.embedded_broker.broker import open_broker
from splashdam.model.values import TopicPartition
from splashdam.record.sealing import build_batch
from splashdam.storage.background import Now
from splashdam.storage.cleaning.cleaning import Cleaning
from splashdam.storage.cleaning.log_cleaner import cleanable_of
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.log import Log
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.storage.settings import DirectorySettings, LogSettings

NOW_MS = 1_800_000_000_000
RECORDS, RECORD_BYTES = 1_000, 1_020
"""Records of a batch, and bytes of a value: 1 MiB together, just below a broker's default limit."""
PARTITIONS_OF_A_TOPIC = 100


def append(folder: Path, count: int) -> dict[str, float]:
    """Batches of 1 MiB, checked and written, no flush."""
    batch, log = raw_client.batch_of(RECORDS, RECORD_BYTES), _open(folder)
    start = time.perf_counter()
    for _ in range(count):
        log.append_as_leader(batch, now_ms=NOW_MS)
    seconds = time.perf_counter() - start
    _check_end(log, count)
    log.abandon()
    return {"volume_per_second": count * len(batch) / seconds / 1e6}


def recover(folder: Path, count: int) -> dict[str, float]:
    """Opening a log that was not closed, from its first byte: every checksum, both indexes."""
    batch, log = raw_client.batch_of(RECORDS, RECORD_BYTES), _open(folder)
    for _ in range(count):
        log.append_as_leader(batch, now_ms=NOW_MS)
    log.abandon()
    start = time.perf_counter()
    recovered = _open(folder)
    seconds = time.perf_counter() - start
    _check_end(recovered, count)
    recovered.abandon()
    return {"volume_per_second": count * len(batch) / seconds / 1e6}


def compact(folder: Path, count: int) -> dict[str, float]:
    """One cleaning of a log in which every key was written ten times, in segments of 64 MiB.

    The peak memory is that of the whole process.
    """
    log = _open(folder, LogSettings(cleanup_policy="compact", segment_bytes=64 << 20))
    keys = max(1, count * RECORDS // 10)
    value = bytes(RECORD_BYTES)
    for number in range(count):
        records = [
            (NOW_MS, b"key %09d" % (each * 7_919 % keys), value, None)
            for each in range(number * RECORDS, (number + 1) * RECORDS)
        ]
        log.append_as_leader(build_batch(records), now_ms=NOW_MS)
    log.roll(NOW_MS)
    log.flush()
    start = time.perf_counter()
    cleaning = Cleaning(DiskFiles(), cleanable_of(log, None, NOW_MS), DirectorySettings(), Now(0, NOW_MS))
    for turn in cleaning.turns():
        turn()
    seconds = time.perf_counter() - start
    if cleaning.figures.records_after != keys:
        raise SystemExit(f"{cleaning.figures.records_after:,} records are left of {keys:,} keys")
    log.abandon()
    return {
        "volume_per_second": cleaning.figures.bytes_before / seconds / 1e6,
        "peak_rss_bytes": peak_rss_bytes(),
    }


def open_clean(folder: Path, partitions: int) -> dict[str, float]:
    """Opening a broker's directory of partitions that were closed cleanly, a hundred to a topic."""
    return trio.run(_open_clean, str(folder / "data"), partitions)


async def _open_clean(root: str, partitions: int) -> dict[str, float]:
    per_topic = min(PARTITIONS_OF_A_TOPIC, partitions)
    async with open_broker(root, port=None, files=DiskFiles(fsync=False)) as broker:
        for number in range(partitions // per_topic):
            broker.topics.add([NewTopic(f"t{number}", per_topic)])
    start = time.perf_counter()
    async with open_broker(root, port=None):
        return {"opened_seconds": time.perf_counter() - start, "peak_rss_bytes": peak_rss_bytes()}


def _open(folder: Path, settings: LogSettings | None = None) -> Log:
    return Log.open(
        DiskFiles(),
        str(folder),
        TopicPartition("bench", 0),
        settings or LogSettings(),
        topic_id=bytes(16),
        now_ms=NOW_MS,
        clean_shutdown=False,
        recovery_point=0,
    )


def _check_end(log: Log, count: int) -> None:
    if log.log_end_offset != count * RECORDS:
        raise SystemExit(f"the log ends at {log.log_end_offset:,}; {count * RECORDS:,} records were written")


def read(folder: Path, count: int) -> dict[str, float]:
    """A file that was just written, read in steps of 1 MiB, with a checksum over each."""
    path, block = folder / "file", raw_client.batch_of(RECORDS, RECORD_BYTES)
    with path.open("wb") as file:
        for _ in range(count):
            file.write(block)
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while part := file.read(len(block)):
            crc32c.crc32c(part)
    return {"volume_per_second": count * len(block) / (time.perf_counter() - start) / 1e6}
