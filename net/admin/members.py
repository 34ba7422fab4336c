"""Who is in a consumer group, and who reads what: groups of both protocols."""

from __future__ import annotations

import struct
from typing import NamedTuple

from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError, ProtocolError
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from splashdam.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


class GroupMember(NamedTuple):
    """One member.

    Attributes:
        member_id: as the group calls it.
        instance_id: of a static member.
        client_id: of its client.
        host: where it is.
        assignment: what it reads.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group.

    Attributes:
        group_id: its name.
        state: as Kafka names it; ``Stable`` or ``Empty`` for example.
        group_type: ``classic`` or ``consumer``.
        assignor: who shares out the partitions.
        members: in the coordinator's order.
    """

    group_id: str
    state: str
    group_type: str
    assignor: str
    members: tuple[GroupMember, ...]


_NOT_OF_THIS_PROTOCOL = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


async def describe_group(client: ClusterClient, group_id: str) -> GroupDescription | None:
    """A group of either protocol; None where it does not exist.

    Raises:
        BrokerResponseError: the coordinator refused.
        KafkaTimeoutError: the cluster did not answer.
    """
    try:
        asked = ConsumerGroupDescribeRequest(group_ids=[group_id])
        return await client.coordinator(group_id, asked, _of_consumer_protocol)
    except BrokerResponseError as error:
        if error.code not in _NOT_OF_THIS_PROTOCOL:
            raise
    try:
        return await client.coordinator(group_id, DescribeGroupsRequest(groups=[group_id]), _of_classic)
    except BrokerResponseError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    return None


def _of_consumer_protocol(answer: ConsumerGroupDescribeResponse) -> GroupDescription:
    (found,) = answer.groups
    if found.error_code:
        raise error_for(found.error_code, found.error_message or f"group {found.group_id!r}")
    members = [
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            tuple(
                TopicPartition(topic.topic_name, number)
                for topic in each.assignment.topic_partitions
                for number in topic.partitions
            ),
        )
        for each in found.members
    ]
    return GroupDescription(
        found.group_id, found.group_state, "consumer", found.assignor_name, tuple(members)
    )


def _of_classic(answer: DescribeGroupsResponse) -> GroupDescription:
    (found,) = answer.groups
    if found.error_code:
        raise error_for(found.error_code, found.error_message or f"group {found.group_id!r}")
    if found.group_state == "Dead":
        raise error_for(ErrorCode.GROUP_ID_NOT_FOUND)  # which older versions do not say
    members = [
        GroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            read_assignment(each.member_assignment) if found.protocol_type == "consumer" else (),
        )
        for each in found.members
    ]
    return GroupDescription(found.group_id, found.group_state, "classic", found.protocol_data, tuple(members))


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """What a member of a classic group was given, as consumers write it: Kafka's ConsumerProtocolAssignment.

    Raises:
        ProtocolError: the bytes are not one.
    """
    if not data:
        return ()
    try:
        return tuple(_partitions(memoryview(data)))
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"a member's assignment of {len(data)} bytes cannot be read: {error}") from error


def _partitions(data: memoryview) -> list[TopicPartition]:
    position = _INT16.size  # of the version: what comes first has never changed
    found = []
    (topics,) = _INT32.unpack_from(data, position)
    position += _INT32.size
    for _ in range(topics):
        (length,) = _INT16.unpack_from(data, position)
        position += _INT16.size
        topic = bytes(data[position : position + length]).decode()
        position += length
        (count,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        numbers = struct.unpack_from(f">{max(count, 0)}i", data, position)
        position += len(numbers) * _INT32.size
        found += [TopicPartition(topic, number) for number in numbers]
    return found
