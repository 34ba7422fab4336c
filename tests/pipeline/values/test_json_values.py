"""JSON values: Python's parser says which are bad, and Arrow's is never told apart from it."""

from __future__ import annotations

import json
import math
import pickle
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.examples import examples

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.values.json_values import CHUNK_ROWS, DEEPEST, JsonDecoder, JsonFormat, is_quick
from splashdam.pipeline.values.verdicts import Decoded

FIELDS = pa.struct(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("small", pa.int8()),
        pa.field("name", pa.string()),
        pa.field("rate", pa.float64()),
        pa.field("single", pa.float32()),
        pa.field("is_on", pa.bool_()),
        pa.field("list", pa.list_(pa.int64())),
        pa.field("in", pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.string())])),
    ]
)
NAMES = [field.name for field in FIELDS] + ["x", "other"]

numbers = st.sampled_from(
    [
        0,
        -0.0,
        1,
        127,
        128,
        -129,
        2**53 + 1,
        2**63 - 1,
        2**63,
        -(2**63),
        10**400,
        1.0,
        1.5,
        1e300,
        3.5e38,
        1e-320,
    ]
)
leaves = st.one_of(st.none(), st.booleans(), numbers, st.floats(), st.integers(), st.text(max_size=8))
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=8,
)
right = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "small": st.integers(-130, 130) | st.none(),
        "name": st.text() | st.none(),
        "rate": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        "single": st.floats(width=32, allow_nan=False, allow_infinity=False) | st.floats(),
        "is_on": st.booleans(),
        "list": st.lists(st.integers() | st.none(), max_size=3),
        "in": st.fixed_dictionaries({"x": st.integers(0, 9) | st.none()}, optional={"y": st.text()}),
        "other": anything,
    },
)
written = st.builds(
    lambda value, is_ascii, spaces: json.dumps(value, ensure_ascii=is_ascii, indent=spaces).encode(
        errors="surrogatepass"
    ),
    right | anything,
    st.booleans(),
    st.sampled_from([None, None, 1]),
)
scraps = st.sampled_from(
    [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b",",
        b" ",
        b"\n",
        b"\r",
        b"\0",
        b"NaN",
        b"-Infinity",
        b"Inf",
        b"01",
        b"1e999",
        b"{}",
        b'{"id":1}',
        b'"id":',
        b"1.0",
        b"\xff",
        b"\xed\xa0\x80",
        b"\\ud800",
        b"\xef\xbb\xbf",
        b"/**/",
        b"x",
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """JSON with a scrap put in or a piece cut out."""
    text = draw(written)
    first = draw(st.integers(0, len(text)))
    last = draw(st.integers(first, min(len(text), first + 4)))
    return text[:first] + draw(scraps | st.just(b"")) + text[last:]


values = st.one_of(st.none(), written, written, damaged(), scraps, st.binary(max_size=6))


class _BadError(Exception):
    """The oracle's verdict."""


def oracle(value: bytes | None) -> Any:
    """The result of a strict reader that uses only Python's ``json``."""
    if value is None:
        return None

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        made["\0twice"] = [name for name, _ in found if [n for n, _ in found].count(name) > 1]
        return made

    def refuse(_: str) -> None:
        raise _BadError

    try:
        read = json.loads(
            value.decode(),
            object_pairs_hook=pairs,
            parse_constant=refuse,
            parse_int=lambda text: int(text) if len(text) < 3000 else math.inf,
        )
    except ValueError as error:
        raise _BadError from error
    return fitting(read, FIELDS)


def fitting(found: Any, kind: pa.DataType) -> Any:
    """The value in its type."""
    if pa.types.is_struct(kind):
        need(type(found) is dict and not set(found["\0twice"]) & {field.name for field in kind})
        need(all(field.nullable or found.get(field.name) is not None for field in kind))
        return {f.name: None if found.get(f.name) is None else fitting(found[f.name], f.type) for f in kind}
    if pa.types.is_list(kind):
        need(type(found) is list)
        return [None if item is None else fitting(item, kind.value_type) for item in found]
    if pa.types.is_integer(kind):
        need(type(found) is int and -(2 ** (kind.bit_width - 1)) <= found < 2 ** (kind.bit_width - 1))
    elif pa.types.is_floating(kind):
        need(type(found) in (int, float))
        try:
            found = float(found)
            found = struct.unpack("f", struct.pack("f", found))[0] if kind.bit_width == 32 else found
        except OverflowError:
            raise _BadError from None
        need(math.isfinite(found))
    elif pa.types.is_boolean(kind):
        need(type(found) is bool)
    else:
        need(type(found) is str and not any("\ud800" <= letter <= "\udfff" for letter in found))
    return found


def need(is_so: bool) -> None:
    """Else the value is bad."""
    if not is_so:
        raise _BadError


def outcomes(decoded: Decoded) -> list[Any]:
    """Values, and ``"bad"`` where there is a reason."""
    rows = zip(decoded.values.to_pylist(), decoded.reasons.to_pylist(), strict=True)
    return [value if reason is None else "bad" for value, reason in rows]


def expected(rows: list[bytes | None]) -> list[Any]:
    """The expected ``outcomes``."""
    said: list[Any] = []
    for row in rows:
        try:
            said.append(oracle(row))
        except _BadError:
            said.append("bad")
    return said


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(values, max_size=6))
def test_oracle(rows: list[bytes | None]) -> None:
    """Rows are bad exactly where Python's ``json`` and the types say so, and the others have its values."""
    decoded = decoder().decode(pa.array(rows, pa.binary()))
    assert repr(outcomes(decoded)) == repr(expected(rows))  # repr tells 0.0 from -0.0
    decoded.values.validate(full=True)
    assert decoded.values.type == JsonFormat(FIELDS).type


@settings(max_examples=examples(150), deadline=None)
@given(value=damaged() | written)
def test_arrow_alone(value: bytes) -> None:
    """Arrow's parser accepts the same as the strict reader, with the same values."""
    quick = decoder()._quick
    assert quick is not None
    array = pa.array([value], pa.binary())
    found = quick.read(array) if quick.certain(array)[0].as_py() else None
    if found is not None:
        structs, absent = found
        assert not absent, "it gives up where no row is left"
        assert repr(structs.to_pylist()) == repr(expected([value]))


def decoder() -> JsonDecoder:
    """A decoder of ``FIELDS``."""
    return JsonFormat(FIELDS).open()


def test_one_bad_row_among_many() -> None:
    """The others are in their places, and nulls too."""
    rows: list[bytes | None] = [b'{"id":%d}' % number for number in range(3 * CHUNK_ROWS)]
    rows[CHUNK_ROWS + 7], rows[5], rows[9] = b'{"id":"7"}', None, b' {"id": 9} '
    decoded = decoder().decode(pa.array(rows, pa.binary()))
    assert outcomes(decoded) == expected(rows)
    assert decoded.reasons[CHUNK_ROWS + 7].as_py() == "wrong_type"


ABSENT = [b'{"id":null}', b"{}", b'{"id":1,"in":{}}']
OUT_OF_RANGE = b'{"id":9223372036854775808}'
SUSPECTS = [b'{"id":"7"}', b"{,}", b'{"id":1,"id":2}', OUT_OF_RANGE]
PLACES = [0, 1, 700, 1023, 1024, 2999]


def far_apart(bad: bytes) -> list[bytes | None]:
    """Good rows, but for those at ``PLACES``."""
    return [bad if number in PLACES else b'{"id":%d}' % number for number in range(3000)]


@pytest.mark.parametrize("bad", SUSPECTS)
def test_bad_rows_far_apart_are_found(bad: bytes) -> None:
    """Python's parser reads these rows alone, not those between them."""
    rows = far_apart(bad)
    opened = decoder()
    assert opened._quick is not None
    assert opened._quick.suspects(pa.array(rows, pa.binary())) == PLACES
    assert outcomes(opened.decode(pa.array(rows, pa.binary()))) == expected(rows)


@pytest.mark.parametrize("bad", [*ABSENT, b'{"id":1,"name":"\xff"}', OUT_OF_RANGE])
def test_bad_rows_took_their_neighbours_along(bad: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row without a required field, of other bytes or with a large number had 255 others read with it."""
    seen: list[bytes | None] = []
    one_by_one = JsonDecoder._one_by_one

    def watched(self: JsonDecoder, values: pa.BinaryArray) -> Any:
        seen.extend(values.to_pylist())
        return one_by_one(self, values)

    monkeypatch.setattr(JsonDecoder, "_one_by_one", watched)
    rows = far_apart(bad)
    assert outcomes(decoder().decode(pa.array(rows, pa.binary()))) == expected(rows)
    assert seen == [bad] * len(PLACES)


def test_no_row_has_a_required_field() -> None:
    """Nothing is left of what Arrow's parser has read."""
    rows: list[bytes | None] = [b'{"name":"x"}'] * 600
    assert outcomes(decoder().decode(pa.array(rows, pa.binary()))) == expected(rows)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), values), max_size=6))
