"""What a leader refuses of a producer's records, on both twins; what it accepts, every reader reads whole."""

from __future__ import annotations

import importlib
import random
from types import ModuleType, SimpleNamespace
from typing import Any

import cramjam
import kafka.codec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch
from support.record.record_kit import DAMAGED, HUGE, mutated, raw_batch, raw_record
from support.running.alone import traced
from support.running.patches import Patches, perhaps

from splashdam.model.broker_errors import CorruptMessageError, InvalidRecordError
from splashdam.model.errors import UnsupportedCodecError
from splashdam.record import reader, validation
from splashdam.record.batch import Codec, parse_header
from splashdam.record.compression import Compression, OverLimitError, compress
from splashdam.record.reader import read_records
from splashdam.record.sealing import build_batch, seal
from splashdam.record.validation import ValidRecords, validate_records

INT64 = st.integers(-(2**63), 2**63 - 1)
BLOB = st.none() | st.binary(max_size=100)
HEADERS = st.none() | st.lists(
    st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=40)), max_size=3
)
RECORDS = st.lists(st.tuples(INT64, BLOB, BLOB, HEADERS), min_size=1, max_size=8)
GARBAGE = random.Random(30).randbytes(30)
TWO = raw_record(0, 0, -1, -1, 0) + raw_record(0, 1, -1, -1, 0)
WIDE = b"\x80\x80\x80\x80\x70"  # 0 in its lower 32 bits
SAMPLE = [(1000 + i, b"k%d" % i, b"value" * i, [("h", b"1"), ("n", None)] * (i % 2)) for i in range(20)]


@pytest.fixture(autouse=True)
def _twin(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts one twin after the other behind validation and readers."""
    work_with(kernel, monkeypatch)


def work_with(kernel: ModuleType, patches: pytest.MonkeyPatch) -> None:
    for module, name in ((validation, "scan_records"), (reader, "decode_records")):
        patches.setattr(module, name, perhaps(getattr(kernel, name), because="a twin, no fault"))


@pytest.fixture(autouse=True)
def raw_snappy(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python frames snappy itself and wants a package for the raw blocks; any will do."""
    unpack = SimpleNamespace(decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)))
    monkeypatch.setattr(kafka.codec, "snappy", unpack)


def validated(batch: bytes | memoryview, **limits: Any) -> ValidRecords:
    return validate_records(batch, parse_header(batch), **limits)


def packed_batch(body: bytes, count: int, codec: Codec, **fields: int) -> bytes:
    return raw_batch(compress(body, Compression(codec)), count, attributes=int(codec), **fields)


BAD = {
    **{name: case for name, case in DAMAGED.items() if case[1] < HUGE},
    "garbage": (GARBAGE, 1),
    "a record that is cut off": (TWO[:-1], 2),
    "a count that is too high": (TWO, 3),
    "a count that is too low": (TWO, 1),
    "offsets that jump": (raw_record(0, 0, -1, -1, 0) + raw_record(0, 2, -1, -1, 0), 2),
    "offsets that repeat": (raw_record(0, 0, -1, -1, 0) * 2, 2),
    "offsets that go back": (raw_record(0, 1, -1, -1, 0) + raw_record(0, 0, -1, -1, 0), 2),
    "offsets before the batch": (raw_record(0, -1, -1, -1, 0), 1),
    "an offset beyond everything": (raw_record(0, HUGE, -1, -1, 0), 1),
    "an offset with bits beyond 32": (raw_record(0, WIDE, -1, -1, 0), 1),
    "attributes with their highest bit": (b"\x0c\x80\0\0\1\1\0", 1),
    "a header count with bits beyond 32": (raw_record(0, 0, -1, -1, WIDE), 1),
}


def refuse(kernel: str, batch: bytes, error: type[Exception], words: str, **limits: int) -> None:
    """With the twin of this name, in a process where nothing is patched."""
    with Patches.context() as patches:
        work_with(importlib.import_module(kernel), patches)
        with pytest.raises(error, match=words):
            validated(batch, **limits)


