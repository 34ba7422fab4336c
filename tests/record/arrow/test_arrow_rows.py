"""Arrow columns of partitions, timestamps and headers as pyarrow makes them, and as nobody should."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.arrow.source import ArrowSource
from splashdam.record.kernel import HeaderLists

pa = pytest.importorskip("pyarrow")

WHOLE = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADER_TYPES = {
    "list": pa.list_(PAIR),
    "large_list": pa.large_list(pa.struct([("k", pa.large_string()), ("v", pa.binary_view())])),
    "map": pa.map_(pa.string(), pa.binary()),
    "dictionary": pa.list_(
        pa.struct([("key", pa.dictionary(pa.int8(), pa.string())), ("value", pa.string())])
    ),
}
TEXT = st.text(st.characters(codec="utf-8"), max_size=4)
HEADERS = st.lists(
    st.one_of(st.none(), st.lists(st.tuples(TEXT, st.one_of(st.none(), st.binary(max_size=20))), max_size=3)),
    max_size=20,
)


def read(table: Any, **names: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Headers, partitions and timestamps of all chunks."""
    found: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    with ArrowSource(table, value="value", key=None, key_needed=False, **names) as source:
        while (chunk := source.next()) is not None:
            lists = None if chunk.headers is None else HeaderLists.of_arrow(chunk.headers)
            for into, given in zip(found, (lists, chunk.partitions, chunk.timestamps), strict=True):
                into.extend(given or [])
    return found


def table_of(column: Any) -> Any:
    """With as many values."""
    return pa.table({"value": pa.array([b"v"] * len(column), pa.binary()), "x": column})


@pytest.mark.parametrize("kind", WHOLE, ids=str)
def test_whole_numbers(kind: Any) -> None:
    """Integers of every width, with nulls, sliced and in chunks."""
    column = pa.array([5, None, 7, 0, None, 127] * 10, kind)
    table = pa.concat_tables([table_of(column).slice(3, 20), table_of(column.slice(1, 9))])
    expected = table["x"].to_pylist()
    assert read(table, partition="x")[1] == expected
    assert read(table, timestamp_ms="x")[2] == expected
    assert read(table_of(column.slice(0, 0)), partition="x")[1] == []


@pytest.mark.parametrize(
    ("unit", "given_", "expected"),
    [
        ("s", [1, -1, None], [1000, -1000, None]),
        ("ms", [1, -1, None], [1, -1, None]),
        ("us", [1999, -1, None], [1, -1, None]),
        ("ns", [1_999_999, -1, None], [1, -1, None]),
    ],
)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_timestamps(unit: str, given_: Any, expected: Any, zone: str | None) -> None:
    """Milliseconds since the epoch, rounded down; a time zone changes nothing."""
    assert read(table_of(pa.array(given_, pa.timestamp(unit, zone))), timestamp_ms="x")[2] == expected


@pytest.mark.parametrize("kind", HEADER_TYPES)
@given(headers=HEADERS)
def test_headers(kind: str, headers: Any) -> None:
    """Nulls, empty lists, null values and repeated keys."""
    if kind == "dictionary":
        headers = [each and [(key, value and b"v") for key, value in each] for each in headers]
    names = ("k", "v") if kind == "large_list" else ("key", "value")
    rows = [
        each if each is None or kind == "map" else [dict(zip(names, pair, strict=True)) for pair in each]
        for each in headers
    ]
    table = pa.concat_tables([table_of(pa.array(rows, HEADER_TYPES[kind])).slice(start) for start in (0, 1)])
    expected = headers + headers[1:]
    assert read(table, headers="x")[0] == expected


@pytest.mark.parametrize(
    ("column", "option", "problem"),
    [
        (
            pa.array(["1"]),
            "partition",
            "column 'x' is of Arrow type format 'u'; partition takes whole numbers",
        ),
        (pa.array([1.0]), "timestamp_ms", r"float64 \(format 'g'\); timestamp_ms takes timestamps, or whole"),
        (pa.array([1], pa.timestamp("s")), "partition", "format 'tss:'; partition takes whole numbers"),
        (pa.array(["a"]), "headers", "headers takes lists of structs of a key and a value, or maps"),
        (pa.array([[1]]), "headers", "headers takes lists of structs"),
        (pa.array([[{"key": 1, "value": b""}]]), "headers", "the keys of column 'x' is of Arrow type int64"),
        (pa.array([[{"key": None, "value": b""}]], pa.list_(PAIR)), "headers", "a header has no key"),
        (pa.array([[None]], pa.list_(PAIR)), "headers", "a header has no key"),
        (pa.array([1]).dictionary_encode(), "partition", "is a dictionary; partition takes a plain column"),
    ],
)
def test_what_will_not_do(column: Any, option: str, problem: str) -> None:
    """The error names the column, its type and what is wanted."""
    with pytest.raises(IllegalArgumentError, match=problem):
        read(table_of(column), **{option: "x"})


def test_names_that_are_not_there() -> None:
    """A wrong name, and a single array, which has no columns."""
    with pytest.raises(
        IllegalArgumentError, match="no column 'y' among 'value', 'x'; name one with partition="
    ):
        read(table_of(pa.array([1])), partition="y")
    with pytest.raises(IllegalArgumentError, match="headers='h': a single array has no such column"):
        read(pa.array([b"v"]), headers="h")


def test_a_key_that_is_no_text() -> None:
    """Binary keys are taken where they are UTF-8."""
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    assert read(table_of(pa.array([[{"key": b"k", "value": b"v"}]], kind)), headers="x")[0] == [[("k", b"v")]]
    with pytest.raises(IllegalArgumentError, match="a header's key is not UTF-8"):
        read(table_of(pa.array([[{"key": b"\xff", "value": b"v"}]], kind)), headers="x")
