"""What a window query computes: keys, aggregates, and the windows that a row belongs to.

A window's rows arrive in many batches, so each batch yields partial aggregates, which are merged with those
of the windows that are still open.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import KafkaConfigurationError, SettingText, WrongSettingError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

START, END = "window_start", "window_end"
START_US = "__start_us"
TIME_US, WINDOWS, MISSED = "__time_us", "__windows", "__missed"
LATE, NO_TIME = "late", "no_event_time"
"""The reasons for which a row is in the side table."""


@attrs.frozen
class WindowQuery:
    """What is computed.

    Attributes:
        time: the event time, a Spark SQL expression of type timestamp.
        size_ms: length of a window.
        slide_ms: distance between the starts of windows; None for ``size_ms``, so that windows are adjacent
            (tumbling). If it is shorter, a row is in several windows.
        delay_ms: how far the watermark stays behind the latest event time.
        keys: the grouping keys besides the window.
        aggregates: computed for each group.

    Raises:
        KafkaConfigurationError: a duration is too short or too long, there is no event time or no aggregate,
            or two columns have one name.
    """

    time: str
    size_ms: int
    delay_ms: int
    aggregates: tuple[Aggregate, ...]
    keys: tuple[Key, ...] = ()
    slide_ms: int | None = None

    def __attrs_post_init__(self) -> None:
        self._check_durations()
        if not self.time.strip():
            raise WrongSettingError(
                "time", "empty: name a column, or write an expression", given=repr(self.time)
            )
        names = [START, END, *(key.name for key in self.keys), *(each.name for each in self.aggregates)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not self.aggregates:
            problem = f"column {twice[0]} is defined twice" if twice else "no aggregate is given"
            raise KafkaConfigurationError(f"{problem}: give each aggregate and key a different name, NAME=…")

    def _check_durations(self) -> None:
        for setting, duration_ms, least in (
            ("size_ms", self.size_ms, 1),
            ("slide_ms", self.every_ms, 1),
            ("delay_ms", self.delay_ms, 0),
        ):
            if not least <= duration_ms <= LONGEST_MS:
                problem = "too short" if duration_ms < least else "too long"
                raise WrongSettingError(
                    setting,
                    f"{problem}: give {shown_duration(least)} to {shown_duration(LONGEST_MS)}",
                    given=shown_duration(duration_ms),
                )
        if self.every_ms > self.size_ms:
            raise KafkaConfigurationError(
                SettingText(
                    "{0}={every} is longer than {1}={size}: windows must not begin further apart than they"
                    " are long, or rows would be in none",
                    "slide_ms",
                    "size_ms",
                    every=shown_duration(self.every_ms),
                    size=shown_duration(self.size_ms),
                )
            )

    @property
    def every_ms(self) -> int:
        """Distance between the starts of windows."""
        return self.size_ms if self.slide_ms is None else self.slide_ms

    @property
    def shape(self) -> str:
        """Identifies compatible state: equal for queries that can use each other's."""
        parts = [self.time, str(self.size_ms), str(self.every_ms)]
        parts += [f"{key.name}={key.of}" for key in self.keys]
        parts += [f"{each.name}={each.function}({each.of or '*'})" for each in self.aggregates]
        return "; ".join(re.sub(r"\s+", " ", part) for part in parts)


def windows_of(time_us: int, size_us: int, slide_us: int) -> list[int]:
    """Return the starts of the windows that contain a time, oldest first; the reference for ``placed``."""
    last = time_us // slide_us * slide_us
    return sorted(start for start in range(last, time_us - size_us, -slide_us))


def placed(rows: DataFrame, query: WindowQuery, watermark_us: int | None) -> DataFrame:
    """Add to each row its event time, its windows, and which of them are closed.

    Args:
        rows: any rows.
        query: what is computed.
        watermark_us: windows that end at or before it are closed; None if none is.
    """
    from pyspark.sql import functions as F

    size, slide = query.size_ms * 1000, query.every_ms * 1000
    timed = rows.withColumn(TIME_US, F.unix_micros(F.expr(query.time)))
    last = f"({TIME_US} - pmod({TIME_US}, {slide}L))"
    first = f"({last} - ({size}L - 1 - pmod({TIME_US}, {slide}L)) div {slide}L * {slide}L)"
    windows = F.expr(f"CASE WHEN {TIME_US} IS NULL THEN array() ELSE sequence({first}, {last}, {slide}L) END")
    with_windows = timed.withColumn(WINDOWS, windows.cast("array<bigint>"))
    closed = "false" if watermark_us is None else f"start + {size}L <= {watermark_us}L"
    return with_windows.withColumn(MISSED, F.expr(f"filter({WINDOWS}, start -> {closed})"))


