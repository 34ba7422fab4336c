"""Parts of the rows that stand beside Arrow data, in chunks of their own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.arrow.beside import ArrowRows
from splashdam.record.arrow.source import ArrowSource
from splashdam.record.kernel import BlobColumn, HeaderLists
from splashdam.record.kernel.bulk.blob_column import ArrowParts

pa = pytest.importorskip("pyarrow")

HEADERS = pa.map_(pa.string(), pa.binary())


def rows_of(data: Any, beside: dict[str, Any], **names: Any) -> list[tuple[Any, ...]]:
    """Value, key, headers, partition and timestamp of all rows."""
    options = {"value": "value", "key": "key", "key_needed": False, **names}
    rows = ArrowRows(ArrowSource(data, **options), beside)
    found: list[tuple[Any, ...]] = []
    try:
        while (chunk := rows.next()) is not None:
            count = chunk.values.length
            columns = [
                list(BlobColumn.of_arrow(chunk.values)),
                blobs(chunk.keys, count),
                lists(chunk.headers, count),
                chunk.partitions or [None] * count,
                chunk.timestamps or [None] * count,
            ]
            found += zip(*columns, strict=True)
    finally:
        rows.close()
    return found


def blobs(part: Any, count: int) -> list[Any]:
    if part is None:
        return [None] * count
    return list(BlobColumn.of_arrow(part) if isinstance(part, ArrowParts) else part)


def lists(part: Any, count: int) -> list[Any]:
    if part is None:
        return [None] * count
    return [None if each is None else list(each) for each in HeaderLists.of_arrow(part)]


def cut(items: list[Any], kind: Any, places: list[int]) -> Any:
    """An array in chunks, empty ones among them."""
    bounds = [0, *sorted(min(place, len(items)) for place in places), len(items)]
    chunks = [pa.array(items[start:end], kind) for start, end in itertools.pairwise(bounds)]
    return pa.chunked_array(chunks, kind)


PLACES = st.lists(st.integers(0, 30), max_size=4)


@settings(max_examples=40)
@given(count=st.integers(0, 30), places=st.lists(PLACES, min_size=5, max_size=5))
def test_chunks_of_any_lengths(count: int, places: list[list[int]]) -> None:
    """Each row has its own parts, wherever the arrays are cut."""
    values, keys = ([b"%s%d" % (name, row) for row in range(count)] for name in (b"v", b"k"))
    headers = [[("h", b"%d" % row)] for row in range(count)]
    numbers = list(range(count))
    beside = {
        "key": cut(keys, pa.large_binary(), places[1]),
        "headers": cut(headers, HEADERS, places[2]),
        "partition": cut(numbers, pa.int16(), places[3]),
        "timestamp_ms": cut(numbers, pa.timestamp("ms"), places[4]),
    }
    expected = list(zip(values, keys, headers, numbers, numbers, strict=True))
    assert rows_of(cut(values, pa.binary(), places[0]), beside) == expected
    table = pa.table({"value": cut(values, pa.binary(), places[0]), "key": pa.nulls(count, pa.binary())})
    assert rows_of(table, beside) == expected
    assert rows_of(table, {"partition": numbers, "key": itertools.repeat(b"k")}) == [
        (value, b"k", None, row, None) for row, value in enumerate(values)
    ]


@pytest.mark.parametrize("kind", ["binary_view", "fixed", "dictionary", "sliced"])
def test_layouts_of_keys(kind: str) -> None:
    """Every layout can be cut in the middle."""
    keys: Any = pa.array([b"a", None, b"c", b"d", b"e"], pa.binary(1) if kind == "fixed" else pa.binary())
    if kind == "binary_view":
        keys = keys.cast(pa.binary_view())
    elif kind == "dictionary":
        keys = keys.dictionary_encode()
    elif kind == "sliced":
        keys = pa.concat_arrays([keys, keys]).slice(5)
    values = pa.chunked_array([[b"1", b"2"], [b"3"], [], [b"4", b"5"]], pa.binary())
    assert [row[1] for row in rows_of(values, {"key": keys})] == [b"a", None, b"c", b"d", b"e"]


@pytest.mark.parametrize(
    ("name", "array", "problem"),
    [
        ("key", [1], "the array of keys is of Arrow type int64"),
        (
            "partition",
            ["a"],
            "the array of partitions is of Arrow type format 'u'; partition takes whole numbers",
        ),
        ("timestamp_ms", [1.5], "the array of timestamps is of Arrow type float64"),
        ("headers", [b"h"], "the array of headers is of Arrow type format 'z'"),
    ],
)
def test_arrays_of_other_types(name: str, array: Any, problem: str) -> None:
    """Refused as columns are; nothing stays held."""
    with pytest.raises(IllegalArgumentError, match=problem):
        rows_of(pa.array([b"v"]), {name: pa.array(array)})


def test_a_table_is_no_array() -> None:
    """As keys it has no type that could be one."""
    with pytest.raises(IllegalArgumentError, match="the array of keys is of Arrow type struct"):
        rows_of(pa.array([b"v"]), {"key": pa.table({"a": [b"k"]})})
    with pytest.raises(TypeError, match="not object"):
        rows_of(pa.array([b"v"]), {"key": object()})


def test_streams_of_unequal_lengths() -> None:
    """They say their lengths only at the end."""
    values = pa.chunked_array([[b"1", b"2"], [b"3"]], pa.binary())
    with pytest.raises(IllegalArgumentError, match="there are 2 keys, but more values"):
        rows_of(values, {"key": pa.array([b"a", b"b"])})
    with pytest.raises(IllegalArgumentError, match="there are 3 values, but more partitions"):
        rows_of(values, {"partition": pa.array([1, 2, 3, 4])})
    with pytest.raises(IllegalArgumentError, match="there are 0 values, but more keys"):
        rows_of(values.slice(3), {"key": [b"a"]})
