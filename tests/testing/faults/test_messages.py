"""Errors in the answers of every API and version: where Kafka has them, for what was asked alone."""

from __future__ import annotations

from typing import Any

import pytest
from support.record.wire_values import full_example

from splashdam.model.broker_errors import ErrorCode
from splashdam.testing.faults.messages import (
    Place,
    can_name_topics,
    error_codes,
    leaves,
    merge,
    refusal,
    split,
)
from splashdam.wire.codec import decode, encode
from splashdam.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from splashdam.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from splashdam.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from splashdam.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from splashdam.wire.registry import API_KEYS, Api

CODE = ErrorCode.NOT_LEADER_OR_FOLLOWER
each_api = pytest.mark.parametrize("api", API_KEYS.values(), ids=lambda api: api.name)


def names(topic_id: bytes) -> str | None:
    return topic_id.decode("latin-1").strip("\0") or None


@each_api
def test_every_api_can_be_refused(api: Api) -> None:
    """In every version the answer can be encoded, says the error, and says no other."""
    for version in api.versions:
        request = full_example(api.request, version)
        answer = refusal(request, api.response, version, CODE)
        encoded = b"".join(bytes(part) for part in encode(answer, version))  # type: ignore[arg-type]
        found = decode(api.response, encoded, version)
        assert set(error_codes(found, version)) == {CODE}


@each_api
def test_a_request_in_two_parts_is_the_request(api: Api) -> None:
    """Each place is in one part, and both can be sent."""
    for version in api.versions:
        request = full_example(api.request, version)
        parts = [
            each
            for each in split(request, version, names, lambda place: place.partition == 77)
            if each is not None
        ]
        found = [place for part in parts for place in leaves(part, version, names)]
        assert sorted(map(repr, found)) == sorted(map(repr, leaves(request, version, names)))
        assert all(encode(part, version) for part in parts)
        assert can_name_topics(api.request) or not parts


def produce(**topics: list[int]) -> ProduceRequest:
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index) for index in indexes])
        for name, indexes in topics.items()
    ]
    return ProduceRequest(acks=-1, topic_data=data)


def said(answer: Any) -> dict[Place, int]:
    return {
        Place(topic.name, each.index): each.error_code
        for topic in answer.responses
        for each in topic.partition_responses
    }


def test_produce_is_refused_for_each_partition() -> None:
    """Each partition has the error, and no offset."""
    answer = refusal(produce(a=[0, 3], b=[1]), ProduceResponse, 12, CODE)
    assert isinstance(answer, ProduceResponse)
    assert said(answer) == dict.fromkeys([Place("a", 0), Place("a", 3), Place("b", 1)], CODE)
    assert {each.base_offset for topic in answer.responses for each in topic.partition_responses} == {-1}


def test_a_part_is_refused() -> None:
    """Other partitions keep their answers, even in the same topic."""
    request = produce(a=[0, 3], b=[1])
    chosen, rest = split(request, 12, names, lambda place: place == Place("a", 3))
    assert list(leaves(chosen, 12, names)) == [Place("a", 3)]
    truth = refusal(rest, ProduceResponse, 12, 0)
    both = merge(truth, refusal(chosen, ProduceResponse, 12, CODE), 12)
    assert said(both) == {Place("a", 0): 0, Place("a", 3): CODE, Place("b", 1): 0}


def test_a_lie_replaces_the_truth() -> None:
    """The answer to all of it, with one partition changed: each partition stands there once."""
    truth = refusal(produce(a=[0, 3]), ProduceResponse, 12, 0)
    both = merge(truth, refusal(produce(a=[3]), ProduceResponse, 12, CODE), 12)
    assert said(both) == {Place("a", 0): 0, Place("a", 3): CODE}
    assert [len(topic.partition_responses) for topic in both.responses] == [2]  # type: ignore[attr-defined]


def test_fetch_by_topic_id() -> None:
    """The answer names the topic as the request did; a fetch of nothing has the error at its top."""
    topic = FetchTopic(topic_id=b"t" * 16, partitions=[FetchPartition(partition=5)])
    answer = refusal(FetchRequest(topics=[topic]), FetchResponse, 17, CODE)
    assert isinstance(answer, FetchResponse)
    assert (answer.error_code, answer.responses[0].topic_id) == (0, b"t" * 16)
    assert answer.responses[0].partitions[0].partition_index == 5
    assert answer.responses[0].partitions[0].records == b""  # null breaks librdkafka's consumers
    nothing = refusal(FetchRequest(), FetchResponse, 17, CODE)
    assert nothing.error_code == CODE  # type: ignore[attr-defined]


def test_groups_answer_at_the_top() -> None:
    """A member that leaves has no error of its own beside that of the request."""
    asked = LeaveGroupRequest(members=[MemberIdentity(member_id="m")])
    leaving = refusal(asked, LeaveGroupResponse, 5, ErrorCode.NOT_COORDINATOR)
    assert error_codes(leaving, 5) == [ErrorCode.NOT_COORDINATOR]
    joining = refusal(JoinGroupRequest(), JoinGroupResponse, 9, ErrorCode.NOT_COORDINATOR)
    assert (joining.error_code, joining.generation_id) == (16, -1)  # type: ignore[attr-defined]


def test_offsets_of_all_topics() -> None:
    """A group that asks for all it has committed names no partition: the group has the error."""
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    answer = refusal(asked, OffsetFetchResponse, 9, ErrorCode.NOT_COORDINATOR)
    assert isinstance(answer, OffsetFetchResponse)
    assert [(group.group_id, group.error_code) for group in answer.groups] == [("g", 16)]
