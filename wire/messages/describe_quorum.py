"""DescribeQuorum (key 55), versions 0 to 2: who votes in the cluster's metadata, and how far each has got."""

from __future__ import annotations

from splashdam.wire.fields import array, int16, int32, int64, string, uint16, uuid
from splashdam.wire.message import Request, Response, Struct


class AskedPartition(Struct):
    """The metadata log has partition 0 alone."""

    partition_index: int = int32()


class AskedTopic(Struct):
    """``__cluster_metadata`` is the only topic with a quorum."""

    topic_name: str = string()
    partitions: list[AskedPartition] = array(AskedPartition)


class DescribeQuorumRequest(Request["DescribeQuorumResponse"], key=55, versions="0-2", flexible="0+"):
    """The same in all versions."""

    topics: list[AskedTopic] = array(AskedTopic)


class ReplicaState(Struct):
    """A voter or an observer; -1 for what is not known of it."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class PartitionData(Struct):
    """The quorum of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class TopicData(Struct):
    """The quorums of one topic."""

    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class Listener(Struct):
    """Where a controller is reached."""

    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Struct):
    """A controller of the quorum."""

    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+", throttles="none"):
    """One answer per partition; from version 2 on the addresses of the controllers."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, "2+")
