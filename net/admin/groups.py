"""Consumer groups: list, describe and delete them; read, commit and delete their offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.errors import ProtocolError
from splashdam.model.transactions import OffsetAndMetadata
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.net.connection.connection import Connection
from splashdam.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from splashdam.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from splashdam.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from splashdam.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from splashdam.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from splashdam.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from splashdam.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

LAST_WITH_NAMES = 9
"""Newer versions of OffsetCommit and OffsetFetch use topic ids instead of names."""

_FIRST_WITH_GROUPS = 8


class ListedGroup(NamedTuple):
    """A group as its coordinator lists it.

    Attributes:
        group_id: name of the group.
        protocol_type: ``consumer`` for consumers; empty if the group only stores offsets.
        state: Kafka's name of the state; empty if the broker is too old to send it.
        group_type: ``classic`` or ``consumer``, likewise.
    """

    group_id: str
    protocol_type: str
    state: str
    group_type: str


async def list_groups(client: ClusterClient) -> list[ListedGroup]:
    """Return the groups of all coordinators, sorted.

    Raises:
        BrokerResponseError: a coordinator rejected the request.
        KafkaTimeoutError: the cluster did not answer.
    """

    def groups(answer: ListGroupsResponse) -> list[ListedGroup]:
        if answer.error_code:
            raise error_for(answer.error_code, "listing groups")
        return [
            ListedGroup(each.group_id, each.protocol_type, each.group_state, each.group_type)
            for each in answer.groups
        ]

    found: list[ListedGroup] = []
    for node in (await client.cluster()).nodes.values():
        found += await client.broker(node, ListGroupsRequest(), groups)
    return sorted(found)


async def delete_group(client: ClusterClient, group_id: str) -> None:
    """Delete a group without members, and its committed offsets.

    Raises:
        BrokerResponseError: the group does not exist, or has members.
        KafkaTimeoutError: the cluster did not answer.
    """

    def check(answer: DeleteGroupsResponse) -> None:
        for each in answer.results:
            if each.error_code:
                raise error_for(each.error_code, f"group {group_id!r}")

    await client.coordinator(group_id, DeleteGroupsRequest(groups_names=[group_id]), check)


async def committed_offsets(client: ClusterClient, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return all committed offsets of a group; none if it does not exist.

    Raises:
        BrokerResponseError: the coordinator rejected the request.
        KafkaTimeoutError: the cluster did not answer.
    """

    def request(connection: Connection) -> OffsetFetchRequest:
        if connection.version_for(OffsetFetchRequest, LAST_WITH_NAMES) >= _FIRST_WITH_GROUPS:
            return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        return OffsetFetchRequest(group_id=group_id, topics=None)

    def offsets(answer: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
        found = answer.groups[0] if answer.groups else answer
        if found.error_code:
            raise error_for(found.error_code, f"group {group_id!r}")
        committed = {}
        for topic in found.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    raise error_for(each.error_code, f"group {group_id!r}, {where}")
                if each.committed_offset >= 0:
                    committed[where] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", each.committed_leader_epoch
                    )
        return committed

    return await client.coordinator(group_id, request, offsets, newest=LAST_WITH_NAMES)


async def commit_offsets(
    client: ClusterClient, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> None:
    """Commit offsets for a group without members.

    Raises:
        BrokerResponseError: the group has members, or a partition does not exist.
        KafkaTimeoutError: the cluster did not answer.
    """
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=each.partition,
                    committed_offset=offsets[each].offset,
                    committed_leader_epoch=offsets[each].leader_epoch,
                    committed_metadata=offsets[each].metadata,
                )
                for each in partitions
            ],
        )
        for topic, partitions in _by_topic(offsets)
    ]

    def check(answer: OffsetCommitResponse) -> None:
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code:
                    raise error_for(
                        each.error_code, f"group {group_id!r}, {topic.name}-{each.partition_index}"
                    )

    request = OffsetCommitRequest(group_id=group_id, topics=topics)
    await client.coordinator(group_id, request, check, newest=LAST_WITH_NAMES)


async def delete_offsets(client: ClusterClient, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete a group's committed offsets of some partitions.

    Raises:
        BrokerResponseError: the group does not exist, or a member is subscribed to the topic.
        KafkaTimeoutError: the cluster did not answer.
    """
    topics = [
        OffsetDeleteRequestTopic(
            name=topic,
            partitions=[OffsetDeleteRequestPartition(partition_index=each.partition) for each in chosen],
        )
        for topic, chosen in _by_topic(partitions)
    ]

    def check(answer: OffsetDeleteResponse) -> None:
        if answer.error_code:
            raise error_for(answer.error_code, f"group {group_id!r}")
        for topic in answer.topics:
            for each in topic.partitions:
                if each.error_code:
                    raise error_for(
                        each.error_code, f"group {group_id!r}, {topic.name}-{each.partition_index}"
                    )

    await client.coordinator(group_id, OffsetDeleteRequest(group_id=group_id, topics=topics), check)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    return [(topic, list(each)) for topic, each in groupby(sorted(partitions), lambda where: where.topic)]


_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")


class GroupMember(NamedTuple):
    """A member of a group.

    Attributes:
        member_id: assigned by the coordinator.
        instance_id: ``group.instance.id`` of a static member, else None.
        client_id: of the member's client.
        host: address of the member.
        assignment: the assigned partitions.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group with its members.

    Attributes:
        group_id: name of the group.
        state: Kafka's name of the state, for example ``Stable`` or ``Empty``.
        group_type: ``classic`` or ``consumer``.
        assignor: name of the partition assignor.
        members: in the coordinator's order.
    """

    group_id: str
    state: str
    group_type: str
    assignor: str
    members: tuple[GroupMember, ...]


# Of a classic group, or of a broker that does not know the consumer protocol (KIP-848).
_NOT_OF_THIS_PROTOCOL = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


async def describe_group(client: ClusterClient, group_id: str) -> GroupDescription | None:
    """Describe a group of either protocol; return None if it does not exist.

    Raises:
        BrokerResponseError: the coordinator rejected the request.
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
        raise error_for(ErrorCode.GROUP_ID_NOT_FOUND)  # as newer versions say
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
    """Decode the assignment of a classic group's member (Kafka: ``ConsumerProtocolAssignment``).

    Raises:
        ProtocolError: the bytes are no assignment.
    """
    if not data:
        return ()
    try:
        return tuple(_partitions(memoryview(data)))
    except (struct.error, UnicodeDecodeError) as error:
        raise ProtocolError(
            f"a member's assignment of {len(data)} bytes cannot be decoded: {error}"
        ) from error


def _partitions(data: memoryview) -> list[TopicPartition]:
    position = _INT16.size  # behind the version: all begin alike
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
