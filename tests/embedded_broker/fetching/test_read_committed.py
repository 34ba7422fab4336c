"""What read_committed readers get of open, committed and aborted transactions, and when."""

from __future__ import annotations

import pytest
import trio
from support.broker.broker_talk import NOW_MS, Talk, batch, fetch_request, fetched, records_of
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.transactions.markers import write_marker
from splashdam.model.values import IsolationLevel, TopicPartition
from splashdam.storage.log import Log
from splashdam.storage.transaction_marker import TransactionMarker
from splashdam.wire.messages.fetch import PartitionData
from splashdam.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

COMMITTED = IsolationLevel.READ_COMMITTED


@pytest.fixture
async def log(broker: Broker) -> Log:
    """The log of the topic's only partition."""
    broker.topics.create("t")
    return broker.logs.logs[TopicPartition("t", 0)]


def write(broker: Broker, log: Log, producer_id: int, *values: bytes) -> None:
    """One more batch of a producer's transaction."""
    mine = [entry for entry in log.producers if entry.producer_id == producer_id]
    sequence = mine[0].last_sequence + 1 if mine else 0
    data = batch(
        *values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )
    log.append_as_leader(data, now_ms=NOW_MS)
    broker.parking.appended(log.topic_partition, len(data))


def end(broker: Broker, log: Log, producer_id: int, *, commit: bool) -> None:
    write_marker(broker, log.topic_partition, TransactionMarker(producer_id, 0, commit, 0))


async def fetch(talk: Talk, offset: int = 0, version: int = 12) -> PartitionData:
    return fetched(await talk.ask(fetch_request("t", offset, isolation_level=COMMITTED), version))[0]


def offsets(part: PartitionData) -> list[int]:
    return [record.offset for record in records_of(part.records)]


def aborted(part: PartitionData) -> list[tuple[int, int]]:
    assert part.aborted_transactions is not None
    return [(each.producer_id, each.first_offset) for each in part.aborted_transactions]


@pytest.mark.parametrize("version", [4, 11, 12])
async def test_aborted_transactions_are_named(talk: Talk, broker: Broker, log: Log, version: int) -> None:
    """B25: all that have records in what comes, also from before the asked offset; markers come, too."""
    for producer_id, value in ((1, b"a"), (2, b"b"), (1, b"c")):
        write(broker, log, producer_id, value)
    end(broker, log, 1, commit=False)
    end(broker, log, 2, commit=True)
    part = await fetch(talk, version=version)
    assert (offsets(part), aborted(part), part.last_stable_offset) == ([0, 1, 2, 3, 4], [(1, 0)], 5)
    assert aborted(await fetch(talk, 2, version)) == [(1, 0)]
    assert aborted(await fetch(talk, 4, version)) == []


async def test_an_aborted_transaction_whose_marker_is_not_stable_yet(
    talk: Talk, broker: Broker, log: Log
) -> None:
    """Records below the last stable offset may belong to a transaction that was aborted later."""
    write(broker, log, 1, b"a")
    write(broker, log, 2, b"open")
    end(broker, log, 1, commit=False)
    part = await fetch(talk)
    assert (offsets(part), aborted(part)) == ([0], [(1, 0)])
    assert (part.last_stable_offset, part.high_watermark) == (1, 3)


async def test_between_stable_offset_and_end_there_is_nothing(talk: Talk, broker: Broker, log: Log) -> None:
    """B27: empty and no error."""
    write(broker, log, 1, b"a", b"b")
    for offset in (0, 1, 2):
        part = await fetch(talk, offset)
        assert (part.error_code, offsets(part), aborted(part)) == (0, [], [])


@pytest.mark.parametrize("commit", [True, False])
async def test_the_end_of_a_transaction_wakes(
    talk: Talk, broker: Broker, log: Log, autojump_clock: MockClock, commit: bool
) -> None:
    """However much a fetch waits for and however small the marker is: what it ends was appended before."""
    write(broker, log, 1, b"a" * 500)
    before = trio.current_time()
    waiting = fetch_request("t", 0, isolation_level=COMMITTED, min_bytes=400, max_wait_ms=60_000)
    await talk.send(waiting, 12)
    await trio.testing.wait_all_tasks_blocked()
    end(broker, log, 1, commit=commit)
    part = fetched(await talk.answer())[0]
    assert (offsets(part), aborted(part)) == ([0, 1], [] if commit else [(1, 0)])
    assert trio.current_time() == before


async def test_a_marker_counts_as_bytes_for_read_uncommitted(
    talk: Talk, broker: Broker, log: Log, autojump_clock: MockClock
) -> None:
    """They wait for their minimum: a marker counts as what it adds."""
    write(broker, log, 1, b"a")
    size = log.size_bytes
    await talk.send(fetch_request("t", 0, min_bytes=size + 79, max_wait_ms=1000), 12)
    await trio.testing.wait_all_tasks_blocked()
    before = trio.current_time()
    end(broker, log, 1, commit=True)
    assert len(fetched(await talk.answer())[0].records) == size + 78
    assert trio.current_time() == before + 1


async def offset_at(talk: Talk, timestamp: int, isolation_level: int = COMMITTED) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name="t", partitions=[asked])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
    answer = (await talk.ask(request, 10)).topics[0].partitions[0]
    assert answer.error_code == 0
    return answer.offset


async def test_the_earliest_offset_of_an_empty_log_bug(talk: Talk, log: Log) -> None:
    """It was -1 for read_committed readers, since it is not below the last stable offset."""
    assert [await offset_at(talk, timestamp) for timestamp in (-2, -4, -1)] == [0, 0, 0]


async def test_offsets_above_the_last_stable_offset(talk: Talk, broker: Broker, log: Log) -> None:
    """B26: the latest is the last stable offset; by time nothing is found from there on."""
    write(broker, log, 1, b"a")
    assert [await offset_at(talk, timestamp) for timestamp in (-2, -1, 0, -3)] == [0, 0, -1, -1]
    assert [await offset_at(talk, timestamp, 0) for timestamp in (-2, -1, 0, -3)] == [0, 1, 0, 0]
    end(broker, log, 1, commit=True)
    assert [await offset_at(talk, timestamp) for timestamp in (-2, -1, 0)] == [0, 2, 0]


async def test_a_read_looked_for_its_end_although_nothing_was_aborted(
    talk: Talk, broker: Broker, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka reads committed records by default: each fetch walked along the segment once more for it."""
    bounds: list[int] = []
    fetch_bound = Log.fetch_bound

    def noted(self: Log, offset: int, size_bytes: int) -> int:
        bounds.append(offset)
        return fetch_bound(self, offset, size_bytes)

    monkeypatch.setattr(Log, "fetch_bound", noted)
    write(broker, log, 1, b"a")
    end(broker, log, 1, commit=True)
    assert (aborted(await fetch(talk)), bounds) == ([], [])
    write(broker, log, 1, b"b")
    end(broker, log, 1, commit=False)
    assert (aborted(await fetch(talk)), bounds) == ([(1, 2)], [0])
