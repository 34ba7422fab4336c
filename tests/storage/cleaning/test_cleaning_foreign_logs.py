"""Logs that a real Kafka wrote, cleaned here: old formats, packed batches, what Kafka cleaned before."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from support.kafka.make_golden import GOLDEN
from support.running.oracles import shared
from support.storage.compacted_logs import COMPACTED, clean
from support.storage.logs import NOW_MS, copy_directory, open_log, read_all

from splashdam.record.record import Record
from splashdam.storage.files.disk import DiskFiles
from splashdam.storage.inspect.verify import Level, Totals, verify_partition

FILES = DiskFiles()
PARTITIONS = sorted(path for path in GOLDEN.glob("kafka-*/*-0") if not path.name.startswith("transactions"))
LATER_MS = NOW_MS + 10**9


def newest(records: list[Record], below: int) -> list[Record]:
    """The records that must be left, tombstones included."""
    last = {record.key: record.offset for record in records if record.offset < below}
    return [
        record
        for record in records
        if record.offset >= below or (record.key is not None and last[record.key] == record.offset)
    ]


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda path: path.name)
def test_of_each_key_the_newest_is_left(partition: Path, tmp_path: Path) -> None:
    """Offsets and timestamps are Kafka's, whatever the format and codec; twice changes nothing."""
    directory = copy_directory(partition, tmp_path / partition.name)
    log = open_log(FILES, str(directory), settings=COMPACTED, now_ms=LATER_MS)
    log.roll(LATER_MS)
    log.flush()
    before = read_all(log)
    end = clean(FILES, log, now_ms=NOW_MS)
    assert end == log.log_end_offset
    expected = newest(before, end)
    assert read_all(log) == expected
    clean(FILES, log, now_ms=NOW_MS, first_dirty=0)
    assert read_all(log) == expected
    log.close()
    log = open_log(FILES, str(directory), settings=COMPACTED, now_ms=LATER_MS)
    assert read_all(log) == expected
    log.unlink_deleted(LATER_MS)
    log.close()
    findings = list(verify_partition(str(directory), Totals()))
    assert [finding for finding in findings if finding.level is Level.ERROR] == []


def test_a_log_that_kafka_has_cleaned_is_cleaned_further(tmp_path: Path) -> None:
    """Its tombstones go when the horizon is over that Kafka has set."""
    directory = copy_directory(shared("golden/goldc-0-compacted"), tmp_path / "goldc-0")
    log = open_log(FILES, str(directory), settings=attrs.evolve(COMPACTED, segment_bytes=2**20))
    log.flush()
    horizon_ms = 1_795_263_049_696
    before = read_all(log)
    assert clean(FILES, log, now_ms=horizon_ms - 1, first_dirty=3000) == 3000
    assert read_all(log) == before
    clean(FILES, log, now_ms=horizon_ms, first_dirty=3000)
    assert read_all(log) == [record for record in before if record.value is not None]
    assert [segment.base_offset for segment in log.segments] == [0, 3000]
    log.close()
