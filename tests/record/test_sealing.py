"""Sealed batches, byte for byte against kafka-python's builder and against a marker that Kafka wrote."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from splashdam.model.errors import IllegalArgumentError, IllegalStateError
from splashdam.record.batch import Codec, crc_ok, parse_header
from splashdam.record.compression import Compression
from splashdam.record.reader import read_records
from splashdam.record.sealing import build_batch, restamp_producer, seal

TIMESTAMP = st.integers(-(2**61), 2**61)  # kafka-python's varints end before 64-bit deltas do
BLOB = st.none() | st.binary(max_size=100)
HEADERS = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=40)), max_size=3)
RECORDS = st.lists(st.tuples(TIMESTAMP, BLOB, BLOB, HEADERS), min_size=1, max_size=6)
COMMIT = bytes.fromhex(
    "00000000000007e4 00000042 00000000 02 1d0d4ffe 0030 00000000 000001a1fe042099 000001a1fe042099"
    "0000000000000001 0000 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000000 00"
)


def filled(kernel: ModuleType, records: list[Any]) -> Any:
    buffer = kernel.BatchBuffer(100_000)
    for record in records:
        assert buffer.try_append(*record)
    return buffer


PRODUCER = st.fixed_dictionaries(
    {
        "producer_id": st.integers(0, 2**63 - 1),
        "producer_epoch": st.integers(0, 2**15 - 1),
        "base_sequence": st.integers(0, 2**31 - 1),
    }
)


@given(records=RECORDS, producer=PRODUCER, transactional=st.booleans())
def test_equals_kafka_python(
    kernel: ModuleType, records: list[Any], producer: dict[str, int], transactional: bool
) -> None:
    """Without compression the batch is byte for byte the one that kafka-python builds."""
    theirs = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=transactional, batch_size=100_000, **producer
    )
    for offset, (timestamp, key, value, headers) in enumerate(records):
        assert theirs.append(offset, timestamp, key, value, headers)
    ours = seal(filled(kernel, records), transactional=transactional, **producer)
    assert bytes(ours) == bytes(theirs.build())


def test_equals_kafkas_own_marker() -> None:
    """Key, value and the two attribute bits make the commit marker of a real broker."""
    batch = bytearray(
        build_batch(
            [(0x1A1FE042099, b"\0\0\0\1", bytes(6), None)],
            producer_id=1,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    )
    struct.pack_into(">q", batch, 0, 2020)
    assert batch == COMMIT


def test_no_producer_fields() -> None:
    """They are -1 unless given."""
    header = parse_header(build_batch([(0, None, None, None)]))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)


def test_uncompressed_is_not_copied(kernel: ModuleType) -> None:
    """The sealed batch is the buffer's own memory; sealing again gives the same."""
    buffer = filled(kernel, [(0, None, b"value", None)])
    sealed = seal(buffer)
    assert sealed.obj is buffer.view().obj
    before = bytes(sealed)
    assert bytes(seal(buffer)) == before
    assert crc_ok(sealed, 0, parse_header(sealed))


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed(kernel: ModuleType, codec: Codec) -> None:
    """The header tells the codec and the compressed size; the buffer keeps the records as they were."""
    records = [(index, None, b"value" * 20, None) for index in range(50)]
    buffer = filled(kernel, records)
    sealed = seal(buffer, Compression(codec), producer_id=3, producer_epoch=1, base_sequence=5)
    header = parse_header(sealed)
    assert header.codec is codec
    assert header.size_bytes == len(sealed)
    assert (len(sealed) < buffer.size_bytes) == (codec is not Codec.NONE)
    assert crc_ok(sealed, 0, header)
    assert read_records(sealed) == read_records(seal(buffer))


def test_compressed_even_if_it_grows() -> None:
    """What is asked for is done, as in the Java producer."""
    header = parse_header(build_batch([(0, None, b"x", None)], Compression(Codec.GZIP)))
    assert header.codec is Codec.GZIP


def test_nothing_to_seal(kernel: ModuleType) -> None:
    """A batch has at least one record."""
    with pytest.raises(IllegalStateError, match="without records"):
        seal(kernel.BatchBuffer(100))


@pytest.mark.parametrize("codec", list(Codec))
def test_restamp(codec: Codec) -> None:
    """New producer fields and checksum; everything else stays."""
    records = [(5, b"key", b"value", None)] * 3
    batch = memoryview(
        bytearray(build_batch(records, Compression(codec), producer_id=1, producer_epoch=2, base_sequence=3))
    )
    before = parse_header(batch)
    restamp_producer(batch, 2**40, 7, 2**31 - 1)
    after = parse_header(batch)
    assert after == before._replace(
        producer_id=2**40, producer_epoch=7, base_sequence=2**31 - 1, crc=after.crc
    )
    assert crc_ok(batch, 0, after)
    assert after.crc != before.crc


def test_record_that_grows_while_a_batch_is_built():
    """It is refused, not left out: the batch would lack a record that nobody misses."""

    class Growing(list):
        looks = 0

        def __iter__(self):
            self.looks += 1
            return iter([("h", b"x" * (1 if self.looks < 2 else 500))])

    with pytest.raises(IllegalArgumentError, match="a record was changed while the batch was built"):
        build_batch([(0, None, b"v", Growing([("h", b"")]))])
