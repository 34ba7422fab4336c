"""OffsetCommit and OffsetFetch: what is kept, what is refused, and that it lasts."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.loop_watch import StepCount
from support.broker.offset_talk import commit, fetch
from trio.testing import MockClock

from lab.simulator.single_replicas import LeadershipMap
from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.groups.classic.records import (
    GroupMetadataValue,
    MemberMetadata,
    encode_value,
)
from splashdam.embedded_broker.groups.offset_records import CommittedOffset, NewOffset, OffsetKey
from splashdam.embedded_broker.topics.internal_topics import InternalTopic
from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.topic_names import CONSUMER_OFFSETS
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.delete_topics import DeleteTopicsRequest
from splashdam.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

NOTHING = (-1, -1, "", 0)


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    """The broker, with a topic of three partitions."""
    broker.topics.create("t", 3)
    return broker


@pytest.mark.parametrize("version", range(2, 10))
async def test_commits_come_back(talk: Talk, version: int) -> None:
    """B28: offset, leader epoch (6+) and metadata byte for byte; the group is made by the commit."""
    assert await commit(talk, "g", {0: 7, 2: 9}, version, metadata="änything\0 \U0001f600") == [0, 0]
    epoch = 4 if version >= 6 else -1
    found = (epoch, "änything\0 \U0001f600", 0)
    assert await fetch(talk, "g", [0, 1, 2]) == [(0, 7, *found), (1, *NOTHING), (2, 9, *found)]


@pytest.mark.parametrize("version", range(1, 10))
async def test_every_version_fetches(talk: Talk, version: int) -> None:
    """The leader epoch from 5 on; without topics everything (2+), and nothing of a group nobody knows."""
    await commit(talk, "g", {2: 9, 1: 8})
    epoch = 4 if version >= 5 else -1
    expected = [(1, 8, epoch, "", 0), (2, 9, epoch, "", 0)]
    assert await fetch(talk, "g", [1, 2], version) == expected
    assert await fetch(talk, "other", [1], version) == [(1, *NOTHING)]
    assert await fetch(talk, "g", [], version) == []
    if version >= 2:
        assert await fetch(talk, "g", None, version) == expected
        assert await fetch(talk, "other", None, version) == []


async def test_the_last_commit_counts(talk: Talk) -> None:
    """Also one that goes back; null metadata is empty."""
    for offset, metadata in ((5, "m"), (3, None)):
        assert await commit(talk, "g", {0: offset}, metadata=metadata) == [0]
    assert await fetch(talk, "g", [0]) == [(0, 3, 4, "", 0)]


async def test_an_empty_group_id(talk: Talk) -> None:
    """Kafka takes it for offsets, for clients of old."""
    assert await commit(talk, "", {0: 1}) == [0]
    assert await fetch(talk, "", [0]) == [(0, 1, 4, "", 0)]


async def test_unknown_partitions(talk: Talk) -> None:
    """3 for each; the others are kept. Asked for, they are just not committed."""
    assert await commit(talk, "g", {0: 1, 3: 1}) == [0, 3]
    assert await commit(talk, "g", {0: 1}, topic="missing") == [3]
    assert await fetch(talk, "g", [0, 3]) == [(0, 1, 4, "", 0), (3, *NOTHING)]


@pytest.mark.parametrize(
    ("metadata", "code"),
    [("x" * 4096, 0), ("x" * 4097, 12), ("\U0001f600" * 2048, 0), ("\U0001f600" * 2049, 12)],
)
async def test_too_much_metadata(talk: Talk, metadata: str, code: int) -> None:
    """12 above offset.metadata.max.bytes, which Kafka compares with UTF-16 units."""
    assert await commit(talk, "g", {0: 1}, metadata=metadata) == [code]
    assert (await fetch(talk, "g", [0]))[0][1] == (-1 if code else 1)


@pytest.mark.parametrize("version", [2, 8, 9])
async def test_members_of_groups_without_members(talk: Talk, version: int) -> None:
    """A generation of a group that is not there: 22, from version 9 on 69; of one without members: 25."""
    fields = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert await commit(talk, "g", {0: 1, 1: 1}, version, **fields) == [69 if version == 9 else 22] * 2
    await commit(talk, "g", {0: 1})
    assert await commit(talk, "g", {0: 2}, version, **fields) == [25]
    assert await fetch(talk, "g", [0]) == [(0, 1, 4, "", 0)]
    assert await commit(talk, "g", {0: 3}, version, member_id="m") == [0]


@pytest.mark.parametrize("own_topics", [{}], ids=["Kafka's number"])
async def test_more_offsets_than_a_batch_takes(talk: Talk) -> None:
    """28 for more offsets than a batch takes."""
    assert set(await commit(talk, "g" * 32_000, dict.fromkeys(range(3), 1), metadata="m" * 4096)) == {0}
    many = dict.fromkeys(range(40), 1)
    name = CONSUMER_OFFSETS
    assert set(await commit(talk, "h" * 32_000, many, topic=name)) == {28}
    assert await fetch(talk, "h" * 32_000, [0], topic=name) == [(0, *NOTHING)]


async def test_one_request_for_several_groups(talk: Talk) -> None:
    """Version 8 and later: each with its own answer."""
    await commit(talk, "g1", {0: 1})
    await commit(talk, "g2", {1: 2})
    assert await fetch(talk, "g1", None) == [(0, 1, 4, "", 0)]
    assert await fetch(talk, "g2", None) == [(1, 2, 4, "", 0)]


async def test_a_disk_that_refuses(talk: Talk, files: MemoryFiles) -> None:
    """16, as Kafka says it: the client looks for the coordinator again. What was committed before holds."""
    await commit(talk, "g", {0: 1})
    files.inject(Fault(28))
    assert await commit(talk, "g", {0: 2, 9: 1}) == [16, 3]
    assert await fetch(talk, "g", [0]) == [(0, 1, 4, "", 0)]
    assert await commit(talk, "g", {0: 3}) == [0]


@pytest.mark.parametrize("clean", [True, False])
async def test_offsets_survive(files: MemoryFiles, autojump_clock: MockClock, clean: bool) -> None:
    """B29: a restart, clean or not."""
    network = MemoryNetwork()
    for number in range(2):
        async with open_broker("/data", host="b", port=1, listen=network.listen, files=files) as broker:
            async with await network.connect("b", 1) as stream:
                talk = Talk(stream)
                if number == 0:
                    broker.topics.create("t")
                    await commit(talk, "g", {0: 5}, metadata="m")
                assert await fetch(talk, "g", [0]) == [(0, 5, 4, "m", 0)]
            if not clean:
                files.kill()


async def test_offsets_of_a_deleted_topic_go(talk: Talk, broker: Broker) -> None:
    """In every group, for good: a new topic of the name begins without offsets."""
    broker.topics.create("other")
    await commit(talk, "g", {0: 5})
    await commit(talk, "g", {0: 6}, topic="other")
    await talk.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    broker.groups.load_all()
    assert await fetch(talk, "g", [0]) == [(0, *NOTHING)]
    assert await fetch(talk, "g", [0], topic="other") == [(0, 6, 4, "", 0)]
    await talk.ask(DeleteTopicsRequest(topic_names=[CONSUMER_OFFSETS]), 5)
    assert await fetch(talk, "g", [0], topic="other") == [(0, *NOTHING)]


@pytest.mark.parametrize("how", ["the topic is deleted", "they expire"])
async def test_long_names_of_groups_keep_no_offset_from_being_deleted(
    talk: Talk, broker: Broker, how: str
) -> None:
    """Tombstones with names of 32 KB were more than a batch takes, and every offset behind them stayed."""
    places = list(range(8))
    broker.topics.create("wide", len(places))
    long_ids = [f"{number}{'g' * 32_000}" for number in range(15)]
    group_ids = [*long_ids, *(f"short-{number}" for number in range(3))]
    for group_id in group_ids:
        assert set(await commit(talk, group_id, dict.fromkeys(places, 5), topic="wide")) == {0}
    if how == "they expire":
        expired = broker.offsets.expire(broker.clock.wall_ms() + 10**10)
        assert expired == len(group_ids) * len(places)
    else:
        await talk.ask(DeleteTopicsRequest(topic_names=["wide"]), 5)
        broker.topics.create("wide", len(places))
    broker.groups.load_all()
    for group_id in group_ids:
        assert await fetch(talk, group_id, [0], topic="wide") == [(0, *NOTHING)]


async def test_old_offsets_are_forgotten(
    files: MemoryFiles, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Seven days after the commit, or after the time that the request asked for (versions 2 to 4)."""
    options = {"offsets_retention_minutes": 60, "connections_max_idle_ms": 10**8}
    clock = VirtualClock(autojump_clock)
    async with open_broker(
        "/data", host="b", port=1, listen=network.listen, clock=clock, files=files, **options
    ) as broker:
        broker.topics.create("t", 3)
        talk = Talk(await network.connect("b", 1))
        await commit(talk, "g", {0: 1})
        await commit(talk, "g", {1: 1}, 4, retention_time_ms=1_200_000)
        await commit(talk, "g", {2: 1}, 4, retention_time_ms=30_000_000)
        lasting = []
        for _ in range(4):
            lasting.append([found[0] for found in await fetch(talk, "g", None)])
            await trio.sleep(21 * 60)
        assert lasting == [[0, 1, 2], [0, 2], [0, 2], [2]]


