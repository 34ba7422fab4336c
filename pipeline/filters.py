"""What filters leave of topics, partitions, offsets and timestamps: what need not be read at all.

Spark applies every filter again to the rows (docs/pipeline.md), so what is said here may be too much, never
too little. Filters are told by the names of Spark's classes, so that none of this needs Spark.
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
    """The whole numbers from ``first`` up to, and without, ``end``; ``ALL`` leaves none out."""

    first: int = _MIN_LONG
    end: int = MAX_LONG

    @property
    def is_empty(self) -> bool:
        """Whether it holds no number."""
        return self.first >= self.end

    @property
    def is_bounded(self) -> bool:
        """Whether it leaves any number out."""
        return self != ALL

    def both(self, other: Span) -> Span:
        """What is in this one and in ``other``."""
        return Span(max(self.first, other.first), min(self.end, other.end))


ALL = Span()
"""Every number."""


@attrs.frozen
class WantedRows:
    """Which rows can pass a list of filters, all of which have to hold.

    Attributes:
        offsets: where their offsets are.
        timestamps_ms: where their timestamps are, in milliseconds as Kafka has them.
    """

    _constants: tuple[Filter, ...] = ()
    offsets: Span = ALL
    timestamps_ms: Span = ALL

    def may_have(self, topic: str, partition: int) -> bool:
        """Whether rows of a partition can pass."""
        if self.offsets.is_empty or self.timestamps_ms.is_empty:
            return False
        values: dict[str, Any] = {"topic": topic, "partition": partition}
        return all(_may_hold(each, values[_column(each)]) for each in self._constants)


EVERY_ROW = WantedRows()
"""Without filters."""


def wanted_rows(filters: Iterable[Filter]) -> WantedRows:
    """What passes ``filters``, as far as topic, partition, offset and timestamp tell.

    Args:
        filters: as ``DataSourceReader.pushFilters`` gets them. One of an unknown kind, or about another
            column, leaves nothing out.
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
    """False only where it is certain that a value, which is never null, does not pass."""
    kind = type(filter).__name__
    if kind == "Not":
        return _holds(filter.child, value) is not True
    return _holds(filter, value) is not False


def _holds(filter: Any, value: Any) -> bool | None:
    """None where nobody knows; SQL's own unknown, that of nulls, is among it."""
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
    """Where a number is that passes; ``number`` makes one of a filter's value, None where it cannot."""
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
    """A time without a zone could be anybody's, and leaves nothing out."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


def _milliseconds(span: Span) -> Span:
    """The milliseconds whose microsecond 0 is in a span: -(-x // 1000) rounds up."""
    first = span.first if span.first == ALL.first else -(-span.first // 1000)
    return Span(first, span.end if span.end == ALL.end else -(-span.end // 1000))
