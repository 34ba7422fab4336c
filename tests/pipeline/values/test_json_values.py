"""JSON values: Python's parser says which are bad, and Arrow's is never told apart from it."""

from __future__ import annotations

import json
import math
import pickle
import struct
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running.examples import examples

from splashdam.model.errors import KafkaConfigurationError
from splashdam.pipeline.values.json_patterns import DEPTH
from splashdam.pipeline.values.json_values import (
    CHUNK_ROWS,
    DEEPEST,
    JsonDecoder,
    JsonFormat,
    QuickReader,
    is_quick,
)
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


blanks = st.sampled_from([b"", b"", b"", b" ", b"\n", b"\r\n\t", b"\x0b", b"\0"])
nested = st.builds(
    lambda levels: b"[" * levels + b"]" * levels, st.sampled_from([1, DEPTH, DEPTH + 1, DEEPEST, 2000])
)
odd_numbers = st.sampled_from(
    [*b"NaN -Infinity Inf -0 01 1e5 1e400 1e-400 .5 5. +1 0x1 128 -128 -129".split(), b"9" * 5000]
)
odd_texts = st.sampled_from(
    [
        *(b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\ude00\\ud83d"', b'"\\u00"', b'"\\x"', b'"\\/"'),
        *(b'"\t"', b'"\0"', b'"\xff"', b'"\xed\xa0\x80"', b"'x'", b'"x', b'"\\"', b'"\\\\"', b'"x\ny"'),
    ]
)
odd_values = st.sampled_from(
    [
        *(b"{}{}", b"[1[2]", b"[,1]", b"[1,]", b'{"x":1{"y":2}', b'[{"x":1}]', b'{"x":1,"x":1}'),
        *(b'{"x":NaN}', b"[1}", b"{1}", b'["x":1]', b"/**/1", b"true false", b"nul", b""),
    ]
)
odd_names = st.sampled_from([*(name.encode() for name in NAMES), b"", b"i", b"idx", b"\\u0069d", b"\xc3\xa9"])
hostile = st.builds(
    lambda before, members, after: before + b"{" + b",".join(members) + b"}" + after,
    blanks,
    st.lists(
        st.builds(
            lambda name, blank, value: b'"' + name + b'"' + blank + b":" + value + blank,
            odd_names,
            blanks,
            st.builds(lambda found: json.dumps(found).encode(), leaves)
            | nested
            | odd_numbers
            | odd_texts
            | odd_values,
        ),
        max_size=4,
    ),
    blanks,
)
"""Objects with repeated and escaped names, blanks that are none, and values of every kind."""
values = st.one_of(st.none(), written, written, damaged(), hostile, scraps, st.binary(max_size=6))


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
    except (ValueError, RecursionError) as error:
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


def deeper(row: bytes) -> bytes:
    """A row with a field more, which is nested more deeply than the pattern has levels."""
    return b'{"other":' + b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1) + b"," + row[1:]


SCHEMAS = [
    FIELDS,
    pa.struct([pa.field("name", pa.string()), pa.field("rate", pa.float64(), nullable=False)]),
    pa.struct(
        [
            ("id", pa.int32()),
            ("i", pa.bool_()),
            ("idx", pa.timestamp("us", tz="UTC")),
            ("\u00e9", FIELDS[7].type),
        ]
    ),
    pa.struct(
        [
            ("list", pa.list_(pa.struct([("x", pa.list_(pa.int16())), ("", pa.bool_())]))),
            ("x" * 200, pa.int64()),
        ]
    ),
]


@settings(max_examples=examples(300), deadline=None)
@given(
    st.sampled_from(SCHEMAS),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 60), values | st.builds(deeper, hostile)), max_size=6),
)
def test_as_one_by_one(
    fields: pa.StructType, refuses_unknown: bool, placed: list[tuple[int, bytes | None]]
) -> None:
    """Values, reasons and details are those of reading each row alone with Python's parser."""
    rows: list[bytes | None] = [b'{"name":"n","rate":%d.5}' % number for number in range(60)]
    for place, row in placed:
        rows.insert(place, row)
    opened, array = JsonFormat(fields, refuses_unknown).open(), pa.array(rows, pa.binary())
    found, wanted = opened.decode(array), opened._one_by_one(array)
    assert found.reasons.to_pylist() == wanted.reasons.to_pylist()
    assert found.details.to_pylist() == wanted.details.to_pylist()
    assert repr(found.values.to_pylist()) == repr(wanted.values.to_pylist())


