"""Fetch: what is read, how much of it, and how long it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from support.broker.broker_talk import NOW_MS, Talk, batch, fetch_request, fetched, produce, records_of
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.record.batch import iter_headers
from splashdam.record.sealing import build_batch
from splashdam.storage.log import Log
from splashdam.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData

SMALL = len(batch(b"0"))


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    """The broker, with a topic of three partitions."""
    broker.topics.create("t", 3)
    return broker


async def fill(talk: Talk, *batches: bytes, partition: int = 0) -> None:
    for each in batches:
        assert (await produce(talk, "t", each, partition=partition)).error_code == 0


async def fetch(talk: Talk, request: FetchRequest, version: int = 12) -> PartitionData:
    return fetched(await talk.ask(request, version))[0]


def values(part: PartitionData) -> list[bytes | None]:
    return [record.value for record in records_of(part.records)]


@pytest.mark.parametrize("version", range(4, 19))
async def test_records_come_back(talk: Talk, broker: Broker, version: int) -> None:
    """Every version reads what was produced, by name or (13+) by id, with the ends of the log."""
    topic = broker.topics.get("t")
    assert topic is not None
    await fill(talk, batch(b"a", b"b"), batch(b"c"))
    answer = await talk.ask(fetch_request("t", 0, topic_id=topic.topic_id), version)
    assert (answer.error_code, answer.session_id) == (0, 0)
    (found,) = answer.responses
    assert (found.topic if version < 13 else found.topic_id) == ("t" if version < 13 else topic.topic_id)
    (part,) = found.partitions
    assert (part.partition_index, part.error_code, part.high_watermark) == (0, 0, 3)
    assert part.last_stable_offset == 3
    assert part.log_start_offset == (0 if version >= 5 else -1)
    assert part.aborted_transactions is None
    assert [(record.offset, record.value) for record in records_of(part.records)] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


async def test_offset_inside_a_batch(talk: Talk) -> None:
    """B21: the whole batch comes, with the records before the offset."""
    await fill(talk, batch(b"a"), batch(b"b", b"c", b"d"))
    part = await fetch(talk, fetch_request("t", 2))
    assert [record.offset for record in records_of(part.records)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("offset", "code", "high_watermark"), [(-1, 1, -1), (0, 0, 2), (2, 0, 2), (3, 1, -1), (10**12, 1, -1)]
)
async def test_offsets_at_the_edges(talk: Talk, offset: int, code: int, high_watermark: int) -> None:
    """B27: below the start or above the end is 1; exactly the end is empty."""
    await fill(talk, batch(b"a", b"b"))
    part = await fetch(talk, fetch_request("t", offset))
    assert (part.error_code, part.high_watermark) == (code, high_watermark)
    assert bool(part.records) == (offset == 0)


async def test_one_batch_comes_whatever_the_limits(talk: Talk) -> None:
    """B22: the first partition that has data answers with a whole batch; then the limits hold."""
    for partition in range(1, 3):
        await fill(talk, batch(b"x" * 1000), batch(b"y"), partition=partition)
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"max_bytes": 0, "partition_max_bytes": 0}):
        answer = await talk.ask(fetch_request("t", 0, partitions=(0, 1, 2), **limits), 12)
        sizes = [len(part.records or b"") for part in fetched(answer)]
        assert sizes == [0, len(batch(b"x" * 1000)), 0]


async def test_limit_for_one_partition(talk: Talk) -> None:
    """B22: partition_max_bytes may cut the last batch."""
    await fill(talk, *[batch(b"0")] * 10)
    part = await fetch(talk, fetch_request("t", 0, partition_max_bytes=3 * SMALL + 5))
    assert len(part.records) == 3 * SMALL + 5
    assert len(list(iter_headers(part.records))) == 3


async def test_limit_for_all_partitions(talk: Talk) -> None:
    """B22: max_bytes holds over all partitions, in the order of the request."""
    for partition in range(3):
        await fill(talk, *[batch(b"0")] * 10, partition=partition)
    answer = await talk.ask(fetch_request("t", 0, partitions=(2, 0, 1), max_bytes=12 * SMALL), 12)
    assert [(part.partition_index, len(part.records or b"")) for part in fetched(answer)] == [
        (2, 10 * SMALL),
        (0, 2 * SMALL),
        (1, 0),
    ]


async def test_brokers_own_limit(tmp_path: Path) -> None:
    """fetch.max.bytes bounds what any request gets."""
    network = MemoryNetwork()
    async with open_broker(tmp_path, host="b", port=1, listen=network.listen, fetch_max_bytes=1024) as broker:
        broker.topics.create("t")
        talk = Talk(await network.connect("b", 1))
        await fill(talk, *[batch(b"x" * 400)] * 5)
        assert len((await fetch(talk, fetch_request("t", 0))).records) == 1024


@pytest.mark.parametrize("version", [12, 13])
async def test_unknown_partitions(talk: Talk, broker: Broker, version: int) -> None:
    """3 for a partition that is not there; B24: 100 for an id nobody has."""
    topic = broker.topics.get("t")
    assert topic is not None
    request = fetch_request("t", 0, partitions=(9,), topic_id=topic.topic_id)
    assert (await fetch(talk, request, version)).error_code == 3
    if version == 13:
        assert (await fetch(talk, fetch_request("t", 0, topic_id=b"?" * 16), version)).error_code == 100


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 0), (1, 75)])
async def test_leader_epoch(talk: Talk, epoch: int, code: int) -> None:
    """An epoch from the future is 75; -1 is not checked."""
    assert (await fetch(talk, fetch_request("t", 0, current_leader_epoch=epoch))).error_code == code


async def test_older_leader_epoch(talk: Talk, broker: Broker) -> None:
    """74 for one that has passed."""
    log = broker.logs.logs[TopicPartition("t", 0)]
    log.append_as_leader(batch(b"a"), now_ms=NOW_MS, leader_epoch=4)
    assert (await fetch(talk, fetch_request("t", 0, current_leader_epoch=3))).error_code == 74


async def test_read_committed(talk: Talk, broker: Broker) -> None:
    """B25: data up to the first open transaction, with the list of aborted transactions."""
    log = broker.logs.logs[TopicPartition("t", 0)]
    await fill(talk, batch(b"a"))
    part = await fetch(talk, fetch_request("t", 0, isolation_level=1))
    assert (values(part), part.aborted_transactions) == ([b"a"], [])
    fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.append_as_leader(batch(b"open", **fields), now_ms=NOW_MS)
    part = await fetch(talk, fetch_request("t", 0, isolation_level=1))
    assert (values(part), part.high_watermark, part.last_stable_offset) == ([b"a"], 2, 1)
    part = await fetch(talk, fetch_request("t", 0))
    assert (values(part), part.last_stable_offset) == ([b"a", b"open"], 1)


async def test_zstd_topic_for_an_old_consumer(talk: Talk, broker: Broker) -> None:
    """Below version 10 a topic that stores zstd is 76: such consumers cannot read it."""
    broker.topics.create("z", 1, {"compression.type": "zstd"})
    assert (await fetch(talk, fetch_request("z", 0), 9)).error_code == 76
    assert (await fetch(talk, fetch_request("z", 0), 10)).error_code == 0


async def test_many_segments(tmp_path: Path) -> None:
    """Reading on from where the last answer ended reaches the end, over segments and a restart."""
    sent = [b"%04d" % number * 20 for number in range(300)]
    network = MemoryNetwork()
    for start in (0, 150):
        async with open_broker(
            tmp_path, host="b", port=1, listen=network.listen, log_segment_bytes=2000
        ) as broker:
            talk = Talk(await network.connect("b", 1))
            if broker.topics.get("t") is None:
                broker.topics.create("t")
            for number in range(start, start + 150):
                await fill(talk, build_batch([(number, b"k", sent[number], None)]))
            got: list[bytes | None] = []
            while len(got) < start + 150:
                got += values(await fetch(talk, fetch_request("t", len(got), partition_max_bytes=900)))
            assert got == sent[: start + 150]


# --- waiting ------------------------------------------------------------------------------------------------


async def test_empty_fetch_waits_its_time(talk: Talk, autojump_clock: MockClock) -> None:
    """B23: without data the answer comes after max_wait_ms, empty."""
    before = trio.current_time()
    part = await fetch(talk, fetch_request("t", 0, min_bytes=1, max_wait_ms=500))
    assert (part.error_code, part.records) == (0, b"")
    assert trio.current_time() - before == pytest.approx(0.5)


@pytest.mark.parametrize(
    "request_",
    [
        fetch_request("t", 0, min_bytes=0, max_wait_ms=500),
        fetch_request("t", 0, min_bytes=1, max_wait_ms=0),
        fetch_request("t", 5, min_bytes=1, max_wait_ms=500),
        fetch_request("missing", 0, min_bytes=1, max_wait_ms=500),
    ],
    ids=["no minimum", "no wait", "out of range", "unknown"],
)
async def test_fetches_that_do_not_wait(
    talk: Talk, autojump_clock: MockClock, request_: FetchRequest
) -> None:
    """B23: nothing to wait for, or an error: the answer comes at once."""
    before = trio.current_time()
    await fetch(talk, request_)
    assert trio.current_time() == before


async def other(network: MemoryNetwork) -> Talk:
    return Talk(await network.connect("broker", 9092))


async def test_append_wakes(
    talk: Talk, network: MemoryNetwork, broker: Broker, autojump_clock: MockClock
) -> None:
    """B23: a produce of another connection is answered to the waiting fetch at once."""
    before = trio.current_time()
    await talk.send(fetch_request("t", 0, partitions=(0, 1), min_bytes=1, max_wait_ms=60_000), 12)
    await trio.testing.wait_all_tasks_blocked()
    assert broker.parking.parked == 2
    await produce(await other(network), "t", batch(b"a"), partition=1)
    assert [len(part.records or b"") for part in fetched(await talk.answer())] == [0, SMALL]
    assert trio.current_time() == before
    assert broker.parking.parked == 0


async def test_minimum_over_several_appends(
    talk: Talk, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """B23: it waits until min_bytes are there, over all partitions."""
    producer = await other(network)
    await talk.send(fetch_request("t", 0, partitions=(0, 1), min_bytes=3 * SMALL, max_wait_ms=60_000), 12)
    for partition in (0, 1):
        await produce(producer, "t", batch(b"a"), partition=partition)
    with trio.move_on_after(1) as scope:
        await talk.stream.receive_some(1)
    assert scope.cancelled_caught
    await produce(producer, "t", batch(b"a"), partition=1)
    assert [len(part.records) for part in fetched(await talk.answer())] == [SMALL, 2 * SMALL]


async def test_repeats_do_not_wake(talk: Talk, network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A batch that the log had already adds nothing to wait for."""
    producer = await other(network)
    again = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    await produce(producer, "t", again)
    await talk.send(fetch_request("t", 1, min_bytes=1, max_wait_ms=1000), 12)
    await trio.testing.wait_all_tasks_blocked()
    await produce(producer, "t", again)
    assert fetched(await talk.answer())[0].records == b""


