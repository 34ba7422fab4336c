"""ConsumerGroupHeartbeat and -Describe over the wire: who gets in, what is refused, what lasts."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.consumer_group_talk import WireMember, describe, settle
from support.broker.offset_talk import commit, fetch
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.model.broker_errors import ErrorCode
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.files.memory import Fault, MemoryFiles
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.delete_groups import DeleteGroupsRequest
from splashdam.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from splashdam.wire.messages.list_groups import ListGroupsRequest

SESSION_SECONDS = 45


@pytest.fixture
async def broker(broker: Broker) -> Broker:
    """The broker, with a topic of four partitions."""
    broker.topics.create("t", 4)
    return broker


async def test_first_member_gets_everything_at_once(talk: Talk) -> None:
    """One heartbeat: it is in, at the group's epoch, and told when to come again."""
    member = WireMember(talk, "m1", "t")
    answer = await member.beat()
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m1", 1, 5000)
    assert member.partitions == [0, 1, 2, 3]
    answer = await member.ask(subscribed_topic_names=None, topic_partitions=None, rebalance_timeout_ms=-1)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 1, None)


async def test_partitions_move_when_they_are_given_up(talk: Talk) -> None:
    """A second member waits until the first no longer says that it owns its half."""
    first, second = WireMember(talk, "m1", "t"), WireMember(talk, "m2", "t")
    await first.beat()
    answer = await second.beat()
    assert (answer.member_epoch, second.partitions) == (2, [])
    answer = await first.ask(subscribed_topic_names=None, rebalance_timeout_ms=-1)
    assert answer.member_epoch == 1
    assert answer.assignment is not None
    assert (await second.beat()).assignment is not None
    assert second.partitions == []
    assert (await describe(talk)).group_state == "Reconciling"
    await settle(first, second)
    assert (first.partitions, second.partitions) == ([0, 1], [2, 3])
    assert (first.epoch, second.epoch) == (2, 2)
    await first.leave()
    await second.beat()
    assert second.partitions == [0, 1, 2, 3]


async def test_older_clients_are_given_a_member_id(talk: Talk) -> None:
    """Version 0; from 1 on it is theirs to choose."""
    member = WireMember(talk, "", "t")
    await member.beat(version=0)
    assert len(member.member_id) == 36
    assert (await WireMember(talk, "", "t").ask()).error_code == 42


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, 42),
        ({"instance_id": ""}, 42),
        ({"rack_id": ""}, 42),
        ({"rebalance_timeout_ms": -1}, 42),
        ({"subscribed_topic_names": None}, 42),
        ({"member_epoch": -3}, 42),
        ({"member_epoch": -2}, 42),
        ({"server_assignor": "cooperative"}, 112),
        ({"subscribed_topic_regex": "("}, 128),
        ({"member_epoch": 3}, 69),
        ({"member_epoch": -1}, 69),
    ],
)
async def test_invalid_heartbeats_are_refused(talk: Talk, fields: dict[str, Any], code: int) -> None:
    """With Kafka's codes, and a text; and no group is made of it."""
    answer = await WireMember(talk, "m1", "t").ask(**fields)
    assert answer.error_code == code
    assert answer.error_message
    assert answer.assignment is None
    assert (await describe(talk)).error_code == 69


async def test_members_with_another_epoch_are_fenced(talk: Talk) -> None:
    """110 for one that is ahead or too old; the epoch before is an answer that got lost."""
    first, second = WireMember(talk, "m1", "t"), WireMember(talk, "m2", "t")
    await first.beat()
    await second.beat()
    await settle(first, second)
    assert (await first.ask(member_epoch=9)).error_code == 110
    assert (await first.ask(member_epoch=1)).error_code == 0
    assert (await first.ask(member_epoch=1, topic_partitions=None)).error_code == 110
    assert (await WireMember(talk, "m3", "t").ask(member_epoch=1)).error_code == 25


async def test_offsets_are_committed_at_the_members_epoch(talk: Talk) -> None:
    """113 at another one, 25 of somebody else, 35 in versions without epochs; anybody when it is empty."""
    member = WireMember(talk, "m1", "t")
    await member.beat()

    async def code(generation: int, member_id: str, version: int = 9) -> int:
        (found,) = await commit(
            talk, "g", {0: 5}, version, generation_id_or_member_epoch=generation, member_id=member_id
        )
        return found

    assert await code(1, "m1") == 0
    assert await code(2, "m1") == 113
    assert await code(1, "m2") == 25
    assert await code(-1, "") == 25
    assert await code(1, "m1", version=8) == 35
    assert (await fetch(talk, "g", [0]))[0][:2] == (0, 5)
    await member.leave()
    assert await code(-1, "") == 0


