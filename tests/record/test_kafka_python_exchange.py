"""Each reads what the other one wrote: kafka-python's record code and ours, all codecs, both ways."""

from __future__ import annotations

import random
from types import ModuleType, SimpleNamespace
from typing import Any

import cramjam
import kafka.codec
import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from splashdam.record.batch import Codec, crc_ok, parse_header
from splashdam.record.compression import Compression
from splashdam.record.reader import read_records
from splashdam.record.sealing import seal
from splashdam.record.validation import validate_records

LEVELS = [
    *[(codec, None) for codec in Codec],
    *[(Codec.GZIP, level) for level in (-1, 1, 9)],
    *[(Codec.LZ4, level) for level in (1, 9, 12, 17)],
    *[(Codec.ZSTD, level) for level in (-131072, -5, 1, 19, 22)],
]


def sample() -> list[Any]:
    """Several xerial and lz4 blocks, of which some compress and some do not."""
    noise = random.Random(7)
    return [
        (
            1_700_000_000_000 + noise.randrange(-500, 500),
            None if index % 3 == 0 else b"key-%d" % index,
            None if index % 7 == 0 else noise.randbytes(index % 90) + b"abc" * index,
            [("trace", noise.randbytes(8)), ("null", None), ("é", b"")][: index % 4],
        )
        for index in range(400)
    ]


@pytest.fixture(autouse=True)
def raw_snappy(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python frames snappy itself and wants a package for the raw blocks; any will do."""
    monkeypatch.setattr(
        kafka.codec,
        "snappy",
        SimpleNamespace(
            compress=lambda data: bytes(cramjam.snappy.compress_raw(data)),
            decompress=lambda data: bytes(cramjam.snappy.decompress_raw(data)),
        ),
    )


@pytest.mark.parametrize(("codec", "level"), LEVELS)
def test_kafka_python_reads_ours(kernel: ModuleType, codec: Codec, level: int | None) -> None:
    """Checksum, header and every record, at every kind of level."""
    records = sample()
    buffer = kernel.BatchBuffer(1_000_000)
    for record in records:
        assert buffer.try_append(*record)
    batch = DefaultRecordBatch(seal(buffer, Compression(codec, level), producer_id=5, producer_epoch=1))
    assert batch.validate_crc()
    assert batch.compression_type == codec
    read = [(each.timestamp, each.key, each.value, each.headers) for each in batch]
    assert read == records


@pytest.mark.parametrize("codec", list(Codec))
def test_we_read_kafka_pythons(codec: Codec) -> None:
    """The other way round."""
    records = sample()
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=10_000_000,
    )
    for offset, record in enumerate(records):
        assert builder.append(offset, *record)
    batch = bytes(builder.build())
    header = parse_header(batch)
    assert header.codec is codec
    assert crc_ok(batch, 0, header)
    read = read_records(batch)
    assert [(each.timestamp_ms, each.key, each.value, list(each.headers)) for each in read] == records
    assert validate_records(batch, header).scan.max_timestamp_ms == max(record[0] for record in records)