def side_rows(rows: DataFrame) -> DataFrame:
    """Return late rows and rows without an event time, with ``reason`` and ``missed_windows``, the starts of
    the closed windows that they belong to.

    Args:
        rows: as ``placed`` returns them.
    """
    from pyspark.sql import functions as F

    reason = F.when(F.col(TIME_US).isNull(), F.lit(NO_TIME)).otherwise(F.lit(LATE))
    missed = F.transform(MISSED, F.timestamp_micros)
    found = rows.where(F.col(TIME_US).isNull() | (F.size(MISSED) > 0))
    marked = found.withColumn("reason", reason).withColumn("missed_windows", missed)
    return marked.drop(TIME_US, WINDOWS, MISSED)


def parts(rows: DataFrame, query: WindowQuery) -> DataFrame:
    """Return the partial aggregates of each key and open window.

    Args:
        rows: as ``placed`` returns them.
        query: what is computed.
    """
    from pyspark.sql import functions as F

    opened = rows.withColumn(START_US, F.explode(F.array_except(WINDOWS, MISSED)))
    keys = [F.expr(key.of).alias(key.name) for key in query.keys]
    made = [part for each in query.aggregates for part in each.parts()]
    return opened.groupBy(START_US, *keys).agg(*made)


def merged(parts_of_all: DataFrame, query: WindowQuery) -> DataFrame:
    """Merge partial aggregates of the same key and window; columns and types stay."""
    from pyspark.sql import functions as F

    made = [part for each in query.aggregates for part in each.merged()]
    joined = parts_of_all.groupBy(START_US, *(key.name for key in query.keys)).agg(*made)
    return joined.select(
        *(F.col(field.name).cast(field.dataType).alias(field.name) for field in parts_of_all.schema.fields)
    )


def results(windows: DataFrame, query: WindowQuery) -> DataFrame:
    """Return the result rows of merged partial aggregates."""
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

LONGEST_MS = 365_000 * _UNITS_MS["d"]
"""A thousand years: times that are reckoned with it stay within Spark's timestamps."""


@attrs.frozen
class Aggregate:
    """One column of the result.

    Attributes:
        function: one of ``FUNCTIONS``.
        of: a Spark SQL expression; None to count rows.
        name: of the column.
    """

    function: str
    of: str | None
    name: str

    def parts(self) -> list[Column]:
        """Return the partial aggregates over rows."""
        from pyspark.sql import functions as F

        if self.function == "count":
            return [F.count(F.lit(1) if self.of is None else F.expr(self.of)).alias(self._part("n"))]
        of = F.expr(self.of or "")
        if self.function == "avg":
            total = F.sum(of.cast("double")).alias(self._part("sum"))
            return [total, F.count(of).alias(self._part("n"))]
        return [getattr(F, self.function)(of).alias(self._part(self.function))]

    def merged(self) -> list[Column]:
        """Return the aggregates that merge partial aggregates."""
        from pyspark.sql import functions as F

        if self.function == "count":
            return [F.sum(self._part("n")).alias(self._part("n"))]
        if self.function == "avg":
            return [F.sum(self._part(name)).alias(self._part(name)) for name in ("sum", "n")]
        part = self._part(self.function)
        return [getattr(F, self.function)(part).alias(part)]

    def result(self) -> Column:
        """Return the final value of merged partial aggregates."""
        from pyspark.sql import functions as F

        if self.function == "avg":
            count = F.col(self._part("n"))
            return F.when(count > 0, F.col(self._part("sum")) / count).alias(self.name)
        return F.col(self._part("n" if self.function == "count" else self.function)).alias(self.name)

    def _part(self, name: str) -> str:
        return f"{self.name}__{name}"


