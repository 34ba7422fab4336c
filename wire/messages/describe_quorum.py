"""DescribeQuorum (key 55), versions 0 to 2: voters and observers of the metadata log."""

from __future__ import annotations

from splashdam.wire.fields import array, int16, int32, int64, string, uint16, uuid
from splashdam.wire.message import Request, Response, Struct


class AskedPartition(Struct):
    """The metadata log has only partition 0. Kafka calls this ``PartitionData``."""

    partition_index: int = int32()


class AskedTopic(Struct):
    """Only ``__cluster_metadata`` has a quorum. Kafka calls this ``TopicData``."""

    topic_name: str = string()
    partitions: list[AskedPartition] = array(AskedPartition)


class DescribeQuorumRequest(Request["DescribeQuorumResponse"], key=55, versions="0-2", flexible="0+"):
    topics: list[AskedTopic] = array(AskedTopic)


class ReplicaState(Struct):
    """A voter or an observer; values that the leader does not know are -1."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class Listener(Struct):
    """An address of a controller."""

    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Struct):
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+", throttles="none"):
    """From version 2 on it also has the addresses of the controllers."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, "2+")
