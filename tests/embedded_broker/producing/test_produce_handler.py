"""Produce: what is appended, what is refused, and what an idempotent producer can rely on."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from support.broker.broker_talk import (
    Talk,
    batch,
    fetch_request,
    fetched,
    produce,
    produce_request,
    records_of,
)

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.record.batch import Codec, parse_header, stamp_crc
from splashdam.record.compression import Compression
from splashdam.record.sealing import build_batch
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.wire.messages.produce import PartitionProduceData, TopicProduceData

T0 = TopicPartition("t", 0)


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    """The broker, with a topic."""
    broker.topics.create("t", 2)
    return broker


def log_end(broker: Broker, partition: int = 0) -> int:
    return broker.logs.logs[TopicPartition("t", partition)].log_end_offset


@pytest.mark.parametrize("version", range(3, 12))
async def test_batches_get_offsets(talk: Talk, version: int) -> None:
    """B17: every version answers base offsets, the log's start (from 5), no append time for CreateTime."""
    for offset in (0, 3, 6):
        answer = await produce(talk, "t", batch(b"a", b"b", b"c"), version=version)
        assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, offset, -1)
        assert answer.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("codec", list(Codec))
async def test_every_codec_is_kept(talk: Talk, codec: Codec) -> None:
    """A batch stays as its producer packed it."""
    await produce(talk, "t", batch(b"a" * 100, b"b" * 100, compression=Compression(codec)))
    (part,) = fetched(await talk.ask(fetch_request("t", 0), 12))
    assert parse_header(part.records).codec is codec
    assert [record.value for record in records_of(part.records)] == [b"a" * 100, b"b" * 100]


async def test_zstd_needs_version_7(talk: Talk, broker: Broker) -> None:
    """B14: below version 7 it is 76, and nothing is written."""
    packed = batch(b"a", compression=Compression(Codec.ZSTD))
    assert (await produce(talk, "t", packed, version=6)).error_code == 76
    assert log_end(broker) == 0
    assert (await produce(talk, "t", packed, version=7)).error_code == 0


@pytest.mark.parametrize("acks", [-1, 1])
async def test_acks_that_are_answered(talk: Talk, acks: int) -> None:
    """One broker is its own in-sync set: 1 and all are the same."""
    assert (await produce(talk, "t", batch(b"a"), acks=acks)).error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_other_acks_are_refused(talk: Talk, broker: Broker, acks: int) -> None:
    """B7: 21 for each partition, nothing is written."""
    assert (await produce(talk, "t", batch(b"a"), acks=acks)).error_code == 21
    assert log_end(broker) == 0


async def test_an_unknown_topic_id_is_reported_before_wrong_acks(talk: Talk) -> None:
    """100, as in Kafka."""
    request = produce_request("", batch(b"a"), acks=2)
    (topic,) = (await talk.ask(request, 13)).responses
    assert [each.error_code for each in topic.partition_responses] == [100]


async def test_acks_0_has_no_answer(talk: Talk, broker: Broker) -> None:
    """B7: the next answer on the connection belongs to the next request that has one."""
    for _ in range(3):
        await talk.send(produce_request("t", batch(b"a"), acks=0), 9, answered=False)
    assert (await produce(talk, "t", batch(b"b"))).base_offset == 3
    assert log_end(broker) == 4


async def test_acks_0_that_fails_closes(talk: Talk, caplog: pytest.LogCaptureFixture) -> None:
    """B7: there is no other way to tell; the log says why, in one line."""
    await talk.send(produce_request("missing", batch(b"a"), acks=0), 9, answered=False)
    assert await talk.is_closed()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "missing-0" in line


@pytest.mark.parametrize(("topic", "partition"), [("missing", 0), ("t", 2), ("t", -1)])
async def test_unknown_partition(talk: Talk, topic: str, partition: int) -> None:
    """3; producing creates no topic."""
    answer = await produce(talk, topic, batch(b"a"), partition=partition)
    assert (answer.error_code, answer.base_offset) == (3, -1)


