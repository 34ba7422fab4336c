"""Log directories on disk, and what is read of them without a broker."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from splashdam.model.values import TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.filters import ALL
from splashdam.pipeline.log_source.filesystems import location_of
from splashdam.pipeline.log_source.offline_logs import OfflineLogs
from splashdam.pipeline.log_source.records import RecordRules, read_records
from splashdam.pipeline.log_source.slices import LogSlice, ReadingRules
from splashdam.pipeline.schema import all_columns
from splashdam.record.reader import Record
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.log import Log
from splashdam.storage.settings import LogSettings
from support.pipeline.pipeline_kit import rows_of
from support.storage.logs import open_log

SMALL = LogSettings(segment_bytes=16_000, index_interval_bytes=300)
WHERE = TopicPartition("t", 0)
ALL_BYTES = 1 << 40


def partition_on_disk(
    directory: Path, fill: Callable[[Log], Any], settings: LogSettings = SMALL, *, topic: str = "t"
) -> Path:
    """A data directory with partition 0 of a topic, closed in order; returns the data directory."""
    path = directory / f"{topic}-0"
    path.mkdir(parents=True)
    log = open_log(DiskFiles(), str(path), settings=settings)
    fill(log)
    log.close()
    return directory


def copy_with(source: Path, target: Path, change: Callable[[Path], Any]) -> Path:
    """A copy of a data directory whose partition ``t-0`` was changed."""
    shutil.copytree(source, target)
    change(target / "t-0")
    return target


def offline(path: Path | str, *, committed: bool = False) -> OfflineLogs:
    """The logs of a directory."""
    return OfflineLogs([location_of(str(path))], read_committed=committed)


def slices_in(
    path: Path | str,
    *,
    first: int | None = None,
    end: int | None = None,
    committed: bool = False,
    max_bytes: int = ALL_BYTES,
    where: TopicPartition = WHERE,
) -> list[LogSlice]:
    """The slices of one partition, from the log's start up to its end unless told otherwise."""
    logs = offline(path, committed=committed)
    if first is None:
        first = logs.offsets(where.topic, [where.partition], EARLIEST)[where.partition]
    if end is None:
        end = logs.offsets(where.topic, [where.partition], LATEST)[where.partition]
    return logs.slices(where, first, end, max_bytes=max_bytes)


def records_in(
    slices: list[LogSlice],
    *,
    committed: bool = False,
    fails: bool = True,
    read_bytes: int = 8 << 20,
    since_ms: int = ALL.first,
) -> list[Record]:
    """All records of slices, as the storage's readers give them."""
    reading = ReadingRules(fails=fails, read_bytes=read_bytes, is_checked_later=fails)
    rules = RecordRules(all_columns(include_headers=True), committed, since_ms, reading)
    return [record for each in slices for record in as_records(read_records(each, rules))]


def as_records(batches: Iterator[Any]) -> Iterator[Record]:
    """The rows of Arrow's batches as records."""
    for row in rows_of(batches):
        headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
        yield Record(row["offset"], row["timestamp"] // 1000, row["key"], row["value"], headers)
