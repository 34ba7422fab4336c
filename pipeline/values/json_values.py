"""JSON values: Arrow's parser reads whole columns where its answer is certain, Python's the other rows.

Arrow's parser is fast, but it forgives what a strict reader must not, and gives up on the first bad row,
without a result for those before it. So a pattern, ``json_patterns``, sorts the rows first. Arrow's parser
gets those that fit, and Python's the others, which are bad with few exceptions, and says why. Matching takes
a quarter of the time, less than searching all rows for ``NaN`` and counting their brackets would. Only in
arrays of fewer than some thousand rows, the time counts in which RE2 compiles the pattern.

On rows that fit, Arrow's parser and a strict reader must agree. What Arrow's forgives is therefore no fit:
``NaN`` and its like, bytes that are not UTF-8, two objects in one row, objects nested deeper than Python's
stack. Each row begins with ``{`` and ends with ``}`` and blanks, and no value continues over a ``}``, a line
end and a ``{``: so as many objects as rows means one object in each row. Rows without a required field, and
those with a time or a number outside its range, are left out of what the parser returns. If it gives up all
the same, for example on a name that stands twice, it is called again without the rows that it names, then on
chunks; what remains is read row by row. Which way a row went cannot be seen in the result: that is what
``tests/pipeline/values/test_json_values.py`` is for.

Why not msgspec: it does not report a name that stands twice in an object, which is a verdict here, nor
invalid UTF-8 in strings that it skips. With its typed structs and a check for both, the same rows gave the
same verdicts, but good rows took more than twice the processor time (five flat fields: 265,000 rows/s,
against 582,000 with Arrow; with a list of objects 62,000 against 228,000). It was faster only where one row
in a hundred or more is bad, while those still made Arrow's parser begin again.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.pipeline.values.json_patterns import DEPTH, row_pattern
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
        if self._quick is None:
            return self._one_by_one(values)
        return _in_order(list(self._pieces(values, self._quick)), self._one_by_one(values.slice(0, 0)))

    def _pieces(self, values: pa.BinaryArray, quick: QuickReader) -> Iterator[tuple[pa.Array, Decoded]]:
        """Read the rows that fit, then, if too many do not, those that may be good nevertheless, then the
        others one by one."""
        import pyarrow.compute as pc

        fits = quick.fits(values)
        yield from self._in_chunks(values, pc.indices_nonzero(fits))
        rest = pc.indices_nonzero(pc.invert(fits))
        if len(rest) * ROWS_BETWEEN > len(values):
            deep = quick.deep(values.take(rest))
            yield from self._in_chunks(values, rest.filter(deep))
            rest = rest.filter(pc.invert(deep))
        if len(rest):
            yield rest, self._one_by_one(values.take(rest))

    def _in_chunks(self, values: pa.BinaryArray, rows: pa.Array) -> Iterator[tuple[pa.Array, Decoded]]:
        """Read all rows at once, else without the suspects, else in chunks. Suspects, and the rows of a chunk
        that Arrow's parser refuses, are read one by one."""
        import pyarrow as pa

        if not len(rows):
            return
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
        """Read rows with Arrow's parser, misfits one by one; None if it gives up."""
        import pyarrow as pa

        found = self._quick.read(values) if self._quick is not None and len(values) else None
        if found is None:
            return None
        structs, misfits = found
        good = Decoded(structs, *(pa.nulls(len(structs), pa.string()) for _ in range(2)))
        if not misfits:
            return good
        alone = pa.array(misfits, pa.uint64())
        others = _others(len(values), misfits)
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
            bad.__traceback__ = bad.__context__ = None  # they would keep the frames of every bad row
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
    import pyarrow.compute as pc

    left = bytearray(b"\1" * count)
    for row in rows:
        left[row] = 0
    return pc.indices_nonzero(pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(left)]))


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
parser takes no longer. If rows that do not fit are closer, the deep ones among them are given to Arrow's."""
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
        self._pattern = row_pattern(fields, refuses_unknown=refuses_unknown)
        self._rules: dict[str, Rule] = {
            field.name: rule_of(field.type, f"$.{field.name}", refuses_unknown=False)
            for field in fields
            if _is_text(field.type)
        }

    def fits(self, values: pa.BinaryArray) -> pa.BooleanArray:
        """Return which rows may be passed to ``read``, and are most likely good."""
        import pyarrow as pa
        import pyarrow.compute as pc

        fits = pc.fill_null(
            pc.and_(pc.starts_with(values, "{"), pc.match_substring_regex(values, self._pattern)), False
        )
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            rows = zip(values.to_pylist(), fits.to_pylist(), strict=True)
            return pa.array([fit and _is_utf8(row) for row, fit in rows], pa.bool_())
        return fits

    @staticmethod
    def deep(values: pa.BinaryArray) -> pa.BooleanArray:
        """Return which rows may be passed to ``read`` although they do not fit: those with more brackets than
        the pattern has levels, which may be good."""
        import pyarrow as pa
        import pyarrow.compute as pc

        looks = pc.and_(pc.starts_with(values, "{"), pc.ends_with(values, "}"))
        rows = [row or b"" for row in values.to_pylist()]
        looks = pc.and_(looks, pa.array([DEPTH < _brackets(row) <= DEEPEST for row in rows], pa.bool_()))
        # Searching one joined text is several times faster than Arrow's search in each row, and mostly
        # suffices.
        text = b"\n".join(rows)
        if not _is_utf8(text):
            looks = pc.and_(looks, pa.array([_is_utf8(row) for row in rows], pa.bool_()))
        if b"NaN" in text or b"Inf" in text:
            looks = pc.and_(looks, pc.invert(pc.match_substring_regex(values, _NO_NUMBERS)))
        return pc.fill_null(looks, False)

    def read(self, values: pa.BinaryArray) -> tuple[pa.StructArray, list[int]] | None:
        """Return the rows as structs without misfits, and the numbers of these. Misfits lack a required
        field, or have a time outside the calendar, or a number that is too large.

        None: another row may be bad.
        """
        import pyarrow as pa

        try:
            table = self._table(values)
            if table.num_rows != len(values):
                return None
            found = set[int]()
            columns = [self._column(_whole(table, field), field, found) for field in self._fields]
        except pa.ArrowInvalid:
            return None
        if len(found) == len(values):
            return None
        misfits = sorted(found)
        if misfits:
            others = _others(len(values), misfits)
            columns = [column.take(others) for column in columns]
        return pa.StructArray.from_arrays(columns, fields=list(self._type)), misfits

    def suspects(self, values: pa.BinaryArray) -> list[int]:
        """Return rows that are likely to be bad, ascending: perhaps not all bad rows, and perhaps good ones,
        too.

        Arrow's parser stops at the first bad row, and mostly names it. It is then called again after that
        row, on few rows if bad ones are close."""
        import pyarrow as pa

        found, first, count = list[int](), 0, _SEARCHED_ROWS
        while first < len(values) and len(found) * ROWS_BETWEEN <= first + _SEARCHED_ROWS:
            searched = values.slice(first, count)
            try:
                self._table(searched)
            except pa.ArrowInvalid as error:
                named = _ROW.search(str(error))
                if named is not None and int(named[1]) < len(searched):
                    found.append(first + int(named[1]))
                    first += int(named[1]) + 1
                    count = min(max(2 * int(named[1]), _FEWEST_SEARCHED_ROWS), _SEARCHED_ROWS)
                    continue
            first += len(searched)
            count = min(2 * count, _SEARCHED_ROWS)
        return found

    def _table(self, values: pa.BinaryArray) -> pa.Table:
        """Parse rows with Arrow's parser.

        Raises:
            ArrowInvalid: the parser does not accept them.
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.json as pj

        rows = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        text = pc.binary_join(rows, pa.scalar(b"\n", values.type))[0].as_buffer()
        return pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=self._read_as, unexpected_field_behavior=self._unexpected
            ),
        )

    def _column(self, column: pa.Array, field: pa.Field, misfits: set[int]) -> pa.Array:
        """Return a column in its type, and add the rows that have no value for it to ``misfits``.

        Raises:
            ArrowInvalid: a number inside of a struct or a list is too large.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        for rows in _absent(column, field, None):
            misfits.update(rows)
        rule = self._rules.get(field.name)
        if rule is not None:
            return pa.array(_ruled(column.to_pylist(), rule, misfits), field.type)
        if pa.types.is_floating(field.type):
            column = column.cast(field.type, safe=False)
            misfits.update(pc.indices_nonzero(pc.is_inf(column)).to_pylist())
        elif _has_infinity(column):
            raise pa.ArrowInvalid("too large")
        return column


def _ruled(texts: Sequence[str | None], rule: Rule, misfits: set[int]) -> Iterator[Any]:
    for row, text in enumerate(texts):
        try:
            yield None if text is None else rule(text)
        except BadValueError:
            misfits.add(row)
            yield None


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
