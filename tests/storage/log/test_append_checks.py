"""Everything a leader refuses: the right error, and nothing written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import attrs
import pytest
from support.running import patches
from support.storage.logs import DIRECTORY, NOW_MS, batch, open_log, read_all, read_headers

from splashdam.model.broker_errors import (
    BrokerResponseError,
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    OutOfOrderSequenceNumberError,
    RecordListTooLargeError,
    UnsupportedCompressionTypeError,
)
from splashdam.model.errors import KafkaConfigurationError
from splashdam.record import validation
from splashdam.record.batch import (
    HEADER_BYTES,
    INT16,
    INT32,
    INT64,
    MAX_TIMESTAMP_AT,
    Codec,
    crc_ok,
    parse_header,
    stamp_crc,
)
from splashdam.record.compression import Compression, OverLimitError, compress
from splashdam.record.sealing import build_batch
from splashdam.storage import append_checks
from splashdam.storage.append_checks import RecordErrors, check_batch
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log
from splashdam.storage.settings import HOUR_MS, LogSettings

ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT = 21, 23, 57
SETTINGS = LogSettings()


@pytest.fixture
def log() -> Log:
    """A log with three records."""
    log = open_log(MemoryFiles())
    log.append_as_leader(batch(b"1", b"2", b"3"), now_ms=NOW_MS)
    return log


def altered(change: Callable[[bytearray], None], *values: bytes, **fields: int) -> bytes:
    """A batch that was changed and given the right checksum again."""
    data = bytearray(batch(*values or (b"v",), **fields))
    change(data)
    stamp_crc(data, 0, len(data))
    return bytes(data)


def with_attributes(bits: int) -> bytes:
    return altered(lambda data: INT16.pack_into(data, ATTRIBUTES_AT, bits))


def with_count(count: int, last_delta: int) -> bytes:
    def change(data: bytearray) -> None:
        INT32.pack_into(data, LAST_DELTA_AT, last_delta)
        INT32.pack_into(data, COUNT_AT, count)

    return altered(change)


def with_byte(position: int, value: int) -> bytes:
    data = bytearray(batch(b"v"))
    data[position] = value
    return bytes(data)


REFUSED = {
    "empty": (b"", CorruptMessageError),
    "too short": (batch(b"v")[:60], CorruptMessageError),
    "cut off": (batch(b"v")[:-1], CorruptMessageError),
    "two batches": (batch(b"v") + batch(b"w"), InvalidRecordError),
    "something behind": (batch(b"v") + b"x", InvalidRecordError),
    "format 1": (with_byte(16, 1), InvalidRecordError),
    "format 0": (with_byte(16, 0), InvalidRecordError),
    "format 3": (with_byte(16, 3), InvalidRecordError),
    "base offset 1": (with_byte(7, 1), InvalidRecordError),
    "checksum": (with_byte(65, 0xFF), CorruptMessageError),
    "no records": (with_count(0, 0), InvalidRecordError),
    "more records than offsets": (with_count(1, -1), InvalidRecordError),
    "fewer than no records": (with_count(-1, 0), InvalidRecordError),
    "fewer records than offsets": (with_count(1, 1), InvalidRecordError),
    "a control batch": (with_attributes(0x20), InvalidRecordError),
    "no producer in a transaction": (with_attributes(0x10), InvalidRecordError),
    "no sequence": (altered(lambda data: None, producer_id=1, sequence=-1), InvalidRecordError),
    "codec 5": (with_attributes(5), UnsupportedCompressionTypeError),
    "codec 7": (with_attributes(7), UnsupportedCompressionTypeError),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_batch_leaves_no_trace(log: Log, case: str) -> None:
    """The error is Kafka's; offsets, files and the next append are as if it had never come."""
    data, error = REFUSED[case]
    size = log.segments[-1].size_bytes
    with pytest.raises(error):
        log.append_as_leader(memoryview(data), now_ms=NOW_MS)
    assert (log.log_end_offset, log.segments[-1].size_bytes) == (3, size)
    assert log.append_as_leader(batch(b"4"), now_ms=NOW_MS).base_offset == 3
    assert [header.record_count for header in read_headers(log)] == [3, 1]


