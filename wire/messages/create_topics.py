"""CreateTopics (key 19), versions 2 to 7: creates topics."""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, int8, int16, int32, string, uuid
from splashdam.wire.message import Request, Response, Struct


class CreatableReplicaAssignment(Struct):
    """The brokers that host one partition, the preferred leader first."""

    partition_index: int = int32()
    broker_ids: list[int] = array("int32")


class CreatableTopicConfig(Struct):
    """A configuration of the topic; a null value means the broker's default."""

    name: str = string()
    value: str | None = string(nullable="0+")


class CreatableTopic(Struct):
    """-1 as number of partitions or replication factor means the broker's default (from version 4 on)."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request["CreateTopicsResponse"], key=19, versions="2-7", flexible="5+"):
    """With ``validate_only`` no topic is created."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60_000)
    validate_only: bool = boolean("1+")


class CreatableTopicConfigs(Struct):
    """A configuration of the created topic, with its source."""

    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Struct):
    """The result for one topic. The schema allows null ``configs``, but Java clients crash on them."""

    name: str = string()
    topic_id: bytes = uuid("7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+", throttles="3+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
