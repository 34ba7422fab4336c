"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: members, leaders and answers."""

from __future__ import annotations

import attrs
import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.group_talk import RawMember, leave, members_of, settle
from support.broker.offset_talk import commit, fetch
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker
from splashdam.net.memory import MemoryNetwork

SECOND = 1.0


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    """The broker, with a topic of three partitions."""
    broker.topics.create("t", 3)
    return broker


@pytest.mark.parametrize("version", range(10))
async def test_one_member_in_every_version(talk: Talk, version: int, autojump_clock: MockClock) -> None:
    """It leads, gets itself as the only member, assigns, and is alive until it leaves."""
    member = RawMember(talk)
    began = trio.current_time()
    answer = await member.join(version)
    assert trio.current_time() - began == pytest.approx(3, abs=0.5)  # group.initial.rebalance.delay.ms
    assert (answer.generation_id, answer.protocol_name, answer.leader) == (1, "range", member.member_id)
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    (only,) = answer.members
    assert (only.member_id, only.metadata) == (member.member_id, member.protocols["range"])
    assert member.member_id.startswith("talk-")
    older = min(version, 5)
    synced = await member.sync({member.member_id: b"all"}, older)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert await member.heartbeat(min(version, 4)) == 0
    assert await commit(talk, "g", {0: 5}, generation_id_or_member_epoch=1, member_id=member.member_id) == [0]
    assert await member.leave(older) == 0
    assert await member.heartbeat() == 25
    assert await fetch(talk, "g", [0]) == [(0, 5, 4, "", 0)]


