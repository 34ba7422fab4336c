"""The 61-byte header: vectors from a real broker, damage, and the fields that a broker writes."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import UnsupportedCodecError
from splashdam.record import checksum
from splashdam.record.batch import (
    BatchHeader,
    Codec,
    crc_ok,
    iter_headers,
    parse_header,
    stamp_log_append_time,
)
from splashdam.record.reader import read_records
from splashdam.record.sealing import build_batch

# The first batch that a Kafka broker wrote into a log of ours: 25 records from librdkafka.
FIRST = bytes.fromhex(
    "0000000000000000 0000077a 00000000 02 6273d5af 0000 00000018 000001a1fe0416bf 000001a1fe0416bf"
    "0000000000000000 0000 00000000 00000019"
)
# The marker that ends a committed transaction, whole.
COMMIT = bytes.fromhex(
    "00000000000007e4 00000042 00000000 02 1d0d4ffe 0030 00000000 000001a1fe042099 000001a1fe042099"
    "0000000000000001 0000 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000000 00"
)
BATCH = build_batch([(1000, b"k", b"v", None), (990, None, b"w", [("h", None)])], producer_id=7)


def changed(**fields: int) -> bytes:
    header = parse_header(BATCH)._replace(**fields)
    return struct.pack(">qiibIhiqqqhii", *header) + BATCH[61:]


def test_crc_of_the_check_string() -> None:
    """The checksum is CRC-32C, not zlib's."""
    assert crc32c(b"123456789") == 0xE3069283


