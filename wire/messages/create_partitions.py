"""CreatePartitions (key 37), versions 0 to 3: adds partitions to topics."""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, int16, int32, string
from splashdam.wire.message import Request, Response, Struct


class CreatePartitionsAssignment(Struct):
    """The brokers that host one new partition."""

    broker_ids: list[int] = array("int32")


class CreatePartitionsTopic(Struct):
    """``count`` is the new total, not the number of partitions to add."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable="0+")


class CreatePartitionsRequest(Request["CreatePartitionsResponse"], key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    """Error code 0: the topic has the new partitions."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+", throttles="1+"):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
