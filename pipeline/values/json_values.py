"""JSON values: Arrow's parser reads whole columns where its answer is certain, Python's the other rows.

Arrow's parser is fast, but it forgives what a strict reader must not, and gives up on the first bad row. So
it gets only rows on which it and a strict reader must agree. What it forgives is looked for beforehand:
``NaN`` and its like, bytes that are not UTF-8, two objects in one row, objects nested deeper than Python's
stack. Each row begins with ``{`` and ends with ``}``, and no value continues over a ``}``, a line end and a
``{``: so as many objects as rows means one object in each row. Rows without a required field are left out of
what the parser returns. When it gives up, it is called again without the rows that it names, or that a sieve
holds back where it names none, then on chunks; what remains is read row by row. Which way a row went cannot
be seen in the result: that is what ``tests/pipeline/values/test_json_values.py`` is for.

Why not msgspec: it does not report a name that stands twice in an object, which is a verdict here, nor
invalid UTF-8 in strings that it skips. With its typed structs and a check for both, the same rows gave the
same verdicts, but good rows took more than twice the processor time (five flat fields: 265,000 rows/s,
against 582,000 with Arrow; with a list of objects 62,000 against 228,000). It was faster only where one row
in a hundred or more is bad (281,000 against 183,000).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.pipeline.values.json_rules import Object, Rule, rule_of
from splashdam.pipeline.values.verdicts import BadValueError, Decoded, Reason, all_nullable, verdicts

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE_BYTES = 8 * 1024 * 1024
"""Bytes of values that are decoded together, which bounds the memory of their copies."""
CHUNK_ROWS = 256
"""Rows that are read one by one because one of them is bad."""


@attrs.frozen
class JsonFormat:
    """Values are JSON objects in UTF-8.

    Attributes:
        fields: an Arrow struct; a field that is not nullable is required. Names are case-sensitive.
        refuses_unknown: whether a field that the struct lacks makes the value bad; otherwise it is ignored.
    """

    fields: pa.StructType
    refuses_unknown: bool = False

    @property
    def type(self) -> pa.StructType:
        """The type of the decoded structs."""
        return all_nullable(self.fields)

    def open(self) -> JsonDecoder:
        """Open a decoder in this process.

        Raises:
            KafkaConfigurationError: a field has a type for which there is no rule.
        """
        return JsonDecoder(self)


class JsonDecoder:
    """Decodes values of a `JsonFormat`."""

    def __init__(self, form: JsonFormat) -> None:
        self._type = form.type
        self._rule = rule_of(form.fields, "$", refuses_unknown=form.refuses_unknown)
        self._quick = QuickReader(form.fields, form.refuses_unknown) if is_quick(form.fields) else None

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Return the verdicts, in the order of the values."""
        import pyarrow as pa

        pieces = [self._decode(part) for part in _parts(values)]
        if len(pieces) == 1:
            return pieces[0]
        return Decoded(
            *(pa.concat_arrays(list(columns)) for columns in zip(*map(_columns, pieces), strict=True))
        )

    def _decode(self, values: pa.BinaryArray) -> Decoded:
        import pyarrow.compute as pc

        if self._quick is None:
            return self._one_by_one(values)
        looks = self._quick.certain(values)
        certain, rest = pc.indices_nonzero(looks), pc.indices_nonzero(pc.invert(looks))
        found = list(self._in_chunks(values, certain))
        if len(rest):
            found.append((rest, self._one_by_one(values.take(rest))))
        return _in_order(found, self._one_by_one(values.slice(0, 0)))

    def _in_chunks(self, values: pa.BinaryArray, rows: pa.Array) -> Iterator[tuple[pa.Array, Decoded]]:
        """Read all rows at once, else without the suspects, else in chunks. Suspects, and the rows of a chunk
        that Arrow's parser refuses, are read one by one."""
        import pyarrow as pa

        taken = values if len(rows) == len(values) else values.take(rows)
        whole = self._read(taken)
        suspects = self._quick.suspects(taken) if self._quick is not None and whole is None else []
        if suspects:
            alone = pa.array(suspects, pa.uint64())
            yield rows.take(alone), self._one_by_one(taken.take(alone))
            others = _others(len(taken), suspects)
            taken, rows = taken.take(others), rows.take(others)
            whole = self._read(taken)
        if whole is not None:
            yield rows, whole
            return
        for first in range(0, len(rows), CHUNK_ROWS):
            chunk = taken.slice(first, CHUNK_ROWS)
            yield rows.slice(first, CHUNK_ROWS), self._read(chunk) or self._one_by_one(chunk)

    def _read(self, values: pa.BinaryArray) -> Decoded | None:
        """Read rows with Arrow's parser, those without a required field one by one; None if it gives up."""
        import pyarrow as pa

        found = self._quick.read(values) if self._quick is not None and len(values) else None
        if found is None:
            return None
        structs, absent = found
        good = Decoded(structs, *(pa.nulls(len(structs), pa.string()) for _ in range(2)))
        if not absent:
            return good
        alone = pa.array(absent, pa.uint64())
        others = _others(len(values), absent)
        pieces = [(others, good), (alone, self._one_by_one(values.take(alone)))]
        return _in_order(pieces, good)

    def _one_by_one(self, values: pa.BinaryArray) -> Decoded:
        return verdicts(map(self._verdict, values.to_pylist()), self._type)

    def _verdict(self, value: bytes | None) -> Any:
        if value is None:
            return None
        try:
            return checked(value, self._rule)
        except BadValueError as bad:
            return bad


