"""Records encoded at append: bytes, limits, wrong types, and views that outlive a growing buffer."""

from __future__ import annotations

import re
from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from splashdam.model.errors import IllegalArgumentError

INT64 = st.integers(-(2**63), 2**63 - 1)
BLOB = st.none() | st.binary(max_size=200)
HEADERS = st.none() | st.lists(
    st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=80)), max_size=4
)
RECORD = st.tuples(INT64, BLOB, BLOB, HEADERS)

FRESH = (0, 61, -1, -1)


def state(buffer: Any) -> tuple[int, int, int, int]:
    return buffer.record_count, buffer.size_bytes, buffer.base_timestamp_ms, buffer.max_timestamp_ms


def test_a_new_buffer(kernel: ModuleType) -> None:
    """It has room for the header, which is zero until a seal writes it."""
    buffer = kernel.BatchBuffer(100)
    assert state(buffer) == FRESH
    assert buffer.capacity_bytes == 100
    assert bytes(buffer.view()) == bytes(61)


def test_the_bytes_of_a_record(kernel: ModuleType) -> None:
    """Length, attributes, deltas, key, value, headers, as the format says."""
    buffer = kernel.BatchBuffer(1000)
    assert buffer.try_append(5, b"k", b"v", [("h", b"1"), ("é", None)])
    assert buffer.try_append(3, None, b"", None)
    first = bytes.fromhex("20 00 00 00 02 6b 02 76 04 02 68 02 31 04 c3a9 01")
    second = bytes.fromhex("0c 00 03 02 01 00 00")
    assert bytes(buffer.view()[61:]) == first + second
    assert state(buffer) == (2, 61 + len(first) + len(second), 5, 5)


def test_timestamps_go_both_ways(kernel: ModuleType) -> None:
    """The first record sets the base; the maximum is the true one."""
    buffer = kernel.BatchBuffer(1000)
    for timestamp in (10, -20, 30, 25):
        buffer.try_append(timestamp, None, None, None)
    assert state(buffer)[2:] == (10, 30)


def test_exactly_full(kernel: ModuleType) -> None:
    """The last byte may be used; a record that needs one more changes nothing."""
    buffer = kernel.BatchBuffer(61 + 7 + 8)
    assert buffer.try_append(0, None, None, None)
    before = state(buffer), bytes(buffer.view())
    assert not buffer.try_append(1, None, b"12", None)
    assert (state(buffer), bytes(buffer.view())) == before
    assert buffer.try_append(1, None, b"1", None)
    assert buffer.size_bytes == buffer.capacity_bytes


def test_reserve(kernel: ModuleType) -> None:
    """It grows and never shrinks, and keeps the records."""
    buffer = kernel.BatchBuffer(61)
    assert not buffer.try_append(0, None, None, None)
    buffer.reserve(500)
    assert buffer.try_append(0, b"key", b"value", None)
    before = bytes(buffer.view())
    buffer.reserve(100)
    assert buffer.capacity_bytes == 500
    buffer.reserve(70_000)
    assert buffer.capacity_bytes == 70_000
    assert bytes(buffer.view()) == before


def test_views_outlive_growth(kernel: ModuleType) -> None:
    """A view keeps its bytes when the buffer moves, and the buffer does not see what is written there."""
    buffer = kernel.BatchBuffer(100)
    buffer.try_append(0, None, b"first", None)
    view = buffer.view()
    before = bytes(view)
    buffer.reserve(100_000)
    view[:4] = b"mine"
    for _ in range(100):
        assert buffer.try_append(0, None, b"x" * 500, None)
    assert bytes(view[61:]) == before[61:]
    assert bytes(buffer.view()[:61]) == bytes(61)
    del buffer
    assert bytes(view[:4]) == b"mine"


def test_memory_cannot_be_resized_from_outside(kernel: ModuleType) -> None:
    """Code that reaches the bytearray behind a view cannot resize it and so move the bytes away."""
    buffer = kernel.BatchBuffer(100)
    view = buffer.view()
    memory = view.obj
    view.release()
    with pytest.raises(BufferError):
        memory.clear()
    assert buffer.try_append(0, None, b"still works", None)


@pytest.mark.parametrize("capacity", [60, 0, -1, 2**31, 2**70])
def test_illegal_capacities(kernel: ModuleType, capacity: int) -> None:
    """A batch has at least a header, and its length must fit its length field."""
    with pytest.raises(IllegalArgumentError, match=f"capacity_bytes={capacity}"):
        kernel.BatchBuffer(capacity)
    buffer = kernel.BatchBuffer(61)
    if capacity > 61:
        with pytest.raises(IllegalArgumentError, match=f"capacity_bytes={capacity}"):
            buffer.reserve(capacity)
    assert buffer.capacity_bytes == 61