async def test_a_commit_for_kept_partitions_may_name_an_older_epoch(talk: Talk) -> None:
    """KIP-1251: the answer with the new epoch may be on its way; 113 for what it no longer has."""
    first, second = WireMember(talk, "m1", "t"), WireMember(talk, "m2", "t")
    await first.beat()
    await second.beat()
    await settle(first, second)
    at = {"member_id": "m1", "generation_id_or_member_epoch": 1}
    assert (first.epoch, first.partitions) == (2, [0, 1])
    assert await commit(talk, "g", {0: 5, 1: 5}, 9, **at) == [0, 0]
    assert await commit(talk, "g", {0: 6, 2: 6}, 9, **at) == [113, 113]
    assert await commit(talk, "g", {2: 6}, 9, member_id="m2", generation_id_or_member_epoch=1) == [113]
    assert [each[:2] for each in await fetch(talk, "g", [0, 2])] == [(0, 5), (2, -1)]


async def test_groups_are_listed_and_deleted(talk: Talk) -> None:
    """With their type; 68 while there are members; nothing of it is left in the log's replay."""
    member = WireMember(talk, "m1", "t")
    await member.beat()
    (found,) = (await talk.ask(ListGroupsRequest(types_filter=["consumer"]), 5)).groups
    assert (found.group_id, found.protocol_type, found.group_state) == ("g", "consumer", "Stable")

    async def delete() -> int:
        answer = await talk.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
        return answer.results[0].error_code

    assert await delete() == 68
    await member.leave()
    assert await delete() == 0
    assert (await describe(talk)).error_code == 69


async def test_a_static_member_gets_its_partitions_back(talk: Talk) -> None:
    """It leaves with -2, nothing moves, and its next life takes its place; the one before is fenced."""
    static = WireMember(talk, "m1", "t", instance_id="i1")
    other = WireMember(talk, "m2", "t")
    await static.beat()
    await other.beat()
    await settle(static, other)
    had, epoch = static.partitions, static.epoch
    again = WireMember(talk, "m3", "t", instance_id="i1")
    assert (await again.ask()).error_code == 111
    answer = await static.leave(-2)
    assert (answer.error_code, answer.member_epoch) == (0, -2)
    await other.beat()
    await again.beat()
    assert (again.partitions, again.epoch) == (had, epoch)
    assert (await static.ask(member_epoch=epoch)).error_code == 82
    assert (await static.leave()).error_code == 82
    assert (await WireMember(talk, "m4", "t", instance_id="i2").ask(member_epoch=1)).error_code == 25


async def test_silent_member_is_out_after_its_session(talk: Talk, autojump_clock: MockClock) -> None:
    """Its partitions go to who still speaks; when it comes again, nobody knows it."""
    first, second = WireMember(talk, "m1", "t"), WireMember(talk, "m2", "t")
    await first.beat()
    await second.beat()
    await settle(first, second)
    await trio.sleep(SESSION_SECONDS - 1)
    await first.beat()
    await trio.sleep(2)
    assert [each.member_id for each in (await describe(talk)).members] == ["m1"]
    await first.beat()
    assert first.partitions == [0, 1, 2, 3]
    assert (await second.ask()).error_code == 25


async def test_member_that_gives_nothing_up_is_out_after_its_rebalance_timeout(
    talk: Talk, autojump_clock: MockClock
) -> None:
    """However alive it is."""
    first = WireMember(talk, "m1", "t", rebalance_timeout_ms=10_000)
    second = WireMember(talk, "m2", "t")
    await first.beat()
    await second.beat()
    for _ in range(3):
        await trio.sleep(3)
        assert (await first.ask()).error_code == 0
    await trio.sleep(7)
    assert (await first.ask()).error_code == 25
    await second.beat()
    assert second.partitions == [0, 1, 2, 3]


async def test_topics_that_come_and_go_move_the_epoch(broker: Broker, talk: Talk) -> None:
    """By name and by pattern; the next heartbeat of any member sees it."""
    named = WireMember(talk, "m1", "t", "u")
    await named.beat()
    assert named.partitions == [0, 1, 2, 3]
    broker.topics.create("u", 1)
    await named.beat()
    assert (named.epoch, named.partitions) == (2, [0, 0, 1, 2, 3])
    broker.topics.delete(broker.topics.all()[-1])
    await named.beat()
    await named.beat()
    assert (named.epoch, named.partitions) == (3, [0, 1, 2, 3])
    pattern = WireMember(talk, "m2", group_id="p", subscribed_topic_regex="x.*", subscribed_topic_names=None)
    await pattern.beat()
    assert pattern.partitions == []
    broker.topics.create("x1", 2)
    await pattern.beat()
    assert pattern.partitions == [0, 1]
    assert (await describe(talk, "p")).members[0].subscribed_topic_regex == "x.*"


async def test_group_has_times_of_its_own(talk: Talk, autojump_clock: MockClock) -> None:
    """Set on a resource of type GROUP, within the broker's limits; at once."""
    member = WireMember(talk, "m1", "t")
    await member.beat()

    async def set_config(name: str, value: str) -> int:
        config = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=32, resource_name="g", configs=[config])
        answer = await talk.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        return answer.responses[0].error_code

    assert await set_config("consumer.heartbeat.interval.ms", "7000") == 0
    assert await set_config("consumer.session.timeout.ms", "60000") == 0
    assert await set_config("consumer.session.timeout.ms", "60001") == 40
    assert (await member.beat()).heartbeat_interval_ms == 7000
    await trio.sleep(SESSION_SECONDS + 1)
    assert (await member.beat()).error_code == 0
    await trio.sleep(61)
    assert (await member.ask()).error_code == 25