async def test_many_groups_that_expire_together_take_several_turns(
    files: MemoryFiles, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All groups of a broker were looked at, and deleted, in one step of its loop."""
    clock, place = VirtualClock(autojump_clock), TopicPartition("t", 0)
    async with open_broker(
        "/data", port=None, clock=clock, files=files, offsets_retention_minutes=5
    ) as broker:
        broker.topics.create("t")
        committed = CommittedOffset(5, commit_timestamp_ms=clock.wall_ms())
        for number in range(200):
            broker.offsets.commit(f"g{number}", {place: NewOffset.of(place, committed)})
        count, turns = StepCount(), list[int]()
        delete_offsets = broker.offsets.delete_offsets

        def counted(partition: int, keys: list[OffsetKey]) -> None:
            turns.extend(count.steps for _ in keys)
            delete_offsets(partition, keys)

        monkeypatch.setattr(broker.offsets, "delete_offsets", counted)
        trio.lowlevel.add_instrument(count)
        await trio.sleep(11 * 60)
        trio.lowlevel.remove_instrument(count)
        assert len(turns) == 200
        assert max(Counter(turns).values()) <= 64
        assert list(broker.groups.all_groups()) == []


async def test_a_retention_that_never_ends(broker: Broker, talk: Talk) -> None:
    """The record has 64 bits for the time: the connection broke, and the log had a traceback."""
    assert await commit(talk, "g", {0: 5}, 4, retention_time_ms=2**63 - 1) == [0]
    broker.groups.load_all()
    assert broker.offsets.expire(10**15) == 0
    assert await fetch(talk, "g", [0]) == [(0, 5, -1, "", 0)]


async def test_groups_whose_members_kafka_knew_keep_their_offsets(broker: Broker, talk: Talk) -> None:
    """Their time counts from when the last member left; a client that is no member may not commit."""
    topic = InternalTopic(CONSUMER_OFFSETS, broker)
    key = OffsetKey("g", TopicPartition("t", 0)).encoded()
    members = [MemberMetadata(member_id="n", session_timeout=9000, subscription=b"?")]
    stable = GroupMetadataValue(protocol_type="consumer", protocol="range", members=members)
    topic.append(
        topic.partition_for("g"), [(b"\0\2\0\1g", encode_value(stable)), (key, CommittedOffset(5).encoded())]
    )
    broker.groups.load_all()
    assert broker.offsets.expire(10**15) == 0
    assert await fetch(talk, "g", [0]) == [(0, 5, -1, "", 0)]
    assert await commit(talk, "g", {0: 1}, generation_id_or_member_epoch=1, member_id="m") == [25]
    topic.append(topic.partition_for("g"), [(b"\0\2\0\1g", None)])
    broker.groups.load_all()
    assert broker.offsets.expire(10**15) == 1


@pytest.mark.parametrize("version", [1, 7, 8])
async def test_a_partition_that_cannot_be_read(
    talk: Talk, broker: Broker, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its groups are answered with 15, where the version has room for it; others go on."""
    await commit(talk, "g", {0: 5})
    await commit(talk, "other", {0: 6})
    damaged = InternalTopic(CONSUMER_OFFSETS, broker).partition_for("g")
    read_all = InternalTopic.read_all

    def read(topic: InternalTopic, partition: int) -> object:
        if partition == damaged:
            raise CorruptMessageError("damaged")
        return read_all(topic, partition)

    monkeypatch.setattr(InternalTopic, "read_all", read)
    broker.groups.load_all()
    assert await commit(talk, "g", {0: 7}) == [15]
    assert await fetch(talk, "other", [0]) == [(0, 6, 4, "", 0)]
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    )
    if version < 8:
        answer = await talk.ask(request, version)
        assert answer.error_code == (15 if version >= 2 else 0)
        assert [each.error_code for topic in answer.topics for each in topic.partitions] == (
            [15] if version < 2 else []
        )


