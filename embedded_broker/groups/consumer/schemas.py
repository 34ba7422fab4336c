"""Keys and values of a group's records as Kafka declares them (group-coordinator's message schemas).

The number in front of a key is the kind of its record, in front of a value the version, so far always 0.
Fields that Kafka added later stand behind tags: ``MetadataHash`` (4.1), ``AssignmentTimestamp`` and
``AssignmentEpochs`` (4.3), and the pattern's record is of 4.0.
"""

from __future__ import annotations

from splashdam.wire.fields import array, binary, int8, int32, int64, string, struct, uuid
from splashdam.wire.message import Struct
from splashdam.wire.persisted import Persisted

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
    """What a classic member told when it joined."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class MemberMetadataValue(Persisted, versions="0", flexible="0+"):
    """What a member says of itself."""

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
    """For which group epoch the target assignment is."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class TargetTopicPartitions(Struct):
    """Partitions of one topic in a target assignment."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


class TargetAssignmentMemberValue(Persisted, versions="0", flexible="0+"):
    """A member's share."""

    topic_partitions: list[TargetTopicPartitions] = array(TargetTopicPartitions)


class CurrentTopicPartitions(Struct):
    """Partitions of one topic that a member has; ``assignment_epochs`` is as long as ``partitions``."""

    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")
    assignment_epochs: list[int] | None = array("int32", nullable="0+", default=None, tag=0)


class CurrentMemberAssignmentValue(Persisted, versions="0", flexible="0+"):
    """How far a member has come."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)
    partitions_pending_revocation: list[CurrentTopicPartitions] = array(CurrentTopicPartitions)


class RegularExpressionValue(Persisted, versions="0", flexible="0+"):
    """What a pattern matched."""

    topics: list[str] = array("string")
    version: int = int64()
    timestamp: int = int64()
