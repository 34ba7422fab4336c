"""Changes of groups as keys and values of ``__consumer_offsets``. Format: docs/format/consumer-offsets.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from splashdam.embedded_broker.groups.consumer import schemas
from splashdam.embedded_broker.groups.consumer.changes import (
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
    SupportedProtocol,
    TopicIdPartition,
)
from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer
from splashdam.wire.persisted import Persisted, decode_persisted, encode_persisted, version_of


class _Kind(NamedTuple):
    """How a kind of record is read: its value's class, and the change that it means."""

    value: type[Persisted]
    change: Callable[[str, Any], Change]
    has_name: bool = False


class ChangeOf(NamedTuple):
    """A change, and of which group."""

    group_id: str
    change: Change


def encode_change(group_id: str, change: Change) -> tuple[bytes, bytes | None]:
    """Key and value of a change's record; no value where it is a tombstone."""
    number, encode = _ENCODERS[type(change)]
    *name, content = change
    key: Persisted = schemas.GroupRecordKey(group_id=group_id)
    if name:
        key = schemas.GroupPartKey(group_id=group_id, name=str(name[0]))
    value = None if content is None else encode_persisted(encode(content), 0)
    return encode_persisted(key, number), value


def decode_change(key: Buffer, value: Buffer | None) -> ChangeOf | None:
    """What a record says of a group; None for records of other kinds.

    Raises:
        CorruptMessageError: key or value is not what its version says.
    """
    try:
        number = version_of(key)
        kind = _KINDS.get(number)
        if kind is None:
            return None
        found = None if value is None else decode_persisted(kind.value, value)
        if kind.has_name:
            part = decode_persisted(schemas.GroupPartKey, key)
            return ChangeOf(part.group_id, kind.change(part.name, found))
        return ChangeOf(decode_persisted(schemas.GroupRecordKey, key).group_id, kind.change("", found))
    except ProtocolError as error:
        raise CorruptMessageError(f"a record of a consumer group cannot be read: {error}") from error


def _epoch_value(epoch: int) -> schemas.GroupMetadataValue:
    return schemas.GroupMetadataValue(epoch=epoch)


def _topics_value(topics: Mapping[str, TopicShape]) -> schemas.PartitionMetadataValue:
    return schemas.PartitionMetadataValue(
        topics=[
            schemas.TopicMetadata(topic_id=shape.topic_id, topic_name=name, num_partitions=shape.partitions)
            for name, shape in sorted(topics.items())
        ]
    )


def _metadata_value(metadata: MemberMetadata) -> schemas.MemberMetadataValue:
    classic = metadata.classic
    return schemas.MemberMetadataValue(
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
        else schemas.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                schemas.ClassicProtocol(name=name, metadata=data)
                for name, data in classic.supported_protocols
            ],
        ),
    )


def _target_epoch_value(epoch: int) -> schemas.TargetAssignmentMetadataValue:
    return schemas.TargetAssignmentMetadataValue(assignment_epoch=epoch)


def _target_value(share: Share) -> schemas.TargetAssignmentMemberValue:
    return schemas.TargetAssignmentMemberValue(
        topic_partitions=[
            schemas.TargetTopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(share)
        ]
    )


def _current_value(current: CurrentAssignment) -> schemas.CurrentMemberAssignmentValue:
    return schemas.CurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state.value,
        assigned_partitions=_held_value(current.assigned),
        partitions_pending_revocation=_held_value(current.pending_revocation),
    )


def _held_value(held: Held) -> list[schemas.CurrentTopicPartitions]:
    return [
        schemas.CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=partitions,
            assignment_epochs=[held[TopicIdPartition(topic_id, each)] for each in partitions],
        )
        for topic_id, partitions in by_topic(held)
    ]


def _regex_value(resolved: ResolvedRegex) -> schemas.RegularExpressionValue:
    return schemas.RegularExpressionValue(topics=sorted(resolved.topics), timestamp=resolved.timestamp_ms)