def test_checksum_without_its_package_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension module is loaded alone; where it is not found, the package is imported as usual."""
    assert checksum.crc32c(b"123456789") == 0xE3069283
    monkeypatch.setattr(checksum.PathFinder, "find_spec", lambda *_: None)
    assert checksum._load() is crc32c


def test_a_real_header() -> None:
    """Every field and property of a batch that Kafka wrote."""
    header = parse_header(FIRST)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=1914,
        partition_leader_epoch=0,
        magic=2,
        crc=0x6273D5AF,
        attributes=0,
        last_offset_delta=24,
        base_timestamp=0x1A1FE0416BF,
        max_timestamp=0x1A1FE0416BF,
        producer_id=0,
        producer_epoch=0,
        base_sequence=0,
        record_count=25,
    )
    assert (header.size_bytes, header.last_offset, header.next_offset) == (1926, 24, 25)
    assert (header.codec, header.last_sequence) == (Codec.NONE, 24)
    assert not header.is_transactional
    assert not header.is_control
    assert not header.is_log_append_time


def test_a_real_marker() -> None:
    """A commit: 78 bytes, transactional and control, no sequence."""
    header = parse_header(COMMIT)
    assert len(COMMIT) == header.size_bytes == 78
    assert crc_ok(COMMIT, 0, header)
    assert header.is_transactional
    assert header.is_control
    assert header.last_sequence == -1
    (record,) = read_records(COMMIT)
    assert (record.offset, record.key, record.value) == (2020, b"\0\0\0\1", bytes(6))


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(5, 3, 8), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6), (-1, 4, -1)],
)
def test_last_sequence_wraps(base: int, delta: int, last: int) -> None:
    """Behind the largest sequence number comes 0."""
    header = parse_header(BATCH)._replace(base_sequence=base, last_offset_delta=delta)
    assert header.last_sequence == last


@pytest.mark.parametrize("number", [5, 6, 7])
def test_codecs_that_do_not_exist(number: int) -> None:
    """Such a header can be parsed (the batch can be stored and skipped), its records cannot be read."""
    header = parse_header(changed(attributes=number))
    with pytest.raises(UnsupportedCodecError, match=f"codec {number}"):
        _ = header.codec
    with pytest.raises(UnsupportedCodecError):
        read_records(changed(attributes=number))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"batch_length": 48}, "batch length 48 is below 49"),
        ({"batch_length": -1}, "batch length -1"),
        ({"magic": 1}, "message format 1"),
        ({"magic": -2}, "message format -2"),
        ({"base_offset": -1}, "base offset -1"),
        ({"last_offset_delta": -1}, "last offset delta -1"),
        ({"record_count": -1}, "-1 records"),
        ({"record_count": 3}, "3 records"),
    ],
)
def test_contradictions(fields: dict[str, int], reason: str) -> None:
    """A damaged header is refused with position and reason."""
    with pytest.raises(CorruptMessageError, match=f"position 4: {reason}"):
        parse_header(b"1234" + changed(**fields), 4)


@pytest.mark.parametrize("position", [-1, 0, 1, 60, 61, 1000])
def test_too_short(position: int) -> None:
    """Less than a header, or a position outside."""
    with pytest.raises(CorruptMessageError, match=f"position {position}: .* too few"):
        parse_header(BATCH[:60], position)


@given(data=st.binary(max_size=200), position=st.integers(-5, 210))
def test_noise(data: bytes, position: int) -> None:
    """Whatever the bytes are, a header or ``CorruptMessageError`` comes out."""
    try:
        parse_header(data, position)
    except CorruptMessageError:
        return
    assert 0 <= position <= len(data) - 61


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_walk(wrap: type) -> None:
    """Whole batches one after the other, from the given position; a torn tail is left out."""
    data = wrap(b"skip" + BATCH + COMMIT + BATCH[:-1])
    found = list(iter_headers(data, 4))
    assert [position for position, _ in found] == [4, 4 + len(BATCH)]
    assert all(crc_ok(data, position, header) for position, header in found)


def test_walk_into_damage() -> None:
    """The batches before the damage are yielded; a zero-filled tail is damage."""
    walk = iter_headers(BATCH + bytes(100))
    assert next(walk)[0] == 0
    with pytest.raises(CorruptMessageError, match="batch length 0"):
        next(walk)


def test_empty_walk() -> None:
    """Nothing, or less than a header, holds no batch."""
    assert not list(iter_headers(b""))
    assert not list(iter_headers(bytes(60)))


@given(at=st.integers(21, len(BATCH) - 1), bit=st.integers(0, 7))
def test_crc_sees_every_bit(at: int, bit: int) -> None:
    """Any single bit from the attributes on changes the checksum."""
    damaged = bytearray(BATCH)
    damaged[at] ^= 1 << bit
    assert crc_ok(BATCH, 0, parse_header(BATCH))
    assert not crc_ok(damaged, 0, parse_header(BATCH))


def test_crc_of_a_torn_batch() -> None:
    """Bytes that are missing do not have the right checksum."""
    assert not crc_ok(BATCH[:-1], 0, parse_header(BATCH))


@pytest.mark.parametrize("wrap", [bytearray, lambda data: memoryview(bytearray(data))])
def test_stamp_log_append_time(wrap: type) -> None:
    """All records read as the append time, and the checksum is new."""
    data = wrap(b"pad" + BATCH)
    stamp_log_append_time(data, 3, 5000)
    header = parse_header(data, 3)
    assert header.is_log_append_time
    assert header.max_timestamp == 5000
    assert crc_ok(data, 3, header)
    assert [record.timestamp_ms for record in read_records(data, 3)] == [5000, 5000]


def test_stamp_a_torn_batch() -> None:
    """There is nothing to compute a checksum of, and nothing changes."""
    torn = bytearray(BATCH[:-1])
    with pytest.raises(CorruptMessageError, match="position 0"):
        stamp_log_append_time(torn, 0, 5000)
    assert torn == BATCH[:-1]


def test_offsets_beyond_64_bits() -> None:
    """The last offset of a batch exists, and so does the one behind it."""
    legal = changed(base_offset=2**63 - 3, last_offset_delta=1, record_count=2)
    assert parse_header(legal).next_offset == 2**63 - 1
    for base_offset in (2**63 - 2, 2**63 - 1):
        with pytest.raises(CorruptMessageError, match=r"position 0: last offset \d+ is beyond 64 bits"):
            parse_header(changed(base_offset=base_offset, last_offset_delta=1, record_count=2))