@pytest.mark.parametrize(("body", "count"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("codec", Codec)
def test_bad_records_are_refused_under_every_codec(
    kernel: ModuleType, body: bytes, count: int, codec: Codec
) -> None:
    """In words about the records; what a length claims costs no memory."""
    batch = packed_batch(body, count, codec)
    words = r"record|too few|cut off"
    with pytest.raises(InvalidRecordError, match=words):
        validated(batch)
    assert traced(refuse, kernel.__name__, batch, InvalidRecordError, words).peak_bytes < 400_000


@pytest.mark.parametrize(("count", "last_delta"), [(0, 0), (2, 2), (1, 1)])
def test_a_count_that_is_not_that_of_the_offsets_is_refused(count: int, last_delta: int) -> None:
    """Before anything is unpacked."""
    batch = raw_batch(TWO, count, last_offset_delta=last_delta)
    with pytest.raises(
        InvalidRecordError, match=f"{count} records, but its last offset delta is {last_delta}"
    ):
        validated(batch)


PACKED_BADLY = {
    "garbage": lambda _: GARBAGE,
    "nothing": lambda _: b"",
    "a cut end": lambda data: data[:-3],
    "half of it": lambda data: data[: len(data) // 2],
    "garbage behind it": lambda data: data + b"garbage behind it",
    "a byte behind it": lambda data: data + b"\1",
}


@pytest.mark.parametrize("bad", PACKED_BADLY.values(), ids=PACKED_BADLY)
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_bytes_that_do_not_unpack_are_refused(bad: Any, codec: Codec) -> None:
    """With the codec's name, and as a record that is wrong: sent again it would be as wrong."""
    packed = bad(compress(build_batch(SAMPLE)[61:], Compression(codec)))
    with pytest.raises(InvalidRecordError, match=f"{codec.name.lower()}|20 records in 0 bytes"):
        validated(raw_batch(packed, 20, attributes=int(codec)))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_bomb_is_refused_before_it_goes_off(kernel: ModuleType, codec: Codec) -> None:
    """It stops at the limit, and says that the limit is why."""
    batch = build_batch([(0, None, bytes(5_000_000), None)], Compression(codec))
    measured = traced(refuse, kernel.__name__, batch, OverLimitError, "100000", max_bytes=100_000)
    assert measured.peak_bytes < 600_000
    assert len(validated(batch, max_bytes=5_000_100).records) > 5_000_000


def test_a_codec_that_does_not_exist() -> None:
    """It is told apart from wrong records."""
    with pytest.raises(UnsupportedCodecError, match="codec 5"):
        validated(raw_batch(TWO, 2, attributes=5))


def test_what_is_found(kernel: ModuleType) -> None:
    """Records, unpacked, smallest and largest timestamp, null keys; -1 stands for no timestamp."""
    sent = [(7, None, b"v", None), (5, b"k", None, None)]
    records, scan, max_timestamp_ms = validated(build_batch(sent, Compression(Codec.GZIP)))
    assert (scan.min_timestamp_ms, scan.max_timestamp_ms, scan.null_keys) == (5, 7, 1)
    assert (bytes(records), max_timestamp_ms) == (build_batch(sent)[61:], 7)
    assert validated(build_batch([(-9, None, b"v", None)])).max_timestamp_ms == -1


def test_records_that_are_numbered_anew_may_have_any_offsets() -> None:
    """The result says that the batch must be packed again."""
    body = raw_record(0, 5, -1, -1, 0)
    assert validated(raw_batch(body, 1), any_offsets=True).scan.misplaced == 0


@given(records=RECORDS, codec=st.sampled_from(Codec))
def test_what_was_sealed_is_accepted(kernel: ModuleType, records: list[Any], codec: Codec) -> None:
    """Any records, any codec, timestamps of the whole 64 bits."""
    buffer = kernel.BatchBuffer(50_000)
    for record in records:
        assert buffer.try_append(*record)
    sealed = seal(buffer, Compression(codec))
    assert validated(sealed).scan.max_timestamp_ms == max(record[0] for record in records)


@given(records=RECORDS, codec=st.sampled_from(Codec), seed=st.integers(0, 10**6), more=st.integers(-1, 1))
def test_what_is_accepted_is_read_whole(records: list[Any], codec: Codec, seed: int, more: int) -> None:
    """By our reader and by kafka-python's, with the right count; mutated inside and out."""
    noise = random.Random(seed)
    body = build_batch(records)[61:]
    body = mutated(noise, body) if noise.random() < 0.8 else body
    packed = compress(body, Compression(codec))
    packed = mutated(noise, packed) if codec and noise.random() < 0.3 else packed
    count = max(1, len(records) + more)
    batch = raw_batch(packed, count, attributes=int(codec))
    try:
        validated(batch, max_bytes=1_000_000)
    except (InvalidRecordError, CorruptMessageError):
        return
    ours = read_records(batch)
    assert [record.offset for record in ours] == list(range(count))
    if any("\ufffd" in key for each in ours for key, _ in each.headers):
        return  # stored as Kafka stores it; kafka-python stops at header keys that are not UTF-8
    theirs = list(DefaultRecordBatch(batch))
    assert [(each.offset, each.key, each.value, tuple(each.headers)) for each in theirs] == [
        (each.offset, each.key, each.value, each.headers) for each in ours
    ]


@given(body=st.binary(max_size=200), count=st.integers(1, 20), codec=st.sampled_from(Codec))
def test_noise_is_refused_or_read(body: bytes, count: int, codec: Codec) -> None:
    """Any bytes at all, said to be of any codec."""
    batch = raw_batch(body, count, attributes=int(codec))
    try:
        validated(batch, max_bytes=1_000_000)
    except (InvalidRecordError, CorruptMessageError):
        return
    assert len(read_records(batch)) == count