@settings(max_examples=examples(150), deadline=None)
@given(value=damaged() | written | hostile | st.builds(deeper, written | hostile))
def test_arrow_alone(value: bytes) -> None:
    """Arrow's parser accepts the same as the strict reader, with the same values."""
    quick = decoder()._quick
    assert quick is not None
    array = pa.array([value], pa.binary())
    found = quick.read(array) if pc.or_(quick.fits(array), quick.deep(array))[0].as_py() else None
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
BAD = [
    *(
        b"{,}",
        b'{"id":1,}',
        b'{"id" 1}',
        b"{id:1}",
        b'{"id":1}}',
        b'{"id":01}',
        b'{"id":1,"name":"\\x"}',
        b'{"id":1',
    ),
    *(
        b'{"id":"7"}',
        b'{"id":1.0}',
        b'{"id":1,"in":[]}',
        b'{"id":1,"list":[1,"2"]}',
        b'{"id":1,"in":{"x":"1"}}',
    ),
    *(
        OUT_OF_RANGE,
        b'{"id":1,"small":-129}',
        b'{"id":1,"list":[9223372036854775808]}',
        b'{"id":1,"single":1e39}',
    ),
    b'{"id":1,"name":"\xff"}',
]
PLACES = [0, 1, 700, 1023, 1024, 2999]


def far_apart(bad: bytes) -> list[bytes | None]:
    """Good rows, but for those at ``PLACES``."""
    return [bad if number in PLACES else b'{"id":%d}' % number for number in range(3000)]


@pytest.mark.parametrize("bad", [b'{"id":"7"}', b"{,}", b'{"id":1,"id":2}'])
def test_bad_rows_far_apart_are_found(bad: bytes) -> None:
    """Python's parser reads these rows alone, not those between them."""
    rows = far_apart(bad)
    opened = decoder()
    assert opened._quick is not None
    assert opened._quick.suspects(pa.array(rows, pa.binary())) == PLACES
    assert outcomes(opened.decode(pa.array(rows, pa.binary()))) == expected(rows)


