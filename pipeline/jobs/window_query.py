"""What a window query computes: keys, aggregates, and the windows that a row belongs to.

A window's rows arrive in many batches, so each batch yields partial aggregates, which are merged with those
of the windows that are still open.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
    """Add to each row its event time, the windows it is in, and which of them are closed.

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


FUNCTIONS = ("count", "sum", "avg", "min", "max")

_CALL = re.compile(r"\s*(?:(?P<name>\w+)\s*=\s*)?(?P<function>\w+)\s*(?:\((?P<of>.+)\))?\s*", re.DOTALL)
_NAMED = re.compile(r"\s*(?:(?P<name>\w+)\s*=(?!=))?(?P<of>.+)", re.DOTALL)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@attrs.frozen
class Aggregate:
    """One column of the result.

    Attributes:
        function: one of ``FUNCTIONS``.
        of: an expression of Spark's SQL over the rows; None counts rows.
        name: of the column.
    """

    function: str
    of: str | None
    name: str

    def parts(self) -> list[Column]:
        """Over rows: what later parts are put together with."""
        from pyspark.sql import functions as F

        if self.function == "count":
            return [F.count(F.lit(1) if self.of is None else F.expr(self.of)).alias(self._part("n"))]
        of = F.expr(self.of or "")
        if self.function == "avg":
            total = F.sum(of.cast("double")).alias(self._part("sum"))
            return [total, F.count(of).alias(self._part("n"))]
        return [getattr(F, self.function)(of).alias(self._part(self.function))]

    def merged(self) -> list[Column]:
        """Over parts: the same parts of all of them."""
        from pyspark.sql import functions as F

        if self.function == "count":
            return [F.sum(self._part("n")).alias(self._part("n"))]
        if self.function == "avg":
            return [F.sum(self._part(name)).alias(self._part(name)) for name in ("sum", "n")]
        part = self._part(self.function)
        return [getattr(F, self.function)(part).alias(part)]

    def result(self) -> Column:
        """Over merged parts: the value."""
        from pyspark.sql import functions as F

        if self.function == "avg":
            count = F.col(self._part("n"))
            return F.when(count > 0, F.col(self._part("sum")) / count).alias(self.name)
        return F.col(self._part("n" if self.function == "count" else self.function)).alias(self.name)

    def _part(self, name: str) -> str:
        return f"{self.name}__{name}"


@attrs.frozen
class Key:
    """What rows are grouped by, beside the window.

    Attributes:
        name: of the column.
        of: an expression of Spark's SQL over the rows.
    """

    name: str
    of: str


def parse_aggregate(text: str) -> Aggregate:
    """``count``, ``avg(value.delay)`` or, with a name of one's own, ``delay=avg(value.delay)``.

    Raises:
        KafkaConfigurationError: it is none of them.
    """
    found = _CALL.fullmatch(text)
    if found is None or found["function"] not in FUNCTIONS:
        raise KafkaConfigurationError(
            f"{text!r} is no aggregate: write NAME=FUNCTION(EXPRESSION) with one of {', '.join(FUNCTIONS)}"
        )
    function, of = found["function"], found["of"]
    if of is not None and of.strip() == "*" and function == "count":
        of = None
    if of is None and function != "count":
        raise KafkaConfigurationError(f"{text!r} does not say of what: {function}(EXPRESSION)")
    return Aggregate(function, of, found["name"] or _default_name(function, of))


def parse_key(text: str) -> Key:
    """``topic``, or ``airline=value.carrier`` for what is no column by itself.

    Raises:
        KafkaConfigurationError: it has no name.
    """
    found = _NAMED.fullmatch(text)
    of = "" if found is None else found["of"].strip()
    name = (found and found["name"]) or _last_name(of)
    if not name:
        raise KafkaConfigurationError(f"{text!r} is no column: write NAME=EXPRESSION")
    return Key(name, of)


def parse_duration_ms(text: str) -> int:
    """``90s``, ``5m``, ``1h``, ``1d`` or ``250ms``, in milliseconds.

    Raises:
        KafkaConfigurationError: it is none of them.
    """
    found = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h|d)\s*", text, re.ASCII)
    if found is None:
        raise KafkaConfigurationError(
            f"{text!r} is no duration: write a number and one of {', '.join(_UNITS_MS)}"
        )
    return int(found[1]) * _UNITS_MS[found[2]]


def _default_name(function: str, of: str | None) -> str:
    if of is None:
        return function
    return f"{function}_{_last_name(of) or re.sub(r'[^0-9A-Za-z]+', '_', of).strip('_')}"


def _last_name(of: str) -> str:
    """``carrier`` of ``value.carrier``."""
    return of.rpartition(".")[2] if re.fullmatch(r"\w+(\.\w+)*", of.strip()) else ""
