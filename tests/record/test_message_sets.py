"""Message formats 0 and 1, against kafka-python's legacy record code and against damage."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.record.batch import Codec
from splashdam.record.compression import Compression, compress
from splashdam.record.legacy import UNKNOWN_COUNT, parse_entry, with_right_checksum, xxhash32
from splashdam.record.reader import Record, iter_records, read_records
from splashdam.record.stored import iter_stored_headers, parse_stored_header, stored_crc_ok

NOW_MS = 1_795_000_000_000
fields = st.none() | st.binary(max_size=40)
messages = st.lists(st.tuples(st.integers(0, 2**40), fields, fields), min_size=1, max_size=20)


def message(
    offset: int, value: bytes | None, *, magic: int = 1, attributes: int = 0, timestamp_ms: int = NOW_MS
) -> bytes:
    """An entry with a null key, made by hand."""
    size = -1 if value is None else len(value)
    time = struct.pack(">q", timestamp_ms) if magic else b""
    body = struct.pack(">bb", magic, attributes) + time + struct.pack(">ii", -1, size) + (value or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(codec: Codec, inner: bytes, offset: int, *, magic: int = 1, attributes: int = 0) -> bytes:
    """A message that holds a compressed message set."""
    packed = compress(inner, Compression(codec))
    return message(offset, packed, magic=magic, attributes=attributes | codec, timestamp_ms=NOW_MS + 9)


@given(messages, st.sampled_from((0, 1)), st.sampled_from((Codec.NONE, Codec.GZIP, Codec.SNAPPY)))
def test_what_kafka_python_writes(
    records: list[tuple[int, bytes | None, bytes | None]], magic: int, codec: Codec
) -> None:
    """Every record of every message set comes back; so does each checksum."""
    builder = LegacyRecordBatchBuilder(magic, int(codec), 10**6)
    for offset, (timestamp, key, value) in enumerate(records):
        builder.append(offset, timestamp if magic else None, key, value)
    data = bytes(builder.build())
    headers = list(iter_stored_headers(data))
    assert all(stored_crc_ok(data, position, header) for position, header in headers)
    found = [record for position, _ in headers for record in read_records(data, position)]
    assert found == [
        Record(offset, timestamp if magic else -1, key, value, ())
        for offset, (timestamp, key, value) in enumerate(records)
    ]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_offsets_inside_a_wrapper_of_format_1_are_relative(codec: Codec) -> None:
    """The wrapper has the offset of its last record, whatever gaps compaction left before it."""
    inner = message(0, b"a") + message(3, b"b", timestamp_ms=NOW_MS + 1) + message(7, None)
    data = wrapper(codec, inner, 107)
    assert [(each.offset, each.value) for each in read_records(data)] == [
        (100, b"a"), (103, b"b"), (107, None)
    ]  # fmt: skip
    header = parse_stored_header(data)
    assert (header.base_offset, header.last_offset, header.record_count) == (107, 107, UNKNOWN_COUNT)
    assert header.max_timestamp == NOW_MS + 9


def test_offsets_inside_a_wrapper_of_format_0_are_absolute() -> None:
    """Records of format 0 have no timestamp."""
    inner = message(41, b"a", magic=0) + message(42, b"b", magic=0)
    records = read_records(wrapper(Codec.GZIP, inner, 42, magic=0))
    assert [(each.offset, each.timestamp_ms) for each in records] == [(41, -1), (42, -1)]


def test_a_wrapper_that_was_left_at_offset_0() -> None:
    """Old producers did not set it: its records begin at 0."""
    inner = b"".join(message(number, b"x") for number in range(3))
    assert [each.offset for each in iter_records(wrapper(Codec.GZIP, inner, 0))] == [0, 1, 2]


def test_log_append_time_is_the_wrappers() -> None:
    """The inner messages keep the producer's, which nobody sees."""
    inner = message(0, b"a") + message(1, b"b")
    data = wrapper(Codec.GZIP, inner, 1, attributes=0x08)
    assert {each.timestamp_ms for each in read_records(data)} == {NOW_MS + 9}


