"""Fetch over the wire: sessions, topic ids, diverging epochs."""

from __future__ import annotations

import pytest
import trio
from support.broker.broker_talk import MIB, NOW_MS, Talk, batch, fetch_request, produce, records_of
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.storage.log import Log
from splashdam.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

SMALL = len(batch(b"0"))


class Client:
    """A consumer that goes by names or by ids, and keeps its session."""

    def __init__(self, talk: Talk, broker: Broker, version: int) -> None:
        self.talk = talk
        self.version = version
        topic = broker.topics.get("t") or broker.topics.create("t", 4)
        self.topic_id = topic.topic_id
        self.session_id = self.epoch = 0

    def request(
        self, offsets: dict[int, int] | None = None, forget: tuple[int, ...] = (), **fields: int
    ) -> FetchRequest:
        """A fetch that lists these partitions."""
        asked = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=MIB)
            for number, offset in (offsets or {}).items()
        ]
        where = {"topic": "t", "topic_id": self.topic_id}
        return FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(partitions=asked, **where)] if asked else [],
            forgotten_topics_data=[ForgottenTopic(partitions=list(forget), **where)] if forget else [],
            **fields,
        )

    async def fetch(
        self, offsets: dict[int, int] | None = None, forget: tuple[int, ...] = (), **fields: int
    ) -> list[PartitionData]:
        """Asks, goes on with the session, and returns the partitions answered."""
        return self.take(await self.talk.ask(self.request(offsets, forget, **fields), self.version))

    def take(self, answer: FetchResponse) -> list[PartitionData]:
        """Notes the session of an answer."""
        self.session_id = answer.session_id
        self.epoch = self.epoch + 1 if answer.session_id else 0
        assert answer.error_code == 0
        if answer.responses:
            (topic,) = answer.responses
            assert (topic.topic, topic.topic_id) in (("t", bytes(16)), ("", self.topic_id))
            return topic.partitions
        return []


def brief(parts: list[PartitionData]) -> list[tuple[int, int, int]]:
    """Partition, error and number of records."""
    return [(part.partition_index, part.error_code, len(records_of(part.records))) for part in parts]


@pytest.mark.parametrize("version", [7, 12, 13, 18])
async def test_a_session(talk: Talk, broker: Broker, version: int) -> None:
    """Full, then changes alone; partitions come, go, and move behind the others once they had data."""
    client = Client(talk, broker, version)
    await produce(talk, "t", batch(b"a"), partition=1)
    assert brief(await client.fetch({0: 0, 1: 0, 2: 0})) == [(0, 0, 0), (1, 0, 1), (2, 0, 0)]
    assert client.session_id > 0
    assert brief(await client.fetch({1: 1})) == []
    for partition in (0, 2, 3):
        await produce(talk, "t", batch(b"a", b"b"), partition=partition)
    assert brief(await client.fetch({3: 1}, forget=(2,))) == [(0, 0, 2), (3, 0, 2)]
    await produce(talk, "t", batch(b"c"), partition=1)
    assert brief(await client.fetch()) == [(1, 0, 1), (0, 0, 2), (3, 0, 2)]
    assert [brief(await client.fetch(max_bytes=1)) for _ in "12"] == [[(1, 0, 1)], [(0, 0, 2)]]
    assert brief(await client.fetch({0: 2, 1: 2, 3: 2})) == []
    assert (await client.fetch(forget=(0, 1, 3)), client.session_id) == ([], 0)
    assert len(broker.fetch_sessions) == 0


@pytest.mark.parametrize(("version", "other"), [(12, 13), (13, 12)])
async def test_session_errors(talk: Talk, broker: Broker, version: int, other: int) -> None:
    """70, 71 and 106 stand at the top, without partitions."""
    client = Client(talk, broker, version)
    await client.fetch({0: 0})
    found = []
    for session, asked_version in (((99, 1), version), ((client.session_id, 7), version), (None, other)):
        request = client.request({0: 0})
        if session is not None:
            request.session_id, request.session_epoch = session
        answer = await talk.ask(request, asked_version)
        found.append((answer.error_code, answer.session_id, answer.responses))
    assert found == [(70, 0, []), (71, 0, []), (106, 0, [])]
    assert await client.fetch() == []


async def test_old_versions_have_no_session(talk: Talk, broker: Broker) -> None:
    """Below version 7 the request has no field for one."""
    for version in (4, 6):
        await talk.ask(fetch_request("t", 0), version)
    assert len(broker.fetch_sessions) == 0


async def test_a_session_waits_for_all_its_partitions(
    talk: Talk, network: MemoryNetwork, broker: Broker, autojump_clock: MockClock
) -> None:
    """Those it does not list again, too; and it hears of a high watermark that moved before it asked."""
    client = Client(talk, broker, 13)
    await client.fetch({0: 0, 1: 0})
    before = trio.current_time()
    await talk.send(client.request(min_bytes=1, max_wait_ms=60_000), 13)
    await trio.testing.wait_all_tasks_blocked()
    await produce(Talk(await network.connect("broker", 9092)), "t", batch(b"a"), partition=1)
    assert brief(client.take(await talk.answer())) == [(1, 0, 1)]
    assert trio.current_time() == before
    assert brief(await client.fetch({1: 1}, min_bytes=1, max_wait_ms=500)) == []
    assert trio.current_time() == pytest.approx(before + 0.5)


