"""Whether the expressions of a window query fit its columns.

An expression that is the name of a column is looked up here, without Spark. Any other is SQL, which only
Spark can judge: its analyser does, on no rows, before a stream is started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa

from splashdam.model.errors import WrongSettingError
from splashdam.model.options import nearest_name
from splashdam.pipeline.failures import cause_in
from splashdam.pipeline.jobs.window_query import Aggregate, WindowQuery
from splashdam.pipeline.session import errors_unlogged

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_VALUES = re.compile(r"null|true|false|grouping__id|user|session_user|current_\w+|local\w+", re.IGNORECASE)
"""Words that are values of SQL where no column has their name."""


@attrs.frozen
class _Expression:
    """One expression of a query.

    Attributes:
        setting: that gave it.
        given: with the function around it, as it is to be shown.
        sql: the expression alone.
        suits: whether Spark surely accepts a column of this type there.
        use: analyses it, over a DataFrame without rows.
    """

    setting: str
    given: str
    sql: str
    suits: Callable[[pa.DataType], bool]
    use: Callable[[DataFrame], object]

    def wrong(self, problem: str) -> WrongSettingError:
        return WrongSettingError(self.setting, problem, given=self.given)


def _expressions(query: WindowQuery) -> Iterator[_Expression]:
    yield _Expression("time", query.time, query.time, _is_moment, partial(_time, query.time))
    for key in query.keys:
        yield _Expression("keys", key.of, key.of, _is_plain, partial(_grouped, key.of))
    for each in query.aggregates:
        if each.of is not None:
            shown = f"{each.function}({each.of})"
            yield _Expression("aggregates", shown, each.of, _suits(each), partial(_aggregated, each))


def _time(sql: str, rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.select(F.unix_micros(F.expr(sql)))


def _grouped(sql: str, rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.groupBy(F.expr(sql)).count()


def _aggregated(aggregate: Aggregate, rows: DataFrame) -> DataFrame:
    return rows.agg(*aggregate.parts())


def _suits(aggregate: Aggregate) -> Callable[[pa.DataType], bool]:
    if aggregate.function == "count":
        return lambda _: True
    return _is_number if aggregate.function in ("sum", "avg") else _is_plain


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is not None)


def _is_plain(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def need_columns(query: WindowQuery, columns: pa.Schema) -> bool:
    """Refuse names of columns that do not exist; without Spark.

    Args:
        query: whose expressions are looked at.
        columns: of the rows that it reads.

    Returns:
        Whether these are all of its expressions. If not, `need_expressions` has something to find.

    Raises:
        WrongSettingError: there is no such column, or no such field in one.
    """
    found = [(each, _type_of(each, columns)) for each in _expressions(query)]
    return all(kind is not None and each.suits(kind) for each, kind in found)


def _type_of(expression: _Expression, columns: pa.Schema) -> pa.DataType | None:
    """Return the type of the column or field that an expression names; None if only Spark can tell."""
    sql = expression.sql.strip()
    if _NAME.fullmatch(sql) is None:
        return None
    kind: pa.DataType = pa.struct(list(columns))
    passed = ""
    for name in sql.split("."):
        if not pa.types.is_struct(kind):
            return None
        fields = {field.name: field.type for field in kind}
        # Spark compares names without regard to case, and refuses one that fits two fields.
        fitting = [each for each in fields if each.lower() == name.lower()]
        if not fitting and not passed and _VALUES.fullmatch(sql) is not None:
            return None
        if not fitting:
            raise expression.wrong(_missing(name, fields, of=passed))
        if len(fitting) > 1:
            return None
        passed, kind = f"{passed}.{name}" if passed else name, fields[fitting[0]]
    return kind


def need_expressions(rows: DataFrame, query: WindowQuery) -> None:
    """Refuse expressions that Spark does not accept over these columns.

    Args:
        rows: with the columns that the query reads; no row is looked at.
        query: whose expressions are looked at.

    Raises:
        WrongSettingError: it does not parse, names no column, or has a type that does not fit.
    """
    from pyspark.errors import AnalysisException

    empty = rows.sparkSession.createDataFrame([], rows.schema)
    with errors_unlogged():
        for each in _expressions(query):
            try:
                each.use(empty)
            except AnalysisException as error:
                raise each.wrong(_problem(error, rows.columns)) from None


def _problem(error: AnalysisException, columns: Iterable[str]) -> str:
    names = list(columns)
    if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        name = (error.getMessageParameters() or {}).get("objectName", "")
        return _missing(name.replace("`", ""), names)
    return f"Spark does not accept it: {cause_in(str(error)).rstrip('.')}. The columns are {', '.join(names)}"


def _missing(name: str, known: Iterable[str], *, of: str = "") -> str:
    """Return what is wrong with the name of a column, or of a field of one."""
    names = list(known)
    lacks, all_known = (f"{of} has no field", "Its fields") if of else ("there is no column", "The columns")
    return f"{lacks} {name}.{nearest_name(name, names)} {all_known} are {', '.join(names)}"