def test_every_single_damaged_byte_is_refused_or_harmless() -> None:
    """Flipping any bit is noticed, but for the leader epoch, which the broker sets anyway."""
    data = batch(b"value", producer_id=1)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        if 12 <= position < 16:
            check_batch(damaged, SETTINGS, NOW_MS)
        else:
            with pytest.raises(BrokerResponseError):
                check_batch(damaged, SETTINGS, NOW_MS)


def test_the_size_limit_is_exact() -> None:
    """max.message.bytes is the largest size accepted."""
    data = batch(b"v" * 100)
    check_batch(data, LogSettings(max_message_bytes=len(data)), NOW_MS)
    with pytest.raises(MessageTooLargeError, match=f"{len(data)} bytes is above"):
        check_batch(data, LogSettings(max_message_bytes=len(data) - 1), NOW_MS)


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    """It would have no place."""
    data = batch(b"v" * 100)
    check_batch(data, LogSettings(segment_bytes=len(data)), NOW_MS)
    with pytest.raises(RecordListTooLargeError, match=r"segment\.bytes"):
        check_batch(data, LogSettings(segment_bytes=len(data) - 1), NOW_MS)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_compacted_topic_wants_keys(codec: Codec) -> None:
    """The error names each record without one."""
    records = [(NOW_MS, key, b"v", None) for key in (b"a", None, b"", None)]
    data = build_batch(records, Compression(codec, None))
    settings = LogSettings(cleanup_policy="compact, delete")
    with pytest.raises(InvalidRecordError) as caught:
        check_batch(data, settings, NOW_MS)
    assert isinstance(caught.value, RecordErrors)
    assert sorted(caught.value.record_errors) == [1, 3]
    check_batch(build_batch(records[::2]), settings, NOW_MS)
    check_batch(data, SETTINGS, NOW_MS)


def test_timestamps_outside_the_limits_are_refused_by_record() -> None:
    """Both limits count from the broker's clock."""
    settings = LogSettings(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=50)
    times = [NOW_MS - 101, NOW_MS - 100, NOW_MS + 50, NOW_MS + 51]
    data = build_batch([(time, b"k", b"v", None) for time in times])
    with pytest.raises(InvalidTimestampError) as caught:
        check_batch(data, settings, NOW_MS)
    assert isinstance(caught.value, RecordErrors)
    assert sorted(caught.value.record_errors) == [0, 3]
    check_batch(data, SETTINGS, NOW_MS)
    check_batch(data, attrs.evolve(settings, message_timestamp_type="LogAppendTime"), NOW_MS)


def test_a_record_may_be_an_hour_ahead_of_the_broker() -> None:
    """Kafka's default since 4.0 (KIP-1030); before, a timestamp in microseconds was taken."""
    ahead = [build_batch([(NOW_MS + HOUR_MS + after, b"k", b"v", None)]) for after in (0, 1)]
    check_batch(ahead[0], LogSettings(), NOW_MS)
    with pytest.raises(InvalidTimestampError):
        check_batch(ahead[1], LogSettings(), NOW_MS)


def test_a_refused_sequence_leaves_no_trace(log: Log) -> None:
    """Not even in what is remembered of the producer."""
    log.append_as_leader(batch(b"a", producer_id=1), now_ms=NOW_MS)
    for _ in range(2):
        with pytest.raises(OutOfOrderSequenceNumberError):
            log.append_as_leader(batch(b"c", producer_id=1, sequence=2), now_ms=NOW_MS)
    assert log.append_as_leader(batch(b"b", producer_id=1, sequence=1), now_ms=NOW_MS).base_offset == 4


def test_unknown_topic_options_are_refused_with_the_nearest() -> None:
    """Names are Kafka's dotted ones."""
    settings = LogSettings(segment_bytes=1000).with_configs({"index.interval.bytes": "7"})
    assert (settings.segment_bytes, settings.index_interval_bytes) == (1000, 7)
    with pytest.raises(KafkaConfigurationError, match=r"segment\.byte'.*segment\.bytes"):
        settings.with_configs({"segment.byte": "1"})
    with pytest.raises(KafkaConfigurationError, match="delete and compact"):
        settings.with_configs({"cleanup.policy": "shred"})


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_garbage_is_refused_whatever_the_topic_asks(policy: str) -> None:
    """Nobody could read past it. The producer is told not to try again: the checksum says it sent it so."""
    data = altered(lambda data: data.__setitem__(61, 0xFF))
    with pytest.raises(InvalidRecordError, match="record 0: record of -64 bytes at 0"):
        check_batch(data, LogSettings(cleanup_policy=policy), NOW_MS)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("said_ms", [-1, NOW_MS - 1, NOW_MS + 99, -(2**63)])
