"""What the tests of compaction have in common: compacted logs, keyed batches, one cleaning at once."""

from __future__ import annotations

from typing import Any

import attrs

from splashdam.record.compression import NO_COMPRESSION, Compression
from splashdam.record.sealing import build_batch
from splashdam.storage.background import Now
from splashdam.storage.cleaning.cleaning import Cleaning
from splashdam.storage.cleaning.log_cleaner import cleanable_of
from splashdam.storage.files.disk import Files
from splashdam.storage.log import Log
from splashdam.storage.settings import DirectorySettings, LogSettings
from support.storage.logs import NOW_MS, open_log, read_all

COMPACTED = LogSettings(cleanup_policy="compact", segment_bytes=10_000, delete_retention_ms=1_000)
DAY_MS = 24 * 3_600_000


def keyed(
    *pairs: tuple[bytes | None, bytes | None],
    timestamp_ms: int = NOW_MS,
    compression: Compression = NO_COMPRESSION,
    **options: Any,
) -> bytes:
    """A batch of keys and values."""
    return build_batch([(timestamp_ms, key, value, None) for key, value in pairs], compression, **options)


def compacted_log(files: Files, **settings: Any) -> Log:
    """An empty log, or the one that is there."""
    return open_log(files, settings=attrs.evolve(COMPACTED, **settings))


def put(log: Log, *pairs: tuple[bytes | None, bytes | None], **options: Any) -> int:
    """Appends one batch; returns its first offset."""
    return log.append_as_leader(keyed(*pairs, **options), now_ms=NOW_MS).base_offset


def roll(log: Log) -> None:
    """Closes the active segment, and has all of it on stable storage."""
    log.roll(NOW_MS)
    log.flush()


def begin(
    files: Files, log: Log, *, now_ms: int = NOW_MS, first_dirty: int | None = None, **settings: Any
) -> Cleaning:
    """A cleaning of whatever can be cleaned."""
    target = cleanable_of(log, first_dirty, now_ms)
    return Cleaning(files, target, DirectorySettings(**settings), Now(0.0, now_ms))


def clean(
    files: Files, log: Log, *, now_ms: int = NOW_MS, first_dirty: int | None = None, **settings: Any
) -> int:
    """Cleans at once; returns where the next cleaning begins."""
    cleaning = begin(files, log, now_ms=now_ms, first_dirty=first_dirty, **settings)
    for turn in cleaning.turns():
        turn()
    return cleaning.next_dirty


def left(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record."""
    return [(record.offset, record.key, record.value) for record in read_all(log)]
