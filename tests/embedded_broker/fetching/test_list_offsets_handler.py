"""ListOffsets: by time and the special ones (B26)."""

from __future__ import annotations

import sys

import pytest
from support.broker.broker_talk import NOW_MS, Talk, batch, produce

from splashdam.embedded_broker.broker import Broker
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.record.batch import ATTRIBUTES_AT, Codec, stamp_crc
from splashdam.record.sealing import build_batch
from splashdam.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

TIMES = (1000, 3000, 2000)


@pytest.fixture
async def talk(broker: Broker, talk: Talk) -> Talk:
    """A connection to the broker, which has records."""
    broker.topics.create("t")
    for time in TIMES:
        await produce(talk, "t", build_batch([(time, None, b"x", None)]))
    return talk


async def ask(
    talk: Talk,
    timestamp: int,
    version: int = 10,
    *,
    partition: int = 0,
    epoch: int = -1,
    isolation_level: int = 0,
    replica_id: int = -1,
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name="t", partitions=[asked])],
    )
    return (await talk.ask(request, version)).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
async def test_earliest_and_latest(talk: Talk, version: int) -> None:
    """Every version knows both; the leader epoch is told from 4 on."""
    for timestamp, offset in ((-2, 0), (-1, 3)):
        found = await ask(talk, timestamp, version)
        assert (found.error_code, found.offset, found.timestamp) == (0, offset, -1)
        assert found.leader_epoch == (0 if version >= 4 else -1)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_timestamp"),
    [(0, 0, 1000), (1000, 0, 1000), (1001, 1, 3000), (3000, 1, 3000), (3001, -1, -1)],
)
async def test_by_time(talk: Talk, timestamp: int, offset: int, found_timestamp: int) -> None:
    """The first record at least as late, in offset order; beyond the data -1 and -1."""
    found = await ask(talk, timestamp)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, found_timestamp)


@pytest.mark.parametrize(
    ("timestamp", "since", "offset", "found_timestamp"),
    [(-3, 7, 1, 3000), (-4, 8, 0, -1), (-5, 9, -1, -1), (-6, 11, -1, -1)],
)
async def test_special_ones_by_version(
    talk: Talk, timestamp: int, since: int, offset: int, found_timestamp: int
) -> None:
    """Largest timestamp, earliest on disk, latest in tiers: 35 for versions that do not know them."""
    assert (await ask(talk, timestamp, since - 1)).error_code == 35
    found = await ask(talk, timestamp, since)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, found_timestamp)


async def test_unheard_of_special_one(talk: Talk) -> None:
    """35 rather than an offset that means something else."""
    assert (await ask(talk, -7, 11)).error_code == 35


async def test_read_committed(talk: Talk) -> None:
    """Without transactions the last stable offset is the high watermark."""
    assert (await ask(talk, -1, isolation_level=1)).offset == 3
    assert (await ask(talk, 1001, isolation_level=1)).offset == 1


@pytest.mark.parametrize(("partition", "epoch", "code"), [(1, -1, 3), (0, 0, 0), (0, 1, 75)])
async def test_refusals(talk: Talk, partition: int, epoch: int, code: int) -> None:
    """An unknown partition is 3, a leader epoch from the future 75."""
    assert (await ask(talk, -1, partition=partition, epoch=epoch)).error_code == code


async def test_a_partition_asked_about_twice(talk: Talk) -> None:
    """42, as Kafka: which question counts is not known."""
    asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp) for timestamp in (-1, -2)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[each]) for each in asked]
    )
    topics = (await talk.ask(request, 10)).topics
    assert [topic.partitions[0].error_code for topic in topics] == [42, 42]


@pytest.mark.parametrize(
    ("timestamp", "answers"),
    [(-1, (2, 2, 3)), (-2, (0, 0, 0)), (3000, (1, 1, 1)), (1001, (1, 1, 1)), (3500, (-1, -1, 2))],
)
async def test_records_that_are_not_replicated(
    talk: Talk, broker: Broker, timestamp: int, answers: tuple[int, ...]
) -> None:
    """Consumers do not see what is above the high watermark; other brokers do."""
    log = broker.logs.logs[TopicPartition("t", 0)]
    log.truncate_to(2, now_ms=0)
    log.append_as_leader(build_batch([(4000, None, b"x", None)]), now_ms=NOW_MS)
    log.high_watermark = 2
    found = [
        (await ask(talk, timestamp, isolation_level=level, replica_id=replica_id)).offset
        for level, replica_id in ((0, -1), (1, -1), (0, -2))
    ]
    assert tuple(found) == answers


@pytest.mark.parametrize(("version", "code"), [(4, 5), (5, 78), (11, 78)])
async def test_after_an_election(talk: Talk, broker: Broker, version: int, code: int) -> None:
    """Section 8: 78 for the end until the high watermark is where the epoch began; below v5 it is 5."""
    log = broker.logs.logs[TopicPartition("t", 0)]
    log.begin_leader_epoch(7)
    log.high_watermark = 2
    for timestamp, expected in ((-1, code), (9000, code), (-2, 0), (1000, 0)):
        assert (await ask(talk, timestamp, version)).error_code == expected
    assert (await ask(talk, -1, version, replica_id=-2)).error_code == 0
    log.high_watermark = 3
    found = await ask(talk, -1, version)
    assert (found.error_code, found.offset, found.leader_epoch) == (0, 3, 7)


def packed_by(codec: Codec, records: bytes) -> bytes:
    """A batch that claims a codec around bytes of another one."""
    changed = bytearray(records)
    changed[ATTRIBUTES_AT + 1] = codec
    stamp_crc(changed, 0, len(changed))
    return bytes(changed)


async def test_a_missing_codec_library_is_reported(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """76 for the partition; the connection goes on."""
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    assert (await produce(talk, "t", packed_by(Codec.LZ4, batch(b"x")))).error_code == 0
    assert (await ask(talk, 5000)).error_code == 76
    assert (await ask(talk, -1)).offset == 4


async def test_rotten_records_are_found_by_their_batch(broker: Broker, talk: Talk) -> None:
    """What cannot be unpacked is found at its first offset, with the batch's largest timestamp.

    A leader refuses such a batch; one may lie in a directory that another broker wrote.
    """
    rotten = bytearray(
        packed_by(Codec.GZIP, build_batch([(4000, None, b"x", None), (5000, None, b"y", None)]))
    )
    assert (await produce(talk, "t", bytes(rotten))).error_code == ErrorCode.INVALID_RECORD
    rotten[:8] = (3).to_bytes(8, "big")
    log = broker.logs.logs[TopicPartition("t", 0)]
    assert log.append_as_follower(memoryview(rotten), now_ms=5000) == len(rotten)
    log.advance_high_watermark(5)
    for timestamp in (4500, -3):
        found = await ask(talk, timestamp)
        assert (found.error_code, found.offset, found.timestamp) == (0, 3, 5000)
    assert (await ask(talk, 5001)).offset == -1