async def test_partitions_are_answered_one_by_one(talk: Talk, broker: Broker) -> None:
    """A batch that is refused does not keep the others from the log."""
    request = produce_request("t", batch(b"a"))
    request.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=bytes(100)))
    request.topic_data.append(
        TopicProduceData(name="no", partition_data=[PartitionProduceData(index=0, records=batch(b"a"))])
    )
    answer = await talk.ask(request, 9)
    assert [
        (topic.name, part.index, part.error_code)
        for topic in answer.responses
        for part in topic.partition_responses
    ] == [("t", 0, 0), ("t", 1, 87), ("no", 0, 3)]
    assert (log_end(broker, 0), log_end(broker, 1)) == (1, 0)


def damaged(position: int, value: int, *, sound_checksum: bool = False) -> bytes:
    data = bytearray(batch(b"some value"))
    data[position] = value
    if sound_checksum:
        stamp_crc(memoryview(data), 0, len(data))
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        pytest.param(None, 87, id="null"),
        pytest.param(b"", 87, id="empty"),
        pytest.param(b"\0" * 60, 87, id="shorter than a header"),
        pytest.param(batch(b"a") + batch(b"b"), 87, id="two batches"),
        pytest.param(damaged(7, 5), 87, id="a base offset"),
        pytest.param(damaged(16, 1), 87, id="an older format"),
        pytest.param(damaged(60, 0, sound_checksum=True), 87, id="fewer records than it says"),
        pytest.param(damaged(22, 0x20, sound_checksum=True), 87, id="a control batch"),
        pytest.param(damaged(70, 0xFF), 2, id="a wrong checksum"),
        pytest.param(batch(b"a")[:-1], 2, id="cut off"),
        pytest.param(damaged(22, 0x10, sound_checksum=True), 53, id="transactional, and nobody's"),
    ],
)
async def test_invalid_batches_are_refused(
    talk: Talk, broker: Broker, records: bytes | None, code: int
) -> None:
    """B14, B15: one sound batch of format 2 and nothing else; the answer says why (v8+)."""
    answer = await produce(talk, "t", records)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert log_end(broker) == 0
    assert (await produce(talk, "t", batch(b"good"))).base_offset == 0


async def test_large_batches(talk: Talk, broker: Broker) -> None:
    """B15: above max.message.bytes 10, above segment.bytes 18; the limit itself is allowed."""
    whole = batch(b"x" * 1000)
    for name, configs, code in [
        ("exact", {"max.message.bytes": str(len(whole))}, 0),
        ("small", {"max.message.bytes": str(len(whole) - 1)}, 10),
        ("segment", {"segment.bytes": "1000"}, 18),
    ]:
        broker.topics.create(name, 1, configs)
        assert (await produce(talk, name, whole)).error_code == code


@pytest.mark.parametrize("version", [7, 8])
async def test_compacted_topic_demands_keys(talk: Talk, broker: Broker, version: int) -> None:
    """B16: 87, from version 8 on with the records at fault."""
    broker.topics.create("c", 1, {"cleanup.policy": "compact"})
    mixed = build_batch([(1, b"k", b"v", None), (1, None, b"v", None), (1, b"", b"v", None)])
    answer = await produce(talk, "c", mixed, version=version)
    assert answer.error_code == 87
    assert [error.batch_index for error in answer.record_errors] == ([1] if version >= 8 else [])


