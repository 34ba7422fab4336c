"""Records as columns: everything that was built is there, within limits and ranges, on both twins."""

from __future__ import annotations

import importlib
import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.record.record_kit import raw_batch, raw_record
from support.running.alone import traced
from support.running.patches import Patches

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import IllegalArgumentError, IllegalStateError, UnsupportedCodecError
from splashdam.record import columns as module
from splashdam.record.batch import Codec
from splashdam.record.columns import ColumnsBuilder, RecordColumns, decode_columns
from splashdam.record.compression import Compression
from splashdam.record.reader import Record, read_records
from splashdam.record.sealing import build_batch

BLOB = st.none() | st.binary(max_size=40)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=6), BLOB), max_size=3)
RECORDS = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), BLOB, BLOB, HEADERS), min_size=1, max_size=12)
SAMPLE = [(1000 + i, b"k%d" % i if i % 3 else None, b"v" * i, [("h", b"1")] * (i % 2)) for i in range(20)]


@pytest.fixture(autouse=True)
def _twin(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts one twin after the other behind the columns."""
    monkeypatch.setattr(module, "ColumnBuffers", kernel.ColumnBuffers)


def at_offset(records: list[Any], base_offset: int, codec: Codec = Codec.NONE, **fields: Any) -> bytes:
    batch = bytearray(build_batch(records, Compression(codec), **fields))
    struct.pack_into(">q", batch, 0, base_offset)
    return bytes(batch)


def records_of(columns: RecordColumns) -> list[Record]:
    return [columns.record(index) for index in range(len(columns))]


def all_records(data: bytes) -> list[Record]:
    position, records = 0, []
    while position < len(data):
        records += read_records(data, position)
        position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    return records


@given(batches=st.lists(st.tuples(RECORDS, st.sampled_from(Codec)), max_size=4), data=st.data())
def test_what_was_built_comes_back(batches: list[tuple[list[Any], Codec]], data: st.DataObject) -> None:
    """Any batches, read at once, or over several calls however small the limits."""
    blob, offset = b"", data.draw(st.integers(0, 2**40))
    for records, codec in batches:
        blob += at_offset(records, offset, codec)
        offset += len(records) + data.draw(st.integers(0, 3))
    expected = all_records(blob)
    assert records_of(decode_columns(blob)) == expected
    limits = {"max_records": data.draw(st.integers(1, 5)), "max_bytes": data.draw(st.integers(1, 400))}
    gathered: list[Record] = []
    next_offset = 0
    while len(gathered) < len(expected):
        some = decode_columns(blob, first_offset=next_offset, **limits)
        assert 0 < len(some) <= limits["max_records"]
        gathered += records_of(some)
        assert gathered[-1].offset < some.next_offset
        next_offset = some.next_offset
    assert gathered == expected
    assert len(decode_columns(blob, first_offset=next_offset)) == 0


def test_the_layout() -> None:
    """Arrow's, byte by byte."""
    records = [(5, b"ab", None, None), (6, None, b"", [("k", None), ("é", b"x")]), (7, b"c", b"de", None)]
    columns = decode_columns(at_offset(records, 100))
    assert columns.keys is not None
    assert columns.values is not None
    assert columns.headers is not None
    assert list(columns.offsets) == [100, 101, 102]
    assert list(columns.timestamps_ms) == [5, 6, 7]
    assert (columns.keys.null_count, bytes(columns.keys.validity or b"")) == (1, b"\x05")
    assert (list(columns.keys.offsets), bytes(columns.keys.data)) == ([0, 2, 2, 3], b"abc")
    assert (columns.values.null_count, bytes(columns.values.validity or b"")) == (1, b"\x06")
    assert (list(columns.values.offsets), bytes(columns.values.data)) == ([0, 0, 0, 2], b"de")
    assert list(columns.headers.ends) == [0, 0, 2, 2]
    assert columns.headers.keys.validity is None
    assert [columns.headers.keys[0], columns.headers.keys[1]] == [b"k", "é".encode()]
    assert [columns.headers.values[0], columns.headers.values[1]] == [None, b"x"]
    assert columns.headers.of_record(1) == (("k", None), ("é", b"x"))
    buffers = [columns.offsets, columns.timestamps_ms, columns.keys.data, columns.headers.ends]
    assert all(buffer.readonly and buffer.c_contiguous for buffer in buffers)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 64, 65])
