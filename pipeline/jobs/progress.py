"""How far a streaming query has come, told batch by batch, and how to wait for one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 1
"""How often a running query is asked for news; its end is noticed at once."""


@attrs.frozen
class BatchProgress:
    """One finished micro-batch.

    Attributes:
        batch: its number, from 0; Spark's batch id.
        rows: how many rows it read.
        rows_per_second: how fast, by Spark's clock.
        lag: for each topic, how many offsets lay behind the batch when it was planned. Empty where the
            source does not tell.
    """

    batch: int
    rows: int
    rows_per_second: float = 0.0
    lag: Mapping[str, int] = attrs.field(factory=dict)


OnProgress = Callable[[BatchProgress], None]
"""Is told of each micro-batch, in the thread that waits."""


@attrs.define
class StreamTotals:
    """What a query did since it was started.

    Attributes:
        batches: micro-batches with rows in them.
        rows: rows in all.
        last_batch: number of the last one, -1 before the first.
    """

    batches: int = 0
    rows: int = 0
    last_batch: int = -1

    def add(self, progress: BatchProgress) -> bool:
        """Counts a batch once, however often it is told of; whether it was new."""
        if progress.batch <= self.last_batch:
            return False
        self.last_batch = progress.batch
        self.rows += progress.rows
        self.batches += progress.rows > 0
        return True


def read_progress(reported: Mapping[str, Any]) -> BatchProgress:
    """One entry of ``StreamingQuery.recentProgress``, as its JSON has it."""
    lag: dict[str, int] = {}
    for source in reported.get("sources", ()):
        for topic, behind in _lag(source).items():
            lag[topic] = lag.get(topic, 0) + behind
    return BatchProgress(
        batch=int(reported["batchId"]),
        rows=int(reported.get("numInputRows", 0)),
        rows_per_second=float(reported.get("processedRowsPerSecond") or 0.0),
        lag=lag,
    )


def follow(
    query: StreamingQuery,
    on_progress: OnProgress = lambda _: None,
    *,
    poll_seconds: int = POLL_SECONDS,
) -> StreamTotals:
    """Waits until a query ends, as one with ``availableNow`` does by itself, and tells of each batch.

    Args:
        query: started by the caller.
        on_progress: is told of each batch once, in order.
        poll_seconds: how often the query is asked.

    Raises:
        StreamingQueryException: the query failed.
        KeyboardInterrupt: Ctrl-C; the query was stopped before it is raised again. The next start goes on at
            its checkpoint.
    """
    totals = StreamTotals()
    try:
        while not query.awaitTermination(poll_seconds):
            _tell(query, totals, on_progress)
        _tell(query, totals, on_progress)
    except KeyboardInterrupt:
        with suppress(Exception):  # a signal to the whole process group has ended the JVM, too
            query.stop()
        raise
    return totals


def _tell(query: StreamingQuery, totals: StreamTotals, on_progress: OnProgress) -> None:
    for reported in query.recentProgress:
        progress = read_progress(json.loads(reported.json))
        if totals.add(progress):
            on_progress(progress)


def _lag(source: Mapping[str, Any]) -> dict[str, int]:
    """By topic; what is no offsets of Kafka, as those of other sources, has none."""
    ends, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    return {
        topic: sum(
            max(0, offset - ends.get(topic, {}).get(number, 0)) for number, offset in partitions.items()
        )
        for topic, partitions in latest.items()
        if topic in ends
    }


def _offsets(reported: object) -> dict[str, dict[str, int]]:
    """``{"topic": {"0": 123}}``, which Spark hands on as JSON or as a text of JSON."""
    if isinstance(reported, str):
        try:
            reported = json.loads(reported)
        except ValueError:
            return {}
    if not isinstance(reported, dict):
        return {}
    return {
        topic: partitions
        for topic, partitions in reported.items()
        if isinstance(partitions, dict) and all(isinstance(offset, int) for offset in partitions.values())
    }