class Text(str):
    """A str that lies about itself."""

    def encode(self, *_: object) -> bytes:
        raise AssertionError("not called")

    def __str__(self) -> str:
        raise AssertionError("not called")


class Pair(tuple[str, bytes]):
    """A tuple that is not exactly one."""


def test_all_kinds_of_bytes(kernel: ModuleType) -> None:
    """bytes, bytearray, memoryview and other contiguous buffers are taken everywhere."""
    expected = kernel.BatchBuffer(200)
    expected.try_append(0, b"\1\2", b"\1\2", [("h", b"\1\2")])
    for data in (bytearray(b"\1\2"), memoryview(b"\0\1\2")[1:], array("B", [1, 2]), array("H", [0x0201])):
        buffer = kernel.BatchBuffer(200)
        assert buffer.try_append(0, data, data, [("h", data)])
        assert buffer.view() == expected.view()


@pytest.mark.parametrize(
    "headers",
    [(("h", b"v"),), [["h", b"v"]], [Pair(("h", b"v"))], [(Text("h"), b"v")], (("h", bytearray(b"v")),)],
)
def test_all_kinds_of_headers(kernel: ModuleType, headers: Any) -> None:
    """Lists, tuples and their relatives mean the same; a str's own methods are not asked."""
    expected = kernel.BatchBuffer(100)
    expected.try_append(0, None, None, [("h", b"v")])
    buffer = kernel.BatchBuffer(100)
    assert buffer.try_append(0, None, None, headers)
    assert buffer.view() == expected.view()


@pytest.mark.parametrize("headers", [None, (), []])
def test_no_headers(kernel: ModuleType, headers: Any) -> None:
    """Three ways to say none."""
    buffer = kernel.BatchBuffer(100)
    assert buffer.try_append(0, None, None, headers)
    assert bytes(buffer.view()[61:]) == bytes.fromhex("0c 00 00 00 01 01 00")


HOSTILE_HEADERS = [
    "ab",
    b"ab",
    5,
    0,
    {},
    {"h": b"v"},
    {("h", b"v")},
    iter([("h", b"v")]),
    ["hv"],
    [("h",)],
    [("h", b"v", b"w")],
    [None],
    [(b"h", b"v")],
    [(None, b"v")],
    [("h", "v")],
    [("h", 5)],
    [("good", b""), ("h", memoryview(b"1234")[::2])],
]


@pytest.mark.parametrize(
    "headers", HOSTILE_HEADERS, ids=lambda headers: re.sub(r" at 0x\w+", "", repr(headers))
)
def test_hostile_headers(kernel: ModuleType, headers: Any) -> None:
    """Everything else is refused before anything is changed."""
    buffer = kernel.BatchBuffer(100)
    with pytest.raises(TypeError, match="header"):
        buffer.try_append(1, b"key", b"value", headers)
    assert state(buffer) == FRESH
    with pytest.raises(TypeError, match="header"):
        kernel.record_size_upper_bound(b"key", b"value", headers)


def test_a_key_that_is_no_utf8(kernel: ModuleType) -> None:
    """A lone surrogate cannot be encoded; also not behind a good header."""
    buffer = kernel.BatchBuffer(100)
    with pytest.raises(UnicodeEncodeError):
        buffer.try_append(1, None, None, [("good", b""), ("\ud800", b"")])
    assert state(buffer) == FRESH


@pytest.mark.parametrize("data", ["text", 5, memoryview(b"1234")[::2], object()])
def test_hostile_keys_and_values(kernel: ModuleType, data: Any) -> None:
    """Keys and values are bytes or None; the error says which one is not."""
    buffer = kernel.BatchBuffer(100)
    with pytest.raises(TypeError, match="key"):
        buffer.try_append(1, data, None, None)
    with pytest.raises(TypeError, match="value"):
        buffer.try_append(1, None, data, None)
    assert state(buffer) == FRESH
    with pytest.raises(TypeError, match="key or value"):
        kernel.record_size_upper_bound(None, data, None)


@pytest.mark.parametrize(
    ("timestamp", "error"), [(1.0, TypeError), (None, TypeError), ("1", TypeError), (2**63, OverflowError)]
)
def test_hostile_timestamps(kernel: ModuleType, timestamp: Any, error: type[Exception]) -> None:
    """Whole numbers of 64 bits and nothing else."""
    buffer = kernel.BatchBuffer(100)
    with pytest.raises(error):
        buffer.try_append(timestamp, None, None, None)
    assert state(buffer) == FRESH