async def test_a_record_that_is_none_costs_itself(broker: Broker, talk: Talk) -> None:
    """A key or a value of unknown form is left out with a line in the log."""
    topic = InternalTopic(CONSUMER_OFFSETS, broker)
    good = OffsetKey("g", TopicPartition("t", 0)).encoded()
    bad = OffsetKey("g", TopicPartition("t", 1)).encoded()
    records = [(b"\0", b""), (bad, b"\0\3"), (good, CommittedOffset(5).encoded())]
    topic.append(topic.partition_for("g"), records)
    broker.groups.load_all()
    assert await fetch(talk, "g", [0, 1]) == [(0, 5, -1, "", 0), (1, *NOTHING)]


async def test_groups_that_another_broker_keeps(broker: Broker, talk: Talk) -> None:
    """16, and not an answer that would look as if nothing were committed."""
    await commit(talk, "g", {0: 5})
    where = TopicPartition(CONSUMER_OFFSETS, InternalTopic(CONSUMER_OFFSETS, broker).partition_for("g"))
    elsewhere = LeadershipMap(broker.producer_ids)
    elsewhere.appoint(where, broker.node_id + 1)
    broker.leadership = elsewhere
    assert await commit(talk, "g", {0: 6}) == [16]
    request = OffsetFetchRequest(group_id="g", topics=None)
    assert (await talk.ask(request, 7)).error_code == 16
