"""Metadata (key 3), versions 0 to 13: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from splashdam.wire.fields import array, boolean, int16, int32, string, uuid
from splashdam.wire.message import Request, Response, Struct

NO_OPERATIONS = -2_147_483_648
"""Authorized operations were not asked for."""


class MetadataRequestTopic(Struct):
    """A topic by name, from version 12 on also by topic id with a null name."""

    topic_id: bytes = uuid("10+", ignorable=True)
    name: str | None = string(nullable="10+")


class MetadataRequest(Request["MetadataResponse"], key=3, versions="0-13", flexible="9+"):
    """``topics=None`` requests all topics; in version 0 an empty list does, later it requests none.

    Below version 4 the broker may create missing topics in any case.
    """

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Struct):
    """A broker with its advertised address."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """``leader_id`` is -1 if the partition has no leader."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array("int32")
    isr_nodes: list[int] = array("int32")
    offline_replicas: list[int] = array("int32", "5+", ignorable=True)


class MetadataResponseTopic(Struct):
    """``name`` is null only for an unknown topic that was requested by id."""

    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=NO_OPERATIONS)


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+", throttles="6+"):
    """The cluster as this broker knows it, which may be out of date."""

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=NO_OPERATIONS)
    error_code: int = int16("13+", ignorable=True)