class Index:
    """What numpy's integers are, among others."""

    def __index__(self) -> int:
        return 7


def test_integers_that_are_not_int(kernel: ModuleType) -> None:
    """An object that says it is an integer is one."""
    buffer = kernel.BatchBuffer(100)
    assert buffer.try_append(Index(), None, None, None)
    assert buffer.base_timestamp_ms == 7


class Meddler:
    """Bytes that append a record themselves while they are looked at."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def __index__(self) -> int:
        assert self.buffer.try_append(1, None, b"nested", None)
        return 2


def test_an_argument_that_appends_itself(kernel: ModuleType) -> None:
    """Arguments are looked at before anything is decided, so a nested append is simply the earlier one."""
    buffer = kernel.BatchBuffer(1000)
    assert buffer.try_append(Meddler(buffer), None, b"outer", None)
    expected = kernel.BatchBuffer(1000)
    expected.try_append(1, None, b"nested", None)
    expected.try_append(2, None, b"outer", None)
    assert buffer.view() == expected.view()
    assert state(buffer) == state(expected)


@given(record=RECORD)
def test_upper_bound(kernel: ModuleType, record: Any) -> None:
    """It is kafka-python's estimate without the header, and a record never takes more."""
    _, key, value, headers = record
    bound = kernel.record_size_upper_bound(key, value, headers)
    estimate = DefaultRecordBatchBuilder.estimate_size_in_bytes(key, value, headers or [])
    assert bound == estimate - 61
    buffer = kernel.BatchBuffer(61 + 2 * bound)
    assert buffer.try_append(2**63 - 1, None, None, None)
    before = buffer.size_bytes
    assert buffer.try_append(*record)
    assert buffer.size_bytes - before <= bound


@pytest.mark.parametrize(
    ("size", "length_bytes"), [(0, 1), (63, 1), (64, 2), (8191, 2), (8192, 3), (1 << 20, 4)]
)
def test_upper_bound_at_the_edges_of_varints(kernel: ModuleType, size: int, length_bytes: int) -> None:
    """21 bytes, one byte for each null or empty field, and length and bytes of every other field."""
    data = bytes(size)
    expected = 21 + 1 + 1 + length_bytes + size
    assert kernel.record_size_upper_bound(data, None, None) == expected
    assert kernel.record_size_upper_bound(None, bytearray(data), ()) == expected
    assert kernel.record_size_upper_bound(None, None, [("", data)]) == expected + 2


@given(records=st.lists(RECORD, max_size=8), capacity=st.integers(61, 1500))
def test_twins_agree(twins: tuple[ModuleType, ModuleType], records: list[Any], capacity: int) -> None:
    """Whatever is appended, both make the same bytes and the same decisions."""
    python, compiled = (twin.BatchBuffer(capacity) for twin in twins)
    for record in records:
        assert python.try_append(*record) == compiled.try_append(*record)
        assert state(python) == state(compiled)
    assert python.view() == compiled.view()


@pytest.mark.parametrize("size", [63, 64, 8191, 8192, 1_048_575, 1_048_576, 3_000_000])
def test_twins_agree_at_the_edges_of_varints(twins: tuple[ModuleType, ModuleType], size: int) -> None:
    """Lengths where a varint gets one byte longer, as value and as header."""
    made = []
    for twin in twins:
        buffer = twin.BatchBuffer(61 + 2 * size + 100)
        assert buffer.try_append(size, None, bytes(size), [("h", bytes(size))])
        assert buffer.try_append(0, None, b"", None)
        made.append(bytes(buffer.view()))
    assert made[0] == made[1]


@pytest.mark.parametrize("per_ms", [1, 700, 20_000])
def test_twins_agree_on_many_records(twins: tuple[ModuleType, ModuleType], per_ms: int) -> None:
    """Offset deltas beyond one and two bytes; timestamps that change and come back; keys in between."""
    python, compiled = (twin.BatchBuffer(300_000) for twin in twins)
    for count in range(10_000):
        timestamp_ms = count // per_ms - count % 100 // 99
        record = (timestamp_ms, b"k" if count % 90 == 7 else None, b"value"[: count % 6], None)
        assert python.try_append(*record)
        assert compiled.try_append(*record)
    assert state(python) == state(compiled)
    assert python.view() == compiled.view()
