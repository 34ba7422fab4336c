"""Heartbeats with many names and commits of much: other clients have their turns meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import pytest
import trio
from support.broker.broker_talk import Talk
from support.broker.group_talk import RawMember
from support.broker.steps import at_once

from splashdam.embedded_broker.broker import Broker
from splashdam.embedded_broker.execution.answers import Account, Address
from splashdam.embedded_broker.groups.consumer.context import TOPIC_LETTERS, BrokerTopics
from splashdam.embedded_broker.groups.consumer.group import TopicShape
from splashdam.embedded_broker.groups.consumer.membership import ConsumerMembership, Decided, HeartbeatWork
from splashdam.embedded_broker.groups.consumer.membership import HeartbeatReply as Reply
from splashdam.embedded_broker.groups.offset_commit import has_partition, is_too_large
from splashdam.embedded_broker.groups.offset_records import CommittedOffset, NewOffset
from splashdam.embedded_broker.groups.patterns import compiled
from splashdam.embedded_broker.handlers import consumer_group_describe, describe_groups
from splashdam.embedded_broker.serving import dispatch
from splashdam.embedded_broker.serving.registry import RequestContext
from splashdam.embedded_broker.topics import internal_topics
from splashdam.embedded_broker.topics.internal_topics import InternalTopic
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.net.memory import MemoryNetwork
from splashdam.storage.topic_names import CONSUMER_OFFSETS
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from splashdam.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from splashdam.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from splashdam.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from splashdam.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

NAMES = ["t", *(f"name-{number}" for number in range(30_000))]
LIMIT = 10


@pytest.fixture(autouse=True)
def _decoded_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """In these tests the decision runs beside the loop, not the decoding."""
    monkeypatch.setattr(dispatch, "TURN_ELEMENTS", 1 << 30)
    monkeypatch.setattr(dispatch, "TURN_BYTES", 1 << 30)


async def heartbeat(
    talk: Talk, member_id: str = "m", epoch: int = 0, names: list[str] = NAMES
) -> ConsumerGroupHeartbeatResponse:
    """Joins with names, or says them again."""
    answer = await talk.ask(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=names,
            topic_partitions=[],
        ),
        1,
    )
    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
    return answer


async def test_many_names_were_subscribed_to_in_one_step(
    broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member with 30,000 names kept the loop for 0.1 s whenever it said them, and 10 ms when it did not."""
    broker.topics.create("t")
    looked_up: list[str] = []
    shape = BrokerTopics.shape

    def counted(topics: BrokerTopics, name: str) -> TopicShape | None:
        looked_up.append(name)
        return shape(topics, name)

    monkeypatch.setattr(BrokerTopics, "shape", counted)
    for beside, epoch in enumerate((0, 1), 1):
        answer = await heartbeat(talk, epoch=epoch)
        assert (answer.error_code, answer.member_epoch) == (0, 1)
        assert answer.assignment is not None
        assert [each.partitions for each in answer.assignment.topic_partitions] == [[0]]
        assert broker.turns.beside == beside
    small = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)
    assert (await talk.ask(small, 1)).assignment is None
    assert set(looked_up) <= {"t", CONSUMER_OFFSETS}


async def test_a_group_that_is_named_often_was_encoded_in_one_step(broker: Broker, talk: Talk) -> None:
    """Two thousand descriptions of 24 KB are 49 MB, which kept the loop for 0.1 s."""
    broker.topics.create("t")
    names = NAMES[:2_000]
    await heartbeat(talk, names=names)
    before = broker.turns.beside
    answer = await talk.ask(ConsumerGroupDescribeRequest(group_ids=["g"] * 40), 1)
    assert broker.turns.beside == before + 1
    assert [each.members[0].subscribed_topic_names for each in answer.groups] == [sorted(names)] * 40
    once = await talk.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
    assert once.groups == answer.groups[:1]
    assert broker.turns.beside == before + 1


