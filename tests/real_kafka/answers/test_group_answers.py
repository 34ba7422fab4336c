"""The same requests of members to a real Kafka and to ours, and our groups in the hands of a real Kafka."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.group_talk import RawMember, leave, settle
from support.broker.offset_talk import commit
from support.clients.foreign_groups import COMMIT, Committed
from support.kafka.kafka_jars import KafkaBroker, dump_log, kafka_broker
from support.kafka.kafka_offsets import take_over
from support.kafka.kafka_reading import make_topic

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.net.addresses import parse_bootstrap_servers
from splashdam.wire.messages.delete_groups import DeleteGroupsRequest
from splashdam.wire.messages.describe_groups import DescribeGroupsRequest
from splashdam.wire.messages.list_groups import ListGroupsRequest

LOAD_IN_PROGRESS, NOT_COORDINATOR, REBALANCE_IN_PROGRESS = 14, 16, 27
NOT_LOADED = {LOAD_IN_PROGRESS, NOT_COORDINATOR, REBALANCE_IN_PROGRESS}
"""To SyncGroup while a broker starts: the last one is how Kafka before 4 says that it loads."""

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@asynccontextmanager
async def members(servers: str, count: int, group_id: str) -> AsyncIterator[list[RawMember]]:
    """So many clients."""
    ((host, port),) = parse_bootstrap_servers(servers)
    streams = [await trio.open_tcp_stream(host, port) for _ in range(count)]
    try:
        yield [RawMember(Talk(stream), group_id) for stream in streams]
    finally:
        for stream in streams:
            await trio.aclose_forcefully(stream)


async def once(ask: Callable[[], Awaitable[Any]], is_it: Callable[[Any], bool]) -> Any:
    """Asks until the answer is the one; a real broker takes its time."""
    while True:
        answer = await ask()
        if is_it(answer):
            return answer
        await trio.sleep(0.05)


def ours_at(path: Path) -> EmbeddedBroker:
    """Our broker with the settings of the real one."""
    options = {"offsets_topic_num_partitions": 1, "group_initial_rebalance_delay_ms": 0}
    return EmbeddedBroker(path / "ours", **options)


async def refusals(servers: str) -> list[Any]:
    """Requests that nobody is a member by."""
    async with members(servers, 1, "refused") as (member,):
        said: list[Any] = [
            (answer.error_code, answer.member_id, answer.protocol_name, answer.generation_id)
            for answer in [
                await member.join(3, group_id="", member_id="m"),
                await member.join(3, member_id="m"),
                await member.join(3, session_timeout_ms=5999),
                await member.join(9, member_id="m", session_timeout_ms=1_800_001),
                await member.join(3, protocol_type=""),
                await member.join(7, member_id="m", protocols=[]),
            ]
        ]
        said += [await member.heartbeat(), await member.heartbeat(group_id="")]
        said += [await leave(member.talk, each, ("m", None), version=2) for each in ("", "refused", "no")]
        said += [(await member.sync(version=5, **{name: None})).error_code for name in ("protocol_name",)]
        answer = await member.talk.ask(DeleteGroupsRequest(groups_names=["refused", "no", ""]), 2)
        return [*said, sorted((each.group_id, each.error_code) for each in answer.results)]


async def life(servers: str, version: int) -> list[Any]:
    """One member of each version of JoinGroup, from coming to going, and what others say meanwhile."""
    async with members(servers, 2, f"life {version}") as (member, other):
        answer = await member.join(version)
        said: list[Any] = [(answer.generation_id, answer.protocol_name, answer.protocol_type)]
        said.append((answer.leader == answer.member_id, len(answer.members), answer.skip_assignment))
        ours = {"generation_id_or_member_epoch": 1, "member_id": member.member_id}
        said.append(await commit(member.talk, member.group_id, {0: 1}, **ours))
        said.append((await member.sync({member.member_id: b"x"}, min(version, 4))).assignment)
        said += [await member.heartbeat(min(version, 4)), await member.heartbeat(generation_id=7)]
        said.append((await member.sync(protocol_name="other")).error_code)
        said.append(await commit(member.talk, member.group_id, {0: 1}, **ours))
        said.append(await commit(member.talk, member.group_id, {0: 1}, generation_id_or_member_epoch=1))
        said.append(await commit(other.talk, member.group_id, {0: 1}))
        said += await shown(other.talk, member.group_id)
        answer = await other.talk.ask(DeleteGroupsRequest(groups_names=[member.group_id]), 2)
        said += [each.error_code for each in answer.results]
        said.append(await member.leave(min(version, 5)))
        said += await shown(other.talk, member.group_id)
        answer = await other.talk.ask(DeleteGroupsRequest(groups_names=[member.group_id]), 2)
        said += [each.error_code for each in answer.results]
        return [*said, *await shown(other.talk, member.group_id)]


async def static(servers: str) -> list[Any]:
    """Static members that go, come back, and are sent away."""
    async with members(servers, 4, "static") as (first, second, third, admin):
        first.instance_id, second.instance_id, third.instance_id = "i1", "i2", "i2"
        said: list[Any] = [await settle(first), (await first.join()).generation_id]
        await first.sync({first.member_id: b"y"})
        await second.begin_join()
        await once(first.heartbeat, lambda code: code == REBALANCE_IN_PROGRESS)  # a moment later
        await first.begin_join()
        said += [len((await each.joined()).members) for each in (first, second)]
        said += [(await each.sync()).error_code for each in (first, second)]
        answer = await third.join()
        said.append((answer.generation_id, answer.leader == first.member_id, answer.skip_assignment))
        said += [await second.heartbeat(), (await second.join()).error_code, await second.leave()]
        said += [await third.heartbeat(), await first.heartbeat()]
        asked = [("", "i3"), ("m", "i1"), ("m", None), ("", None), ("", "i2")]
        said.append(await leave(admin.talk, "static", *asked))
        return [*said, await third.heartbeat(), await first.heartbeat()]


async def shown(talk: Talk, group_id: str) -> list[Any]:
    """What DescribeGroups and ListGroups say of a group."""
    said: list[Any] = []
    for version in (0, 5, 6):
        (found,) = (await talk.ask(DescribeGroupsRequest(groups=[group_id]), version)).groups
        said.append((found.error_code, found.group_state, found.protocol_type, found.protocol_data))
        said += [
            (each.client_id, each.client_host, each.member_metadata, each.member_assignment)
            for each in found.members
        ]
    listed = (await talk.ask(ListGroupsRequest(), 5)).groups
    return said + [
        (each.protocol_type, each.group_state.lower(), each.group_type.lower())
        for each in listed
        if each.group_id == group_id
    ]


async def answers(servers: str) -> list[Any]:
    """Everything that is asked of one broker."""
    lives: list[list[Any]] = [[] for _ in range(10)]

    async def one(version: int) -> None:
        lives[version] = await life(servers, version)

    async with trio.open_nursery() as nursery:
        for version in range(10):
            nursery.start_soon(one, version)
    return [*await refusals(servers), *lives, *await static(servers)]


def test_members_are_answered_alike(version: str, tmp_path: Path) -> None:
    """JoinGroup 0 to 9 and all that follows, code by code."""
    if version.startswith("3."):
        pytest.skip("the coordinator before Kafka 4 has other codes in places")
    with kafka_broker(version, tmp_path / "kafka") as theirs, ours_at(tmp_path) as ours:
        said = []
        for servers in (theirs.bootstrap_servers, ours.bootstrap_servers):
            make_topic(servers, "t")
            COMMIT["kafka-python"](servers, "first", "t", Committed(1, ""))  # makes the topic of offsets
            said.append(trio.run(answers, servers))
    differences = [pair for pair in zip(*said, strict=True) if pair[0] != pair[1]]
    assert differences == []


async def begin(servers: str) -> tuple[str, int]:
    """A member with an assignment, which then goes without a word: its id and generation."""
    async with members(servers, 1, "moved") as (member,):
        await settle(member)
        return member.member_id, member.generation_id


async def go_on(servers: str, member_id: str, generation_id: int) -> list[Any]:
    """The same member finds its group again."""
    async with members(servers, 1, "moved") as (member,):
        member.member_id, member.generation_id = member_id, generation_id
        answer = await once(member.sync, lambda answer: answer.error_code not in NOT_LOADED)
        return [answer.error_code, answer.assignment, await member.heartbeat()]


def test_a_real_broker_goes_on_with_our_group(broker: KafkaBroker, version: str, tmp_path: Path) -> None:
    """Kafka's dump tool reads its record, and its member's next heartbeat is answered by Kafka."""
    with ours_at(tmp_path) as ours:
        known = trio.run(begin, ours.bootstrap_servers)
    data = tmp_path / "ours" / "__consumer_offsets-0"
    said = dump_log(version, next(data.glob("*.log")), options=("--offsets-decoder",))
    assert known[0] in said
    take_over(broker, data)
    assert trio.run(go_on, broker.bootstrap_servers, *known) == [0, b"a", 0]


def test_we_go_on_with_a_real_brokers_group(broker: KafkaBroker, tmp_path: Path) -> None:
    """The other way round."""
    servers = broker.bootstrap_servers
    make_topic(servers, "t")
    COMMIT["kafka-python"](servers, "first", "t", Committed(1, ""))  # makes the topic of offsets
    known = trio.run(begin, servers)
    broker.stop()
    shutil.copytree(broker.data / "__consumer_offsets-0", tmp_path / "ours" / "__consumer_offsets-0")
    shutil.copy(broker.data / "meta.properties", tmp_path / "ours")
    with ours_at(tmp_path) as ours:
        assert trio.run(go_on, ours.bootstrap_servers, *known) == [0, b"a", 0]
