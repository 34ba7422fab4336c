"""ListOffsets (key 2), versions 1 to 11: offsets by timestamp, earliest and latest among them."""

from __future__ import annotations

from splashdam.wire.fields import array, int8, int16, int32, int64, string
from splashdam.wire.message import Request, Response, Struct


class ListOffsetsPartition(Struct):
    """A question: ``timestamp`` in ms, or -1 latest, -2 earliest, -3 of the largest timestamp."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request["ListOffsetsResponse"], key=2, versions="1-11", flexible="6+"):
    """Asked of leaders. ``replica_id`` is -1 for clients; ``isolation_level`` 1 is read_committed."""

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """An answer; offset and timestamp are -1 where no record qualifies."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+", throttles="3+"):
    """One answer per partition of the request."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
