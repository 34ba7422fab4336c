"""Measures one log of many segments: opening it, a fetch, a search by time, an append; CPU time and work.

The log is that of ``sparse_log.py``. Its methods are called as the broker calls them, without a request.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import attrs

from broker.sparse_log import BATCH_BYTES, BATCH_RECORDS, batch_at, timestamp_of, write_log
from splashdam.model.values import TopicPartition
from splashdam.storage.files.disk import DiskFiles, DiskLogFile
from splashdam.storage.files.log_file import LARGEST_SMALL_FILE_BYTES, LogFile
from splashdam.storage.log import Log
from splashdam.storage.settings import LogSettings

BATCHES_PER_GIB = (1 << 30) // BATCH_BYTES
PLACES = 50
"""Batches in the middle of the log that are fetched and searched."""

FETCH_BYTES = 1 << 20
NOW_MS = 1_800_000_000_000
OPENINGS, FETCHES, COLD_FETCHES, SEARCHES, APPENDS = 5, 1_000, 20, 50, 500


class CountedFiles(DiskFiles):
    """The disk, with counts.

    Attributes:
        looks: files that were opened, read as a whole, or asked for their size.
        read_bytes_total: bytes read.
    """

    def __init__(self) -> None:
        super().__init__(fsync=False)
        self.looks = self.read_bytes_total = 0

    def open_log(self, path: str, *, create: bool = False) -> LogFile:
        self.looks += 1
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return _CountedLogFile(os.open(path, flags, 0o644), path, self)

    def read_bytes(self, path: str, limit_bytes: int = LARGEST_SMALL_FILE_BYTES) -> bytes | None:
        self.looks += 1
        data = super().read_bytes(path, limit_bytes)
        self.read_bytes_total += len(data or b"")
        return data

    def size_bytes(self, path: str) -> int | None:
        self.looks += 1
        return super().size_bytes(path)


class _CountedLogFile(DiskLogFile):
    def __init__(self, descriptor: int, path: str, files: CountedFiles) -> None:
        super().__init__(descriptor, path, fsync=False)
        self._files = files

    def _read_at(self, position: int, count: int) -> bytes:
        self._files.read_bytes_total += count
        return super()._read_at(position, count)


@attrs.frozen
class Cost:
    """What one call costs on average.

    Attributes:
        cpu_us: CPU time of the process.
        looks: as in `CountedFiles`.
        read_kib: KiB read.
    """

    cpu_us: float
    looks: float
    read_kib: float


def measure(segments: int, batches: int = BATCHES_PER_GIB) -> dict[str, Cost]:
    """Write a log with this number of closed segments, and half a segment after them; return its costs."""
    with tempfile.TemporaryDirectory() as folder:
        return _Measured(Path(folder), segments, batches).costs()


class _Measured:
    def __init__(self, folder: Path, segments: int, batches: int) -> None:
        self._folder = folder
        self._segment = segments // 2
        start, places = self._segment * batches + 1, min(PLACES, batches // 4)
        self._places = range(start + 1, start + batches - 3, max(3, (batches - 4) // places))
        near = {each + beside for each in self._places for beside in (-1, 0, 1)}
        self._end = write_log(folder, segments, batches, max(2, batches // 2), near.__contains__)
        self._settings = LogSettings(segment_bytes=batches * BATCH_BYTES)
        self._files = CountedFiles()

    def costs(self) -> dict[str, Cost]:
        """Measure every call; the first of each kind comes after a start."""
        opening = self._cost(lambda _: self._open().abandon(), OPENINGS)
        logs = [self._open() for _ in range(OPENINGS)]
        # A log keeps what it has found out, so each first search has a log of its own.
        first_search = self._cost(lambda number: self._search(logs[number], 0), len(logs))
        log = logs[0]
        search = self._cost(lambda number: self._search(log, number), SEARCHES)
        segment = log.segments[self._segment]

        def fetch_cold(number: int) -> None:
            segment.release()
            self._fetch(log, number)

        cold = self._cost(fetch_cold, COLD_FETCHES)
        fetch = self._cost(lambda number: self._fetch(log, number), FETCHES)
        batch = batch_at(self._end // BATCH_RECORDS, 0)
        append = self._cost(lambda _: log.append_as_leader(batch, now_ms=NOW_MS), APPENDS)
        for each in logs:
            each.abandon()
        return {
            "opening": opening,
            "first search": first_search,
            "search": search,
            "first fetch": cold,
            "fetch": fetch,
            "append": append,
        }

    def _cost(self, call: Callable[[int], object], times: int) -> Cost:
        looks, read, began = self._files.looks, self._files.read_bytes_total, time.process_time()
        for number in range(times):
            call(number)
        cpu = time.process_time() - began
        return Cost(
            cpu / times * 1e6,
            (self._files.looks - looks) / times,
            (self._files.read_bytes_total - read) / times / 1024,
        )

    def _open(self) -> Log:
        log = Log.open(
            self._files,
            str(self._folder),
            TopicPartition("bench", 0),
            self._settings,
            topic_id=bytes(16),
            now_ms=NOW_MS,
            clean_shutdown=True,
            recovery_point=self._end,
        )
        if log.log_end_offset != self._end:
            raise SystemExit(f"the log ends at {log.log_end_offset:,}, not at {self._end:,}")
        return log

    def _fetch(self, log: Log, number: int) -> None:
        place = self._places[number % len(self._places)]
        found = log.read(place * BATCH_RECORDS + 1, FETCH_BYTES)
        position = (place - log.segments[self._segment].base_offset // BATCH_RECORDS) * BATCH_BYTES
        size = min(FETCH_BYTES, log.segments[self._segment].size_bytes - position)
        wrong = found.size_bytes != size or (found.fileno() is not None and found.position != position)
        found.close()
        if wrong:
            raise SystemExit(f"a fetch found {found.size_bytes:,} bytes at {found.position:,}")

    def _search(self, log: Log, number: int) -> None:
        place = self._places[number % len(self._places)]
        found = log.offset_for_timestamp(timestamp_of(place))
        if found.offset != place * BATCH_RECORDS:
            raise SystemExit(f"a search found offset {found.offset:,}, not {place * BATCH_RECORDS:,}")
