"""Arrow data as pyarrow makes them: every accepted layout, slices, nulls and chunks, row by row."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.errors import IllegalArgumentError
from splashdam.record.arrow.source import ArrowSource

pa = pytest.importorskip("pyarrow")

ROWS = st.lists(st.one_of(st.none(), st.binary(max_size=30)), max_size=40)

TYPES = {
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "utf8": pa.string(),
    "large_utf8": pa.large_string(),
    "fixed": pa.binary(3),
    "binary_view": pa.binary_view(),
    "utf8_view": pa.string_view(),
    "dictionary_i8": pa.dictionary(pa.int8(), pa.string()),
    "dictionary_u32": pa.dictionary(pa.uint32(), pa.binary()),
}


def source(data: Any, **options: Any) -> ArrowSource:
    """With the defaults of ``send_arrow``."""
    return ArrowSource(data, **{"value": "value", "key": "key", "key_needed": False, **options})


def rows(kernel: ModuleType, data: Any, **options: Any) -> list[tuple[Any, Any]]:
    """Keys and values of all chunks, as the twin sees them."""
    found = []
    with source(data, **options) as opened:
        while (chunk := opened.next()) is not None:
            values = kernel.BlobColumn.of_arrow(chunk.values)
            keys = None if chunk.keys is None else kernel.BlobColumn.of_arrow(chunk.keys)
            found += [(None if keys is None else keys[row], values[row]) for row in range(len(values))]
            values.close()
            assert len(values) == 0
    return found


def as_bytes(data: Any) -> list[Any]:
    """pyarrow's own view of an array."""
    return [row.encode() if isinstance(row, str) else row for row in data.to_pylist()]


@pytest.mark.parametrize("kind", TYPES)
def test_every_layout(kernel: ModuleType, kind: str) -> None:
    """With nulls, sliced, empty, and long enough for buffers of their own."""
    texts = [None, "abc", "xyz", None] if kind == "fixed" else [None, "", "a", "é" * 20, None, "a", "z" * 13]
    array = pa.array([text and text.encode() for text in texts] * 3, pa.binary())
    if kind == "fixed":
        array = array.cast(TYPES[kind])
    elif "dictionary" in kind:
        array = array.cast(TYPES[kind].value_type).dictionary_encode().cast(TYPES[kind])
    else:
        array = pa.array([row.as_py() for row in array.cast(pa.string())], TYPES[kind])
    for part in (array, array[2:], array[3:9], array[:0], array[9:9]):
        expected = as_bytes(part)
        assert rows(kernel, part) == [(None, value) for value in expected]
        table = pa.table({"key": part, "other": pa.nulls(len(part)), "value": part})
        assert rows(kernel, table) == [(value, value) for value in expected]
        assert rows(kernel, table, key=None) == [(None, value) for value in expected]


@given(before=ROWS, after=ROWS, cut=st.integers(0, 40), view=st.booleans())
def test_slices_and_chunks(
    twins: tuple[ModuleType, ModuleType], before: list[Any], after: list[Any], cut: int, view: bool
) -> None:
    """Bitmaps and offsets that do not begin where the slice does."""
    kind = pa.binary_view() if view else pa.binary()
    chunks = pa.chunked_array([pa.array(before, kind), pa.array([], kind), pa.array(after, kind)], kind)
    for kernel in twins:
        assert [value for _, value in rows(kernel, chunks[cut:])] == (before + after)[cut:]
        table = pa.table({"value": chunks})[cut:]
        assert [value for _, value in rows(kernel, table)] == (before + after)[cut:]


