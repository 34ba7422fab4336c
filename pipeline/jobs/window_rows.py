"""Rows and the windows they are in: which are still open for a row, and which it comes too late for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.jobs.aggregates import Aggregate, Key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

START, END = "window_start", "window_end"
START_US = "__start_us"
TIME_US, WINDOWS, MISSED = "__time_us", "__windows", "__missed"
LATE, NO_TIME = "late", "no_event_time"
"""Why a row is in the side table."""


@attrs.frozen
class WindowQuery:
    """What is computed.

    Attributes:
        time: the event time, an expression of Spark's SQL over the rows of type timestamp.
        size_ms: how long a window is.
        slide_ms: how far apart windows begin; None: as far as they are long, so that they touch (tumbling).
            Shorter: a row is in several windows.
        delay_ms: how much younger than a row the youngest one may be before the row is late.
        keys: what rows are grouped by, beside the window.
        aggregates: what is computed for each group.
    """

    time: str
    size_ms: int
    delay_ms: int
    aggregates: tuple[Aggregate, ...]
    keys: tuple[Key, ...] = ()
    slide_ms: int | None = None

    def __attrs_post_init__(self) -> None:
        slide = self.slide_ms or self.size_ms
        if self.size_ms <= 0 or self.delay_ms < 0 or not 0 < slide <= self.size_ms:
            raise KafkaConfigurationError(
                f"windows of {self.size_ms} ms every {slide} ms with {self.delay_ms} ms of delay: sizes are"
                " positive, and windows begin no further apart than they are long"
            )
        names = [START, END, *(key.name for key in self.keys), *(each.name for each in self.aggregates)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not self.aggregates:
            said = f"column {twice[0]} would be there twice" if twice else "nothing is computed"
            raise KafkaConfigurationError(f"{said}: name each aggregate and key otherwise, NAME=…")

    @property
    def shape(self) -> str:
        """What state belongs to: the same for queries that can go on with each other's."""
        parts = [self.time, str(self.size_ms), str(self.slide_ms or self.size_ms)]
        parts += [f"{key.name}={key.of}" for key in self.keys]
        parts += [f"{each.name}={each.function}({each.of or '*'})" for each in self.aggregates]
        return "; ".join(re.sub(r"\s+", " ", part) for part in parts)


def windows_of(time_us: int, size_us: int, slide_us: int) -> list[int]:
    """Where the windows begin that a time is in, oldest first; the reference for ``placed``."""
    last = time_us // slide_us * slide_us
    return sorted(start for start in range(last, time_us - size_us, -slide_us))


def placed(rows: DataFrame, query: WindowQuery, watermark_us: int | None) -> DataFrame:
    """Adds to each row its event time, the windows it is in, and which of them are closed.

    Args:
        rows: any.
        query: what is computed.
        watermark_us: windows that end at or before it are closed; None: none is.
    """
    from pyspark.sql import functions as F

    size, slide = query.size_ms * 1000, (query.slide_ms or query.size_ms) * 1000
    timed = rows.withColumn(TIME_US, F.unix_micros(F.expr(query.time)))
    last = f"({TIME_US} - pmod({TIME_US}, {slide}L))"
    first = f"({last} - ({size}L - 1 - pmod({TIME_US}, {slide}L)) div {slide}L * {slide}L)"
    windows = F.expr(f"CASE WHEN {TIME_US} IS NULL THEN array() ELSE sequence({first}, {last}, {slide}L) END")
    with_windows = timed.withColumn(WINDOWS, windows.cast("array<bigint>"))
    closed = "false" if watermark_us is None else f"start + {size}L <= {watermark_us}L"
    return with_windows.withColumn(MISSED, F.expr(f"filter({WINDOWS}, start -> {closed})"))


def side_rows(rows: DataFrame) -> DataFrame:
    """Those that are missing in a window they belong to, or belong to none: as they were, with ``reason`` and
    ``missed_windows``, the beginnings of those windows.

    Args:
        rows: as ``placed`` makes them.
    """
    from pyspark.sql import functions as F

    reason = F.when(F.col(TIME_US).isNull(), F.lit(NO_TIME)).otherwise(F.lit(LATE))
    missed = F.transform(MISSED, F.timestamp_micros)
    found = rows.where(F.col(TIME_US).isNull() | (F.size(MISSED) > 0))
    told = found.withColumn("reason", reason).withColumn("missed_windows", missed)
    return told.drop(TIME_US, WINDOWS, MISSED)


def parts(rows: DataFrame, query: WindowQuery) -> DataFrame:
    """For each key and open window, the parts of its aggregates.

    Args:
        rows: as ``placed`` makes them.
        query: what is computed.
    """
    from pyspark.sql import functions as F

    opened = rows.withColumn(START_US, F.explode(F.array_except(WINDOWS, MISSED)))
    keys = [F.expr(key.of).alias(key.name) for key in query.keys]
    made = [part for each in query.aggregates for part in each.parts()]
    return opened.groupBy(START_US, *keys).agg(*made)


def merged(parts_of_all: DataFrame, query: WindowQuery) -> DataFrame:
    """Parts of the same key and window as one; columns and types stay."""
    from pyspark.sql import functions as F

    made = [part for each in query.aggregates for part in each.merged()]
    joined = parts_of_all.groupBy(START_US, *(key.name for key in query.keys)).agg(*made)
    return joined.select(
        *(F.col(field.name).cast(field.dataType).alias(field.name) for field in parts_of_all.schema.fields)
    )


def results(windows: DataFrame, query: WindowQuery) -> DataFrame:
    """Merged parts as the rows that people read."""
    from pyspark.sql import functions as F

    return windows.select(
        F.timestamp_micros(START_US).alias(START),
        F.timestamp_micros(F.col(START_US) + query.size_ms * 1000).alias(END),
        *(F.col(key.name) for key in query.keys),
        *(each.result() for each in query.aggregates),
    )