def by_topic(partitions: Iterable[TopicIdPartition]) -> list[tuple[bytes, list[int]]]:
    """Partitions as records and answers have them: numbers by topic id, both in order."""
    return [
        (topic_id, [each.partition for each in some])
        for topic_id, some in groupby(sorted(partitions), key=lambda each: each.topic_id)
    ]


def _epoch_change(_: str, value: schemas.GroupMetadataValue | None) -> Change:
    return GroupEpochChange(None if value is None else value.epoch)


def _topics_change(_: str, value: schemas.PartitionMetadataValue | None) -> Change:
    if value is None:
        return TopicsChange(None)
    return TopicsChange(
        {each.topic_name: TopicShape(each.topic_id, each.num_partitions) for each in value.topics}
    )


def _metadata_change(member_id: str, value: schemas.MemberMetadataValue | None) -> Change:
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
            tuple(SupportedProtocol(each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        ),
    )
    return MetadataChange(member_id, metadata)


def _target_epoch_change(_: str, value: schemas.TargetAssignmentMetadataValue | None) -> Change:
    return TargetEpochChange(None if value is None else value.assignment_epoch)


def _target_change(member_id: str, value: schemas.TargetAssignmentMemberValue | None) -> Change:
    if value is None:
        return TargetChange(member_id, None)
    partitions = (
        TopicIdPartition(each.topic_id, number)
        for each in value.topic_partitions
        for number in each.partitions
    )
    return TargetChange(member_id, frozenset(partitions))


def _current_change(member_id: str, value: schemas.CurrentMemberAssignmentValue | None) -> Change:
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


def _held(topics: list[schemas.CurrentTopicPartitions], member_epoch: int) -> Held:
    """A Kafka before 4.3 writes no epochs of partitions: they count from the member's."""
    return {
        TopicIdPartition(each.topic_id, number): epoch
        for each in topics
        for number, epoch in zip(
            each.partitions, each.assignment_epochs or [member_epoch] * len(each.partitions), strict=False
        )
    }


def _regex_change(regex: str, value: schemas.RegularExpressionValue | None) -> Change:
    if value is None:
        return RegexChange(regex, None)
    return RegexChange(regex, ResolvedRegex(frozenset(value.topics), value.timestamp))


_KINDS = {
    schemas.GROUP_METADATA: _Kind(schemas.GroupMetadataValue, _epoch_change),
    schemas.PARTITION_METADATA: _Kind(schemas.PartitionMetadataValue, _topics_change),
    schemas.MEMBER_METADATA: _Kind(schemas.MemberMetadataValue, _metadata_change, has_name=True),
    schemas.TARGET_ASSIGNMENT_METADATA: _Kind(schemas.TargetAssignmentMetadataValue, _target_epoch_change),
    schemas.TARGET_ASSIGNMENT_MEMBER: _Kind(
        schemas.TargetAssignmentMemberValue, _target_change, has_name=True
    ),
    schemas.CURRENT_MEMBER_ASSIGNMENT: _Kind(
        schemas.CurrentMemberAssignmentValue, _current_change, has_name=True
    ),
    schemas.REGULAR_EXPRESSION: _Kind(schemas.RegularExpressionValue, _regex_change, has_name=True),
}

_ENCODERS: Mapping[type, tuple[int, Callable[[Any], Persisted]]] = {
    GroupEpochChange: (schemas.GROUP_METADATA, _epoch_value),
    TopicsChange: (schemas.PARTITION_METADATA, _topics_value),
    MetadataChange: (schemas.MEMBER_METADATA, _metadata_value),
    TargetEpochChange: (schemas.TARGET_ASSIGNMENT_METADATA, _target_epoch_value),
    TargetChange: (schemas.TARGET_ASSIGNMENT_MEMBER, _target_value),
    CurrentChange: (schemas.CURRENT_MEMBER_ASSIGNMENT, _current_value),
    RegexChange: (schemas.REGULAR_EXPRESSION, _regex_value),
}