@attrs.frozen
class Key:
    """A grouping key.

    Attributes:
        name: of the column.
        of: a Spark SQL expression.
    """

    name: str
    of: str


def parse_aggregate(text: str) -> Aggregate:
    """Parse ``count``, ``avg(value.delay)`` or, with a name, ``delay=avg(value.delay)``.

    Raises:
        KafkaConfigurationError: the text has another form.
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
        raise KafkaConfigurationError(f"{text!r} has no expression: write {function}(EXPRESSION)")
    return Aggregate(function, of, found["name"] or _default_name(function, of))


def parse_key(text: str) -> Key:
    """Parse ``topic``, or ``airline=value.carrier`` for an expression that is not a column name.

    Raises:
        KafkaConfigurationError: the expression needs a name.
    """
    found = _NAMED.fullmatch(text)
    of = "" if found is None else found["of"].strip()
    name = (found and found["name"]) or _last_name(of)
    if not name:
        raise KafkaConfigurationError(f"{text!r} is not a column: write NAME=EXPRESSION")
    return Key(name, of)


_MOST_DIGITS = 20
"""Of a duration, which is far too long then. Python raises an error of its own for thousands of digits."""
_MOST_SHOWN_CHARS = 40

_TERM = re.compile(rf"\s*([0-9]{{0,{_MOST_DIGITS}}}(?:\.[0-9]{{1,{_MOST_DIGITS}}})?)\s*([A-Za-z]+)")
_OTHER_UNITS = {
    "ms": ("milli", "millis", "millisecond", "milliseconds"),
    "s": ("sec", "secs", "second", "seconds"),
    "m": ("min", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "d": ("day", "days"),
}
_UNIT_OF = {word: unit for unit, words in _OTHER_UNITS.items() for word in (unit, *words)}
"""How durations are written elsewhere: in Go, in systemd, in SQL."""


def parse_duration_ms(text: str) -> int:
    """Parse ``90s``, ``5m``, ``1h``, ``1d`` or ``250ms`` to milliseconds.

    Raises:
        KafkaConfigurationError: the text has another form; the message offers the right one if there is one.
    """
    found = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h|d)\s*", text, re.ASCII)
    if found is None or len(found[1]) > _MOST_DIGITS:
        shown = text[:_MOST_SHOWN_CHARS]
        meant_ms = _meant_ms(text)
        offer = "such as 90s or 5m" if meant_ms is None else f"here {shown_duration(meant_ms)}"
        raise KafkaConfigurationError(
            f"{shown!r} is not a duration: write a whole number without a sign, and one of "
            f"{', '.join(_UNITS_MS)}: {offer}"
        )
    return int(found[1]) * _UNITS_MS[found[2]]


def _meant_ms(text: str) -> int | None:
    """Return the milliseconds of ``0.5s``, ``1m30s`` or ``5 minutes``.

    Return None for a text that is no such duration, or for one that is not a whole number of milliseconds.
    """
    total, at = Fraction(0), 0
    rest = text.strip()
    while at < len(rest):
        term = _TERM.match(rest, at)
        # A single M may be a month.
        unit = None if term is None else _UNIT_OF.get(term[2] if len(term[2]) == 1 else term[2].lower())
        if term is None or unit is None or not term[1]:
            return None
        total += Fraction(term[1]) * _UNITS_MS[unit]
        at = term.end()
    return int(total) if rest and total.denominator == 1 else None


def shown_duration(duration_ms: int) -> str:
    """Return a duration as ``parse_duration_ms`` reads it, in the largest unit that leaves no remainder."""
    unit = next(unit for unit in reversed(_UNITS_MS) if duration_ms % _UNITS_MS[unit] == 0)
    return f"{duration_ms // _UNITS_MS[unit]}{unit}" if duration_ms else "0s"


def _default_name(function: str, of: str | None) -> str:
    if of is None:
        return function
    return f"{function}_{_last_name(of) or re.sub(r'[^0-9A-Za-z]+', '_', of).strip('_')}"


def _last_name(of: str) -> str:
    """Return ``carrier`` of ``value.carrier``, "" for other expressions."""
    return of.rpartition(".")[2] if re.fullmatch(r"\w+(\.\w+)*", of.strip()) else ""
