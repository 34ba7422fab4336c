"""Reading records: everything that was built comes back, and nothing hostile does harm."""

from __future__ import annotations

import importlib
import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.record.record_kit import DAMAGED, raw_batch, raw_record
from support.running.alone import traced
from support.running.patches import Patches, perhaps

from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import UnsupportedCodecError
from splashdam.record import reader
from splashdam.record.batch import Codec
from splashdam.record.compression import Compression, compress
from splashdam.record.kernel import BatchBuffer
from splashdam.record.reader import Record, iter_records, read_records
from splashdam.record.sealing import build_batch, seal

INT64 = st.integers(-(2**63), 2**63 - 1)
BLOB = st.none() | st.binary(max_size=100)
HEADERS = st.none() | st.lists(
    st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=40)), max_size=3
)
RECORDS = st.lists(st.tuples(INT64, BLOB, BLOB, HEADERS), min_size=1, max_size=8)
SAMPLE = [(1000 + i, b"k%d" % i, b"value" * i, [("h", b"1"), ("n", None)] * (i % 2)) for i in range(20)]


@pytest.fixture(autouse=True)
def _twin(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """One twin after the other."""
    read_with(kernel, monkeypatch)


def as_read(records: list[Any], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, timestamp, key, value, tuple(headers or ()))
        for index, (timestamp, key, value, headers) in enumerate(records)
    ]


@given(records=RECORDS, codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**62))
def test_what_was_built_comes_back(
    kernel: ModuleType, records: list[Any], codec: Codec, base_offset: int
) -> None:
    """Any records, any codec, both twins; timestamps of the whole 64 bits."""
    buffer = kernel.BatchBuffer(50_000)
    for record in records:
        assert buffer.try_append(*record)
    sealed = seal(buffer, Compression(codec))
    struct.pack_into(">q", sealed, 0, base_offset)
    assert read_records(sealed) == as_read(records, base_offset)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_from_any_position(wrap: type) -> None:
    """The batch may stand anywhere, with anything behind it."""
    data = wrap(b"before" + build_batch(SAMPLE) + b"behind")
    assert read_records(data, 6) == as_read(SAMPLE)


def test_the_smallest_record() -> None:
    """What ``raw_record`` makes is a record when its parts are right."""
    assert read_records(raw_batch(raw_record(5, 0, -1, -1, 0), 1)) == [Record(0, 1005, None, None, ())]


def test_timestamps_wrap() -> None:
    """A delta that leads out of 64 bits comes round, as in Java."""
    (record,) = read_records(raw_batch(raw_record(1, 0, -1, -1, 0), 1, base_timestamp=2**63 - 1))
    assert record.timestamp_ms == -(2**63)


def test_an_emptied_batch() -> None:
    """Compaction may leave a header without records."""
    assert read_records(raw_batch(b"", 0)) == []


def refuse(kernel: str, batch: bytes, words: str, **limits: int) -> None:
    """With the twin of this name, in a process where nothing is patched."""
    with Patches.context() as patches:
        read_with(importlib.import_module(kernel), patches)
        with pytest.raises(CorruptMessageError, match=words):
            read_records(batch, **limits)


def read_with(kernel: ModuleType, patches: pytest.MonkeyPatch) -> None:
    """Puts a twin behind the readers."""
    for name in ("decode_records", "scan_records"):
        patches.setattr(reader, name, perhaps(getattr(kernel, name), because="a twin, no fault"))


