"""Members with an instance id: they keep their place while they are away, which nobody takes (KIP-345)."""

from __future__ import annotations

from support.broker.broker_talk import Talk
from support.broker.group_talk import RawMember, leave, members_of, settle
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.groups.classic.members import JoinRequest
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import Fault, MemoryFiles


def again(member: RawMember, talk: Talk) -> RawMember:
    """The same instance after a restart: it has forgotten its id."""
    return RawMember(talk, member.group_id, member.instance_id)


async def test_it_comes_back_without_a_rebalance(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """It goes on in the same generation with what it had; its former self is fenced (82)."""
    async with members_of(network, 3) as (leader, follower, third):
        leader.instance_id, follower.instance_id = "i1", "i2"
        await settle(leader, follower)
        back = again(follower, third.talk)
        answer = await back.join()
        assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, leader.member_id)
        assert back.member_id.startswith("i2-")
        assert back.member_id != follower.member_id
        assert (await back.sync()).assignment == b"b"
        assert [await follower.heartbeat(), await back.heartbeat(), await leader.heartbeat()] == [82, 0, 0]
        assert (await follower.join()).error_code == 82
        assert await follower.leave() == 82


async def test_a_leader_that_comes_back(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """From version 9 on it is told that it leads and need not assign; before, that the one it was leads."""
    async with members_of(network, 3) as (leader, follower, third):
        leader.instance_id, follower.instance_id = "i1", "i2"
        await settle(leader, follower)
        back = again(leader, third.talk)
        answer = await back.join(9)
        assert (answer.skip_assignment, answer.leader, len(answer.members)) == (True, back.member_id, 2)
        older = again(leader, third.talk)
        answer = await older.join(8)
        assert (answer.skip_assignment, answer.leader, answer.members) == (False, back.member_id, [])
        assert (await older.sync()).assignment == b"a"


async def test_other_assignors_make_a_rebalance(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """It comes back with another favourite, which is chosen: all join again."""
    async with members_of(network, 2) as (member, second):
        member.instance_id = "i"
        member.protocols = {"range": b"1", "sticky": b"2"}
        await settle(member)
        back = again(member, second.talk)
        back.protocols = {"sticky": b"2", "range": b"1"}
        answer = await back.join()
        assert (answer.generation_id, answer.protocol_name) == (2, "sticky")


async def test_it_comes_back_before_the_leader_assigned(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """The leader knows only the former member id, so all join again; waiting members are told so."""
    async with members_of(network, 3) as (leader, follower, third):
        leader.instance_id, follower.instance_id = "i1", "i2"
        for each in (leader, follower):
            await each.begin_join()
        for each in (leader, follower):
            await each.joined()
        await follower.begin_sync()
        back = again(follower, third.talk)
        await back.begin_join()
        assert (await follower.talk.answer()).error_code == 82
        assert await leader.heartbeat() == 27
        await leader.begin_join()
        assert [(await each.joined()).generation_id for each in (leader, back)] == [2, 2]


async def test_it_leaves_by_its_instance_alone(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """As an admin sends members away (version 3 and later); others are told what is wrong with each."""
    async with members_of(network, 3) as (first, second, admin):
        first.instance_id, second.instance_id = "i1", "i2"
        await settle(first, second)
        asked = [("", "i2"), ("", "i3"), ("m", "i1"), ("m", None), ("", None)]
        assert await leave(admin.talk, "g", *asked) == [0, 25, 82, 25, 25]
        assert [await first.heartbeat(), await second.heartbeat()] == [27, 25]
        assert (await first.join()).generation_id == 2


async def test_a_rebalance_goes_on_without_it(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """It stays a member as long as its session lasts, though it does not join."""
    async with members_of(network, 2) as (static, other):
        static.instance_id = "i"
        await static.join(rebalance_timeout_ms=5000, session_timeout_ms=60_000)
        await static.sync({static.member_id: b"x"})
        answer = await other.join(rebalance_timeout_ms=5000)
        assert (answer.generation_id, len(answer.members)) == (2, 2)
        assert await static.heartbeat(generation_id=2) == 0


async def test_a_disk_that_refuses_leaves_it_as_it_was(
    broker: Broker, network: MemoryNetwork, files: MemoryFiles, autojump_clock: MockClock
) -> None:
    """16 for the returning member; the present one goes on."""
    async with members_of(network, 2) as (member, second):
        member.instance_id = "i"
        await settle(member)
        files.inject(Fault(28))
        back = again(member, second.talk)
        assert (await back.join()).error_code == 16
        assert await member.heartbeat() == 0
        assert (await member.sync()).assignment == b"a"
        assert (await back.join()).error_code == 0
        assert await member.heartbeat() == 82


async def test_the_longest_name_makes_an_id_that_fits_its_field(
    broker: Broker, network: MemoryNetwork, autojump_clock: MockClock
) -> None:
    """A string of older versions has 32,767 bytes; the id was longer, and the client was hung up on."""
    name = "a" + "€" * 10_922  # 32,767 bytes; the cut goes through a character
    async with members_of(network, 1) as (member,):
        member.instance_id = name
        for version in (5, 9):
            answer = await again(member, member.talk).join(version)
            assert (answer.error_code, answer.leader) == (0, answer.member_id)
            assert answer.member_id.startswith(name[:10_000])
            assert len(answer.member_id.encode()) <= 32_767


def test_a_long_client_id_is_cut_like_the_name_of_an_instance() -> None:
    """Members without an instance id are named by their client."""
    request = JoinRequest("", None, "a" + "€" * 10_922, "/127.0.0.1", 1, 1, "consumer", ())
    assert len(request.new_member_id("0" * 36).encode()) == 32_767 - 2
    assert request._replace(client_id="").new_member_id("u") == "-u"
    assert request._replace(instance_id="i").new_member_id("u") == "i-u"