async def test_an_answer_about_groups_had_no_bound(
    broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of 100 KB that named a large group again and again was answered with gigabytes."""
    monkeypatch.setattr(consumer_group_describe, "ANSWER_BYTES", 3 * 1024)
    broker.topics.create("t")
    await heartbeat(talk, names=["t"])
    answer: ConsumerGroupDescribeResponse = await talk.ask(
        ConsumerGroupDescribeRequest(group_ids=["g"] * 4), 1
    )
    told = [(each.error_code, len(each.members)) for each in answer.groups]
    known = told.count((0, 1))
    assert 0 < known < 4
    assert told == [(0, 1)] * known + [(ErrorCode.INVALID_REQUEST, 0)] * (4 - known)
    assert [each.group_id for each in answer.groups] == ["g"] * 4


@pytest.mark.parametrize("version", [5, 6])
async def test_an_answer_about_classic_groups_had_no_bound(
    broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Some 8 KB asked for a gigabyte; and where old versions were refused more, the connection was closed."""
    monkeypatch.setattr(describe_groups, "ANSWER_BYTES", 5000)
    member = RawMember(talk)
    await member.join()
    await member.sync({member.member_id: b"s" * 2000})
    answer: DescribeGroupsResponse = await talk.ask(DescribeGroupsRequest(groups=["g"] * 4), version)
    told = [(each.error_code, len(each.members)) for each in answer.groups]
    assert told == [(0, 1)] * 3 + [(ErrorCode.INVALID_REQUEST, 0)]


async def test_a_group_that_changes_while_its_topics_are_authorized_showed_topics_that_are_not(
    broker: Broker, talk: Talk
) -> None:
    """A member joined between two turns: its subscription was described, and nobody had asked about it."""
    broker.topics.create("t")
    await heartbeat(talk, names=NAMES[:20])
    context = RequestContext(broker, 1, None, Address("b", 1), Account())
    steps = consumer_group_describe._described("g", context)
    assert next(steps) == 1
    await heartbeat(talk, "late", names=["secret"])
    described = at_once(steps)
    assert [each.member_id for each in described.members] == ["m"]


async def test_a_pattern_is_matched_beside_the_loop(broker: Broker, talk: Talk) -> None:
    """The steps of a pattern that several groups have are counted for each of them."""
    broker.topics.create("t")
    for number, group_id in enumerate(("g", "h"), 1):
        join = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_regex="t+",
            topic_partitions=[],
        )
        answer = await talk.ask(join, 1)
        assert [each.partitions for each in answer.assignment.topic_partitions] == [[0]]
        assert broker.turns.beside == number
    assert not hasattr(compiled("t+", TOPIC_LETTERS), "_steps")


async def test_a_quiet_heartbeat_needs_no_thread(broker: Broker, talk: Talk) -> None:
    """However many partitions the group has."""
    broker.topics.create("t", 4_000)
    join = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    before = broker.turns.beside
    epoch = (await talk.ask(join, 1)).member_epoch
    beside = broker.turns.beside
    assert beside > before
    quiet = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
    assert (await talk.ask(quiet, 1)).error_code == 0
    assert broker.turns.beside == beside