@pytest.mark.parametrize(("body", "count"), DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_hostile_lengths(kernel: ModuleType, body: bytes, count: int, codec: Codec) -> None:
    """Each is refused by name of the batch, and costs no memory that a length claims."""
    batch = raw_batch(compress(body, Compression(codec)), count, attributes=int(codec))

    assert traced(refuse, kernel.__name__, batch, "offset 0:").peak_bytes < 300_000


@pytest.mark.parametrize("deltas", [[1], [0, 2], [0, 0], [1, 0], [-1, 0]])
def test_offsets_that_do_not_count_up(deltas: list[int]) -> None:
    """A reader takes them as they are: compaction leaves gaps."""
    body = b"".join(raw_record(0, delta, -1, -1, 0) for delta in deltas)
    batch = raw_batch(body, len(deltas), base_offset=10)
    assert [record.offset for record in read_records(batch)] == [10 + delta for delta in deltas]


def test_gaps_left_by_compaction() -> None:
    """Fewer records than offsets are read."""
    batch = bytearray(raw_batch(raw_record(0, 3, -1, -1, 0), 1))
    struct.pack_into(">i", batch, 23, 9)
    assert [record.offset for record in read_records(batch)] == [3]


def test_append_time_counts_for_all() -> None:
    """With LogAppendTime every record has the batch's time."""
    batch = raw_batch(raw_record(5, 0, -1, -1, 0), 1, attributes=8, max_timestamp=777)
    assert read_records(batch)[0].timestamp_ms == 777


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.data())
def test_bit_flips(codec: Codec, data: st.DataObject) -> None:
    """Damage that the checksum would find: records, or one of the two errors; never anything else."""
    batch = bytearray(build_batch(SAMPLE, Compression(codec)))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        records = read_records(batch, max_bytes=100_000)
    except (CorruptMessageError, UnsupportedCodecError):
        return
    assert len(records) <= len(SAMPLE)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_truncation(codec: Codec) -> None:
    """Cut anywhere, also with a length that is cut to match, a batch is refused."""
    batch = build_batch(SAMPLE, Compression(codec))
    for end in range(len(batch)):
        cut = bytearray(batch[:end])
        with pytest.raises(CorruptMessageError):
            read_records(cut)
        if end >= 61:
            struct.pack_into(">i", cut, 8, end - 12)
            with pytest.raises(CorruptMessageError):
                read_records(cut)


@given(body=st.binary(max_size=300), count=st.integers(0, 50), codec=st.sampled_from(Codec))
def test_noise(body: bytes, count: int, codec: Codec) -> None:
    """Any bytes in the place of records, packed or said to be packed."""
    for content in (body, compress(body, Compression(codec))):
        try:
            read_records(raw_batch(content, count, attributes=int(codec)), max_bytes=10_000)
        except CorruptMessageError:
            continue


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_bombs(kernel: ModuleType, codec: Codec) -> None:
    """A batch that unpacks to more than the limit is refused before it has."""
    batch = build_batch([(0, None, bytes(5_000_000), None)], Compression(codec))
    assert traced(refuse, kernel.__name__, batch, "100000", max_bytes=100_000).peak_bytes < 600_000
    assert len(read_records(batch, max_bytes=5_000_100)[0].value or b"") == 5_000_000


def test_records_of_a_list_are_limited(kernel: ModuleType) -> None:
    """A few bytes of zstd make any number of records: a list of them has a limit, one after the other not."""
    buffer = BatchBuffer(400_000)
    while buffer.try_append(0, None, None, None):
        pass
    batch = seal(buffer, Compression(Codec.ZSTD))
    count = buffer.record_count
    assert len(batch) < count  # less than a byte for each
    assert len(read_records(batch, max_records=count)) == count
    with pytest.raises(CorruptMessageError, match=f"offset 0: {count} records, the limit is {count - 1}"):
        read_records(batch, max_records=count - 1)
    read_one_by_one = traced(records_one_by_one, kernel.__name__, bytes(batch))
    assert read_one_by_one.result == count
    assert read_one_by_one.peak_bytes < 3 * buffer.size_bytes


def records_one_by_one(kernel: str, batch: bytes) -> int:
    with Patches.context() as patches:
        read_with(importlib.import_module(kernel), patches)
        return sum(1 for _ in iter_records(batch))


def test_the_default_limit_of_records() -> None:
    """Half a million."""
    batch = raw_batch(raw_record(1, 0, -1, -1, 0) * 500_001, 500_001)
    with pytest.raises(CorruptMessageError, match="500001 records, the limit is 500000"):
        read_records(batch)