async def test_two_members_and_a_third(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """The leader alone gets the list of members; the others learn by a heartbeat to join again."""
    async with members_of(network, 3) as (first, second, third):
        assert await settle(first, second) == [b"a", b"b"]
        await third.begin_join()
        assert [await first.heartbeat(), await second.heartbeat()] == [27, 27]
        assert (await first.sync()).error_code == 27
        await first.begin_join()
        await second.begin_join()
        answers = [await each.joined() for each in (first, second, third)]
        assert [each.generation_id for each in answers] == [2, 2, 2]
        assert {each.leader for each in answers} == {first.member_id}
        assert [len(each.members) for each in answers] == [3, 0, 0]
        await second.begin_sync()
        await first.begin_sync({third.member_id: b"x"})
        assert (await third.sync()).assignment == b"x"
        assert [(await each.talk.answer()).assignment for each in (first, second)] == [b"", b""]
        assert [await each.heartbeat() for each in (first, second, third)] == [0, 0, 0]


async def test_what_is_refused(talk: Talk, broker: Broker, autojump_clock: MockClock) -> None:
    """24, 25, 23, 26 and 79; nothing of it makes a member."""
    member = RawMember(talk)
    assert (await member.join(3, group_id="", member_id="m")).error_code == 24
    assert (await member.join(3, member_id="m")).error_code == 25
    for timeout_ms in (5999, 1_800_001):
        assert (await member.join(3, session_timeout_ms=timeout_ms)).error_code == 26
    assert (await member.join(3, protocol_type="")).error_code == 23
    assert (await member.join(3, protocols=[])).error_code == 23
    assert (await member.sync()).error_code == 25
    assert await member.heartbeat() == 25
    assert await member.heartbeat(group_id="") == 24
    assert await leave(talk, "g", ("m", None)) == [25]
    assert await leave(talk, "g", ("m", None), version=1) == [25]
    assert (await member.sync(version=5, protocol_name=None)).error_code == 23


async def test_requests_of_another_generation(talk: Talk, autojump_clock: MockClock) -> None:
    """22 for a generation that is over, 25 for a member that is not, 23 for another protocol."""
    member = RawMember(talk)
    await settle(member)
    for number in (0, 2):
        assert await member.heartbeat(generation_id=number) == 22
        assert (await member.sync(generation_id=number)).error_code == 22
    assert await member.heartbeat(member_id="other") == 25
    assert (await member.sync(protocol_name="roundrobin")).error_code == 23
    assert (await member.sync()).assignment == b"a"


async def test_commits_of_members_and_others(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Members of this generation alone; not while the leader has yet to assign."""
    async with members_of(network, 2) as (member, other):
        await member.join()
        ours = {"generation_id_or_member_epoch": 1, "member_id": member.member_id}
        assert await commit(member.talk, "g", {0: 1}, **ours) == [27]
        await member.sync()
        assert await commit(member.talk, "g", {0: 2}, **ours) == [0]
        assert await commit(other.talk, "g", {0: 3}) == [25]
        assert await commit(other.talk, "g", {0: 3}, generation_id_or_member_epoch=1, member_id="x") == [25]
        assert await commit(member.talk, "g", {0: 3}, **(ours | {"generation_id_or_member_epoch": 2})) == [22]
        assert await fetch(other.talk, "g", [0]) == [(0, 2, 4, "", 0)]
        await member.leave()
        assert await commit(other.talk, "g", {0: 3}) == [0]


async def test_a_commit_is_a_heartbeat(talk: Talk, autojump_clock: MockClock) -> None:
    """The session of ten seconds begins anew with each."""
    member = RawMember(talk)
    await settle(member)
    ours = {"generation_id_or_member_epoch": 1, "member_id": member.member_id}
    for offset in range(3):
        await trio.sleep(9 * SECOND)
        assert await commit(talk, "g", {0: offset}, **ours) == [0]
    await trio.sleep(11 * SECOND)
    assert await commit(talk, "g", {0: 9}, **ours) == [25]


async def test_a_member_that_falls_silent(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Once its session is over the others join again; the group is empty when they fall silent as well."""
    async with members_of(network, 2) as (first, second):
        await settle(first, second)
        for _ in range(3):
            await trio.sleep(4 * SECOND)
            code = await first.heartbeat()
        assert code == 27
        answer = await first.join()
        assert (answer.generation_id, len(answer.members)) == (2, 1)
        assert await second.heartbeat() == 25
        await first.sync()
        await trio.sleep(11 * SECOND)
        group = broker.groups.find("g")
        assert group is not None
        assert (group.state_name, group.is_empty) == ("Empty", True)


async def test_a_member_that_does_not_join_again(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """A rebalance waits for the rebalance timeout; its heartbeats keep it alive until then, not longer."""
    async with members_of(network, 3) as (first, second, third):
        await settle(first, second)
        began = trio.current_time()
        await third.begin_join()
        await first.begin_join()
        while trio.current_time() - began < 50:
            await trio.sleep(5)
            assert await second.heartbeat() == 27
        answers = [await first.joined(), await third.joined()]
        assert trio.current_time() - began == pytest.approx(60, abs=1)
        assert [each.generation_id for each in answers] == [2, 2]
        assert await second.heartbeat() == 25


async def test_a_member_that_does_not_sync(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """After the rebalance timeout it is out, however often it sends heartbeats."""
    async with members_of(network, 2) as (first, second):
        for each in (first, second):
            await each.begin_join()
        leader, other = first, second
        assert [len((await each.joined()).members) for each in (first, second)] == [2, 0]
        await leader.sync({leader.member_id: b"x"})
        for _ in range(12):
            await trio.sleep(5 * SECOND)
            found = [await leader.heartbeat(), await other.heartbeat()]
        assert found == [27, 25]


async def test_the_first_rebalance_waits_for_more_members(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Three seconds more after each that comes, at most their rebalance timeout."""
    async with members_of(network, 3) as members:
        began = trio.current_time()
        for member in members:
            await member.begin_join()
            await trio.sleep(2 * SECOND)
        answers = [await each.joined() for each in members]
        assert [each.generation_id for each in answers] == [1, 1, 1]
        assert trio.current_time() - began == pytest.approx(9, abs=0.5)
        late = RawMember(members[0].talk, "h")
        await late.begin_join(rebalance_timeout_ms=1)
        began = trio.current_time()
        await late.joined()
        assert trio.current_time() - began == pytest.approx(3, abs=0.5)


async def test_a_pending_member_id_expires(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """It is waited for as long as its session, and may leave."""
    async with members_of(network, 3) as (member, shy, lost):
        await settle(member)
        for each in (shy, lost):
            answer = await each.talk.ask(each.join_request(), 4)
            assert answer.error_code == 79
            each.member_id = answer.member_id
        assert await shy.leave() == 0
        began = trio.current_time()
        assert (await member.join()).generation_id == 2
        assert trio.current_time() - began == pytest.approx(10, abs=0.5)
        assert (await lost.join()).error_code == 25


async def test_a_group_that_is_full(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """81 for one more than group.max.size."""
    broker.settings = attrs.evolve(
        broker.settings, groups=attrs.evolve(broker.settings.groups, group_max_size=2)
    )
    async with members_of(network, 3) as (first, second, third):
        await settle(first, second)
        assert (await third.join(3)).error_code == 81
        assert await first.heartbeat() == 0


async def test_the_assignor_that_most_like(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """Among those that all members know; 23 for a member that knows none, or has another type."""
    async with members_of(network, 4) as (first, second, third, stranger):
        first.protocols = {"range": b"1", "sticky": b"2", "own": b"3"}
        second.protocols = {"sticky": b"4", "range": b"5"}
        third.protocols = {"sticky": b"6", "range": b"7"}
        for each in (first, second, third):
            await each.begin_join()
        answers = [await each.joined() for each in (first, second, third)]
        assert {each.protocol_name for each in answers} == {"sticky"}
        assert sorted(each.metadata for each in answers[0].members) == [b"2", b"4", b"6"]
        stranger.protocols = {"own": b""}
        assert (await stranger.join(3)).error_code == 23
        stranger.protocols = {"range": b""}
        assert (await stranger.join(3, protocol_type="connect")).error_code == 23


async def test_joining_again_without_news(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """A follower gets the present generation; the leader, or a member with new metadata, begins a new one."""
    async with members_of(network, 2) as members:
        await settle(*members)
        leader, follower = members
        answer = await follower.join()
        assert (answer.generation_id, answer.members) == (1, [])
        await leader.begin_join()
        assert await follower.heartbeat() == 27
        await follower.join()
        assert (await leader.joined()).generation_id == 2
        again = await follower.join()  # its answer was lost, say
        assert again.generation_id == 2
        follower.protocols = {"range": b"other"}
        await follower.begin_join()
        assert (await leader.join()).generation_id == 3
        assert (await follower.joined()).generation_id == 3


async def test_a_repeated_request_is_answered_twice(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """A member that lost its connection joins by another; the first request hears 27, and is not left."""
    async with members_of(network, 3) as (first, second, third):
        await settle(first, second)
        await third.begin_join()
        await first.begin_join()
        twin = RawMember(second.talk)  # second does not come
        twin.member_id = first.member_id
        await twin.begin_join()
        assert (await first.joined()).error_code == 27
        await trio.sleep(60)
        answer = await twin.joined()
        assert (answer.error_code, answer.generation_id) == (0, 2)
