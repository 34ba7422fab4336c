"""``window``: each row and window meet once, in the result or in the side table, whatever dies in between."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from support.pipeline.pipeline_job_kit import EPOCH, DiedError, Mortal, Row, Source, table_rows

pytest.importorskip("pyspark", reason="needs splashdam[spark]")

from splashdam.model.errors import IllegalStateError, KafkaConfigurationError
from splashdam.pipeline.jobs.micro_batches import Running
from splashdam.pipeline.jobs.outputs import TableOutput
from splashdam.pipeline.jobs.window import WindowReport, window
from splashdam.pipeline.jobs.window_query import WindowQuery, parse_aggregate, parse_key, windows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE, SLIDE, DELAY = 10, 5, 3
NO_TIME = b"none"
QUERY = WindowQuery(
    time=f"CASE WHEN value = X'{NO_TIME.hex()}' THEN NULL ELSE timestamp END",
    size_ms=SIZE * 1000,
    slide_ms=SLIDE * 1000,
    delay_ms=DELAY * 1000,
    keys=(parse_key("who=decode(key, 'UTF-8')"),),
    aggregates=tuple(map(parse_aggregate, ["count", "sum(offset)", "avg(offset)", "last=max(offset)"])),
)
BATCHES = [
    [Row(b"", b"a", 1), Row(b"", b"b", 2), Row(b"", b"a", 12), Row(NO_TIME, b"a", 1)],
    [Row(b"", b"a", 3), Row(b"", b"a", 11), Row(b"", b"b", 14), Row(b"", b"b", -30)],
    [Row(b"", b"a", 4), Row(b"", b"a", 31), Row(b"", b"b", 7)],
    [Row(b"", b"a", 13), Row(b"", b"b", 32)],
]


def seconds(time: Any) -> int:
    """Since the first row's minute."""
    return int((time - EPOCH).total_seconds())


def expected(*, closed: bool) -> tuple[Counter[Any], Counter[Any]]:
    """What each (window, key) counts, and which (offset, window) is missing, by the rule as it is written."""
    watermark: float = float("-inf")
    counts: Counter[Any] = Counter()
    missing: Counter[Any] = Counter()
    offset = 0
    for rows in BATCHES:
        for row in rows:
            for start in [] if row.value == NO_TIME else windows_of(int(row.second), SIZE, SLIDE):
                if start + SIZE <= watermark:
                    missing[offset, start] += 1
                else:
                    counts[start, (row.key or b"").decode()] += 1
            offset += 1
        watermark = max([watermark, *(row.second - DELAY for row in rows if row.value != NO_TIME)])
    if not closed:
        counts = Counter({key: count for key, count in counts.items() if key[0] + SIZE <= watermark})
    return counts, missing


def found(folder: Path) -> tuple[Counter[Any], Counter[Any]]:
    """The same, from the tables."""
    counts: Counter[Any] = Counter()
    for row in table_rows(folder / "windows"):
        assert seconds(row["window_end"]) - seconds(row["window_start"]) == SIZE
        assert row["avg_offset"] == row["sum_offset"] / row["count"]
        assert row["last"] >= row["avg_offset"]
        counts[seconds(row["window_start"]), row["who"]] += row["count"]
    missing = Counter(
        (row["offset"], seconds(start))
        for row in table_rows(folder / "late")
        for start in row["missed_windows"]
    )
    return counts, missing


@pytest.mark.spark
def test_each_row_and_window_once(spark: SparkSession, tmp_path: Path) -> None:
    """The driver dies behind each output in turn, and also while the open windows are closed at the end."""
    source = Source(tmp_path / "in")
    for rows in BATCHES:
        source.add(rows)
    output, side = (
        TableOutput("parquet", str(tmp_path / "windows")),
        TableOutput("parquet", str(tmp_path / "late")),
    )
    running = Running(str(tmp_path / "checkpoint"))
    for good, late in ((Mortal(output, 1), side), (output, Mortal(side, 2))):
        with pytest.raises(DiedError):
            window(source.stream(spark), QUERY, good, late, running)
    report = window(source.stream(spark), QUERY, output, side, running)
    assert report.watermark_us == int(EPOCH.timestamp() + 32 - DELAY) * 1_000_000
    assert found(tmp_path) == expected(closed=False)
    with pytest.raises(DiedError):
        window(source.stream(spark), QUERY, Mortal(output, 3), side, running, close_all=True)
    window(source.stream(spark), QUERY, output, side, running, close_all=True)
    assert found(tmp_path) == expected(closed=True)
    reasons = Counter(row["reason"] for row in table_rows(tmp_path / "late"))
    assert reasons["no_event_time"] == 1
    source.add([Row(b"", b"a", 33)])
    last = window(source.stream(spark), QUERY, output, side, running, close_all=True)
    assert (last.records, last.late, last.windows) == (1, 1, 0)
    source.add([Row(b"", b"a", 99)])
    # A new table with the same checkpoint was empty, and stayed without the rows until now.
    with pytest.raises(KafkaConfigurationError, match=f"there is no table {tmp_path}/late2"):
        window(source.stream(spark), QUERY, output, TableOutput("parquet", f"{tmp_path}/late2"), running)
    with pytest.raises(IllegalStateError, match="other windows"):
        window(source.stream(spark), attrs.evolve(QUERY, size_ms=5000), output, side, running)


@pytest.mark.spark
def test_batch(spark: SparkSession, tmp_path: Path) -> None:
    """All windows of what is there, nothing late."""
    source = Source(tmp_path / "in")
    source.add([row for rows in BATCHES for row in rows])
    output, side = (
        TableOutput("parquet", str(tmp_path / "windows")),
        TableOutput("parquet", str(tmp_path / "late")),
    )
    report = window(source.batch(spark), QUERY, output, side, Running())
    counts, missing = found(tmp_path)
    assert sum(counts.values()) == 2 * (report.records - report.without_time)
    assert not missing
    assert attrs.evolve(report, windows=0) == WindowReport(1, 13, 0, 1, 0, None)