def checked(value: bytes, rule: Rule) -> Any:
    """Decode one value with Python's parser and a rule.

    Raises:
        BadValueError: the value does not satisfy the rule, or is not JSON.
    """
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise BadValueError(Reason.NOT_UTF8, f"not UTF-8 at byte {error.start}") from None
    try:
        try:
            found = _STRICT.decode(text)
        except json.JSONDecodeError:
            raise
        except ValueError:  # an integer with more digits than sys.get_int_max_str_digits()
            found = _HUGE.decode(text)
    except json.JSONDecodeError as error:
        raise BadValueError(Reason.NOT_JSON, f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise BadValueError(Reason.NOT_JSON, "nested too deeply") from None
    return rule(found)


def _no_number(name: str) -> Any:
    raise BadValueError(Reason.NOT_JSON, f"not JSON: {name} is no number of JSON's")


_STRICT = json.JSONDecoder(object_pairs_hook=Object, parse_constant=_no_number)
_HUGE = json.JSONDecoder(
    object_pairs_hook=Object,
    parse_constant=_no_number,
    parse_int=lambda digits: int(digits) if len(digits) < 1000 else math.inf,
)


def _parts(values: pa.BinaryArray) -> Iterator[pa.BinaryArray]:
    rows = max(1, len(values) * AT_ONCE_BYTES // max(values.nbytes, 1))
    if rows >= len(values):
        yield values
        return
    for first in range(0, len(values), rows):
        yield values.slice(first, rows)


def _others(count: int, rows: Sequence[int]) -> pa.Array:
    """Return the numbers below ``count`` that are not in ``rows``."""
    import pyarrow as pa

    left = set(rows)
    return pa.array([row for row in range(count) if row not in left], pa.uint64())


def _columns(decoded: Decoded) -> tuple[pa.Array, ...]:
    return decoded.values, decoded.reasons, decoded.details


def _in_order(found: list[tuple[pa.Array, Decoded]], nothing: Decoded) -> Decoded:
    """Join pieces, with each row in its original place."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(found) < 2:
        return found[0][1] if found else nothing
    order = pc.array_sort_indices(pa.concat_arrays([rows for rows, _ in found]))
    columns = zip(*(_columns(decoded) for _, decoded in found), strict=True)
    return Decoded(*(pa.concat_arrays(list(column)).take(order) for column in columns))


DEEPEST = 400
"""Opening brackets in a row; with more, it may be nested more deeply than Python's parser supports."""

_NO_NUMBERS = r"[:\[,]\s*-?(NaN|Inf)"

ROWS_BETWEEN = 40
"""If bad rows are closer than this on average, the search for them stops: reading all rows with Python's
parser takes no longer."""
_SEARCHED_ROWS = 1024
_FEWEST_SEARCHED_ROWS = 64
_ROW = re.compile(r" in row (\d+)$")
"""The end of Arrow's message about a row that it cannot parse."""


def is_quick(fields: pa.StructType) -> bool:
    """Whether Arrow's parser supports the types of all fields, and required fields can be checked
    afterwards."""
    import pyarrow as pa

    return len(fields) > 0 and all(
        _is_quick(field.type) or _is_text(field.type) or pa.types.is_float32(field.type) for field in fields
    )


def _is_quick(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        return len(kind) > 0 and all(_is_quick(field.type) for field in kind)
    if types.is_list(kind):
        # A required field inside a list would have to be checked item by item.
        return kind.value_type == all_nullable(kind.value_type) and _is_quick(kind.value_type)
    return bool(
        types.is_string(kind)
        or types.is_boolean(kind)
        or types.is_signed_integer(kind)
        or types.is_float64(kind)
    )


def _is_text(kind: pa.DataType) -> bool:
    """Whether JSON has the type as a string, which a rule converts."""
    import pyarrow as pa

    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


class QuickReader:
    """Reads whole columns of one schema with Arrow's parser; ``is_quick`` tells for which schemas.

    Args:
        fields: see `JsonFormat`.
        refuses_unknown: see `JsonFormat`.
    """

    def __init__(self, fields: pa.StructType, refuses_unknown: bool) -> None:
        import pyarrow as pa

        self._fields = list(fields)
        self._type = all_nullable(fields)
        self._read_as = pa.schema([(field.name, _read_as(field.type)) for field in fields])
        self._unexpected = "error" if refuses_unknown else "ignore"
        self._expected = [
            (field.name, _json_types(field.type), *_limits(field.type)) for field in self._fields
        ]
        self._rules: dict[str, Rule] = {
            field.name: rule_of(field.type, f"$.{field.name}", refuses_unknown=False)
            for field in fields
            if _is_text(field.type)
        }

    @staticmethod
    def certain(values: pa.BinaryArray) -> pa.BooleanArray:
        """Return which rows may be passed to ``read``."""
        import pyarrow as pa
        import pyarrow.compute as pc

        certain = pc.and_(pc.starts_with(values, "{"), pc.ends_with(values, "}"))
        rows = [row or b"" for row in values.to_pylist()]
        text = b"\n".join(rows)
        if not _is_utf8(text):
            certain = pc.and_(certain, pa.array([_is_utf8(row) for row in rows], pa.bool_()))
        # Searching one joined text is several times faster than Arrow's search in each row, and mostly
        # suffices.
        if _brackets(text) > len(rows) + DEEPEST:
            certain = pc.and_(certain, pa.array([_brackets(row) <= DEEPEST for row in rows], pa.bool_()))
        if b"NaN" in text or b"Inf" in text:
            certain = pc.and_(certain, pc.invert(pc.match_substring_regex(values, _NO_NUMBERS)))
        return pc.fill_null(certain, False)

    def read(self, values: pa.BinaryArray) -> tuple[pa.StructArray, list[int]] | None:
        """Return the rows as structs without those that lack a required field, and the numbers of these.

        None: another row may be bad.
        """
        import pyarrow as pa

        try:
            table = self._table(values.to_pylist())
            if table.num_rows != len(values):
                return None
            absent = sorted({row for rows in self._absent(table) for row in rows})
            if len(absent) == len(values):
                return None
            if absent:
                table = table.take(_others(len(values), absent))
            columns = [self._column(table, field) for field in self._fields]
        except (pa.ArrowInvalid, BadValueError):
            return None
        return pa.StructArray.from_arrays(columns, fields=list(self._type)), absent

    def suspects(self, values: pa.BinaryArray) -> list[int]:
        """Return rows that are likely to be bad, ascending: perhaps not all bad rows, and perhaps good ones,
        too.

        Arrow's parser stops at the first bad row, and mostly names it. It is then called again after that
        row, on few rows if bad ones are close. It does not name a number out of range."""
        import pyarrow as pa

        rows, found, first = values.to_pylist(), set[int](), 0
        count = _SEARCHED_ROWS
        while first < len(rows) and len(found) * ROWS_BETWEEN <= first + _SEARCHED_ROWS:
            searched = rows[first : first + count]
            try:
                self._table(searched)
            except pa.ArrowInvalid as error:
                named = _ROW.search(str(error))
                if named is not None:
                    found.add(first + int(named[1]))
                    first += int(named[1]) + 1
                    count = min(max(2 * int(named[1]), _FEWEST_SEARCHED_ROWS), _SEARCHED_ROWS)
                    continue
                found.update(first + row for row in self._sieved(searched))
            first += len(searched)
            count = min(2 * count, _SEARCHED_ROWS)
        return sorted(row for row in found if row < len(rows))

    def _sieved(self, rows: Sequence[bytes]) -> Iterator[int]:
        """Yield rows that Python's scanner refuses, or whose outermost fields do not have their types."""
        scan = json.JSONDecoder().raw_decode  # in C: much faster than `checked`, and less strict
        for number, row in enumerate(rows):
            try:
                value, _ = scan(row.decode())
            except (ValueError, RecursionError):
                yield number
                continue
            for name, types, least, most in self._expected:
                found = value.get(name)
                if found is None:
                    continue
                if type(found) not in types or (least is not None and not least <= found <= most):
                    yield number
                    break

    def _table(self, rows: Sequence[bytes]) -> pa.Table:
        """Parse rows with Arrow's parser.

        Raises:
            ArrowInvalid: the parser does not accept them.
        """
        import pyarrow as pa
        import pyarrow.json as pj

        text = b"\n".join([*rows, b""])
        return pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=self._read_as, unexpected_field_behavior=self._unexpected
            ),
        )

    def _absent(self, table: pa.Table) -> Iterator[list[int]]:
        """Yield, for each required field that is null in some rows, those rows."""
        for field in self._fields:
            yield from _absent(_whole(table, field), field, None)

    def _column(self, table: pa.Table, field: pa.Field) -> pa.Array:
        import pyarrow as pa

        column = _whole(table, field)
        rule = self._rules.get(field.name)
        if rule is not None:
            times = [None if text is None else rule(text) for text in column.to_pylist()]
            return pa.array(times, field.type)
        column = _single(column) if pa.types.is_float32(field.type) else column
        if _has_infinity(column):
            raise pa.ArrowInvalid("too large")
        return column


def _json_types(kind: pa.DataType) -> frozenset[type]:
    """Return the types that Python's ``json`` has for values of an Arrow type."""
    import pyarrow as pa

    types = pa.types
    if _is_text(kind) or types.is_string(kind):
        return frozenset({str})
    if types.is_boolean(kind):
        return frozenset({bool})
    if types.is_integer(kind):
        return frozenset({int})
    if types.is_struct(kind):
        return frozenset({dict})
    return frozenset({list} if types.is_list(kind) else {int, float})


def _limits(kind: pa.DataType) -> tuple[int, int] | tuple[None, None]:
    """Return the least and the greatest value of an integer type."""
    import pyarrow as pa

    if not pa.types.is_integer(kind):
        return None, None
    return -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _brackets(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _read_as(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if _is_text(kind):
        return pa.string()
    # Parsing to single precision would round once; Python's way, over double precision, rounds twice.
    return pa.float64() if pa.types.is_float32(kind) else all_nullable(kind)


def _single(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    return column.cast(pa.float32(), safe=False)


def _has_infinity(column: pa.Array) -> bool:
    """Whether a number was too large, which Arrow's parser reads as infinite: JSON itself has no infinity."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        return bool(pc.any(pc.is_inf(column)).as_py())
    if pa.types.is_struct(column.type):
        return any(map(_has_infinity, column.flatten()))
    return pa.types.is_list(column.type) and _has_infinity(column.flatten())


def _whole(table: pa.Table, field: pa.Field) -> pa.Array:
    """Return a column as one array."""
    import pyarrow as pa

    column = table.column(field.name).combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _absent(column: pa.Array, field: pa.Field, parent: Any) -> Iterator[list[int]]:
    """Yield the rows in which a required field is null and its parent is not, for a field and its
    subfields."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not field.nullable and column.null_count:
        absent = pc.is_null(column) if parent is None else pc.and_(pc.is_null(column), pc.is_valid(parent))
        rows: list[int] = pc.indices_nonzero(absent).to_pylist()
        if rows:
            yield rows
    if pa.types.is_struct(field.type):
        for inner in field.type:
            yield from _absent(pc.struct_field(column, inner.name), inner, column)