def test_the_kernels_send_what_the_columns_hold(twins: tuple[ModuleType, ModuleType]) -> None:
    """Equal bytes from Arrow's buffers and from lists, on both twins."""
    from splashdam.model.values import TopicPartition

    values = [b"v%d" % number * (number % 9) for number in range(100)]
    keys = [None if number % 3 else b"k%d" % number for number in range(100)]
    table = pa.table({"value": pa.array(values, pa.large_binary()), "key": pa.array(keys, pa.binary_view())})
    made = []
    for kernel in twins:
        for arrow in (True, False):
            lane = kernel.PartitionLane(TopicPartition("t", 0))
            buffer = kernel.BatchBuffer(1 << 16)
            lane.open(buffer, kernel.BatchOutcome(lane.topic_partition))
            tails = kernel.RunTails()
            tails.reserve(1)
            tails.begin(0, lane)
            column = kernel.BlobColumn.of_objects
            columns = (column(values), column(keys))
            if arrow:
                chunk = source(table).next()
                assert chunk is not None
                assert chunk.keys is not None
                columns = tuple(kernel.BlobColumn.of_arrow(parts) for parts in (chunk.values, chunk.keys))
            assert kernel.BulkRecords(*columns, None, 1 << 20).append(lane, None, tails, 7, 0, 1 << 30) == 100
            made.append(bytes(buffer.view()))
    assert made == [made[0]] * 4


def test_record_batches_streams_and_readers(kernel: ModuleType) -> None:
    """Whatever has one of the two methods."""
    batch = pa.record_batch({"value": pa.array(["a", None]), "key": pa.array(["k", "l"])})
    expected = [(b"k", b"a"), (b"l", None)]
    assert rows(kernel, batch) == expected
    assert rows(kernel, pa.table([batch[1], batch[0]], names=["key", "value"])) == expected
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch, batch])
    assert rows(kernel, reader) == expected * 2
    assert rows(kernel, batch.to_struct_array()) == expected
    assert rows(kernel, batch.to_struct_array()[1:]) == expected[1:]


def test_a_column_of_nothing(kernel: ModuleType) -> None:
    """What a library makes of a column that holds only nulls."""
    table = pa.table({"value": pa.array(["a", "b"]), "key": pa.nulls(2)})
    assert rows(kernel, table) == [(None, b"a"), (None, b"b")]


@pytest.mark.parametrize(
    ("data", "options", "problem"),
    [
        (pa.table({"v": ["a"]}), {}, "no column 'value' among 'v'; name one with value=…"),
        (pa.table({"value": ["a"]}), {"key": "id", "key_needed": True}, "no column 'id' among 'value'"),
        (pa.array(["a"]), {"key": "id", "key_needed": True}, "key='id': a single array has no such column"),
        (pa.table([["a"], ["b"]], names=["value", "value"]), {}, "2 columns are named 'value'"),
        (pa.table({}), {}, "no column 'value' among none"),
        (pa.table({"value": [1]}), {}, r"column 'value' is of Arrow type int64 .*\.cast\(pyarrow\.string"),
        (pa.table({"value": ["a"], "key": [1.5]}), {}, "column 'key' is of Arrow type float64"),
        (pa.array([["a"]]), {}, "the array is of Arrow type list"),
        (pa.array([1]).dictionary_encode(), {}, "the dictionary of the array is of Arrow type int64"),
        (
            pa.table({"value": pa.RunEndEncodedArray.from_arrays([1], pa.array(["a"]))}),
            {},
            "column 'value' is of Arrow type run_end_encoded",
        ),
        (pa.array([{"value": "a"}, None]), {}, "rows that are null as a whole"),
    ],
)
def test_columns_that_cannot_be_sent(data: Any, options: dict[str, Any], problem: str) -> None:
    """The error names column, type and remedy."""
    with pytest.raises(IllegalArgumentError, match=problem), source(data, **options) as opened:
        opened.next()


@pytest.mark.parametrize("data", [[b"a"], b"a", None, 1, pa.Table], ids=type)
def test_what_is_no_arrow_data(data: Any) -> None:
    """The error names what is accepted."""
    with pytest.raises(TypeError, match=r"takes what has __arrow_c_stream__ or __arrow_c_array__.*send_many"):
        source(data)
