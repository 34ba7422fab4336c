"""Produce (key 0), versions 3 to 13: record batches to partition leaders.

From version 12 a transactional produce adds its partitions to the transaction by itself (KIP-890); 13 names
topics by their ids.
"""

from __future__ import annotations

from splashdam.model.values import Buffer
from splashdam.wire.fields import array, int16, int32, int64, records, string, struct, uuid
from splashdam.wire.message import Request, Response, Struct


class PartitionProduceData(Struct):
    """One partition's batch."""

    index: int = int32()
    records: Buffer | None = records(nullable="0+")


class TopicProduceData(Struct):
    """The partitions of one topic."""

    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request["ProduceResponse"], key=0, versions="3-13", flexible="9+"):
    """Batches for partitions led by one broker; ``acks`` is -1 (all), 0 or 1. With 0 there is no response."""

    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """A record, by its place in the batch, that made the broker refuse the batch (KIP-467)."""

    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    """Who leads the partition now (KIP-951); -1 where unknown."""

    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    """What became of one batch. ``log_append_time_ms`` is -1 unless the topic uses LogAppendTime."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    """The partitions of one topic."""

    name: str = string("0-12", ignorable=True)
    topic_id: bytes = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    """Where a broker named in ``current_leader`` is reached."""

    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+", throttles="6+"):
    """One answer per partition of the request."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