async def test_records_that_arrive_in_time_are_answered(
    talk: Talk, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """B23: at the end of the wait the answer holds what there is, less than the minimum."""
    await talk.send(fetch_request("t", 0, min_bytes=10_000, max_wait_ms=1000), 12)
    await produce(await other(network), "t", batch(b"a"))
    assert values(fetched(await talk.answer())[0]) == [b"a"]


async def test_minimum_above_the_maximum(
    talk: Talk, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """A minimum that max_bytes does not let it reach counts as that maximum."""
    await fill(talk, *[batch(b"a")] * 5)
    request = fetch_request("t", 0, min_bytes=10**6, max_bytes=2 * SMALL, max_wait_ms=10**6)
    before = trio.current_time()
    assert len((await fetch(talk, request)).records) == 2 * SMALL
    assert trio.current_time() == before


async def test_deletion_wakes(talk: Talk, broker: Broker, autojump_clock: MockClock) -> None:
    """B23: a fetch that waits for a topic that goes is answered with the error."""
    topic = broker.topics.get("t")
    assert topic is not None
    await talk.send(fetch_request("t", 0, min_bytes=1, max_wait_ms=60_000), 12)
    await trio.testing.wait_all_tasks_blocked()
    broker.topics.delete(topic)
    assert fetched(await talk.answer())[0].error_code == 3
    assert broker.parking.parked == 0


async def test_client_that_vanished_does_not_park_for_ever(talk: Talk, autojump_clock: MockClock) -> None:
    """It is answered after the longest wait; connections.max.idle.ms after that the connection ends."""
    before = trio.current_time()
    await talk.ask(fetch_request("t", 0, min_bytes=1, max_wait_ms=2**31 - 1), 12)
    assert await talk.is_closed()
    assert trio.current_time() - before == pytest.approx(660)


async def test_topics_are_read_in_order(talk: Talk, broker: Broker, autojump_clock: MockClock) -> None:
    """A request may name several topics."""
    broker.topics.create("u")
    await produce(talk, "u", batch(b"u"))
    request = fetch_request("t", 0)
    request.topics.append(
        FetchTopic(
            topic="u", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)]
        )
    )
    answer = await talk.ask(request, 12)
    assert [topic.topic for topic in answer.responses] == ["t", "u"]


async def test_partition_named_many_times_is_read_once(
    talk: Talk, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the mentions are spread; as in Kafka the last one counts. A full answer reads no more."""
    await fill(talk, batch(b"a"), batch(b"b"))
    await fill(talk, batch(b"c"), partition=1)
    reads = []
    read = Log.read

    def counted(self: Log, *args: Any, **kwargs: Any) -> Any:
        reads.append(self.topic_partition.partition)
        return read(self, *args, **kwargs)

    monkeypatch.setattr(Log, "read", counted)
    request = fetch_request("t", 1, partitions=[0] * 500 + [1], max_bytes=SMALL)
    request.topics += [*fetch_request("t", 0, partitions=[0]).topics] * 500
    (answer,) = (await talk.ask(request, 12)).responses
    assert [values(part) for part in answer.partitions] == [[b"a"], []]
    assert [part.high_watermark for part in answer.partitions] == [2, 1]
    assert reads == [0]
