"""Spark's filters as bounds on topics, partitions, offsets and timestamps, so that less is read.

Spark applies every filter again to the rows (docs/reference/pipeline.md), so these bounds may include too
much, never too little. Filters are recognized by the names of Spark's classes, so this module does not
import Spark.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.model.options import MAX_LONG

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MIN_LONG = -MAX_LONG - 1


@attrs.frozen
class Span:
    """The integers from ``first`` up to ``end``, exclusive; ``ALL`` is unbounded."""

    first: int = _MIN_LONG
    end: int = MAX_LONG

    @property
    def is_empty(self) -> bool:
        return self.first >= self.end

    @property
    def is_bounded(self) -> bool:
        return self != ALL

    def both(self, other: Span) -> Span:
        """Return the intersection with ``other``."""
        return Span(max(self.first, other.first), min(self.end, other.end))


ALL = Span()


@attrs.frozen
class WantedRows:
    """The rows that can pass a list of filters, all of which must hold.

    Attributes:
        offsets: bounds of their offsets.
        timestamps_ms: bounds of their timestamps, in milliseconds as in Kafka.
    """

    _constants: tuple[Filter, ...] = ()
    offsets: Span = ALL
    timestamps_ms: Span = ALL

    def may_have(self, topic: str, partition: int) -> bool:
        """Whether any row of a partition can pass."""
        if self.offsets.is_empty or self.timestamps_ms.is_empty:
            return False
        values: dict[str, Any] = {"topic": topic, "partition": partition}
        return all(_may_hold(each, values[_column(each)]) for each in self._constants)


EVERY_ROW = WantedRows()


def wanted_rows(filters: Iterable[Filter]) -> WantedRows:
    """Return the rows that ``filters`` may let pass, judged by topic, partition, offset and timestamp.

    Args:
        filters: as ``DataSourceReader.pushFilters`` gets them. A filter of an unknown kind, or on another
            column, excludes nothing.
    """
    constants: list[Filter] = []
    offsets = timestamps = ALL
    for each in filters:
        column = _column(each)
        if column in ("topic", "partition"):
            constants.append(each)
        elif column == "offset":
            offsets = offsets.both(_span(each, _whole))
        elif column == "timestamp":
            timestamps = timestamps.both(_milliseconds(_span(each, _microseconds)))
    return WantedRows(tuple(constants), offsets, timestamps)


def _column(filter: Any) -> str:
    path: tuple[str, ...] = getattr(getattr(filter, "child", filter), "attribute", ())
    return path[0] if len(path) == 1 else ""


# --- one value ----------------------------------------------------------------------------------------------


_COMPARISONS: dict[str, Callable[[Any, Any], object]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "StringStartsWith": str.startswith,
    "StringEndsWith": str.endswith,
    "StringContains": operator.contains,
}


def _may_hold(filter: Any, value: Any) -> bool:
    """Return False only if it is certain that the value, which is never null, does not pass."""
    kind = type(filter).__name__
    if kind == "Not":
        return _holds(filter.child, value) is not True
    return _holds(filter, value) is not False


def _holds(filter: Any, value: Any) -> bool | None:
    """Return None if the result is unknown, as SQL's comparisons with null are."""
    kind = type(filter).__name__
    if kind in ("IsNull", "IsNotNull"):
        return kind == "IsNotNull"
    wanted = getattr(filter, "value", None)
    if kind == "In":
        return _is_in(value, wanted)
    holds = _COMPARISONS.get(kind)
    return None if holds is None or type(wanted) is not type(value) else bool(holds(value, wanted))


def _is_in(value: Any, wanted: Any) -> bool | None:
    if value in wanted:
        return True
    return False if all(type(each) is type(value) for each in wanted) else None


# --- spans --------------------------------------------------------------------------------------------------


def _span(filter: Any, number: Any) -> Span:
    """Return the bounds of numbers that pass; ``number`` converts a filter's value, None if it cannot."""
    kind = type(filter).__name__
    if kind == "In":
        numbers = [number(each) for each in filter.value]
        if not numbers or None in numbers:
            return ALL
        return Span(min(numbers), max(numbers) + 1)
    wanted = number(getattr(filter, "value", None))
    if wanted is None:
        return ALL
    spans = {
        "EqualTo": Span(wanted, wanted + 1),
        "EqualNullSafe": Span(wanted, wanted + 1),
        "GreaterThan": Span(first=wanted + 1),
        "GreaterThanOrEqual": Span(first=wanted),
        "LessThan": Span(end=wanted),
        "LessThanOrEqual": Span(end=wanted + 1),
    }
    return spans.get(kind, ALL)


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _microseconds(value: Any) -> int | None:
    """A time without a zone is ambiguous, so such a filter excludes nothing."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


def _milliseconds(span: Span) -> Span:
    """Convert a span of microseconds to the milliseconds in it: -(-x // 1000) rounds up."""
    first = span.first if span.first == ALL.first else -(-span.first // 1000)
    return Span(first, span.end if span.end == ALL.end else -(-span.end // 1000))