def test_validity_bits(count: int) -> None:
    """Bits behind the last are zero; a column without nulls has no validity bits."""
    for nulls in ({0}, {count - 1}, set(range(count)), set()):
        records = [(0, None if index in nulls else b"k", b"", None) for index in range(count)]
        keys = decode_columns(build_batch(records)).keys
        assert keys is not None
        bits = sum(1 << index for index in range(count) if index not in nulls)
        expected = bits.to_bytes((count + 7) // 8, "little") if nulls else None
        assert (None if keys.validity is None else bytes(keys.validity)) == expected
        assert [keys[index] for index in range(count)] == [record[1] for record in records]


def test_nothing() -> None:
    """No batch is no record, with all buffers there."""
    columns = decode_columns(b"", first_offset=7)
    assert (len(columns), columns.next_offset) == (0, 7)
    assert columns.keys is not None
    assert columns.headers is not None
    assert list(columns.keys.offsets) == list(columns.headers.ends) == [0]


def test_ranges() -> None:
    """First and last offset cut within batches; batches outside are not even unpacked."""
    damaged = bytearray(at_offset(SAMPLE, 0, Codec.GZIP))
    damaged[80] ^= 0xFF
    data = bytes(damaged) + at_offset(SAMPLE, 20) + at_offset(SAMPLE, 40) + bytes(damaged[:8]) + damaged[8:]
    columns = decode_columns(data[: -len(damaged)], first_offset=25, last_offset=41)
    assert list(columns.offsets) == list(range(25, 42))
    assert columns.next_offset == 42
    with pytest.raises(CorruptMessageError):
        decode_columns(data, first_offset=19)


def test_columns_that_nobody_wants() -> None:
    """Are not kept, and counted as null."""
    columns = decode_columns(at_offset(SAMPLE, 0), keys=False, headers=False)
    assert columns.keys is None
    assert columns.headers is None
    assert columns.record(4) == Record(4, 1004, None, b"v" * 4, ())
    assert decode_columns(at_offset(SAMPLE, 0), values=False).record(4).value is None


def test_markers_are_left_out_unless_added() -> None:
    """Readers of whole logs leave them out; ``add`` with a control batch returns its record."""
    marker = at_offset([(1, b"\0\0\0\1", b"", None)], 5, control=True)
    columns = decode_columns(at_offset(SAMPLE[:5], 0) + marker)
    assert (list(columns.offsets), columns.next_offset) == ([0, 1, 2, 3, 4], 6)
    builder = ColumnsBuilder()
    assert builder.add(marker)
    assert builder.finish().record(0).key == b"\0\0\0\1"


def test_append_time_counts_for_all() -> None:
    """LogAppendTime batches have one timestamp."""
    batch = raw_batch(raw_record(5, 0, -1, -1, 0) * 2, 2, attributes=8, max_timestamp=777)
    assert list(decode_columns(batch).timestamps_ms) == [777, 777]


def test_damage_leaves_the_rest_as_it_was() -> None:
    """A batch is taken whole or not at all; the text is the readers'."""
    broken = raw_batch(raw_record(5, 0, 1, b"k", 1, b"v", 1, 1, b"h", -1) + raw_record(0, 1, 9, b"k"), 2)
    builder = ColumnsBuilder()
    builder.add(at_offset(SAMPLE, 0))
    for _ in range(2):
        with pytest.raises(CorruptMessageError, match="offset 0: record 1: key of 9 bytes at 16, 1 are left"):
            builder.add(broken)
    assert builder.record_count == 20
    builder.add(at_offset(SAMPLE, 20))
    assert records_of(builder.finish()) == all_records(at_offset(SAMPLE, 0) + at_offset(SAMPLE, 20))


def test_offsets_that_run_backwards_are_still_passed(twins: tuple[ModuleType, ModuleType]) -> None:
    """Reading on never returns to an offset that was read."""
    batch = raw_batch(b"".join(raw_record(0, delta, -1, -1, 0) for delta in (5, 3, 1)), 3)
    seen, next_offset = [], 0
    while len(some := decode_columns(batch, first_offset=next_offset, max_records=1)):
        seen += list(some.offsets)
        assert some.next_offset > next_offset
        next_offset = some.next_offset
    assert seen == [5]


def test_an_offset_beyond_64_bits() -> None:
    """Cannot be told, and is damage."""
    batch = raw_batch(raw_record(0, 9, -1, -1, 0), 1, base_offset=2**63 - 5)
    with pytest.raises(CorruptMessageError, match="record 0: offset delta 9 at 3 exceeds 64 bits"):
        decode_columns(batch)
    with pytest.raises(CorruptMessageError, match="exceeds 64 bits"):
        read_records(batch)


def test_a_bomb_is_limited(kernel: ModuleType) -> None:
    """By what a batch may unpack to, and by what the columns may hold."""
    batch = build_batch([(0, None, bytes(5_000_000), None)], Compression(Codec.GZIP))
    assert traced(refuse, kernel.__name__, batch, "100000", max_batch_bytes=100_000).peak_bytes < 600_000
    many = raw_batch(raw_record(0, 0, -1, -1, 0) * 200_000, 200_000)
    some = traced(column_length, kernel.__name__, many, max_bytes=38 * 1000)
    assert some.result == 1000
    assert some.peak_bytes < 3_000_000


def refuse(kernel: str, batch: bytes, words: str, **limits: int) -> None:
    with pytest.raises(CorruptMessageError, match=words):
        column_length(kernel, batch, **limits)


def column_length(kernel: str, batch: bytes, **limits: int) -> int:
    """With the twin of this name, in a process where nothing is patched."""
    with Patches.context() as patches:
        patches.setattr(module, "ColumnBuffers", importlib.import_module(kernel).ColumnBuffers)
        return len(decode_columns(batch, **limits))


def test_wrong_use() -> None:
    """Limits that make no sense, unknown codecs, and columns that are finished."""
    for limits in ({"max_records": 0}, {"max_bytes": 0}, {"max_batch_bytes": -1}, {"first_offset": -1}):
        with pytest.raises(IllegalArgumentError):
            decode_columns(b"", **limits)
    with pytest.raises(UnsupportedCodecError):
        decode_columns(raw_batch(b"", 0, attributes=7))
    builder = ColumnsBuilder()
    columns = builder.finish()
    for call in (builder.finish, lambda: builder.add(build_batch(SAMPLE))):
        with pytest.raises(IllegalStateError, match="finished"):
            call()
    with pytest.raises(IndexError):
        columns.record(0)
    assert columns.keys is not None
    with pytest.raises(IndexError):
        columns.keys[-1]
