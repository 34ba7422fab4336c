"""Every batch and record of log directories that a real Kafka broker wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from support.running.oracles import shared

from splashdam.record.batch import BatchHeader, Codec, crc_ok, iter_headers
from splashdam.record.reader import Record, read_records
from splashdam.record.sealing import build_batch
from splashdam.record.validation import validate_records


def batches(directory: str) -> Iterator[tuple[bytes, BatchHeader]]:
    for segment in sorted(shared(f"golden/{directory}").glob("*.log")):
        data = segment.read_bytes()
        end = 0
        for position, header in iter_headers(data):
            assert crc_ok(data, position, header)
            end = position + header.size_bytes
            yield data[position:end], header
        assert end == len(data)


def all_records(directory: str) -> list[tuple[BatchHeader, Record]]:
    return [(header, record) for batch, header in batches(directory) for record in read_records(batch)]


@pytest.mark.parametrize("directory", ["gold-0-original", "gold-0-rebuilt-by-kafka"])
def test_the_plain_log(directory: str) -> None:
    """90 batches, 2,084 records without a gap, four of them markers."""
    headers = [header for _, header in batches(directory)]
    assert len(headers) == 90
    records = all_records(directory)
    assert [record.offset for _, record in records] == list(range(2084))
    markers = [(record.offset, record.key) for header, record in records if header.is_control]
    commit, abort = b"\0\0\0\1", b"\0\0\0\0"
    assert markers == [(2020, commit), (2041, abort), (2062, commit), (2083, abort)]
    assert sum(header.is_transactional and not header.is_control for header in headers) == 4


def test_what_was_sent() -> None:
    """2,000 keyed records with a header, then four transactions of twenty."""
    data = [record for header, record in all_records("gold-0-original") if not header.is_control]
    for index, record in enumerate(data[:2000]):
        assert record.key == b"k%d" % (index % 50)
        assert record.value == b"v%05d" % index * 10
        assert record.headers == (("h", b"1"),)
    sent = [b"tx%d-%d" % (batch, index) for batch in range(4) for index in range(20)]
    assert [record.value for record in data[2000:]] == sent
    assert {record.key for record in data[2000:]} == {None}


def test_a_leader_accepts_them() -> None:
    """What Kafka took passes our check, and the maximum in each header is the true one."""
    for batch, header in batches("gold-0-original"):
        assert validate_records(batch, header).max_timestamp_ms == header.max_timestamp


def test_built_again() -> None:
    """Our own encoder makes the same bytes of the same records."""
    for batch, header in batches("gold-0-original"):
        again = build_batch(
            [record[1:] for record in read_records(batch)],
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
        )
        assert again[61:] == batch[61:]
        assert again[17:61] == batch[17:61]  # from the checksum on; the broker assigned what is before


def test_the_compacted_log() -> None:
    """45 records in 6 batches; gaps, tombstones, and timestamps relative to a delete horizon."""
    headers = [header for _, header in batches("goldc-0-compacted")]
    assert [header.record_count for header in headers] == [40, 1, 1, 1, 1, 1]
    compacted = headers[0]
    assert compacted.attributes == 0x40  # the base timestamp is a delete horizon
    assert compacted.codec is Codec.NONE
    assert (compacted.base_offset, compacted.last_offset) == (2879, 2999)
    assert compacted.base_timestamp == 1795263049696
    records = [record for _, record in all_records("goldc-0-compacted")]
    assert [record.offset for record in records] == list(range(2960, 3005))
    tombstones = [record.offset for record in records if record.value is None]
    assert tombstones == list(range(2961, 3000, 7))
    assert records[0].timestamp_ms - compacted.base_timestamp == -3788
    assert max(record.timestamp_ms for record in records[:40]) == compacted.max_timestamp
    assert Counter(record.key for record in records[40:]) == {b"zz": 5}


def test_the_bootstrap_checkpoint() -> None:
    """KRaft's own record batches: two control batches around the feature records."""
    data = shared("golden/root/bootstrap.checkpoint").read_bytes()
    found = list(iter_headers(data))
    assert [header.is_control for _, header in found] == [True, False, True]
    kinds = [read_records(data, position)[0].key for position, header in found if header.is_control]
    assert kinds == [b"\0\0\0\3", b"\0\0\0\4"]
