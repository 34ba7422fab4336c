"""Groups over restarts, over moves of their partition, and until they are deleted or expire."""

from __future__ import annotations

import attrs
import pytest
import trio
import trio.lowlevel
from support.broker.broker_talk import Talk
from support.broker.group_talk import RawMember, members_of, settle
from support.broker.offset_talk import commit, fetch
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.topics.internal_topics import InternalTopic
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.storage.topic_names import CONSUMER_OFFSETS
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.delete_groups import DeleteGroupsRequest
from splashdam.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from splashdam.wire.messages.list_groups import ListGroupsRequest
from splashdam.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from splashdam.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from splashdam.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

NOTHING = (-1, -1, "", 0)


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    """The broker, with a topic of three partitions."""
    broker.topics.create("t", 3)
    return broker


async def describe(talk: Talk, group_id: str = "g", version: int = 5) -> DescribedGroup:
    (found,) = (await talk.ask(DescribeGroupsRequest(groups=[group_id]), version)).groups
    return found


async def delete(talk: Talk, *group_ids: str) -> list[int]:
    answer = await talk.ask(DeleteGroupsRequest(groups_names=list(group_ids)), 2)
    return [each.error_code for each in answer.results]


async def delete_offsets(
    talk: Talk, topic: str, *partitions: int, group_id: str = "g"
) -> tuple[int, list[int]]:
    places = [OffsetDeleteRequestPartition(partition_index=each) for each in partitions]
    asked = OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=places)]
    )
    answer = await talk.ask(asked, 0)
    return answer.error_code, [each.error_code for topic in answer.topics for each in topic.partitions]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_generation_survives(files: MemoryFiles, autojump_clock: MockClock, clean: bool) -> None:
    """B29: members go on where they were; who does not come back is out when its session is over."""
    network = MemoryNetwork()
    known: list[RawMember] = []
    clock = VirtualClock(autojump_clock)
    for number in range(2):
        async with open_broker(
            "/data", host="b", port=1, listen=network.listen, files=files, clock=clock
        ) as broker:
            async with members_of(network, 2, address=("b", 1)) as members:
                if not number:
                    broker.topics.create("t")
                    await settle(*members)
                else:
                    for member, before in zip(members, known, strict=True):
                        member.member_id, member.generation_id = before.member_id, before.generation_id
                    assert [await each.heartbeat() for each in members] == [0, 0]
                    assert (await members[1].sync()).assignment == b"b"
                    found = await describe(members[0].talk)
                    assert found.group_state == "Stable"
                    assert found.protocol_data == "range"
                    for _ in range(3):
                        await trio.sleep(5)
                        code = await members[0].heartbeat()
                    assert code == 27
                known = members
            if not clean:
                files.kill()


