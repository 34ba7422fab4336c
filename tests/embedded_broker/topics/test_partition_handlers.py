"""CreatePartitions, DescribeTopicPartitions and DescribeCluster; codes are those of a real Kafka 4.3."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.broker.admin_talk import grow, page
from support.broker.broker_talk import Talk, batch, create_request, produce

from splashdam.embedded_broker.broker import Broker
from splashdam.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from splashdam.wire.messages.create_topics import CreatableReplicaAssignment, CreateTopicsRequest
from splashdam.wire.messages.describe_cluster import DescribeClusterRequest
from splashdam.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_grows(talk: Talk, broker: Broker, version: int) -> None:
    """Its new partitions are led and written to at once, by name and by id."""
    topic_id = broker.topics.create("t", 1).topic_id
    assert await grow(talk, "t", 3, version=version, validate_only=True) == 0
    found = broker.topics.by_id(topic_id)
    assert found is not None
    assert found.partitions == (0,)
    assert await grow(talk, "t", 3, version=version) == 0
    found = broker.topics.by_id(topic_id)
    assert found is not None
    assert found.partitions == (0, 1, 2)
    assert (await produce(talk, "t", batch(b"x"), partition=2)).error_code == 0
    (topic,) = (await talk.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)).topics
    assert [(each.partition_index, each.leader_id, each.isr_nodes) for each in topic.partitions] == [
        (0, 1, [1]), (1, 1, [1]), (2, 1, [1])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("grown", "code"),
    [
        (("t", 2, None), 37),
        (("t", 1, None), 37),
        (("t", 0, None), 37),
        (("t", -1, None), 37),
        (("missing", 3, None), 3),
        (("t", 3, [[7]]), 39),
        (("t", 3, [[1], [1]]), 39),
        (("t", 3, []), 39),
        (("t", 3, [[]]), 39),
        (("t", 3, [[1, 1]]), 39),
        (("t", 20_000, None), 44),
        (("t", 3, [[1]]), 0),
    ],
)
async def test_impossible_numbers_of_partitions(
    talk: Talk, broker: Broker, grown: tuple[str, int, Sequence[Sequence[int]] | None], code: int
) -> None:
    """B12; and nothing has changed."""
    topic, count, assignments = grown
    broker.topics.create("t", 2)
    assert await grow(talk, topic, count, assignments, validate_only=True) == code
    assert await grow(talk, topic, count, assignments) == code
    found = broker.topics.get("t")
    assert found is not None
    assert len(found.partitions) == (3 if code == 0 else 2)


async def test_a_topic_named_twice_does_not_grow(talk: Talk, broker: Broker) -> None:
    """42, once."""
    broker.topics.create("t", 2)
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=5)] * 2)
    (result,) = (await talk.ask(request, 3)).results
    assert result.error_code == 42


async def test_pages_of_partitions(talk: Talk, broker: Broker) -> None:
    """By name; a topic that does not fit goes on where the page ended."""
    for name, count in (("b", 2), ("a", 1), ("c", 3)):
        broker.topics.create(name, count)
    assert await page(talk) == ([(0, "a", [0]), (0, "b", [0, 1]), (0, "c", [0, 1, 2])], None)
    assert await page(talk, limit=4) == ([(0, "a", [0]), (0, "b", [0, 1]), (0, "c", [0])], ("c", 1))
    assert await page(talk, limit=4, cursor=("c", 1)) == ([(0, "c", [1, 2])], None)
    assert await page(talk, limit=3) == ([(0, "a", [0]), (0, "b", [0, 1])], ("c", 0))
    assert await page(talk, "c", "missing", "a", limit=1) == ([(0, "a", [0])], ("c", 0))
    assert await page(talk, "missing", "a", limit=0, cursor=("a", 0)) == ([(0, "a", [0])], ("missing", 0))
    assert await page(talk, "missing", "b d") == ([(17, "b d", []), (3, "missing", [])], None)
    assert await page(talk, cursor=("bb", 7)) == ([(0, "c", [0, 1, 2])], None)
    assert await page(talk, "b", cursor=("b", 9)) == ([(0, "b", [])], None)
    assert await page(talk, "b", cursor=("zzz", 0)) == ([(42, "b", [])], None)
    assert await page(talk, "b", cursor=("b", -1)) == ([(42, "b", [])], None)


async def test_lists_of_partitions_are_never_null(talk: Talk, broker: Broker) -> None:
    """B11: Java's kafka-topics crashes at one."""
    broker.topics.create("t")
    (topic,) = (await talk.ask(DescribeTopicPartitionsRequest(topics=[], cursor=None), 0)).topics
    (partition,) = topic.partitions
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
    assert topic.topic_authorized_operations == 3576


@pytest.mark.parametrize(
    ("version", "endpoint_type", "code"), [(0, 1, 0), (1, 1, 0), (2, 1, 0), (1, 2, 114), (2, 3, 115)]
)
async def test_the_cluster_is_described(
    talk: Talk, broker: Broker, version: int, endpoint_type: int, code: int
) -> None:
    """Where the client reached it; controllers have no endpoints here."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=endpoint_type)
    answer = await talk.ask(request, version)
    assert answer.error_code == code
    if not code:
        assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [(1, "broker", 9092)]
        assert (answer.cluster_id, answer.controller_id) == (broker.cluster_id, 1)
        assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("assignments", "code"),
    [({0: [1], 1: [1]}, 0), ({0: [1], 2: [1]}, 39), ({0: [1, 1]}, 39), ({0: [7]}, 39), ({0: []}, 39)],
)
async def test_topics_with_assignments(talk: Talk, assignments: dict[int, list[int]], code: int) -> None:
    """39 for what cannot be kept so."""
    request = create_request("t", partitions=-1, replication_factor=-1)
    request.topics[0].assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
        for index, nodes in assignments.items()
    ]
    assert await created(talk, request) == code


@pytest.mark.parametrize(
    ("name", "factor", "code"),
    [("t", 2, 38), ("t", 0, 38), ("t", 1, 0), ("x" * 249, 1, 0), ("x" * 250, 1, 17), ("a_b", 1, 17),
     ("__cluster_metadata", 1, 42), ("__consumer_offsets", 1, 0)],
)  # fmt: skip
async def test_names_and_replication_factors(
    talk: Talk, broker: Broker, name: str, factor: int, code: int
) -> None:
    """As many replicas as there are brokers, and names that can be told apart, of up to 249 characters."""
    broker.topics.create("a.b")
    assert await created(talk, create_request(name, partitions=1, replication_factor=factor)) == code


async def created(talk: Talk, request: CreateTopicsRequest) -> int:
    (result,) = (await talk.ask(request, 7)).topics
    return int(result.error_code)
