"""Records of consumer groups in ``__consumer_offsets``. Format: docs/format/consumer-offsets.md.

Keys and values are declared as in Kafka's group-coordinator schemas. A key begins with the kind of its
record, a value with its version, so far always 0. Fields that Kafka added later are tagged: ``MetadataHash``
(4.1), ``AssignmentTimestamp`` and ``AssignmentEpochs`` (4.3), and the pattern's record is of 4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from splashdam.embedded_broker.groups.classic.members import AssignorProtocol
from splashdam.embedded_broker.groups.consumer.group import (
    Change,
    CurrentChange,
    GroupEpochChange,
    MetadataChange,
    RegexChange,
    ResolvedRegex,
    TargetChange,
    TargetEpochChange,
    TopicsChange,
    TopicShape,
)
from splashdam.embedded_broker.groups.consumer.member import (
    ClassicSide,
    CurrentAssignment,
    Held,
    MemberMetadata,
    MemberState,
    Share,
    TopicIdPartition,
)
from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer
from splashdam.wire.fields import array, binary, int8, int32, int64, string, struct, uuid
from splashdam.wire.message import Struct
from splashdam.wire.persisted import Persisted, decode_persisted, encode_persisted, version_of

GROUP_METADATA = 3
PARTITION_METADATA = 4
MEMBER_METADATA = 5
TARGET_ASSIGNMENT_METADATA = 6
TARGET_ASSIGNMENT_MEMBER = 7
CURRENT_MEMBER_ASSIGNMENT = 8
REGULAR_EXPRESSION = 16


class GroupRecordKey(Persisted, versions="3-6"):
    """Of a record that a group has once: kinds 3, 4 and 6."""

    group_id: str = string()


class GroupPartKey(Persisted, versions="5-16"):
    """Of a record for each member (kinds 5, 7 and 8) or each pattern (16)."""

    group_id: str = string()
    name: str = string()


class GroupMetadataValue(Persisted, versions="0", flexible="0+"):
    """The group epoch."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class PartitionRacks(Struct):
    """The racks of one partition, which Kafka no longer writes."""

    partition: int = int32()
    racks: list[str] = array("string")


class TopicMetadata(Struct):
    """A subscribed topic."""

    topic_id: bytes = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionRacks] = array(PartitionRacks)


class PartitionMetadataValue(Persisted, versions="0", flexible="0+"):
    """The subscribed topics."""

    topics: list[TopicMetadata] = array(TopicMetadata)


class ClassicProtocol(Struct):
    """A protocol that a classic member supports."""

    name: str = string()
    metadata: bytes = binary()


class ClassicMemberMetadata(Struct):
    """JoinGroup data of a member that speaks the classic protocol."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class MemberMetadataValue(Persisted, versions="0", flexible="0+"):
    """A member's metadata."""

    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    subscribed_topic_regex: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, nullable="0+", default=None, tag=0
    )


class TargetAssignmentMetadataValue(Persisted, versions="0", flexible="0+"):
    """The group epoch of the target assignment."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class TargetTopicPartitions(Struct):
    """Partitions of one topic in a target assignment."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class TargetAssignmentMemberValue(Persisted, versions="0", flexible="0+"):
    """A member's target assignment."""

    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


class CurrentTopicPartitions(Struct):
    """Partitions of one topic of a member; ``assignment_epochs`` is as long as ``partitions``."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")
    assignment_epochs: list[int] | None = array("int32", nullable="0+", default=None, tag=0)


class CurrentMemberAssignmentValue(Persisted, versions="0", flexible="0+"):
    """A member's current assignment."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


class RegularExpressionValue(Persisted, versions="0", flexible="0+"):
    """The topics that match a pattern."""

    topics: list[str] = array("string")
    version: int = int64()
    timestamp: int = int64()


class _Kind(NamedTuple):
    """Decoding of a kind of record: the class of its value, and the change that it stands for."""

    value: type[Persisted]
    change: Callable[[str, Any], Change]
    has_name: bool = False


class ChangeOf(NamedTuple):
    """A change and its group."""

    group_id: str
    change: Change


def encode_change(group_id: str, change: Change) -> tuple[bytes, bytes | None]:
    """Encode a change as key and value; the value of a tombstone is None."""
    number, encode = _ENCODERS[type(change)]
    *name, content = change
    key: Persisted = GroupRecordKey(group_id=group_id)
    if name:
        key = GroupPartKey(group_id=group_id, name=str(name[0]))
    value = None if content is None else encode_persisted(encode(content), 0)
    return encode_persisted(key, number), value


def decode_change(key: Buffer, value: Buffer | None) -> ChangeOf | None:
    """Decode a record as a change of a group; None for records of other kinds.

    Raises:
        CorruptMessageError: key or value does not fit its version.
    """
    try:
        number = version_of(key)
        kind = _KINDS.get(number)
        if kind is None:
            return None
        found = None if value is None else decode_persisted(kind.value, value)
        if kind.has_name:
            part = decode_persisted(GroupPartKey, key)
            return ChangeOf(part.group_id, kind.change(part.name, found))
        return ChangeOf(decode_persisted(GroupRecordKey, key).group_id, kind.change("", found))
    except ProtocolError as error:
        raise CorruptMessageError(f"a record of a consumer group cannot be read: {error}") from error


def _epoch_value(epoch: int) -> GroupMetadataValue:
    return GroupMetadataValue(epoch=epoch)


def _topics_value(topics: Mapping[str, TopicShape]) -> PartitionMetadataValue:
    return PartitionMetadataValue(
        topics=[
            TopicMetadata(topic_id=shape.topic_id, topic_name=name, num_partitions=shape.partitions)
            for name, shape in sorted(topics.items())
        ]
    )


