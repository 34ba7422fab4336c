"""Headers straight from Arrow's buffers: the same on both twins, also where the buffers lie."""

from __future__ import annotations

import ctypes
from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.errors import IllegalArgumentError
from splashdam.model.values import TopicPartition
from splashdam.record.kernel.bulk.blob_column import DAMAGED_ROW, ArrowParts, Layout
from splashdam.record.kernel.bulk.header_lists import MAX_HEADERS, ListParts

ENTRIES = 6
ROWS = 4

BITS = st.one_of(st.none(), st.integers(0, 255))


class Buffers:
    """Memory that addresses point into, as long as this lives."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def address(self, data: bytes) -> int:
        memory = ctypes.create_string_buffer(data, max(len(data), 1))
        self.kept.append(memory)
        return ctypes.addressof(memory)

    def numbers(self, code: str, numbers: Any) -> int:
        return self.address(array(code, numbers).tobytes())

    def blobs(self, data: bytes, offsets: Any, validity: int | None = None, first: int = 0) -> ArrowParts:
        """A column of bytes: ``offsets`` may say anything."""
        bits = 0 if validity is None else self.address(bytes([validity, validity]))
        rows = len(offsets) - 1 - first
        places = self.numbers("i", offsets)
        return ArrowParts(Layout.OFFSETS_32, self, first, rows, bits, places, self.address(data), len(data))


def column_of(rows: Any, *, wide: bool = False) -> ListParts:
    """Sound buffers of these headers."""
    buffers = Buffers()
    flat = [pair for pairs in rows for pair in pairs or ()]
    parts = [[key.encode() for key, _ in flat], [value or b"" for _, value in flat]]
    keys, values = (
        buffers.blobs(b"".join(each), [sum(map(len, each[:end])) for end in range(len(flat) + 1)])
        for each in parts
    )
    nulls = sum(1 << at for at, (_, value) in enumerate(flat) if value is not None)
    values = values._replace(validity=buffers.address(nulls.to_bytes(len(flat) // 8 + 1, "little")))
    there = sum(1 << at for at, pairs in enumerate(rows) if pairs is not None)
    ends = [sum(len(pairs or ()) for pairs in rows[:end]) for end in range(len(rows) + 1)]
    return ListParts(
        "column 'h'",
        0,
        len(rows),
        buffers.address(there.to_bytes(len(rows) // 8 + 1, "little")),
        buffers.numbers("q" if wide else "i", ends),
        8 if wide else 4,
        keys,
        values,
        0,
        0,
    )


class Bench:
    """An open batch of one twin and the rows of a column with values beside them."""

    def __init__(self, kernel: ModuleType, parts: ListParts, *, max_bytes: int = 1 << 20) -> None:
        self.lane = kernel.PartitionLane(TopicPartition("t", 0))
        self.buffer = kernel.BatchBuffer(1 << 16)
        self.lane.open(self.buffer, kernel.BatchOutcome(self.lane.topic_partition))
        self.tails = kernel.RunTails()
        self.tails.reserve(1)
        self.tails.begin(0, self.lane)
        self.lists = kernel.HeaderLists.of_arrow(parts)
        values = kernel.BlobColumn.of_objects([b"v"] * parts.length)
        self.records = kernel.BulkRecords(values, None, None, max_bytes, None, None, self.lists)

    def append(self, start: int = 0) -> int:
        """The first row from ``start`` on that is not in."""
        row: int = self.records.append(self.lane, None, self.tails, 7, start, 1 << 40)
        return row

    def looked_at(self) -> list[Any]:
        """Each row's pairs, or what is wrong with them."""
        found: list[Any] = []
        for row in range(len(self.lists)):
            try:
                found.append(self.lists[row])
            except IllegalArgumentError as error:
                found.append(str(error))
        return found


def single_appends(kernel: ModuleType, rows: Any) -> bytes:
    """What these rows are in a batch."""
    buffer = kernel.BatchBuffer(1 << 16)
    for pairs in rows:
        assert buffer.try_append(7, None, b"v", pairs)
    return bytes(buffer.view())


@given(
    rows=st.lists(
        st.one_of(
            st.none(),
            st.lists(
                st.tuples(
                    st.text(st.characters(codec="utf-8"), max_size=9), st.one_of(st.none(), st.binary())
                ),
                max_size=4,
            ),
        ),
        max_size=20,
    ),
    wide=st.booleans(),
)
def test_the_bytes_are_those_of_single_appends(
    twins: tuple[ModuleType, ModuleType], rows: Any, wide: bool
) -> None:
    """Nulls, empty lists, null values and any text as key."""
    for kernel in twins:
        bench = Bench(kernel, column_of(rows, wide=wide))
        assert bench.append() == len(rows)
        assert bytes(bench.buffer.view()) == single_appends(twins[0], rows)
        assert bench.looked_at() == rows


