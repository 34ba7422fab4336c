"""Both twins walk through records alike: same results, same damage in the same words, no memory for lies."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.record.record_kit import DAMAGED, mutated, raw_record, read_by_both, read_every_way
from support.running.alone import traced

from splashdam.record.damage import DamagedError
from splashdam.record.record import Record, RecordScan
from splashdam.record.sealing import build_batch

CORPUS = Path(__file__).with_name("corpus.txt")
SOUND = bytes(
    build_batch(
        [
            (1000, b"key", b"value", [("h", b"1"), ("n", None), ("é€😀", b"")]),
            (999, None, None, None),
            (2000, b"", b"", []),
            (1000, b"k" * 70, b"v" * 300, [("", b"x" * 200)]),
        ]
    )[61:]
)


def corpus() -> list[tuple[str, int, bytes]]:
    """Inputs that once told the twins apart or were near it: name, count of records, bytes in hex."""
    lines = [line.split() for line in CORPUS.read_text().splitlines() if line and not line.startswith("#")]
    return [(name, int(count), bytes.fromhex(text[0] if text else "")) for name, count, *text in lines]


def test_sound_records(kernel: ModuleType) -> None:
    """The sample is what it says, for scan and decoder."""
    header = {"record_count": 4, "base_offset": 10, "base_timestamp": 1000, "append_time": None}
    records, end = kernel.decode_records(SOUND, 0, 0, 4, **header)
    assert end == len(SOUND)
    assert records == [
        Record(10, 1000, b"key", b"value", (("h", b"1"), ("n", None), ("é€😀", b""))),
        Record(11, 999, None, None, ()),
        Record(12, 2000, b"", b"", ()),
        Record(13, 1000, b"k" * 70, b"v" * 300, (("", b"x" * 200),)),
    ]
    assert all(type(record) is Record for record in records)
    assert kernel.scan_records(SOUND, 4, 1000) == RecordScan(999, 2000, 1, -1, 0, 0)


def test_reading_on(kernel: ModuleType) -> None:
    """Some at a time are all of them."""
    header = {"record_count": 4, "base_offset": 10, "base_timestamp": 1000, "append_time": 7}
    position, read = 0, []
    for number in range(4):
        some, position = kernel.decode_records(SOUND, position, number, number + 1, **header)
        read += some
    assert read == kernel.decode_records(SOUND, 0, 0, 4, **header)[0]
    assert {record.timestamp_ms for record in read} == {7}
    with pytest.raises(ValueError, match="position=-1"):
        kernel.decode_records(SOUND, -1, 0, 4, **header)


def test_what_is_sound_before_the_damage_is_read(kernel: ModuleType) -> None:
    """The damage waits for the next call."""
    records = raw_record(0, 0, -1, -1, 0) + raw_record(0, 1, 50, b"k", -1, 0)
    header = {"record_count": 2, "base_offset": 0, "base_timestamp": 0, "append_time": None}
    read, position = kernel.decode_records(records, 0, 0, 2, **header)
    assert [record.offset for record in read] == [0]
    with pytest.raises(DamagedError, match=r"^record 1: key of 50 bytes at 11, 3 are left$"):
        kernel.decode_records(records, position, 1, 2, **header)


@pytest.mark.parametrize(("records", "count"), DAMAGED.values(), ids=DAMAGED)
def test_damage_in_the_same_words(twins: tuple[ModuleType, ModuleType], records: bytes, count: int) -> None:
    """Each names the record or the count, and costs no memory that a length claims."""
    read = traced(read_by_names, [twin.__name__ for twin in twins], records, count)
    assert read.peak_bytes < len(records) * 20 + 100_000
    found = read.result
    assert found["scan"].startswith("damaged: ")
    assert "record" in found["scan"]


def read_by_names(names: list[str], records: bytes, count: int) -> dict[str, Any]:
    python, compiled = map(importlib.import_module, names)
    return read_by_both((python, compiled), records, count, seed=1)


def test_the_corpus(twins: tuple[ModuleType, ModuleType]) -> None:
    """Every input that was ever worth keeping."""
    for _, count, records in corpus():
        for seed in range(4):
            read_by_both(twins, records, count, seed)


def test_mutations(twins: tuple[ModuleType, ModuleType]) -> None:
    """A short run of the fuzzer; ``lab.fuzzing.records`` runs it for as long as one likes."""
    noise = random.Random(20)
    seeds = [(SOUND, 4), *((records, count) for _, count, records in corpus() if len(records) < 1000)]
    for seed in range(1500):
        records, count = noise.choice(seeds)
        read_by_both(twins, mutated(noise, records), count + noise.randint(-1, 1), seed)


@given(records=st.binary(max_size=200), count=st.integers(-1, 30), seed=st.integers(0, 99))
def test_noise(twins: tuple[ModuleType, ModuleType], records: bytes, count: int, seed: int) -> None:
    """Any bytes at all."""
    read_by_both(twins, records, count, seed)


@given(key=st.binary(max_size=12) | st.text(max_size=4).map(str.encode), more=st.binary(max_size=3))
def test_header_keys_that_are_not_utf8_are_read(kernel: ModuleType, key: bytes, more: bytes) -> None:
    """As Python reads them, with U+FFFD for each malformed piece; in columns, too, whose texts are sound."""
    text = key.decode(errors="replace")
    records = raw_record(0, 0, -1, -1, 2, len(key), key, -1, len(more), more, 1, b"v")
    assert isinstance(kernel.scan_records(records, 1, 0, True), RecordScan)
    (record,), _ = kernel.decode_records(
        records, 0, 0, 1, record_count=1, base_offset=0, base_timestamp=0, append_time=None
    )
    assert record.headers == ((text, None), (more.decode(errors="replace"), b"v"))
    columns = kernel.ColumnBuffers(
        first_offset=0, last_offset=9, max_records=9, max_bytes=1000, keys=True, values=True, headers=True
    )
    assert columns.add(records, 1, 0, 0, None) is None
    sound = [text.encode(), more.decode(errors="replace").encode()]
    grown = sum(map(len, sound)) - len(key) - len(more)
    assert columns.size_bytes == 32 + len(records) - 1 + 2 * 8 + grown
    (_, ends, data) = columns.finish()[5][1][1:]
    assert bytes(data) == b"".join(sound)
    assert list(memoryview(ends).cast("B").cast("i")) == [0, len(sound[0]), len(data)]


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer(kernel: ModuleType, wrap: type) -> None:
    """Any contiguous buffer of bytes is accepted; others are refused, and no export is left."""
    data = bytearray(SOUND)
    wrapped = wrap(data)
    assert read_every_way(kernel, wrapped, 4, random.Random(3)) == read_every_way(
        kernel, SOUND, 4, random.Random(3)
    )
    if wrap is bytearray:
        data.clear()  # not possible while somebody holds a view of it
    with pytest.raises((BufferError, TypeError)):
        kernel.scan_records("text", 1, 0)
