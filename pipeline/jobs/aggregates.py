"""What is computed for each window: in parts that can be put together, since a window's rows come in many
batches."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from splashdam.model.errors import KafkaConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import Column

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