def _metadata_value(metadata: MemberMetadata) -> MemberMetadataValue:
    classic = metadata.classic
    return MemberMetadataValue(
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=sorted(metadata.topic_names),
        subscribed_topic_regex=metadata.topic_regex,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        server_assignor=metadata.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=data) for name, data in classic.supported_protocols
            ],
        ),
    )


def _target_epoch_value(epoch: int) -> TargetAssignmentMetadataValue:
    return TargetAssignmentMetadataValue(assignment_epoch=epoch)


def _target_value(share: Share) -> TargetAssignmentMemberValue:
    return TargetAssignmentMemberValue(
        topic_partitions=[
            TargetTopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(share)
        ]
    )


def _current_value(current: CurrentAssignment) -> CurrentMemberAssignmentValue:
    return CurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state.value,
        assigned_partitions=_held_value(current.assigned),
        partitions_pending_revocation=_held_value(current.pending_revocation),
    )


def _held_value(held: Held) -> list[CurrentTopicPartitions]:
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=partitions,
            assignment_epochs=[held[TopicIdPartition(topic_id, each)] for each in partitions],
        )
        for topic_id, partitions in by_topic(held)
    ]


def _regex_value(resolved: ResolvedRegex) -> RegularExpressionValue:
    return RegularExpressionValue(topics=sorted(resolved.topics), timestamp=resolved.timestamp_ms)


def by_topic(partitions: Iterable[TopicIdPartition]) -> list[tuple[bytes, list[int]]]:
    """Group partitions by topic id, both sorted, as records and answers list them."""
    return [
        (topic_id, [each.partition for each in some])
        for topic_id, some in groupby(sorted(partitions), key=lambda each: each.topic_id)
    ]


def _epoch_change(_: str, value: GroupMetadataValue | None) -> Change:
    return GroupEpochChange(None if value is None else value.epoch)


def _topics_change(_: str, value: PartitionMetadataValue | None) -> Change:
    if value is None:
        return TopicsChange(None)
    return TopicsChange(
        {each.topic_name: TopicShape(each.topic_id, each.num_partitions) for each in value.topics}
    )


def _metadata_change(member_id: str, value: MemberMetadataValue | None) -> Change:
    if value is None:
        return MetadataChange(member_id, None)
    classic = value.classic_member_metadata
    metadata = MemberMetadata(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicSide(
            classic.session_timeout_ms,
            tuple(AssignorProtocol(each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        ),
    )
    return MetadataChange(member_id, metadata)


def _target_epoch_change(_: str, value: TargetAssignmentMetadataValue | None) -> Change:
    return TargetEpochChange(None if value is None else value.assignment_epoch)


def _target_change(member_id: str, value: TargetAssignmentMemberValue | None) -> Change:
    if value is None:
        return TargetChange(member_id, None)
    partitions = (
        TopicIdPartition(each.topic_id, number)
        for each in value.topic_partitions
        for number in each.partitions
    )
    return TargetChange(member_id, frozenset(partitions))


def _current_change(member_id: str, value: CurrentMemberAssignmentValue | None) -> Change:
    if value is None:
        return CurrentChange(member_id, None)
    try:
        state = MemberState(value.state)
    except ValueError:
        state = MemberState.UNKNOWN
    current = CurrentAssignment(
        state=state,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        assigned=_held(value.assigned_partitions, value.member_epoch),
        pending_revocation=_held(value.partitions_pending_revocation, value.member_epoch),
    )
    return CurrentChange(member_id, current)


def _held(topics: list[CurrentTopicPartitions], member_epoch: int) -> Held:
    """Return held partitions; a Kafka before 4.3 writes no epochs for them, so they get the member's."""
    return {
        TopicIdPartition(each.topic_id, number): epoch
        for each in topics
        for number, epoch in zip(
            each.partitions, each.assignment_epochs or [member_epoch] * len(each.partitions), strict=False
        )
    }


def _regex_change(regex: str, value: RegularExpressionValue | None) -> Change:
    if value is None:
        return RegexChange(regex, None)
    return RegexChange(regex, ResolvedRegex(frozenset(value.topics), value.timestamp))


_KINDS = {
    GROUP_METADATA: _Kind(GroupMetadataValue, _epoch_change),
    PARTITION_METADATA: _Kind(PartitionMetadataValue, _topics_change),
    MEMBER_METADATA: _Kind(MemberMetadataValue, _metadata_change, has_name=True),
    TARGET_ASSIGNMENT_METADATA: _Kind(TargetAssignmentMetadataValue, _target_epoch_change),
    TARGET_ASSIGNMENT_MEMBER: _Kind(TargetAssignmentMemberValue, _target_change, has_name=True),
    CURRENT_MEMBER_ASSIGNMENT: _Kind(CurrentMemberAssignmentValue, _current_change, has_name=True),
    REGULAR_EXPRESSION: _Kind(RegularExpressionValue, _regex_change, has_name=True),
}

_ENCODERS: Mapping[type, tuple[int, Callable[[Any], Persisted]]] = {
    GroupEpochChange: (GROUP_METADATA, _epoch_value),
    TopicsChange: (PARTITION_METADATA, _topics_value),
    MetadataChange: (MEMBER_METADATA, _metadata_value),
    TargetEpochChange: (TARGET_ASSIGNMENT_METADATA, _target_epoch_value),
    TargetChange: (TARGET_ASSIGNMENT_MEMBER, _target_value),
    CurrentChange: (CURRENT_MEMBER_ASSIGNMENT, _current_value),
    RegexChange: (REGULAR_EXPRESSION, _regex_value),
}