def test_a_wrong_maximum_timestamp_is_put_right(log: Log, codec: Codec, said_ms: int) -> None:
    """As Kafka does: retention and look-ups by time believe the header. What came is not written to."""
    data = bytearray(
        build_batch([(NOW_MS, b"k", b"v", None), (NOW_MS - 9, b"k", b"w", None)], Compression(codec))
    )
    INT64.pack_into(data, MAX_TIMESTAMP_AT, said_ms)
    stamp_crc(data, 0, len(data))
    sent = bytes(data)
    log.append_as_leader(memoryview(data).toreadonly(), now_ms=NOW_MS)
    assert bytes(data) == sent
    whole = bytes(log.segments[-1].log.read(log.segments[-1].size_bytes - len(sent), len(sent)))
    header = parse_header(whole)
    assert (header.max_timestamp, header.base_offset, crc_ok(whole, 0, header)) == (NOW_MS, 3, True)
    assert whole[HEADER_BYTES:] == sent[HEADER_BYTES:]


def test_a_sound_batch_is_not_copied() -> None:
    """It is written from where it was received."""
    data = batch(b"v")
    checked, _ = check_batch(data, SETTINGS, NOW_MS)
    assert checked is data


def test_records_that_are_numbered_wrongly_are_refused() -> None:
    """Their consumers would skip records, or ask for offsets that do not exist."""
    data = altered(lambda data: data.__setitem__(64, 2))
    with pytest.raises(InvalidRecordError, match="record 0: offset delta 1 at 3, not 0"):
        check_batch(data, SETTINGS, NOW_MS)


def test_a_bomb_is_too_large_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer splits the batch then; a look within a smaller limit says that more was there."""
    data = build_batch([(NOW_MS, None, bytes(200_000), None)], Compression(Codec.GZIP))
    with pytest.raises(OverLimitError):
        check_batch(data, SETTINGS, NOW_MS, max_bytes=100_000)
    monkeypatch.setattr(append_checks, "MAX_DECOMPRESSED_BYTES", 100_000)
    with pytest.raises(MessageTooLargeError, match="limit of 100000 bytes"):
        check_batch(data, SETTINGS, NOW_MS, max_bytes=100_000)


def test_a_codec_without_its_library_is_taken_on_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain installation has no zstd, and stores what others can read; a topic with rules refuses."""
    data = build_batch([(NOW_MS, b"k", b"v", None)], Compression(Codec.ZSTD))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert check_batch(data, SETTINGS, NOW_MS)[0] is data
    with pytest.raises(UnsupportedCompressionTypeError, match="zstandard"):
        check_batch(data, LogSettings(cleanup_policy="compact"), NOW_MS)
    with pytest.raises(UnsupportedCompressionTypeError, match="zstandard"):
        check_batch(data, SETTINGS, NOW_MS - 2 * HOUR_MS)


