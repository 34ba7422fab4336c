"""TxnOffsetCommit (key 28), versions 0 to 6: offsets that hold once the transaction is committed.

Version 5 (KIP-890) adds the group to the transaction, too; version 6 (KIP-1319) names topics by id.
"""

from __future__ import annotations

from splashdam.wire.fields import array, int16, int32, int64, string, uuid
from splashdam.wire.message import Request, Response, Struct


class TxnOffsetCommitRequestPartition(Struct):
    """How far one partition was read: the offset to read next."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    """The partitions of one topic."""

    name: str = string("0-5", ignorable=True)
    topic_id: bytes = uuid("6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Request["TxnOffsetCommitResponse"], key=28, versions="0-6", flexible="3+"):
    """The transaction, the group, and from version 3 the member that has read so far (KIP-447)."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id_or_member_epoch: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    """Whether the offset is kept."""

    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    """The partitions of one topic."""

    name: str = string("0-5", ignorable=True)
    topic_id: bytes = uuid("6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Response, key=28, versions="0-6", flexible="3+", throttles="1+"):
    """One answer per partition."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
