"""The same requests to the newest Kafka and to ours, in every version: null and empty in the same places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from answer_shapes import Speaker, differences
from kafka_jars import MEASURE, kafka_broker

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.testing.contract.line_up import EMBEDDED_CONFIG
from splashdam.wire.message import Request
from splashdam.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from splashdam.wire.messages.delete_groups import DeleteGroupsRequest
from splashdam.wire.messages.describe_cluster import DescribeClusterRequest
from splashdam.wire.messages.describe_groups import DescribeGroupsRequest
from splashdam.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from splashdam.wire.messages.describe_quorum import DescribeQuorumRequest
from splashdam.wire.messages.elect_leaders import ElectLeadersRequest
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.join_group import JoinGroupRequest
from splashdam.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from splashdam.wire.messages.list_transactions import ListTransactionsRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from splashdam.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

Make: TypeAlias = Callable[[int], Request[Any]]

_FIRST_KEYS, _FIRST_GROUPS = 4, 8


def _new(name: str, factor: int = 1) -> Make:
    """Creates a topic of each version's own."""

    def make(version: int) -> CreateTopicsRequest:
        topic = CreatableTopic(name=f"{name}{version}", num_partitions=1, replication_factor=factor)
        return CreateTopicsRequest(topics=[topic])

    return make


def _metadata(name: str) -> Make:
    def make(version: int) -> MetadataRequest:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        request.allow_auto_topic_creation = version < 4
        request.include_topic_authorized_operations = version >= 8
        return request

    return make


def _coordinator(version: int) -> FindCoordinatorRequest:
    if version < _FIRST_KEYS:
        return FindCoordinatorRequest(key="g")
    return FindCoordinatorRequest(coordinator_keys=["g"])


def _offsets(version: int) -> OffsetFetchRequest:
    if version < _FIRST_GROUPS:
        return OffsetFetchRequest(group_id="g", topics=[])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[])])


def questions() -> Iterator[tuple[str, Make]]:
    """What is asked, in order."""
    yield "new", _new("t")
    yield "there", _new("t")
    yield "too many replicas", _new("u", 9)
    yield "illegal name", _new("a b")
    yield "there", _metadata("t7")
    yield "missing", _metadata("missing")
    yield "illegal name", _metadata("a b")
    yield "group", _coordinator
    yield "nothing committed", _offsets
    yield "group", lambda _: DescribeGroupsRequest(groups=["g"])
    yield "nobody", lambda _: JoinGroupRequest(group_id="g", session_timeout_ms=10_000, member_id="nobody")
    yield "no group", lambda _: DeleteGroupsRequest(groups_names=["g"])
    yield "brokers", lambda _: DescribeClusterRequest()
    yield "nothing", lambda _: DescribeQuorumRequest()
    yield "one", lambda _: DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t7", partitions=[0])])
    yield "none", lambda _: ListPartitionReassignmentsRequest(topics=None)
    yield "none", lambda _: ListTransactionsRequest()
    yield "all", lambda _: ElectLeadersRequest(topic_partitions=[], timeout_ms=5_000)


def notes_of(servers: str) -> dict[str, Any]:
    """What one cluster answers."""
    with Speaker(servers) as speaker:
        for what, make in questions():
            speaker.each(what, make)
    return speaker.notes


def test_null_and_empty_are_where_kafka_has_them(tmp_path: Path) -> None:
    """Error codes are the same, too."""
    with kafka_broker(MEASURE, tmp_path / "kafka", dict(EMBEDDED_CONFIG)) as broker:
        theirs = notes_of(broker.bootstrap_servers)
    with EmbeddedBroker(tmp_path / "ours", config=EMBEDDED_CONFIG, fsync=False) as ours:
        own = notes_of(ours.bootstrap_servers)
    assert len(own) > 80
    assert differences(own, theirs) == []