def test_lz4_with_the_wrong_checksum_of_format_0() -> None:
    """The header's checksum was taken over the magic number, too; both are read."""
    inner = message(5, b"value " * 9, magic=0)
    frame = bytearray(compress(inner, Compression(Codec.LZ4)))
    right = bytes(frame)
    end = 14 if frame[4] & 0x08 else 6
    frame[end] = xxhash32(bytes(frame[:end])) >> 8 & 0xFF if end < 16 else 0
    assert with_right_checksum(frame) == right
    for packed in (bytes(frame), right):
        data = message(5, packed, magic=0, attributes=Codec.LZ4)
        assert read_records(data)[0].value == b"value " * 9


@pytest.mark.parametrize(
    ("data", "expected"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF), (b"\x60\x40", None)]
)
def test_xxhash32(data: bytes, expected: int | None) -> None:
    """Its published vectors; Kafka's usual descriptor has the checksum byte 0x82."""
    if expected is None:
        assert xxhash32(data) >> 8 & 0xFF == 0x82
    else:
        assert xxhash32(data) == expected
    with pytest.raises(ValueError, match="too many"):
        xxhash32(bytes(16))


def test_damaged_values_fail_the_checksum() -> None:
    """CRC-32 covers everything from the format's number on."""
    data = bytearray(message(0, b"value"))
    assert stored_crc_ok(data, 0, parse_entry(data))
    data[-1] ^= 1
    assert not stored_crc_ok(data, 0, parse_entry(data))
    assert not stored_crc_ok(data[:-2], 0, parse_entry(data))


nested = wrapper(Codec.GZIP, wrapper(Codec.GZIP, message(0, b"x"), 0), 0)
HOSTILE = {
    "cut off": message(0, b"value")[:-2],
    "value longer than the message": message(0, b"value")[:-9] + struct.pack(">i", 2**31 - 1) + b"value",
    "negative length": message(0, b"value")[:-9] + struct.pack(">i", -2) + b"value",
    "bytes behind the value": message(0, b"value")[:-9] + struct.pack(">i", 2) + b"value",
    "ends before the value": struct.pack(">qiIbbq", 0, 22, 0, 1, 0, 0) + struct.pack(">i", 4) + b"1234",
    "size too small": struct.pack(">qiIbbq", 0, 13, 0, 0, 0, 0),
    "zeros": bytes(40),
    "negative offset": message(-1, b"x"),
    "null wrapper": message(0, None, attributes=1),
    "empty wrapper": wrapper(Codec.GZIP, b"", 0),
    "wrapper of rubbish": wrapper(Codec.GZIP, b"rubbish" * 9, 0),
    "wrapper in a wrapper": nested,
    "another format inside": wrapper(Codec.GZIP, message(0, b"x", magic=0), 0),
    "offsets beyond the wrapper's": wrapper(Codec.GZIP, message(9, b"x"), 3),
    "cut off inside": wrapper(Codec.GZIP, message(0, b"value")[:-1], 0),
    "no such stream": message(0, b"not gzip", attributes=1),
    "zstd": message(0, b"x", attributes=4),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_damage_is_named(data: bytes) -> None:
    """No length in a message is trusted."""
    with pytest.raises(CorruptMessageError):
        read_records(data)


def test_a_bomb_is_refused_at_the_limit() -> None:
    """Unpacked bytes and the number of records have limits."""
    data = wrapper(Codec.GZIP, message(0, bytes(10**6)), 0)
    with pytest.raises(CorruptMessageError, match="limit"):
        read_records(data, max_bytes=10**5)
    many = wrapper(Codec.GZIP, b"".join(message(number, b"") for number in range(20)), 19)
    assert len(read_records(many, max_records=20)) == 20
    with pytest.raises(CorruptMessageError, match="more records than 19"):
        read_records(many, max_records=19)


@given(st.binary(max_size=120), st.integers(0, 1))
def test_rubbish_costs_an_error_and_nothing_else(rubbish: bytes, magic: int) -> None:
    """Whatever stands there, it is read or refused."""
    data = bytearray(rubbish.ljust(17, b"\0"))
    data[16] = magic
    try:
        for position, header in iter_stored_headers(data):
            assert header.size_bytes > 0
            read_records(data, position)
    except CorruptMessageError:
        pass
