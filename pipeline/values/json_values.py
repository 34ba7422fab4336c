"""JSON values: read by Arrow's parser where its answer is certain, and by Python's where it is not.

Arrow's parser reads whole columns at once, but forgives what a strict reader must not and gives up on the
first bad row. So it is asked about rows whose looks leave no room for such differences; when it gives
up, it is asked again without the rows that it stumbles over, then about chunks, and what remains is read row
by row. Which way a row went cannot be seen in the
result: that is what ``tests/pipeline/values/test_json_values.py`` is for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from splashdam.pipeline.values.json_quick import QuickReader, is_quick
from splashdam.pipeline.values.json_rules import Object, Rule, rule_of
from splashdam.pipeline.values.verdicts import BadValueError, Decoded, Reason, all_nullable, verdicts

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE_BYTES = 8 * 1024 * 1024
"""Of values that are decoded together, which bounds what their copies take."""
CHUNK_ROWS = 256
"""How many rows are read one by one because of a bad one among them."""


@attrs.frozen
class JsonFormat:
    """Values are JSON objects in UTF-8.

    Attributes:
        fields: an Arrow struct; a field that must not be null is required. Names are compared exactly.
        refuses_unknown: whether a field that is not among them makes the value bad; else it is left out.
    """

    fields: pa.StructType
    refuses_unknown: bool = False

    @property
    def type(self) -> pa.StructType:
        """Of the decoded structs."""
        return all_nullable(self.fields)

    def open(self) -> JsonDecoder:
        """A decoder for this process.

        Raises:
            KafkaConfigurationError: a field has a type that JSON cannot fill.
        """
        return JsonDecoder(self)


class JsonDecoder:
    """See ``JsonFormat``."""

    def __init__(self, form: JsonFormat) -> None:
        self._type = form.type
        self._rule = rule_of(form.fields, "$", refuses_unknown=form.refuses_unknown)
        self._quick = QuickReader(form.fields, form.refuses_unknown) if is_quick(form.fields) else None

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """The verdict on each value, in order."""
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
        """All rows at once, else without the suspects, else in chunks; suspects, and the rows of a chunk that
        is not read either, go one by one."""
        import pyarrow as pa

        taken = values if len(rows) == len(values) else values.take(rows)
        whole = self._read(taken)
        if whole is not None:
            yield rows, whole
            return
        suspects = self._quick.suspects(taken) if self._quick is not None else []
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
        import pyarrow as pa

        structs = self._quick.read(values) if self._quick is not None and len(values) else None
        if structs is None:
            return None
        return Decoded(structs, *(pa.nulls(len(values), pa.string()) for _ in range(2)))

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
    """One value, by Python's parser and a rule.

    Raises:
        BadValueError: it is not what the rule wants, or no JSON at all.
    """
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise BadValueError(Reason.NOT_UTF8, f"not UTF-8 at byte {error.start}") from None
    try:
        try:
            found = _STRICT.decode(text)
        except json.JSONDecodeError as error:
            raise BadValueError(Reason.NOT_JSON, f"not JSON: {error.msg} at character {error.pos}") from None
        except ValueError:  # more digits than Python turns into an integer
            found = _HUGE.decode(text)
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
    """The numbers below ``count`` that are not among the rows."""
    import pyarrow as pa

    left = set(rows)
    return pa.array([row for row in range(count) if row not in left], pa.uint64())


def _columns(decoded: Decoded) -> tuple[pa.Array, ...]:
    return decoded.values, decoded.reasons, decoded.details


def _in_order(found: list[tuple[pa.Array, Decoded]], nothing: Decoded) -> Decoded:
    """The pieces as one, each row back in its place."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if len(found) < 2:
        return found[0][1] if found else nothing
    order = pc.array_sort_indices(pa.concat_arrays([rows for rows, _ in found]))
    columns = zip(*(_columns(decoded) for _, decoded in found), strict=True)
    return Decoded(*(pa.concat_arrays(list(column)).take(order) for column in columns))
