"""DeleteRecords: where partitions start afterwards, what is refused, and that the start lasts."""

from __future__ import annotations

import errno

import pytest
import trio
from support.broker.broker_talk import (
    Talk,
    batch,
    create_request,
    fetch_request,
    fetched,
    produce,
    records_of,
)
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from splashdam.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

T0 = TopicPartition("t", 0)
LOG_STARTS = "/data/log-start-offset-checkpoint"


async def delete(
    talk: Talk, offset: int, *, topic: str = "t", partition: int = 0, version: int = 2
) -> tuple[int, int]:
    """Error code and low watermark."""
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
            )
        ],
        timeout_ms=1000,
    )
    answer = await talk.ask(request, version)
    (result,) = answer.topics[0].partitions
    assert (answer.topics[0].name, result.partition_index) == (topic, partition)
    return result.error_code, result.low_watermark


async def filled(talk: Talk, count: int = 5, **configs: str) -> None:
    await talk.ask(create_request("t", configs=dict(configs)), 7)
    for number in range(count):
        await produce(talk, "t", batch(b"%d" % number))


@pytest.mark.parametrize("version", range(3))
async def test_records_below_an_offset_are_gone(talk: Talk, broker: Broker, version: int) -> None:
    """Reads below say 1, the earliest offset follows, and every answer names the new start."""
    await filled(talk)
    assert await delete(talk, 3, version=version) == (0, 3)
    (part,) = fetched(await talk.ask(fetch_request("t", 2), 12))
    assert (part.error_code, part.log_start_offset, part.high_watermark) == (1, -1, -1)
    (part,) = fetched(await talk.ask(fetch_request("t", 3), 12))
    assert (part.error_code, part.log_start_offset) == (0, 3)
    assert [record.value for record in records_of(part.records)] == [b"3", b"4"]
    topics = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])]
    answer = await talk.ask(ListOffsetsRequest(topics=topics), 7)
    assert answer.topics[0].partitions[0].offset == 3
    assert (await produce(talk, "t", batch(b"5"))).log_start_offset == 3
    assert broker.logs.logs[T0].log_start_offset == 3


async def test_minus_one_is_the_high_watermark(talk: Talk) -> None:
    """Everything goes; the next record gets the offset it would have got."""
    await filled(talk)
    assert await delete(talk, -1) == (0, 5)
    assert (await produce(talk, "t", batch(b"5"))).base_offset == 5


async def test_the_start_never_goes_back(talk: Talk) -> None:
    """An offset below it is no error; the answer says where the partition starts."""
    await filled(talk)
    assert await delete(talk, 4) == (0, 4)
    assert await delete(talk, 2) == (0, 4)
    assert await delete(talk, 4) == (0, 4)


@pytest.mark.parametrize("offset", [6, -2])
async def test_offsets_outside_the_log(talk: Talk, offset: int) -> None:
    """1, and nothing changes."""
    await filled(talk)
    assert await delete(talk, offset) == (1, -1)
    assert await delete(talk, 0) == (0, 0)


async def test_partitions_and_topics_that_are_not_there(talk: Talk) -> None:
    """3, beside the partitions that are."""
    await filled(talk)
    assert await delete(talk, 1, topic="other") == (3, -1)
    assert await delete(talk, 1, partition=7) == (3, -1)


async def test_internal_topics_keep_their_records(talk: Talk) -> None:
    """17."""
    assert await delete(talk, 0, topic="__consumer_offsets") == (17, -1)


async def test_compacted_topics_keep_their_records(talk: Talk) -> None:
    """44, unless they have both policies."""
    await filled(talk, 0, **{"cleanup.policy": "compact"})
    assert await delete(talk, 0) == (44, -1)
    await talk.ask(create_request("both", configs={"cleanup.policy": "compact,delete"}), 7)
    assert await delete(talk, 0, topic="both") == (0, 0)


async def test_the_start_is_kept_before_the_answer(talk: Talk, broker: Broker, files: MemoryFiles) -> None:
    """A power cut right behind the answer brings no deleted record back, and loses none that was left."""
    await filled(talk)
    assert files.read_bytes(LOG_STARTS) is None
    assert await delete(talk, 3) == (0, 3)
    assert files.read_bytes(LOG_STARTS) == b"0\n1\nt 0 3\n"
    files.crash()
    network = MemoryNetwork()
    async with open_broker("/data", port=9, host="again", listen=network.listen, files=files) as again:
        log = again.logs.logs[T0]
        assert (log.log_start_offset, log.log_end_offset) == (3, 5)


async def test_a_start_that_cannot_be_kept_is_an_error(talk: Talk, files: MemoryFiles) -> None:
    """56: the disk refuses the checkpoint."""
    await filled(talk)
    files.inject(Fault(errno.ENOSPC, after=8, times=None))
    code, low_watermark = await delete(talk, 3)
    files.heal()
    assert (code, low_watermark) == (56, -1)


async def test_a_start_that_could_not_be_kept_is_kept_by_the_second_try(
    talk: Talk, files: MemoryFiles
) -> None:
    """The log starts there already, but that was nowhere on the disk, and the second answer said it was."""
    await filled(talk)
    files.inject(Fault(errno.ENOSPC, after=8, times=None))
    assert await delete(talk, 3) == (56, -1)
    files.heal()
    assert await delete(talk, 3) == (0, 3)
    assert files.read_bytes(LOG_STARTS) == b"0\n1\nt 0 3\n"


async def test_segments_below_the_start_are_removed_by_the_next_look(
    talk: Talk, broker: Broker, files: MemoryFiles, autojump_clock: MockClock
) -> None:
    """Their files go a minute later, as file.delete.delay.ms says."""
    await filled(talk, **{"segment.bytes": "100"})
    await delete(talk, 3)
    log = broker.logs.logs[T0]
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3, 4]
    await trio.sleep(300)
    assert [segment.base_offset for segment in log.segments] == [3, 4]
    await trio.sleep(61)
    assert not [name for name, _ in files.list_directory("/data/t-0") if name.endswith(".deleted")]
