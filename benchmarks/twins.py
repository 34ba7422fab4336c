"""Compares compiled kernels outside of the producer's path with their Python twins, on the same input.

``python -m benchmarks.twins`` prints the medians of both in CPU time, and their ratio; the twins take turns.
The figures stand beside the twins in ``record/kernel/``, as the reason why a compiled twin exists.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import pyarrow
import zstandard

from splashdam.model.values import TopicPartition
from splashdam.record.arrow.source import ArrowSource
from splashdam.record.batch import HEADER_BYTES
from splashdam.record.kernel import _kernel_py
from splashdam.record.sealing import build_batch

TIME_MS = 1_700_000_000_000
RECORDS = 1_000
EMPTY_BLOCKS = 333_000
"""The largest number that a batch of 1 MB can have."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each twin; the medians are compared")
    rounds: int = parser.parse_args().rounds
    from splashdam.record.kernel import _kernel_c

    for name, run in SCENARIOS.items():
        taken: dict[str, list[float]] = {"python": [], "c": []}
        for _ in range(rounds):
            for twin in (_kernel_py, _kernel_c):
                start = time.process_time()
                run(twin)
                taken[twin.IMPL].append(time.process_time() - start)
        python_ms, compiled_ms = (statistics.median(each) * 1000 for each in taken.values())
        print(
            f"{name:34} python {python_ms:7.2f} ms, compiled {compiled_ms:6.3f} ms,"
            f" ratio {python_ms / compiled_ms:.1f}"
        )
    LOOP.close()


def _batch() -> memoryview:
    records = [(TIME_MS + at, b"key-%d" % (at % 500), b"x" * 200, None) for at in range(RECORDS)]
    return memoryview(build_batch(records))[HEADER_BYTES:]


BATCH = _batch()
HEADER_BYTES_ZSTD = zstandard.frame_header_size(zstandard.compress(bytes(100_000)))
MANY_BLOCKS = zstandard.compress(bytes(100_000))[:HEADER_BYTES_ZSTD] + b"\0\0\0" * EMPTY_BLOCKS + b"\1\0\0"


def compact(twin: ModuleType) -> None:
    """Do the cleaner's work on a batch: note its keys, and drop records whose key has a newer one."""
    offsets = twin.OffsetMap(5 * RECORDS, 4 * RECORDS)
    offsets.put_records(BATCH, RECORDS, base_offset=0, first_offset=0)
    offsets.keep_records(
        BATCH,
        RECORDS,
        base_offset=0,
        base_timestamp=TIME_MS,
        append_time=None,
        last_offset=RECORDS - 1,
        drops_tombstones=False,
        has_horizon=False,
        horizon_ms=0,
        is_marker=False,
    )


def search_by_time(twin: ModuleType) -> None:
    """Search by a timestamp near the end of the batch, as ListOffsets does."""
    twin.find_by_time(
        BATCH,
        RECORDS,
        base_offset=0,
        base_timestamp=TIME_MS,
        append_time=None,
        from_offset=0,
        timestamp_ms=TIME_MS + RECORDS - 10,
    )


def measure_zstd_frame(twin: ModuleType) -> None:
    """Read a hostile batch of a megabyte; a usual batch has a block for each 128 KiB."""
    twin.zstd_frame(MANY_BLOCKS, 0, HEADER_BYTES_ZSTD, False)


def _headers() -> tuple[Any, Any]:
    pairs = pyarrow.array(
        [[("trace", b"0123456789abcdef"), ("kind", b"flight")]] * RECORDS,
        pyarrow.map_(pyarrow.string(), pyarrow.binary()),
    )
    table = pyarrow.table({"value": [b"x" * 200] * RECORDS, "headers": pairs})
    with ArrowSource(table, value="value", key=None, key_needed=False, headers="headers") as source:
        chunk = source.next()
    assert chunk is not None
    return chunk.values, chunk.headers


VALUES, HEADERS = _headers()


def append_with_headers(twin: ModuleType) -> None:
    """Append rows with headers to a batch, as ``send_arrow`` with a column of headers does."""
    lane = twin.PartitionLane(TopicPartition("flights", 0))
    lane.open(twin.BatchBuffer(1 << 20), twin.BatchOutcome(lane.topic_partition))
    tails = twin.RunTails()
    tails.reserve(1)
    tails.begin(0, lane)
    rows = twin.BulkRecords(
        twin.BlobColumn.of_arrow(VALUES), None, None, 1 << 20, None, None, twin.HeaderLists.of_arrow(HEADERS)
    )
    assert rows.append(lane, None, tails, TIME_MS, 0, RECORDS) == RECORDS


LOOP = asyncio.new_event_loop()


@cache
def _delivery(twin: ModuleType) -> Any:
    """Return a class of futures that asyncio takes, as ``client`` makes it."""
    watch = twin.LoopWatch(LOOP)
    twin.use_asyncio(
        lambda: watch, asyncio._get_running_loop, asyncio.CancelledError, asyncio.InvalidStateError
    )
    members = {"__slots__": (), "_asyncio_future_blocking": False}
    return twin.uncollected(type("Delivery", (twin.LoopFuture,), members))


def _pending(twin: ModuleType) -> list[Any]:
    """Return the futures of a batch that ends once the loop waits for them."""
    outcome = twin.BatchOutcome(TopicPartition("flights", 0))

    def end() -> None:
        outcome.succeed(0, -1)
        outcome.run_waiters()

    LOOP.call_later(0, LOOP.call_soon, LOOP.call_soon, end)
    return [_delivery(twin)(outcome, number, TIME_MS) for number in range(RECORDS)]


def gather(twin: ModuleType) -> None:
    """Wait for the records of a batch with ``asyncio.gather``."""

    async def gathered() -> None:
        await asyncio.gather(*_pending(twin))

    LOOP.run_until_complete(gathered())


def wait_in_tasks(twin: ModuleType) -> None:
    """Wait for each record in a task of its own."""

    async def wait(future: Any) -> None:
        await future

    async def all_wait() -> None:
        await asyncio.gather(*map(wait, _pending(twin)))

    LOOP.run_until_complete(all_wait())


SCENARIOS: dict[str, Callable[[ModuleType], None]] = {
    "OffsetMap: compact 1,000 records": compact,
    "find_by_time: among 1,000 records": search_by_time,
    "zstd_frame: 333,000 empty blocks": measure_zstd_frame,
    "HeaderLists: append 1,000 rows": append_with_headers,
    "LoopFuture: gather 1,000 records": gather,
    "Wait: 1,000 tasks, a record each": wait_in_tasks,
}


if __name__ == "__main__":
    main()