async def test_groups_are_described(talk: Talk) -> None:
    """Epochs, members, what they have and what they shall have."""
    member = WireMember(talk, "m1", "t", instance_id="i1", rack_id="r1", server_assignor="range")
    await member.beat()
    await WireMember(talk, "m2", "t").beat()
    found = await describe(talk)
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Reconciling", "range")
    assert (found.group_epoch, found.assignment_epoch) == (2, 2)
    first, second = found.members
    assert (first.instance_id, first.rack_id, first.client_id, first.member_type) == ("i1", "r1", "talk", 1)
    assert first.subscribed_topic_names == ["t"]
    (held,), (shall,) = first.assignment.topic_partitions, first.target_assignment.topic_partitions
    assert (held.topic_name, held.partitions, shall.partitions) == ("t", [0, 1, 2, 3], [0, 1])
    assert (second.member_epoch, second.assignment.topic_partitions) == (2, [])
    assert (await describe(talk, version=0)).members[0].member_type == -1
    await commit(talk, "offsets only", {0: 1})
    assert (await describe(talk, "offsets only")).error_code == 69
    assert (await describe(talk, "")).error_code == 24


async def test_groups_outlive_a_restart(
    network: MemoryNetwork, files: MemoryFiles, autojump_clock: MockClock
) -> None:
    """Members go on where they were; who does not come back within its session is out."""
    clock = VirtualClock(autojump_clock)
    for life in range(2):
        async with open_broker(
            "/data", host="b", port=1, listen=network.listen, clock=clock, files=files
        ) as broker:
            talk = Talk(await network.connect("b", 1))
            if not life:
                broker.topics.create("t", 4)
                first, second = WireMember(talk, "m1", "t"), WireMember(talk, "m2", "t")
                await first.beat()
                await second.beat()
                await settle(first, second)
                before = await describe(talk)
            else:
                assert await describe(talk) == before
                first._talk = talk
                await first.beat()
                assert (first.epoch, first.partitions) == (2, [0, 1])
                await trio.sleep(SESSION_SECONDS - 1)
                await first.beat()
                await trio.sleep(2)
                await first.beat()
                assert first.partitions == [0, 1, 2, 3]


async def test_a_full_group_takes_no_more_members(
    network: MemoryNetwork, files: MemoryFiles, autojump_clock: MockClock
) -> None:
    """``group.consumer.max.size`` → 81."""
    async with open_broker(
        "/data", host="b", port=1, listen=network.listen, files=files, group_consumer_max_size=1
    ) as broker:
        broker.topics.create("t", 1)
        talk = Talk(await network.connect("b", 1))
        member = WireMember(talk, "m1", "t")
        await member.beat()
        assert (await WireMember(talk, "m2", "t").ask()).error_code == 81
        await member.beat()


async def test_feature_that_is_off_knows_no_such_groups(network: MemoryNetwork, files: MemoryFiles) -> None:
    """``group.version=0`` → 35."""
    async with open_broker("/data", host="b", port=1, listen=network.listen, files=files, group_version=0):
        talk = Talk(await network.connect("b", 1))
        assert (await WireMember(talk, "m1", "t").ask()).error_code == 35


async def test_a_full_disk_does_not_let_a_member_keep_what_it_has_to_revoke(
    broker: Broker, talk: Talk, files: MemoryFiles, autojump_clock: MockClock
) -> None:
    """Its removal could not be written, and was not tried again: the other member waited for ever."""
    broker.topics.create("two", 2)
    one, other = WireMember(talk, "one", "two"), WireMember(talk, "other", "two")
    await one.beat()
    held = one.owned
    await other.beat()
    await one.beat()
    codes = []
    for second in range(0, 100, 5):
        if second == 55:
            files.inject(Fault(errno.ENOSPC, times=None))
        if second == 65:
            files.heal()
        await trio.sleep(5)
        codes.append((await one.ask(topic_partitions=held)).error_code)
        if second < 55 or second > 70:
            await other.beat()
    assert codes[:11] == [0] * 11
    assert codes[-1] == ErrorCode.UNKNOWN_MEMBER_ID
    assert other.partitions == [0, 1]


async def test_a_removal_that_the_disk_refuses_was_tried_and_logged_every_five_seconds(
    broker: Broker,
    talk: Talk,
    files: MemoryFiles,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With two lines of the log each time, for each of the members of the broker's groups."""
    broker.topics.create("two", 2)
    await WireMember(talk, "one", "two").beat()
    files.inject(Fault(errno.ENOSPC, times=None))
    with caplog.at_level("INFO", "splashdam.embedded_broker.groups"):
        await trio.sleep(45 + 600)
    files.heal()
    lines = [each.getMessage() for each in caplog.records]
    assert len([line for line in lines if "member 'one'" in line]) == 2
    assert len([line for line in lines if line.startswith("cannot write")]) == 13
    await trio.sleep(60)
    group = broker.groups.find("g")
    assert group is not None
    assert group.is_empty