async def test_log_append_time(talk: Talk, broker: Broker) -> None:
    """B17: a topic with LogAppendTime answers the time, and consumers read it from every record."""
    broker.topics.create("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
    answer = await produce(talk, "stamped", batch(b"a", b"b"))
    assert answer.log_append_time_ms == broker.clock.wall_ms()
    (part,) = fetched(await talk.ask(fetch_request("stamped", 0), 12))
    assert {record.timestamp_ms for record in records_of(part.records)} == {answer.log_append_time_ms}


@pytest.mark.parametrize("stamped", [False, True])
async def test_a_repeat_is_answered_with_its_newest_timestamp(
    talk: Talk, broker: Broker, stamped: bool
) -> None:
    """As on Kafka 4.4: whatever the topic's timestamps are, and where the first answer says -1."""
    broker.topics.create("r", 1, {"message.timestamp.type": "LogAppendTime"} if stamped else {})
    newest = broker.clock.wall_ms()
    records = [(newest, None, b"v", None), (newest - 400, None, b"w", None)]
    sent = build_batch(records, producer_id=7, producer_epoch=0, base_sequence=0)
    first = await produce(talk, "r", sent)
    assert first.log_append_time_ms == (newest if stamped else -1)
    for version in (4, 5, 9):
        again = await produce(talk, "r", sent, version=version)
        assert (again.base_offset, again.log_append_time_ms) == (0, newest)


@pytest.mark.parametrize("version", [5, 9])
async def test_a_refusal_names_the_log_start_offset(talk: Talk, broker: Broker, version: int) -> None:
    """As on Kafka 4.4: where records were looked at (87, 45), and not where a batch is damaged (2)."""
    broker.topics.create("c", 1, {"cleanup.policy": "compact"})
    for sequence in range(3):
        keyed = build_batch([(1, b"k", b"v", None)], producer_id=7, producer_epoch=0, base_sequence=sequence)
        assert (await produce(talk, "c", keyed)).error_code == 0
    broker.logs.logs[TopicPartition("c", 0)].advance_log_start(2)
    for wrong, code, start in (
        (batch(b"v"), 87, 2),
        (build_batch([(1, b"k", b"v", None)], producer_id=7, producer_epoch=0, base_sequence=9), 45, 2),
        (batch(b"v")[:-1] + b"?", 2, -1),
    ):
        answer = await produce(talk, "c", wrong, version=version)
        assert (answer.error_code, answer.log_start_offset) == (code, start)


def from_producer(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7) -> bytes:
    values = [b"%d" % number for number in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


async def test_idempotent_producer(talk: Talk, broker: Broker) -> None:
    """B18: repeats of the last five get their first offset, gaps and older repeats 45, older epochs 47."""
    for sequence in range(0, 12, 2):
        assert (await produce(talk, "t", from_producer(sequence, 2))).base_offset == sequence
    for sequence in range(2, 12, 2):
        answer = await produce(talk, "t", from_producer(sequence, 2))
        assert (answer.error_code, answer.base_offset) == (0, sequence)
    for wrong in (from_producer(0, 2), from_producer(13), from_producer(10, 3), from_producer(3, epoch=1)):
        assert (await produce(talk, "t", wrong)).error_code == 45
    assert (await produce(talk, "t", from_producer(0, epoch=1))).base_offset == 12
    assert (await produce(talk, "t", from_producer(12))).error_code == 47
    assert log_end(broker) == 13


async def test_sequences_wrap(talk: Talk) -> None:
    """B18: a producer nobody knows may start anywhere; 2,147,483,647 is followed by 0."""
    last = 2**31 - 1
    assert (await produce(talk, "t", from_producer(last))).error_code == 0
    assert (await produce(talk, "t", from_producer(1))).error_code == 45
    assert (await produce(talk, "t", from_producer(0))).error_code == 0


async def test_repeat_after_a_restart(tmp_path: Path) -> None:
    """B19: what a producer sent last is still known after the broker was closed and opened again."""
    for expected_end in (3, 6):
        network = MemoryNetwork()
        async with open_broker(tmp_path, host="b", port=1, listen=network.listen) as broker:
            talk = Talk(await network.connect("b", 1))
            if broker.topics.get("t") is None:
                broker.topics.create("t")
            else:
                assert (await produce(talk, "t", from_producer(0, 3))).base_offset == 0
            answer = await produce(talk, "t", from_producer(expected_end - 3, 3))
            assert (answer.error_code, answer.base_offset) == (0, expected_end - 3)
            assert log_end(broker) == expected_end


async def test_full_disk(
    talk: Talk, broker: Broker, files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """56 and a line in the log; once there is room, the same connection goes on without a gap."""
    files.inject(Fault(error_number=28, landed_bytes=10))
    answer = await produce(talk, "t", batch(b"a"))
    assert answer.error_code == 56
    assert "t-0" in caplog.text
    assert (await produce(talk, "t", batch(b"b"))).base_offset == 0
    (part,) = fetched(await talk.ask(fetch_request("t", 0), 12))
    assert [record.value for record in records_of(part.records)] == [b"b"]


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
async def test_topic_with_a_codec_of_its_own(talk: Talk, broker: Broker, target: str) -> None:
    """compression.type repacks what came otherwise; keys, values, headers, times and sequences stay."""
    broker.topics.create("packed", 1, {"compression.type": target})
    records: list[Any] = [
        (1000 + i, b"k%d" % i, b"v" * 50, [("h", None), ("i", b"%d" % i)]) for i in range(20)
    ]
    sent = build_batch(records, Compression(Codec.GZIP), producer_id=3, producer_epoch=1, base_sequence=5)
    for _ in range(2):  # the second one is a repeat
        assert (await produce(talk, "packed", sent)).base_offset == 0
    (part,) = fetched(await talk.ask(fetch_request("packed", 0), 12))
    header = parse_header(part.records)
    assert header.codec.name.lower() == ("none" if target == "uncompressed" else target)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (3, 1, 5)
    assert [
        (found.timestamp_ms, found.key, found.value, list(found.headers))
        for found in records_of(part.records)
    ] == records


async def test_a_batch_with_gaps_is_rebuilt(talk: Talk, broker: Broker) -> None:
    """Some old clients number records wrongly: a broker that packs their batch anew numbers them right."""
    broker.topics.create("packed", 1, {"compression.type": "gzip"})
    wrong = bytearray(build_batch([(1000, b"a", b"1", None), (1001, b"b", b"2", None)]))
    assert wrong[64] == 0  # the offset delta of the first record
    wrong[64] = 6
    stamp_crc(wrong, 0, len(wrong))
    assert (await produce(talk, "packed", bytes(wrong))).error_code == 0
    (part,) = fetched(await talk.ask(fetch_request("packed", 0), 12))
    assert [(found.offset, found.value) for found in records_of(part.records)] == [(0, b"1"), (1, b"2")]


async def test_records_that_make_no_sense_are_not_repacked(talk: Talk, broker: Broker) -> None:
    """The checksum is right, so the producer sent them so: 87, which it does not try again."""
    broker.topics.create("packed", 1, {"compression.type": "gzip"})
    wrong = bytearray(build_batch([(1000, b"a", b"1", None)]))
    wrong[61] = 0x7F
    stamp_crc(wrong, 0, len(wrong))
    answer = await produce(talk, "packed", bytes(wrong))
    assert answer.error_code == 87
    assert "record 0: record of -64 bytes at 0" in (answer.error_message or "")


async def test_damaged_batch_is_not_repacked(talk: Talk, broker: Broker) -> None:
    """A checksum made anew would hide the damage."""
    broker.topics.create("packed", 1, {"compression.type": "gzip"})
    assert (await produce(talk, "packed", damaged(70, 0xFF))).error_code == 2


async def test_flush_messages(talk: Talk, broker: Broker, files: MemoryFiles) -> None:
    """flush.messages=1: what was answered survives a power cut."""
    broker.topics.create("safe", 1, {"flush.messages": "1"})
    log = broker.logs.logs[TopicPartition("safe", 0)]
    for count in (1, 2):
        await produce(talk, "safe", batch(b"a"))
        assert log.recovery_point == count
    assert broker.logs.logs[T0].recovery_point == 0


async def test_flush_messages_holds_without_acknowledgements(talk: Talk, broker: Broker) -> None:
    """With acks=0 the flush is done before the next request."""
    broker.topics.create("safe", 1, {"flush.messages": "1"})
    await talk.send(produce_request("safe", batch(b"a"), acks=0), 9, answered=False)
    await talk.ask(fetch_request("safe", 0), 12)
    assert broker.logs.logs[TopicPartition("safe", 0)].recovery_point == 1


async def test_a_flush_that_fails_is_the_answer(talk: Talk, broker: Broker, files: MemoryFiles) -> None:
    """56: the record is in the log, but nobody may rely on it, and the log takes no more."""
    broker.topics.create("safe", 1, {"flush.messages": "1"})
    files.inject(Fault(errno.EIO, after=6, times=1))
    answer = await produce(talk, "safe", batch(b"a"))
    assert (answer.error_code, answer.base_offset) == (56, -1)
    assert (await produce(talk, "safe", batch(b"b"))).error_code == 56
    assert "failed earlier" in str(broker.logs.close())