def test_any_rows_far_apart(placed: list[tuple[int, bytes | None]]) -> None:
    """As `test_oracle`, among many good rows."""
    rows: list[bytes | None] = [b'{"id":%d}' % number for number in range(300)]
    for place, row in placed:
        rows.insert(place, row)
    assert repr(outcomes(decoder().decode(pa.array(rows, pa.binary())))) == repr(expected(rows))


def test_bad_rows_side_by_side_are_not_searched_for() -> None:
    """The search would take longer than reading all of them one by one."""
    opened = decoder()
    assert opened._quick is not None
    rows = pa.array([b'{"id":"7"}'] * 3000, pa.binary())
    assert len(opened._quick.suspects(rows)) < 100
    assert set(outcomes(opened.decode(rows))) == {"bad"}


def test_large_values_are_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts are put together again."""
    monkeypatch.setattr("splashdam.pipeline.values.json_values.AT_ONCE_BYTES", 100)
    rows: list[bytes | None] = [b'{"id":%d,"name":"%s"}' % (number, b"x" * 40) for number in range(10)]
    decoded = decoder().decode(pa.array(rows, pa.binary()))
    assert outcomes(decoded) == expected(rows)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"id":1} x', "not_json"),
        (b'{"id":1}{"id":2}', "not_json"),
        (b'{"id":NaN}', "not_json"),
        (b'{"id":1,"other":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not_json"),
        (b"", "not_json"),
        (b"\xff", "not_utf8"),
        (b'{"id":1,"name":"\\ud800"}', "not_utf8"),
        (b"{}", "missing_field"),
        (b'{"id":null}', "missing_field"),
        (b'{"id":1,"in":{}}', "missing_field"),
        (b'{"id":1,"id":2}', "duplicate_field"),
        (b'{"id":1.0}', "wrong_type"),
        (b'{"id":true}', "wrong_type"),
        (b"[]", "wrong_type"),
        (b'{"id":9223372036854775808}', "out_of_range"),
        (b'{"id":' + b"9" * 5000 + b"}", "out_of_range"),
        (b'{"id":1,"rate":1e999}', "out_of_range"),
        (b'{"id":1,"single":1e39}', "out_of_range"),
    ],
)
def test_reasons(value: bytes, reason: str) -> None:
    """The same words whatever stands beside the value."""
    for rows in ([value], [b'{"id":1}', value, b'{"id":2}']):
        decoded = decoder().decode(pa.array(rows, pa.binary()))
        at = rows.index(value)
        assert decoded.reasons[at].as_py() == reason
        assert decoded.details[at].as_py()


@pytest.mark.parametrize("after", [b"} x", b",}", b',"rate":NaN}', b"\x0b}"])
def test_a_syntax_error_after_a_huge_integer_ended_the_decoder(after: bytes) -> None:
    """Instead of being one bad row: such an integer is parsed a second time, and that had no handler."""
    rows = [b'{"id":1}', b'{"id":' + b"9" * 5000 + after]
    assert decoder().decode(pa.array(rows, pa.binary())).reasons.to_pylist() == [None, "not_json"]


@pytest.mark.parametrize("number", ["1.8e308", "-1.797693134863e+308"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.float64(), "%s"),
        (pa.struct([("x", pa.float64())]), '{"x":%s}'),
        (pa.list_(pa.float64()), "[1.0,%s]"),
        (pa.list_(pa.struct([("x", pa.list_(pa.float64()))])), '[{"x":[%s]}]'),
    ],
)
def test_a_number_just_too_large_became_infinite(kind: pa.DataType, value: str, number: str) -> None:
    """Arrow's parser refuses 1e999 but not what rounds to the first number above the largest."""
    decode = JsonFormat(pa.struct([pa.field("f", kind)])).open().decode
    good, bad = (b'{"f":%s}' % (value % each).encode() for each in ("1.5", number))
    found = decode(pa.array([good, bad, good], pa.binary()))
    assert found.reasons.to_pylist() == [None, "out_of_range", None]