async def test_the_group_changes_while_a_large_heartbeat_is_decided_on(
    broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member leaves meanwhile: the heartbeat is decided again, and the member stays away."""
    broker.topics.create("t")
    await heartbeat(talk, "first")
    do, tries = HeartbeatWork.do, 0

    def disturbed(hearing: HeartbeatWork, max_bytes: int) -> Decided[Reply]:
        nonlocal tries
        tries += 1
        decided = do(hearing, max_bytes)
        if tries == 1:
            group = broker.groups.find("g")
            assert group is not None
            assert isinstance(group.membership, ConsumerMembership)
            group.membership._fence("session", "first", "is tired")
        return decided

    monkeypatch.setattr(HeartbeatWork, "do", disturbed)
    answer = await heartbeat(talk, "second")
    assert (answer.error_code, tries) == (0, 2)
    assert answer.assignment is not None
    assert [each.partitions for each in answer.assignment.topic_partitions] == [[0]]
    group = broker.groups.find("g")
    assert group is not None
    assert isinstance(group.membership, ConsumerMembership)
    assert list(group.membership.group.members) == ["second"]


async def test_a_heartbeat_that_is_always_outrun_is_answered(
    broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quicker ones of the group made it decide anew for ever; after a few rounds it decides in the loop."""
    broker.topics.create("t")
    await heartbeat(talk, "first")
    do, tries = HeartbeatWork.do, []

    def outrun(hearing: HeartbeatWork, max_bytes: int) -> Decided[Reply]:
        tries.append(max_bytes)
        decided = do(hearing, max_bytes)
        if max_bytes:  # not in the loop
            hearing._membership.group = hearing._membership.group.copy()
        return decided

    monkeypatch.setattr(HeartbeatWork, "do", outrun)
    assert (await heartbeat(talk, "second")).error_code == 0
    assert len(tries) == 4


async def test_the_partitions_of_a_topic_were_shared_out_in_the_loop(broker: Broker, talk: Talk) -> None:
    """One name of 18,000 partitions counted as one element, and the first member kept the loop for 79 ms."""
    broker.topics.create("t", 5000)
    before = broker.turns.beside
    answer = await heartbeat(talk, names=["t"])
    assert answer.assignment is not None
    assert [len(each.partitions) for each in answer.assignment.topic_partitions] == [5000]
    assert broker.turns.beside > before


async def test_many_join_at_once(broker: Broker, network: MemoryNetwork) -> None:
    """Each decision is for the group as it is when it is written."""
    broker.topics.create("t")
    codes = []

    async def join(number: int) -> None:
        async with await network.connect("broker", 9092) as stream:
            codes.append((await heartbeat(Talk(stream), f"m{number}")).error_code)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(join, number)
    assert codes == [0] * 6
    group = broker.groups.find("g")
    assert group is not None
    assert isinstance(group.membership, ConsumerMembership)
    assert len(group.membership.group.members) == group.membership.group.epoch == 6


class Unwalked(str):
    """A text whose letters nobody looks at one by one."""

    __slots__ = ()

    def __iter__(self) -> None:  # type: ignore[override]  # that is the point
        raise AssertionError("letter by letter")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("m" * LIMIT, False),
        ("m" * (LIMIT + 1), True),
        ("\U0001f600" * (LIMIT // 2), False),
        ("\U0001f600" * (LIMIT // 2) + "m", True),
        ("\xe4" * LIMIT, False),
        ("\xe4" * (LIMIT - 1) + "\U0001f600", True),
    ],
)
def test_metadata_was_counted_letter_by_letter(metadata: str, *, expected: bool) -> None:
    """30,000 partitions with 1 KB each took the loop 0.1 s a turn."""
    assert is_too_large(Unwalked(metadata), LIMIT) is expected


class Partitions(Sequence[int]):
    """Counts how often somebody looks."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self.looks = 0

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        self.looks += 1
        return self._numbers[place]


def test_all_partitions_were_looked_at_for_each() -> None:
    """18,000 offsets of one topic took 2 s; a topic may lack some partitions."""
    partitions = Partitions(range(0, 40_000, 2))
    assert has_partition(partitions, 20_000)
    assert not has_partition(partitions, 20_001)
    assert not has_partition(partitions, -1)
    assert not has_partition(partitions, 50_000)
    assert partitions.looks < 80


def commit_of(count: int, metadata: str = "") -> OffsetCommitRequest:
    """A commit for so many partitions."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=each, committed_offset=7, committed_metadata=metadata)
        for each in range(count)
    ]
    return OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)]
    )


async def test_all_records_were_encoded_in_one_step(
    broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the log all at once, as one batch; before that they take turns."""
    broker.topics.create("t", 6_000)
    await talk.ask(ApiVersionsRequest(), 0)
    turn, turns = 0, set()
    begin, of = broker.turns.begin, NewOffset.of

    def next_turn() -> None:
        nonlocal turn
        turn += broker.turns.left <= 0
        begin()

    def noted(topic_partition: TopicPartition, committed: CommittedOffset) -> NewOffset:
        turns.add(turn)
        return of(topic_partition, committed)

    monkeypatch.setattr(broker.turns, "begin", next_turn)
    monkeypatch.setattr(NewOffset, "of", noted)
    answer = await talk.ask(commit_of(6_000), 8)
    assert {each.error_code for each in answer.topics[0].partitions} == {0}
    assert len(turns) > 3
    topic = InternalTopic(CONSUMER_OFFSETS, broker)
    (batch,) = topic.read_all(topic.partition_for("g"))
    assert batch.header.record_count == 6_000
    asked = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 5_999])]
    )
    found = (await talk.ask(asked, 7)).topics[0].partitions
    assert [each.committed_offset for each in found] == [7, 7]


async def test_a_batch_was_made_in_vain(broker: Broker, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and values alone are more than a batch may have: nothing is put together."""
    broker.topics.create("t", 400)
    made: list[int] = []
    build = internal_topics.build_batch

    def counted(records: list[tuple[int, bytes, bytes, None]], **rest: Any) -> bytes:
        made.append(len(records))
        return build(records, **rest)

    monkeypatch.setattr(internal_topics, "build_batch", counted)
    for count, expected in ((200, ErrorCode.NONE), (400, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)):
        answer = await talk.ask(commit_of(count, "m" * 4000), 8)
        assert {each.error_code for each in answer.topics[0].partitions} == {expected}
    assert made == [200]
