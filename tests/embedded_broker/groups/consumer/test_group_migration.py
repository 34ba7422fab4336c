"""Groups whose members change from the classic protocol to the new one and back, one by one (KIP-848)."""

from __future__ import annotations

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.consumer_group_talk import WireMember, describe
from support.broker.offset_talk import commit
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.groups.consumer.consumer_protocol import (
    ClassicAssignment,
    NamedPartitions,
    Subscription,
)
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import MemoryFiles
from splashdam.wire.messages.heartbeat import HeartbeatRequest
from splashdam.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from splashdam.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from splashdam.wire.messages.list_groups import ListGroupsRequest
from splashdam.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from splashdam.wire.persisted import decode_persisted, encode_persisted

JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5
REJOIN = 27


class ClassicWire:
    """A cooperative consumer of the classic protocol; where it leads, it gives itself everything."""

    def __init__(self, talk: Talk, *, instance_id: str | None = None, assignor: str = "range") -> None:
        self.talk = talk
        self.member_id = ""
        self.generation = -1
        self.instance_id = instance_id
        self.assignor = assignor
        self.owned: list[int] = []

    async def join(self, *, expected: int = 0) -> JoinGroupResponse:
        """JoinGroup, a second time with the id that it is given."""
        owned = [NamedPartitions(topic="t", partitions=self.owned)] if self.owned else []
        metadata = encode_persisted(Subscription(topics=["t"], user_data=None, owned_partitions=owned), 1)
        for _ in range(2):
            answer = await self.talk.ask(
                JoinGroupRequest(
                    group_id="g",
                    session_timeout_ms=10_000,
                    rebalance_timeout_ms=20_000,
                    member_id=self.member_id,
                    group_instance_id=self.instance_id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name=self.assignor, metadata=metadata)],
                ),
                JOIN,
            )
            self.member_id = answer.member_id
            if answer.error_code != 79:
                break
        assert answer.error_code == expected
        self.generation = answer.generation_id
        return answer

    async def sync(self, *, assigns: list[int] | None = None) -> int:
        """SyncGroup; what it has from now on, where there is no error."""
        told = []
        if assigns is not None:
            share = ClassicAssignment(
                assigned_partitions=[NamedPartitions(topic="t", partitions=assigns)], user_data=None
            )
            told = [
                SyncGroupRequestAssignment(member_id=self.member_id, assignment=encode_persisted(share, 1))
            ]
        answer = await self.talk.ask(
            SyncGroupRequest(
                group_id="g",
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name=self.assignor,
                assignments=told,
            ),
            SYNC,
        )
        if not answer.error_code:
            found = decode_persisted(ClassicAssignment, answer.assignment)
            self.owned = [number for each in found.assigned_partitions for number in each.partitions]
        return answer.error_code

    async def heartbeat(self) -> int:
        """Heartbeat; its code."""
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return (await self.talk.ask(request, HEARTBEAT)).error_code

    async def follow(self) -> None:
        """Joins and syncs for as long as it is told to."""
        while await self.heartbeat() == REJOIN:
            await self.join()
            await self.sync()

    async def leave(self) -> int:
        """LeaveGroup; its code."""
        member = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        answer = await self.talk.ask(LeaveGroupRequest(group_id="g", members=[member]), LEAVE)
        return answer.members[0].error_code


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    """The broker, with a topic of four partitions."""
    broker.topics.create("t", 4)
    return broker


@pytest.fixture
async def classic(talk: Talk, autojump_clock: MockClock) -> ClassicWire:
    """The one member of a classic group, with all partitions."""
    member = ClassicWire(talk)
    await member.join()
    assert await member.sync(assigns=[0, 1, 2, 3]) == 0
    return member


async def group_type(talk: Talk) -> tuple[str, str]:
    """Type and state of the group by ListGroups."""
    (found,) = (await talk.ask(ListGroupsRequest(), 5)).groups
    return found.group_type, found.group_state


async def test_classic_member_follows_into_the_new_protocol(
    talk: Talk, classic: ClassicWire, autojump_clock: MockClock
) -> None:
    """Upgrade: its half goes over once it has rejoined without it; its commits are of its generation."""
    new = WireMember(talk, "n1", "t")
    answer = await new.beat()
    assert (answer.member_epoch, new.partitions) == (2, [])
    assert await group_type(talk) == ("consumer", "Reconciling")
    assert [each.member_type for each in (await describe(talk)).members] == [0, 1]
    assert await classic.heartbeat() == REJOIN
    assert (await classic.join()).leader == ""
    assert await classic.sync() == 0
    assert (classic.generation, classic.owned) == (1, [0, 1])
    await new.beat()
    assert new.partitions == []
    await classic.follow()
    assert (classic.generation, classic.owned) == (2, [0, 1])
    await new.beat()
    assert new.partitions == [2, 3]
    assert await group_type(talk) == ("consumer", "Stable")
    at = {"member_id": classic.member_id, "generation_id_or_member_epoch": classic.generation}
    assert await commit(talk, "g", {0: 1}, **at) == [0]
    assert await commit(talk, "g", {2: 1}, **{**at, "generation_id_or_member_epoch": 1}) == [22]


