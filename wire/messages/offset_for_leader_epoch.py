"""OffsetForLeaderEpoch (key 23), versions 2 to 4: the end offset of a leader epoch."""

from __future__ import annotations

from splashdam.wire.fields import array, int16, int32, int64, string
from splashdam.wire.message import Request, Response, Struct


class OffsetForLeaderPartition(Struct):
    """``leader_epoch`` is the one in question; ``current_leader_epoch`` fences an old leader."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1, ignorable=True)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(
    Request["OffsetForLeaderEpochResponse"], key=23, versions="2-4", flexible="4+"
):
    """Sent by followers, and by consumers that check for truncation."""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    """The largest epoch up to the requested one, and its end offset; -1 if the log has no such epoch."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1, ignorable=True)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