def offsets(count: int, most: int) -> Any:
    """Draw offsets of ``count`` rows; they may decrease, and point outside of the data."""
    return st.lists(st.integers(-1, most + 1), min_size=count + 1, max_size=count + 1)


@given(
    ends=offsets(ROWS, ENTRIES),
    keys=st.tuples(st.binary(max_size=8), offsets(ENTRIES + 1, 8), BITS),
    values=st.tuples(st.just(b"value"), offsets(ENTRIES, 5), BITS),
    bits=st.tuples(BITS, BITS, st.integers(0, 1)),
)
def test_buffers_that_lie(
    twins: tuple[ModuleType, ModuleType], ends: Any, keys: Any, values: Any, bits: Any
) -> None:
    """Both twins take the same rows and stop before one with whose pairs something is wrong."""
    buffers = Buffers()
    nulls, present, first = bits
    parts = ListParts(
        "column 'h'",
        first,
        ROWS - first,
        0 if nulls is None else buffers.address(bytes([nulls])),
        buffers.numbers("i", ends),
        4,
        buffers.blobs(*keys, first=1),
        buffers.blobs(*values),
        0 if present is None else buffers.address(bytes([present, present])),
        3,
    )
    found = []
    for kernel in twins:
        bench = Bench(kernel, parts)
        rows = bench.looked_at()
        taken, row = [], 0
        while row < len(rows):
            end = bench.append(row)
            taken += rows[row:end]
            assert end == len(rows) or isinstance(rows[end], str)
            row = end + 1
        assert not any(isinstance(each, str) for each in taken)
        assert bytes(bench.buffer.view()) == single_appends(kernel, taken)
        found.append(rows)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"key": b"\xed\xa0\x80"}, "column 'h': a header's key is not UTF-8"),
        ({"present": 0}, "column 'h': a header has no key"),
        ({"keys": 0}, "column 'h': a header has no key"),
        ({"ends": (0, 2)}, "column 'h' points outside of its entries"),
        ({"ends": (1, 0)}, "column 'h' points outside of its entries"),
        ({"ends": (-1, 1)}, "column 'h' points outside of its entries"),
        ({"offsets": (0, 9)}, DAMAGED_ROW),
        ({"values": (3, 1)}, DAMAGED_ROW),
    ],
)
def test_what_is_wrong_is_named(kernel: ModuleType, change: Any, problem: str) -> None:
    """When the row is looked at; the fast path only stops before it."""
    buffers = Buffers()
    key = change.get("key", b"k")
    parts = ListParts(
        "column 'h'",
        0,
        1,
        0,
        buffers.numbers("q", change.get("ends", (0, 1))),
        8,
        buffers.blobs(key, change.get("offsets", (0, len(key))), change.get("keys")),
        buffers.blobs(b"v", change.get("values", (0, 1))),
        buffers.address(bytes([change["present"]])) if "present" in change else 0,
        0,
    )
    bench = Bench(kernel, parts)
    assert bench.append() == 0
    with pytest.raises(IllegalArgumentError, match=problem):
        _ = bench.lists[0]


def test_rows_that_are_left_to_the_slow_path(kernel: ModuleType) -> None:
    """Very many headers, and headers that may be too large for a request."""
    many = [("k", None)] * MAX_HEADERS
    bench = Bench(kernel, column_of([many, [*many, ("k", b"one more")]]))
    assert bench.append() == 1
    assert bench.looked_at() == [many, [*many, ("k", b"one more")]]
    row = [("key", bytes(20)), ("k", None)]
    size = len(single_appends(kernel, [row])) - len(single_appends(kernel, [None])) + 1
    for max_bytes in range(-1, size + 3):
        assert Bench(kernel, column_of([row]), max_bytes=max_bytes).append() == (max_bytes > size)


def test_closed_lists_have_no_rows(kernel: ModuleType) -> None:
    """An empty list has no rows either; both have no records."""
    bench = Bench(kernel, column_of([None, [("k", b"v")]]))
    bench.lists.close()
    assert len(bench.lists) == len(kernel.HeaderLists()) == 0
    assert bench.append() == 0
    for row in (-1, 0, 2):
        with pytest.raises(IndexError, match=f"row {row} of 0"):
            _ = bench.lists[row]
