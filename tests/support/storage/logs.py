"""What the tests of the storage have in common: batches, logs over any files, and reading them back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from splashdam.model.values import TopicPartition
from splashdam.record.batch import BatchHeader
from splashdam.record.reader import Record, read_records
from splashdam.record.sealing import build_batch
from splashdam.record.stored import iter_stored_headers
from splashdam.storage.files.disk import Files
from splashdam.storage.log import Log
from splashdam.storage.settings import LogSettings

NOW_MS = 1_795_000_000_000
TOPIC_ID = bytes(range(16))
TP = TopicPartition("t", 0)
DIRECTORY = "/data/t-0"


def batch(
    *values: bytes,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    timestamp_ms: int = NOW_MS,
    transactional: bool = False,
) -> bytes:
    """One batch with a record per value, idempotent if there is a producer id."""
    is_idempotent = producer_id >= 0
    return build_batch(
        [(timestamp_ms, b"k", value, None) for value in values],
        producer_id=producer_id,
        producer_epoch=epoch if is_idempotent else -1,
        base_sequence=sequence if is_idempotent else -1,
        transactional=transactional,
    )


def open_log(
    files: Files,
    directory: str = DIRECTORY,
    *,
    settings: LogSettings | None = None,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int | None = None,
    now_ms: int = NOW_MS,
    on_work: Callable[[Log], None] = lambda _: None,
) -> Log:
    """Opens a log, making its directory where it is missing."""
    files.make_directory(directory)
    return Log.open(
        files,
        directory,
        TP,
        settings or LogSettings(),
        topic_id=TOPIC_ID,
        now_ms=now_ms,
        clean_shutdown=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        on_work=on_work,
    )


def read_headers(log: Log, offset: int | None = None) -> list[BatchHeader]:
    """The headers of all batches from an offset on, read as a consumer reads them."""
    return [header for header, _ in _read_batches(log, offset)]


def read_all(log: Log, offset: int | None = None) -> list[Record]:
    """All records from an offset on, read as a consumer reads them; control records too."""
    return [record for _, data in _read_batches(log, offset) for record in read_records(data)]


def values_of(log: Log, offset: int | None = None) -> list[bytes | None]:
    """The values of all records from an offset on."""
    return [record.value for record in read_all(log, offset)]


def _read_batches(log: Log, offset: int | None) -> list[tuple[BatchHeader, memoryview]]:
    found: list[tuple[BatchHeader, memoryview]] = []
    offset = log.log_start_offset if offset is None else offset
    while True:
        piece = log.read(offset, 4096)
        data = memoryview(piece.read())
        piece.close()
        if not data:
            return found
        for position, header in iter_stored_headers(data):
            found.append((header, data[position : position + header.size_bytes]))
            offset = header.next_offset


def copy_directory(source: Path, target: Path) -> Path:
    """A writable copy; the original may be read-only."""
    target.mkdir(parents=True)
    for file in source.iterdir():
        shutil.copyfile(file, target / file.name)
    return target


def log_files(directory: Path) -> dict[str, bytes]:
    """Every file of a directory by name."""
    return {file.name: file.read_bytes() for file in sorted(directory.iterdir())}
