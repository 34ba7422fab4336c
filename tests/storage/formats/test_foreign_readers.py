"""Our .log files read by code that we did not write: kafka-python's record reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.record.memory_records import MemoryRecords
from support.storage.logs import NOW_MS, log_files, open_log

from splashdam.record.batch import Codec
from splashdam.record.compression import Compression
from splashdam.record.sealing import build_batch
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.settings import LogSettings

RECORDS = [
    (NOW_MS, b"key", b"value", [("h", b"1"), ("h", None)]),
    (NOW_MS + 1, None, b"", None),
    (NOW_MS + 2, b"", None, None),
]


@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
def test_kafka_python_reads_our_log_files(tmp_path: Path, time: str) -> None:
    """Every codec, several segments: offsets, timestamps, records, producer fields and checksums."""
    settings = LogSettings(segment_bytes=900, message_timestamp_type=time)
    log = open_log(DiskFiles(), str(tmp_path / "t-0"), settings=settings)
    for number in range(25):
        codec = Compression(list(Codec)[number % len(Codec)], None)
        data = build_batch(RECORDS, codec, producer_id=3, producer_epoch=1, base_sequence=3 * number)
        log.append_as_leader(data, now_ms=NOW_MS + 1000, leader_epoch=4)
    log.close()
    data = b"".join(data for name, data in log_files(tmp_path / "t-0").items() if name.endswith(".log"))
    assert len(log.segments) > 3
    found, batches = [], MemoryRecords(data)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        assert (batch.producer_id, batch.producer_epoch, batch.leader_epoch) == (3, 1, 4)
        found += list(batch)
    assert [record.offset for record in found] == list(range(75))
    for record, (timestamp, key, value, headers) in zip(found, RECORDS * 25, strict=True):
        assert record.timestamp == (timestamp if time == "CreateTime" else NOW_MS + 1000)
        assert (record.key, record.value) == (key, value)
        assert list(record.headers) == list(headers or [])
    assert batches.valid_bytes() == len(data)