async def test_describing(broker: Broker, network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """Members with all they say and have while the group is stable; Dead, or 69 from 6 on, for none."""
    async with members_of(network, 2) as (member, other):
        await settle(member)
        found = await describe(other.talk)
        (only,) = found.members
        assert (found.group_state, found.protocol_type, found.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        assert (only.member_id, only.client_id, only.client_host) == (member.member_id, "talk", "/127.0.0.1")
        assert (only.member_metadata, only.member_assignment) == (member.protocols["range"], b"a")
        await member.join()
        found = await describe(other.talk)
        assert found.group_state == "CompletingRebalance"
        assert {each.member_assignment for each in found.members} == {b""}
        missing = await describe(member.talk, "h")
        assert (missing.error_code, missing.group_state) == (0, "Dead")
        missing = await describe(member.talk, "h", 6)
        assert (missing.error_code, missing.error_message) == (69, "Group h not found.")
        await commit(member.talk, "simple", {0: 1})
        assert (await describe(member.talk, "simple")).group_state == "Empty"


async def test_listing(broker: Broker, network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """By state (4) and type (5), whatever the case."""
    async with members_of(network, 2) as (member, other):
        await settle(member)
        await commit(other.talk, "simple", {0: 1})

        async def listed(version: int = 5, **filters: list[str]) -> list[tuple[str, ...]]:
            answer = await other.talk.ask(ListGroupsRequest(**filters), version)
            return sorted(
                (each.group_id, each.protocol_type, each.group_state, each.group_type)
                for each in answer.groups
            )

        stable, simple = ("g", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")
        assert await listed() == [stable, simple]
        assert await listed(3) == [("g", "consumer", "", ""), ("simple", "", "", "")]
        assert await listed(states_filter=["stable"]) == [stable]
        assert await listed(states_filter=["EMPTY", "Dead"]) == [simple]
        assert await listed(types_filter=["Classic"]) == [stable, simple]
        assert await listed(types_filter=["consumer"]) == []


async def test_deleting(broker: Broker, network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """68 with members, 69 without a group; then nothing is left of it, after a restart neither."""
    async with members_of(network, 2) as (member, other):
        await settle(member)
        ours = {"generation_id_or_member_epoch": 1, "member_id": member.member_id}
        await commit(member.talk, "g", {0: 1}, **ours)
        await commit(other.talk, "simple", {0: 1})
        assert await delete(other.talk, "g", "h", "simple") == [68, 69, 0]
        await member.leave()
        assert await delete(other.talk, "g", "simple") == [0, 69]
        broker.groups.load_all()
        assert list(broker.groups.all_groups()) == []
        assert await fetch(other.talk, "g", [0]) == [(0, *NOTHING)]


async def test_deleting_offsets(broker: Broker, network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """86 for topics that a member reads, 3 for none, 69 without a group, 68 for members of other types."""
    broker.topics.create("other")
    async with members_of(network, 2) as (member, other):
        await commit(other.talk, "g", {0: 1, 1: 1})
        await commit(other.talk, "g", {0: 1}, topic="other")
        await settle(member)
        assert await delete_offsets(other.talk, "t", 0, 7) == (0, [86, 3])
        assert await delete_offsets(other.talk, "other", 0, 7) == (0, [0, 3])
        assert await delete_offsets(other.talk, "missing", 0) == (0, [3])
        assert await delete_offsets(other.talk, "t", 0, group_id="h") == (69, [])
        assert await delete_offsets(other.talk, "t", 0, group_id="") == (24, [])
        assert await fetch(other.talk, "g", [0], topic="other") == [(0, *NOTHING)]
        await member.leave()
        assert await delete_offsets(other.talk, "t", 0) == (0, [0])
        assert await fetch(other.talk, "g", [0, 1]) == [(0, *NOTHING), (1, 1, 4, "", 0)]
        other.group_id = "connectors"
        await other.join(protocol_type="connect")
        assert await delete_offsets(other.talk, "t", 0, group_id="connectors") == (68, [])


async def test_a_group_without_offsets_stays_until_they_are_looked_through(
    talk: Talk, broker: Broker, autojump_clock: MockClock
) -> None:
    """As on Kafka 4.4: OffsetDelete of the last one is no DeleteGroups; after a restart it is not there."""
    for after in (lambda: broker.offsets.expire(broker.clock.wall_ms()), broker.groups.load_all):
        await commit(talk, "g", {0: 1})
        assert await delete_offsets(talk, "t", 0) == (0, [0])
        assert (await describe(talk)).group_state == "Empty"
        assert await delete_offsets(talk, "missing", 0) == (0, [3])
        assert await delete_offsets(talk, "t", 0) == (0, [0])
        after()
        assert list(broker.groups.all_groups()) == []
        assert await delete_offsets(talk, "t", 0) == (69, [])
    await commit(talk, "g", {0: 1})
    assert await delete_offsets(talk, "t", 0) == (0, [0])
    assert [await delete(talk, "g") for _ in range(2)] == [[0], [69]]


async def test_offsets_expire_a_while_after_the_last_member_left(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """KIP-211: not while a member reads the topic; with the last one the group goes as well."""
    broker.topics.create("other")
    day_ms = 24 * 3_600_000
    async with members_of(network, 1) as (member,):
        await commit(member.talk, "g", {0: 1})
        await commit(member.talk, "g", {0: 2}, topic="other")
        await settle(member)
        now_ms = broker.clock.wall_ms()
        assert broker.offsets.expire(now_ms + 8 * day_ms) == 1  # of ``other``, which nobody reads
        assert await fetch(member.talk, "g", [0]) == [(0, 1, 4, "", 0)]
        await trio.sleep(9)
        await member.leave()
        assert broker.offsets.expire(now_ms + 7 * day_ms) == 0
        assert broker.offsets.expire(now_ms + 8 * day_ms) == 1
        assert broker.groups.find("g") is None
        broker.groups.load_all()
        assert broker.groups.find("g") is None


async def test_a_partition_that_moves_away(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Waiting requests get 16, later ones 14 until it is read; then all is as before, in new sessions."""
    async with members_of(network, 2) as (first, second):
        await settle(first)
        await second.begin_join()
        await trio.sleep(1)
        partition = InternalTopic(CONSUMER_OFFSETS, broker).partition_for("g")
        broker.groups.resign(partition)
        assert (await second.joined()).error_code == 16
        assert await first.heartbeat() == 14
        assert (await describe(first.talk)).error_code == 14
        assert await commit(first.talk, "g", {0: 1}) == [14]
        assert len(broker.groups.timers) == 0
        broker.groups.load(partition)
        assert await first.heartbeat() == 0
        assert (await first.sync()).assignment == b"a"


async def test_a_disk_that_refuses(
    broker: Broker, network: MemoryNetwork, files: MemoryFiles, autojump_clock: MockClock
) -> None:
    """16 for an assignment that cannot be kept: all join again. A group that cannot be noted is not made."""
    async with members_of(network, 2) as (member, other):
        await member.join()
        files.inject(Fault(28))
        assert (await member.sync({member.member_id: b"x"})).error_code == 16
        assert await member.heartbeat() == 27
        assert (await member.join()).generation_id == 2
        other.group_id = "new"
        files.inject(Fault(28))
        assert (await other.join(3)).error_code == 16
        assert broker.groups.find("new") is None


async def test_topic_ids(broker: Broker, network: MemoryNetwork, autojump_clock: MockClock) -> None:
    """OffsetCommit and OffsetFetch 10 name topics by id; 100 for one that nobody has."""
    known = broker.topics.get("t")
    assert known is not None
    ids = [known.topic_id, b"?" * 16]
    async with members_of(network, 1) as (client,):
        places = [
            OffsetCommitRequestPartition(partition_index=each, committed_offset=5, committed_metadata="m")
            for each in (0, 3)
        ]
        topics = [OffsetCommitRequestTopic(topic_id=each, partitions=places) for each in ids]
        answer = await client.talk.ask(OffsetCommitRequest(group_id="g", topics=topics), 10)
        found = {each.topic_id: [place.error_code for place in each.partitions] for each in answer.topics}
        assert found == {ids[0]: [0, 3], ids[1]: [100, 100]}
        wanted = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0, 1]) for each in ids]
        for asked, expected in (
            (wanted, {ids[0]: [(5, 0), (-1, 0)], ids[1]: [(-1, 100), (-1, 100)]}),
            (None, {ids[0]: [(5, 0)]}),
        ):
            groups = [OffsetFetchRequestGroup(group_id="g", topics=asked)]
            (group,) = (await client.talk.ask(OffsetFetchRequest(groups=groups), 10)).groups
            assert expected == {
                each.topic_id: [(place.committed_offset, place.error_code) for place in each.partitions]
                for each in group.topics
            }


async def test_a_group_that_is_too_large_after_a_restart(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """group.max.size was made smaller: its members join again, and the last one is refused (81)."""
    async with members_of(network, 2) as (first, second):
        await settle(first, second)
        broker.settings = attrs.evolve(
            broker.settings, groups=attrs.evolve(broker.settings.groups, group_max_size=1)
        )
        broker.groups.load_all()
        assert await first.heartbeat() == 27
        await first.begin_join()
        assert (await second.join()).error_code == 81
        assert (await first.joined()).generation_id == 2


async def test_a_timer_that_fails_costs_no_other(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker says so in its log, and goes on."""

    def fail() -> None:
        raise ValueError("a bug")

    async with members_of(network, 1) as (member,):
        await settle(member)
        broker.groups.timers.set(("other", "session"), broker.groups.now_ms() + 1000, fail)
        await trio.sleep(11)
        assert await member.heartbeat() == 25
    assert "a timer of a group failed" in caplog.text
