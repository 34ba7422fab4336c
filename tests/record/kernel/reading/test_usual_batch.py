"""A usual batch is told by one call, and is exactly one that the long way takes as it is, on both twins."""

from __future__ import annotations

import random
import struct
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.record.record_kit import DAMAGED, HUGE, mutated, raw_batch, raw_record

from splashdam.model.broker_errors import CorruptMessageError, InvalidRecordError
from splashdam.record.batch import (
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    crc_ok,
    parse_header,
    stamp_crc,
)
from splashdam.record.compression import Compression
from splashdam.record.sealing import build_batch
from splashdam.record.validation import validate_records

TEXT = b"x" * 40
SAMPLES = {
    "one": build_batch([(1000, None, b"v", None)]),
    "many": build_batch([(1000 + i % 7, None, b"value %d" % i, None) for i in range(300)]),
    "keys, headers and nulls": build_batch(
        [
            (5, None if i % 3 else b"k" * i, None if i % 4 else TEXT * i, [("h", b"1")] * (i % 2))
            for i in range(99)
        ]
    ),
    "far apart in time": build_batch(
        [(0, b"", b"", None), (1 << 60, b"k", None, None), (-9, None, b"v", None)]
    ),
    "large": build_batch([(1, b"k" * 70_000, b"v" * 3_000_000, None), (2, None, b"", None)]),
    "of a producer": build_batch(
        [(1, None, b"v", None)] * 3, producer_id=4, producer_epoch=1, base_sequence=7
    ),
    "of a transaction": build_batch(
        [(1, b"k", b"v", None)] * 3, producer_id=4, producer_epoch=1, base_sequence=7, transactional=True
    ),
    "in three steps of a checksum": build_batch([(1, None, b"v" * 19_000, None)]),
}


def told_the_long_way(batch: bytes) -> tuple[BatchHeader, int, int] | None:
    """The same from the functions that tell what is wrong."""
    try:
        header = parse_header(batch)
        if header.attributes and (header.attributes != TRANSACTIONAL_BIT or header.producer_id < 0):
            return None
        if header.base_offset or header.size_bytes != len(batch):
            return None
        if header.producer_id >= 0 > header.base_sequence or not crc_ok(batch, 0, header):
            return None
        valid = validate_records(batch, header)
    except (CorruptMessageError, InvalidRecordError):
        return None
    if valid.scan.max_timestamp_ms != header.max_timestamp:
        return None
    return header, valid.scan.min_timestamp_ms, valid.scan.null_keys


def with_checksum(batch: bytes) -> bytes:
    changed = bytearray(batch)
    stamp_crc(changed, 0, len(changed))
    return bytes(changed)


@pytest.mark.parametrize("batch", SAMPLES.values(), ids=SAMPLES)
def test_sound_batches_are_usual(kernel: ModuleType, batch: bytes) -> None:
    """With the header, the smallest timestamp and the number of null keys."""
    found = kernel.usual_batch(memoryview(batch))
    assert found is not None
    assert found == told_the_long_way(batch)


def test_others_are_not(kernel: ModuleType) -> None:
    """Packed, of half a transaction, at another offset, cut off, with a wrong checksum or a wrong maximum."""
    batch = SAMPLES["many"]
    others = {
        "packed": build_batch([(1, None, b"v", None)], Compression.parse("gzip", None)),
        "of a transaction without a producer": with_checksum(
            SAMPLES["of a transaction"][:43] + b"\xff" * 8 + SAMPLES["of a transaction"][51:]
        ),
        "of a transaction's end": with_checksum(
            SAMPLES["of a transaction"][:22] + b"\x30" + SAMPLES["of a transaction"][23:]
        ),
        "of a transaction and packed": build_batch(
            [(1, None, b"v", None)],
            Compression.parse("gzip", None),
            producer_id=4,
            base_sequence=0,
            transactional=True,
        ),
        "not at 0": struct.pack(">q", 1) + batch[8:],
        "cut off": batch[:-1],
        "followed by a byte": batch + b"x",
        "short": batch[:60],
        "empty": b"",
        "of format 1": batch[:16] + b"\1" + batch[17:],
        "with another checksum": batch[:-1] + b"y",
        "with another maximum": with_checksum(batch[:35] + bytes(8) + batch[43:]),
        "without a sequence": with_checksum(batch[:43] + bytes(10) + b"\xff" * 4 + batch[57:]),
        "of no record": with_checksum(raw_batch(b"", 0, last_offset_delta=-1)),
        "with offsets that jump": raw_batch(raw_record(0, 1, -1, -1, 0), 1),
    }
    assert {name for name, other in others.items() if kernel.usual_batch(other) is not None} == set()


DAMAGED_BODIES = {name: case for name, case in DAMAGED.items() if case[1] < HUGE}


@pytest.mark.parametrize(("body", "count"), DAMAGED_BODIES.values(), ids=DAMAGED_BODIES)
def test_damaged_records_are_not(kernel: ModuleType, body: bytes, count: int) -> None:
    """However the checksum fits."""
    assert kernel.usual_batch(raw_batch(body, count)) is None


@given(seed=st.integers(0, 1 << 32))
def test_both_twins_say_what_the_long_way_says(twins: tuple[ModuleType, ModuleType], seed: int) -> None:
    """On records and headers that were changed somewhere, under a right checksum."""
    noise = random.Random(seed)
    batch = SAMPLES[
        noise.choice(("one", "many", "keys, headers and nulls", "far apart in time", "of a transaction"))
    ]
    if noise.random() < 0.5:
        body = mutated(noise, batch[HEADER_BYTES:])
        batch = batch[:8] + struct.pack(">i", len(body) + HEADER_BYTES - 12) + batch[12:HEADER_BYTES] + body
    else:
        place = noise.randrange(HEADER_BYTES)
        batch = batch[:place] + noise.randbytes(1) + batch[place + 1 :]
    batch = with_checksum(batch)
    found = [each.usual_batch(batch) for each in twins]
    assert found == [told_the_long_way(batch)] * 2
