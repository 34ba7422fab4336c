"""DeleteRecords (key 21), versions 0 to 2: moves the start of partitions, so that what is below is gone."""

from __future__ import annotations

from splashdam.wire.fields import array, int16, int32, int64, string
from splashdam.wire.message import Request, Response, Struct


class DeleteRecordsPartition(Struct):
    """A partition and the first offset to keep; -1 is the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


class DeleteRecordsTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


class DeleteRecordsRequest(Request["DeleteRecordsResponse"], key=21, versions="0-2", flexible="2+"):
    """What to delete; ``timeout_ms`` is how long replicas may take to follow."""

    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


class DeleteRecordsPartitionResult(Struct):
    """Where a partition starts now, or why nothing of it was deleted."""

    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


class DeleteRecordsTopicResult(Struct):
    """Results of one topic."""

    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+", throttles="1+"):
    """One result per partition of the request."""

    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)