def test_each_record_is_walked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sound batch on a topic with every rule costs one unpacking and one walk; nothing is named."""
    calls: list[str] = []

    def counted(name: str, module: ModuleType) -> None:
        real = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *args, **kwargs: (calls.append(name), real(*args, **kwargs))[1]
        )

    counted("decompress", validation)
    counted("scan_records", validation)
    monkeypatch.setattr(append_checks, "faulty_records", patches.guard("nothing is to be named"))
    settings = LogSettings(cleanup_policy="compact", message_timestamp_before_max_ms=100)
    check_batch(build_batch([(NOW_MS, b"k", b"v", None)] * 9, Compression(Codec.GZIP)), settings, NOW_MS)
    assert calls == ["decompress", "scan_records"]


def test_keys_and_timestamps_are_judged_together() -> None:
    """As Kafka does: a key that lacks counts before a timestamp, and a timestamp decides the error."""
    settings = LogSettings(cleanup_policy="compact", message_timestamp_before_max_ms=100)
    old = NOW_MS - 101
    records = [(time, key, b"v", None) for time, key in ((old, b"k"), (old, None), (-1, b"k"), (-2, b"k"))]
    with pytest.raises(InvalidTimestampError, match=r"record 0: .*; 3 records are refused") as caught:
        check_batch(build_batch(records), settings, NOW_MS)
    assert isinstance(caught.value, RecordErrors)
    assert [(index, text.split()[0]) for index, text in caught.value.record_errors.items()] == [
        (0, "timestamp"),
        (1, "has"),
        (3, "timestamp"),
    ]


def test_the_directory_is_untouched_by_refusals() -> None:
    """No file but those of the empty log."""
    files = MemoryFiles()
    log = open_log(files)
    before = files.list_directory(DIRECTORY)
    for data, error in REFUSED.values():
        with pytest.raises(error):
            log.append_as_leader(data, now_ms=NOW_MS)
    assert files.list_directory(DIRECTORY) == before


def test_of_a_batch_with_many_bad_records_some_are_named() -> None:
    """A few kilobytes of zstd hold any number of records: they are looked at one by one, 10,000 are named."""
    packed = build_batch([(NOW_MS, None, b"v", None)] * 12_000, Compression(Codec.ZSTD))
    settings = LogSettings(cleanup_policy="compact")
    with pytest.raises(RecordErrors) as caught:
        check_batch(packed, settings, NOW_MS)
    assert len(caught.value.record_errors) == 10_000


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_batch_of_too_many_records_is_refused(codec: Codec) -> None:
    """Thirty kilobytes can stand for millions, and a compacted topic would look at each of them."""
    data = bytearray(build_batch([(NOW_MS, b"k", b"v" * 100, None)], Compression(codec, None)))
    INT32.pack_into(data, LAST_DELTA_AT, 500_000)
    INT32.pack_into(data, COUNT_AT, 500_001)
    stamp_crc(data, 0, len(data))
    with pytest.raises(InvalidRecordError, match="500001 records are too many"):
        check_batch(data, attrs.evolve(SETTINGS, cleanup_policy="compact"), NOW_MS)


def test_a_header_that_lies_about_its_count_is_refused() -> None:
    """Before anything is made of it."""
    check_batch(with_count(1, 0), SETTINGS, NOW_MS)
    with pytest.raises(InvalidRecordError, match="2 records in 9 bytes"):
        check_batch(with_count(2, 1), SETTINGS, NOW_MS)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("topics", ["CreateTime", "LogAppendTime"])
def test_log_append_time_claimed_by_a_producer_does_not_count(codec: Codec, topics: str) -> None:
    """The topic decides: the records have their own times, or the broker's; Kafka takes such a batch, too."""
    said = bytearray(build_batch([(NOW_MS + i, b"k", b"v", None) for i in (0, 5, 1)], Compression(codec)))
    INT16.pack_into(said, ATTRIBUTES_AT, codec | 0x08)
    INT64.pack_into(said, MAX_TIMESTAMP_AT, NOW_MS + 99)
    stamp_crc(said, 0, len(said))
    log = open_log(MemoryFiles(), settings=LogSettings(message_timestamp_type=topics))
    log.append_as_leader(bytes(said), now_ms=NOW_MS + 7)
    (header,) = read_headers(log)
    assert header.codec is codec
    is_ours = topics == "LogAppendTime"
    assert header.is_log_append_time is is_ours
    assert [each.timestamp_ms - NOW_MS for each in read_all(log)] == ([7, 7, 7] if is_ours else [0, 5, 1])
    assert header.max_timestamp - NOW_MS == (7 if is_ours else 5)


@pytest.mark.parametrize("codec", Codec)
def test_a_header_key_that_is_not_utf8_is_stored(codec: Codec) -> None:
    """As it came: neither copied nor refused, as in Kafka."""
    data = bytearray(build_batch([(NOW_MS, b"k", b"v", [("hh", b"1")])]))
    at = data.index(b"hh")
    data[at : at + 2] = b"\xff\xfe"
    records = compress(memoryview(data)[HEADER_BYTES:], Compression(codec))
    data[HEADER_BYTES:] = records
    INT32.pack_into(data, 8, len(data) - 12)
    INT16.pack_into(data, ATTRIBUTES_AT, codec)
    stamp_crc(data, 0, len(data))
    sent = bytes(data)
    assert check_batch(sent, SETTINGS, NOW_MS)[0] is sent
    log = open_log(MemoryFiles())
    log.append_as_leader(sent, now_ms=NOW_MS)
    assert [each.headers for each in read_all(log)] == [(("\ufffd\ufffd", b"1"),)]