@pytest.fixture
def read_alone(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """The rows that Python's parser reads."""
    seen: list[bytes | None] = []
    one_by_one = JsonDecoder._one_by_one

    def watched(self: JsonDecoder, values: pa.BinaryArray) -> Any:
        seen.extend(values.to_pylist())
        return one_by_one(self, values)

    monkeypatch.setattr(JsonDecoder, "_one_by_one", watched)
    return seen


@pytest.mark.parametrize("bad", [*ABSENT, *BAD, b'{"id":1,"id":2}'])
def test_bad_rows_took_their_neighbours_along(bad: bytes, read_alone: list[bytes | None]) -> None:
    """One row without a required field, of other bytes or with a large number had 255 others read with it."""
    rows = far_apart(bad)
    assert outcomes(decoder().decode(pa.array(rows, pa.binary()))) == expected(rows)
    assert read_alone == [bad] * len(PLACES)


@pytest.mark.parametrize("bad", [*ABSENT, *BAD])
def test_arrow_began_again_after_each_bad_row(bad: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops at the first bad row that it gets, so it gets none of these."""
    calls: list[int] = []
    table = QuickReader._table

    def watched(self: QuickReader, values: pa.BinaryArray) -> Any:
        calls.append(len(values))
        return table(self, values)

    monkeypatch.setattr(QuickReader, "_table", watched)
    rows = far_apart(bad)
    assert outcomes(decoder().decode(pa.array(rows, pa.binary()))) == expected(rows)
    assert len(calls) == 1


def test_one_bad_date_had_its_neighbours_read_alone(read_alone: list[bytes | None]) -> None:
    """Arrow's parser takes it, and what it had read was thrown away with it."""
    rows = far_apart(b'{"day":"2026-02-30"}')
    opened = JsonFormat(pa.struct([("day", pa.date32())])).open()
    found = opened.decode(pa.array(rows, pa.binary()))
    assert found.reasons.to_pylist() == ["out_of_range" if n in PLACES else None for n in range(3000)]
    assert len(read_alone) == len(PLACES)


@pytest.mark.parametrize(
    "row",
    [
        deeper(b'{"id":1}'),
        b'{"id":1} \n',
        b'{ "id" : 1 , "in" : { "x" : 1 , "y" : null } , "list" : [ ] , "other" : [ { } , [ 1 ] ] }',
        b'{"id":1,"name":"\\u00e9\\ud83d\\ude00\xc3\xa9\\"","ids":"x","i":[],"":{}}',
        b'{"id":-9223372036854775808,"small":127,"rate":-0.5e-3,"list":[null,9223372036854775807]}',
    ],
)
def test_good_rows_are_not_read_alone(row: bytes, read_alone: list[bytes | None]) -> None:
    """Whatever they look like."""
    rows: list[bytes | None] = [row] * 300
    assert outcomes(decoder().decode(pa.array(rows, pa.binary()))) == expected(rows)
    assert read_alone == []


def test_schemas_too_large_for_a_pattern(read_alone: list[bytes | None]) -> None:
    """Theirs has syntax alone: a row of another type is found later."""
    fields = pa.struct([(f"{number}{'x' * 50}", pa.int64()) for number in range(2000)])
    good, bad = (b'{"7%s":%s}' % (b"x" * 50, value) for value in (b"1", b'"1"'))
    found = JsonFormat(fields).open().decode(pa.array([good, bad, b"{,}", *[good] * 97], pa.binary()))
    assert found.reasons.to_pylist() == [None, "wrong_type", "not_json", *[None] * 97]
    assert sorted(map(bytes, filter(None, read_alone))) == sorted([b"{,}", bad])


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_integers_fit_as_far_as_their_type_goes(bits: int) -> None:
    """And no further, on both sides, for every number of digits."""
    kind = getattr(pa, f"int{bits}")()
    quick = QuickReader(pa.struct([("n", kind)]), refuses_unknown=False)
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    tried = {sign * (10**power + more) for power in range(22) for more in range(-2, 3) for sign in (1, -1)}
    tried |= {bound + more for bound in (least, most, 2 * most) for more in range(-12, 13)}
    rows = pa.array([b'{"n":%d}' % number for number in sorted(tried)], pa.binary())
    assert quick.fits(rows).to_pylist() == [least <= number <= most for number in sorted(tried)]


def test_names_are_told_apart() -> None:
    """A field has its type, others have any; an escaped name is looked at later."""
    names = ["id", "idx", "i", "", "\u00e9", "a.b", "a+"]
    quick = QuickReader(pa.struct([(name, pa.int64()) for name in names]), refuses_unknown=False)
    others = ["d", "idxy", "ix", "\u00e8", "aab", "a", "aa", "\u2603"]
    rows = [json.dumps({name: True}, ensure_ascii=False).encode() for name in (*names, *others)]
    rows += [b'{"\\u0069d":true}', b'{"i\\"":true}', b'{"i\n":true}']
    wanted = [False] * len(names) + [True] * len(others) + [True, True, False]
    assert quick.fits(pa.array(rows, pa.binary())).to_pylist() == wanted


def test_parts_of_large_arrays() -> None:
    """Spark may pass offsets of 64 bits, and an array may be a part of another."""
    rows: list[bytes | None] = [b"{,}", b'{"id":1}', None, b'{"id":2}', b"{", b'{"id":"3"}', b'{"id":4}']
    for kind in (pa.binary(), pa.large_binary()):
        assert outcomes(decoder().decode(pa.array(rows, kind).slice(1, 5))) == expected(rows[1:6])


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