async def test_a_topic_that_goes_and_comes_back(talk: Talk, broker: Broker) -> None:
    """By id: 100 for one that nobody has; in a session 3 while it is gone, 103 for its namesake."""
    client = Client(talk, broker, 13)
    old = broker.topics.get("t")
    assert old is not None
    await client.fetch({0: 0})
    broker.topics.delete(old)
    assert brief(await client.fetch()) == [(0, 3, 0)]
    broker.topics.create("t")
    assert brief(await client.fetch()) == [(0, 103, 0)]
    client.session_id = client.epoch = 0
    assert brief(await client.fetch({0: 0})) == [(0, 100, 0)]


async def test_an_id_that_comes_later(talk: Talk, broker: Broker) -> None:
    """100 until the topic is known; then the session has it."""
    client = Client(talk, broker, 13)
    topic = broker.topics.get("t")
    assert topic is not None
    del broker.topics._name_by_id[topic.topic_id]
    assert brief(await client.fetch({0: 0})) == [(0, 100, 0)]
    broker.topics._name_by_id[topic.topic_id] = topic.name
    assert brief(await client.fetch()) == [(0, 0, 0)]
    assert brief(await client.fetch()) == []


@pytest.fixture
async def log(broker: Broker) -> Log:
    """A log of epochs 0 (offsets 0, 1), 2 (2, 3) and 5 (4)."""
    broker.topics.create("t")
    log = broker.logs.logs[TopicPartition("t", 0)]
    for epoch, count in ((0, 2), (2, 2), (5, 1)):
        for _ in range(count):
            log.append_as_leader(batch(b"x"), now_ms=NOW_MS, leader_epoch=epoch)
    return log


@pytest.mark.parametrize(
    ("offset", "last_epoch", "answer"),
    [
        (4, -1, (0, -1, -1, 1)),
        (4, 2, (0, -1, -1, 1)),
        (5, 5, (0, -1, -1, 0)),
        (2, 0, (0, -1, -1, 3)),
        (3, 0, (0, 0, 2, 0)),
        (4, 3, (0, 2, 4, 0)),
        (6, 5, (0, 5, 5, 0)),
        (4, 6, (1, -1, -1, 0)),
        (6, -1, (1, -1, -1, 0)),
    ],
)
async def test_diverging_epochs(
    talk: Talk, log: Log, offset: int, last_epoch: int, answer: tuple[int, ...]
) -> None:
    """Section 8: a reader whose last epoch ended elsewhere hears where it ended here, and gets no records."""
    request = fetch_request("t", offset, min_bytes=0 if offset == 5 else 1, max_wait_ms=500)
    request.topics[0].partitions[0].last_fetched_epoch = last_epoch
    (part,) = (await talk.ask(request, 12)).responses[0].partitions
    diverging = part.diverging_epoch
    count = len(records_of(part.records))
    assert (part.error_code, diverging.epoch, diverging.end_offset, count) == answer
    assert part.high_watermark == (-1 if part.error_code else 5)


async def test_divergence_is_answered_at_once(talk: Talk, log: Log, autojump_clock: MockClock) -> None:
    """B23: whatever min_bytes is."""
    request = fetch_request("t", 3, min_bytes=1, max_wait_ms=500)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    before = trio.current_time()
    await talk.ask(request, 12)
    assert trio.current_time() == before


async def test_a_session_goes_on_in_a_version_that_knows_no_divergence(talk: Talk, log: Log) -> None:
    """The session's epochs led to an answer that Fetch 10 cannot encode: the connection was closed."""
    request = fetch_request("t", 3, max_wait_ms=0)
    request.session_epoch = 0
    request.topics[0].partitions[0].last_fetched_epoch = 0
    answer = await talk.ask(request, 12)
    assert answer.responses[0].partitions[0].diverging_epoch.end_offset == 2
    again = FetchRequest(session_id=answer.session_id, session_epoch=1, max_wait_ms=0)
    (part,) = (await talk.ask(again, 10)).responses[0].partitions
    assert (part.error_code, len(records_of(part.records))) == (0, 2)
    again.session_epoch = 2
    answer = await talk.ask(again, 12)
    assert answer.responses[0].partitions[0].diverging_epoch.end_offset == 2


async def test_an_older_segment_is_enough(network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """A read ends with its segment; as in Kafka that is answered, whatever min_bytes asks for."""
    async with open_broker(
        "/data", host="b", port=1, listen=network.listen, files=MemoryFiles(), log_segment_bytes=300
    ) as broker:
        talk = Talk(await network.connect("b", 1))
        broker.topics.create("t")
        for _ in range(3):
            await produce(talk, "t", batch(b"x" * 200))
        before = trio.current_time()
        for offset, waits in ((0, False), (1, False), (2, True)):
            await talk.ask(fetch_request("t", offset, min_bytes=10_000, max_wait_ms=500), 12)
            assert (trio.current_time() > before) == waits
