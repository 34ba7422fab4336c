"""Batches made by hand, sound or hostile, and everything that reads them, asked of one twin or of both."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kafka.record.default_records import DefaultRecordBatch

from splashdam.record.batch import parse_header
from splashdam.record.damage import DamagedError
from splashdam.record.kernel.building.varint import encode_varint
from splashdam.record.sealing import build_batch


def raw_batch(body: bytes, count: int, **fields: int) -> bytes:
    """A batch around any bytes; neither they nor the checksum need be right."""
    fields = {"record_count": count, "last_offset_delta": max(count - 1, 0), **fields}
    header = parse_header(build_batch([(1000, None, None, None)]))._replace(
        batch_length=49 + len(body), **fields
    )
    return struct.pack(">qiibIhiqqqhii", *header) + body


def raw_record(*parts: bytes | int) -> bytes:
    body = b"\0" + b"".join(part if isinstance(part, bytes) else encode_varint(part) for part in parts)
    return encode_varint(len(body)) + body


HUGE = 2**31 - 1
DAMAGED: dict[str, tuple[bytes, int]] = {
    "record longer than the batch": (encode_varint(HUGE) + bytes(20), 1),
    "negative record length": (encode_varint(-2) + bytes(20), 1),
    "record shorter than its fields": (encode_varint(3) + bytes(20), 1),
    "record longer than its fields": (raw_record(0, 0, -1, -1, 0, b"x"), 1),
    "key longer than the record": (raw_record(0, 0, HUGE, b"xyz"), 1),
    "key length below null": (raw_record(0, 0, -2, -1, 0), 1),
    "value longer than the record": (raw_record(0, 0, -1, 5, b"four"), 1),
    "value that reaches into the next": (raw_record(0, 0, -1, 8, b"") + raw_record(0, 1, -1, -1, 0), 2),
    "more headers than bytes": (raw_record(0, 0, -1, -1, HUGE), 1),
    "negative header count": (raw_record(0, 0, -1, -1, -1, b"xx"), 1),
    "null header key": (raw_record(0, 0, -1, -1, 1, -1, -1), 1),
    "header value longer than the record": (raw_record(0, 0, -1, -1, 1, 1, b"k", HUGE), 1),
    "length of more than 32 bits": (b"\xff" * 9 + b"\x01" + bytes(9), 1),
    "timestamp of more than 64 bits": (raw_record(b"\xff" * 10 + b"\x01", 0, -1, -1, 0), 1),
    "number without an end": (raw_record(0, 0, -1, -1, b"\x80"), 1),
    "number without an end at the end of all": (b"\x80" * 3 + b"\x80" * 4, 1),
    "bytes behind the last record": (raw_record(0, 0, -1, -1, 0) + b"\0", 1),
    "fewer records than counted": (raw_record(0, 0, -1, -1, 0) + bytes(7), 2),
    "a count beyond everything": (raw_record(0, 0, -1, -1, 0), HUGE),
    "nothing at all": (b"", 1),
    "record without attributes": (encode_varint(0), 1),
    "key length that ends with the record": (raw_record(0, 0, b"\x80") + bytes(9), 1),
    "value length of more than 32 bits": (raw_record(0, 0, -1, b"\xff" * 6), 1),
    "header bomb": (raw_record(0, 0, -1, -1, 2**16, bytes(2**16)), 1),
    "a header count that is right but for its last": (raw_record(0, 0, -1, -1, 3, b"\0\0" * 2 + b"\0"), 1),
}


NUMBERS = (0, 1, -1, -2, 63, 64, 127, 128, 8191, 2**20, HUGE, -HUGE - 1, 2**63 - 1, -(2**63))


def mutated(noise: random.Random, body: bytes) -> bytes:
    """The bytes with a few things wrong: flipped bits, other numbers, pieces missing or twice."""
    changed = bytearray(body)
    for _ in range(noise.randint(1, 3)):
        at = noise.randrange(len(changed) + 1)
        kind = noise.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << noise.randrange(8)
        elif kind == 1:
            changed[at : at + noise.randint(1, 3)] = encode_varint(noise.choice(NUMBERS))
        elif kind == 2:
            del changed[at : at + noise.randint(1, 9)]
        elif kind == 3:
            changed[at:at] = changed[at : at + noise.randint(1, 40)]
        else:
            changed[at : at + 1] = b"\x80" * noise.randint(1, 11)
    return bytes(changed)


def outcome(call: Callable[[], Any]) -> Any:
    """What it returned, or the text of the damage it met."""
    try:
        return call()
    except DamagedError as error:
        return f"damaged: {error}"


def read_every_way(kernel: ModuleType, records: bytes, count: int, noise: random.Random) -> dict[str, Any]:
    """The outcome of each reader of a twin; chance chooses offsets and limits."""
    base = noise.choice((0, 1000, 2**63 - 2, noise.randrange(2**40)))
    time = noise.choice((0, 1_700_000_000_000, 2**63 - 1, -1))
    append_time = noise.choice((None, 5))
    header = {"record_count": count, "base_offset": base, "base_timestamp": time, "append_time": append_time}
    some = noise.randint(0, 3)
    limits = {
        "first_offset": noise.choice((0, base, base + 1)),
        "last_offset": noise.choice((2**63 - 1, base + 1)),
        "max_records": noise.choice((2**31 - 1, 1, 2)),
        "max_bytes": noise.choice((10**8, 1, 100)),
        "keys": noise.random() < 0.8,
        "values": noise.random() < 0.8,
        "headers": noise.random() < 0.8,
    }
    rules = {
        "needs_key": noise.random() < 0.5,
        "earliest_ms": noise.choice((-(2**63), time, min(time + 1, 2**63 - 1))),
        "latest_ms": noise.choice((2**63 - 1, time, time - 1)),
        "most": noise.choice((1, 3, 10_000)),
    }
    columns = kernel.ColumnBuffers(**limits)
    added = [outcome(lambda: columns.add(records, **header)) for _ in range(2)]
    return {
        "scan": outcome(lambda: tuple(kernel.scan_records(records, count, time))),
        "exact": outcome(lambda: tuple(kernel.scan_records(records, count, time, True))),
        "faulty": outcome(lambda: kernel.faulty_records(records, count, time, **rules)),
        "decode": outcome(lambda: kernel.decode_records(records, 0, 0, count, **header)),
        "some": outcome(lambda: kernel.decode_records(records, 0, 0, min(some, count), **header)),
        "added": added,
        "sizes": (columns.record_count, columns.size_bytes),
        "columns": tuple(columns.finish()),
    }


def read_by_both(
    twins: tuple[ModuleType, ModuleType], records: bytes, count: int, seed: int
) -> dict[str, Any]:
    """What both twins make of the records; they must agree."""
    python, compiled = (read_every_way(twin, records, count, random.Random(seed)) for twin in twins)
    assert python == compiled, (records.hex(), count, seed)
    check_readable(twins[1], records, count, python["exact"])
    return python


def check_readable(kernel: ModuleType, records: bytes, count: int, exact: Any) -> None:
    """What an exact scan calls sound and well numbered, we read whole; and kafka-python, if keys are text."""
    if isinstance(exact, str) or exact[3] >= 0 or count <= 0:  # damaged; misplaced; none
        return
    header = {"record_count": count, "base_offset": 0, "base_timestamp": 0, "append_time": None}
    read, end = kernel.decode_records(records, 0, 0, count, **header)
    assert ([each.offset for each in read], end) == (list(range(count)), len(records)), records.hex()
    if any("\ufffd" in key for each in read for key, _ in each.headers):
        return  # kafka-python stops at a header key that is not UTF-8, here as at Kafka, which takes them
    theirs = list(DefaultRecordBatch(raw_batch(records, count, base_timestamp=0)))
    assert [(each.offset, each.key, each.value, tuple(each.headers)) for each in theirs] == [
        (each.offset, each.key, each.value, each.headers) for each in read
    ], records.hex()