def test_fields_outside_of_the_schema_may_be_anything() -> None:
    """A field that the schema does not have is not looked into, but it is JSON."""
    row = b'{"id":1,"other":' + b"9" * 5000 + b',"other":"\\ud800"}'
    assert outcomes(decoder().decode(pa.array([row]))) == expected([row])
    deep = b'{"id":1,"other":' + b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1) + b"}"
    assert outcomes(decoder().decode(pa.array([deep, deep]))) == expected([deep, deep])


@pytest.mark.parametrize("value", [b'{"id":1,"other":2}', b'{"id":1,"in":{"x":1,"z":1}}'])
def test_unknown_fields_can_be_refused(value: bytes) -> None:
    """At every depth."""
    decoded = JsonFormat(FIELDS, refuses_unknown=True).open().decode(pa.array([value, b'{"id":1}']))
    assert decoded.reasons.to_pylist() == ["unknown_field", None]


def test_times_dates_bytes_and_maps() -> None:
    """Types that JSON writes as strings are as strict; a map takes every name."""
    instant = pa.timestamp("us", tz="UTC")
    fields = pa.struct(
        [
            ("at", instant),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("raw", pa.binary()),
            ("map", pa.map_(pa.string(), pa.int64())),
        ]
    )
    good = (
        b'{"at":"2026-01-01T00:00:00.5+01:00","local":"2026-01-01 00:00:00","day":"2026-01-31",'
        b'"raw":"AQI=","map":{"a":1}}'
    )
    bad = [
        b'{"at":"2026-01-01T00:00:00"}',
        b'{"at":"2026-13-01T00:00:00Z"}',
        b'{"at":"0001-01-01T00:00:00+14:00"}',
        b'{"at":5}',
        b'{"local":"2026-01-01T00:00:00Z"}',
        b'{"day":"2026-02-30"}',
        b'{"day":"20260201"}',
        b'{"raw":"A"}',
        b'{"map":{"a":1,"a":2}}',
        b'{"map":{"a":"x"}}',
    ]
    decoded = JsonFormat(fields).open().decode(pa.array([good, *bad]))
    assert decoded.reasons.null_count == 1
    first = decoded.values[0].as_py()
    assert first["at"].isoformat() == "2025-12-31T23:00:00.500000+00:00"
    assert (first["raw"], first["map"]) == (b"\x01\x02", [("a", 1)])
    quick = JsonFormat(pa.struct(list(fields)[:3])).open()
    assert quick._quick is not None
    assert quick.decode(pa.array([good])).values[0].as_py() == {
        name: first[name] for name in ("at", "local", "day")
    }


def test_formats_travel() -> None:
    """Trap 15: to workers they go as they are, and are opened there."""
    form = pickle.loads(pickle.dumps(JsonFormat(FIELDS, refuses_unknown=True)))
    assert form == JsonFormat(FIELDS, refuses_unknown=True)
    assert outcomes(form.open().decode(pa.array([b'{"id":1}']))) == expected([b'{"id":1}'])


def test_types_that_json_does_not_fill() -> None:
    """Are refused by name before a row is read."""
    with pytest.raises(KafkaConfigurationError, match=r"\$\.price is decimal"):
        JsonFormat(pa.struct([("price", pa.decimal128(10, 2))])).open()
    assert not is_quick(pa.struct([]))