async def test_last_new_member_leaves_a_classic_group_behind(
    talk: Talk, classic: ClassicWire, autojump_clock: MockClock
) -> None:
    """Downgrade: a rebalance, in which the classic members assign by themselves again."""
    new = WireMember(talk, "n1", "t")
    await new.beat()
    await classic.follow()
    await new.leave()
    assert await group_type(talk) == ("classic", "PreparingRebalance")
    assert await classic.heartbeat() == REJOIN
    assert (await classic.join()).leader == classic.member_id
    assert await classic.sync(assigns=[0, 1, 2, 3]) == 0
    assert classic.owned == [0, 1, 2, 3]
    assert await group_type(talk) == ("classic", "Stable")
    assert (await describe(talk)).error_code == 69


async def test_new_member_that_dies_leaves_a_classic_group_behind(
    talk: Talk, classic: ClassicWire, autojump_clock: MockClock
) -> None:
    """Likewise, when its session ends."""
    new = WireMember(talk, "n1", "t")
    await new.beat()
    await classic.follow()
    for _ in range(8):
        await trio.sleep(5)
        assert await classic.heartbeat() == 0
    await trio.sleep(6)
    assert await group_type(talk) == ("classic", "PreparingRebalance")


async def test_classic_member_joins_a_consumer_group(talk: Talk, autojump_clock: MockClock) -> None:
    """It gets its share from the broker, and leaves as it came."""
    new = WireMember(talk, "n1", "t")
    await new.beat()
    classic = ClassicWire(talk)
    await classic.join()
    assert await classic.sync() == 0
    assert classic.owned == []
    await new.beat()
    await new.beat()
    await classic.follow()
    assert (classic.owned, new.partitions) == ([2, 3], [0, 1])
    assert await classic.heartbeat() == 0
    stranger = ClassicWire(talk, assignor="sticky")
    stranger.member_id = "stranger"
    await stranger.join(expected=23)
    assert await classic.leave() == 0
    await new.beat()
    assert new.partitions == [0, 1, 2, 3]


async def test_silent_classic_member_is_out_of_a_consumer_group(
    talk: Talk, classic: ClassicWire, autojump_clock: MockClock
) -> None:
    """By its own session timeout, or when it does not come to hear what is new."""
    new = WireMember(talk, "n1", "t")
    await new.beat()
    await trio.sleep(11)
    assert [each.member_id for each in (await describe(talk)).members] == ["n1"]
    assert await classic.heartbeat() == 25
    await new.beat()
    second = ClassicWire(talk)
    await second.join()
    assert await second.sync() == 0
    await new.beat()
    await new.beat()
    for _ in range(4):
        await trio.sleep(8)
        await new.beat()
        await second.heartbeat()
    assert [each.member_id for each in (await describe(talk)).members] == ["n1"]


async def test_static_member_changes_its_protocol(talk: Talk, autojump_clock: MockClock) -> None:
    """Its next life takes its place, whatever the protocol, and it need not have left."""
    classic = ClassicWire(talk, instance_id="i1")
    await classic.join()
    await classic.sync(assigns=[0, 1, 2, 3])
    new = WireMember(talk, "n1", "t", instance_id="i1")
    await new.beat()
    assert new.partitions == [0, 1, 2, 3]
    assert await classic.heartbeat() == 82
    assert await group_type(talk) == ("consumer", "Stable")


@pytest.mark.parametrize(
    "policy", [("disabled", 69, 23), ("downgrade", 69, 0), ("upgrade", 0, 0)], ids=lambda policy: policy[0]
)
async def test_the_policy_decides_which_way_groups_may_migrate(
    network: MemoryNetwork,
    files: MemoryFiles,
    autojump_clock: MockClock,
    policy: tuple[str, int, int],
) -> None:
    """``group.consumer.migration.policy``, for groups with members; empty ones go on with either."""
    name, upgrade, join = policy
    async with open_broker(
        "/data",
        host="b",
        port=1,
        listen=network.listen,
        files=files,
        group_consumer_migration_policy=name,
    ) as broker:
        broker.topics.create("t", 4)
        talk = Talk(await network.connect("b", 1))
        classic = ClassicWire(talk)
        await classic.join()
        await classic.sync(assigns=[0, 1, 2, 3])
        new = WireMember(talk, "n1", "t")
        assert (await new.ask()).error_code == upgrade
        assert await classic.leave() == 0
        await new.beat()
        other = ClassicWire(talk)
        await other.join(expected=join)
        await new.leave()
        if name == "upgrade":
            assert await group_type(talk) == ("consumer", "Assigning")
        if name == "disabled":
            await other.join()
            assert await group_type(talk) == ("classic", "CompletingRebalance")
