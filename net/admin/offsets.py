"""Offsets of partitions by time, asked of every leader at once."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from splashdam.model.broker_errors import LeaderNotAvailableError, UnknownTopicOrPartitionError, error_for
from splashdam.model.cluster import ClusterMetadata, Node
from splashdam.model.values import TopicPartition
from splashdam.net.cluster_client import ClusterClient
from splashdam.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
"""As a timestamp: the offset behind the last record that can be read."""
EARLIEST = -2
"""As a timestamp: the offset of the first record."""


async def list_offsets(
    client: ClusterClient, partitions: Iterable[TopicPartition], timestamp: int
) -> dict[TopicPartition, int]:
    """For each partition the first offset at or after a time, -1 where there is none.

    Args:
        client: of the cluster.
        partitions: which.
        timestamp: milliseconds since the epoch, or `LATEST` or `EARLIEST`.

    Raises:
        BrokerResponseError: a partition does not exist or has no leader.
        KafkaTimeoutError: the cluster did not answer.
    """
    asked = sorted(set(partitions))
    if not asked:
        return {}
    cluster = await client.cluster(sorted({each.topic for each in asked}))
    by_leader: dict[Node, list[TopicPartition]] = {}
    for where in asked:
        by_leader.setdefault(_leader(cluster, where), []).append(where)
    found: dict[TopicPartition, int] = {}
    for node, led in by_leader.items():
        found |= await client.broker(node, _request(led, timestamp), _offsets)
    return found


def _leader(cluster: ClusterMetadata, where: TopicPartition) -> Node:
    info = cluster.partition(where)
    if info is None:
        raise UnknownTopicOrPartitionError(f"{where} does not exist")
    node = cluster.nodes.get(info.leader)
    if node is None:
        raise LeaderNotAvailableError(f"{where} has no leader")
    return node


def _request(partitions: Iterable[TopicPartition], timestamp: int) -> ListOffsetsRequest:
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(partition_index=each.partition, timestamp=timestamp) for each in chosen
            ],
        )
        for topic, chosen in groupby(partitions, lambda where: where.topic)
    ]
    return ListOffsetsRequest(replica_id=-1, topics=topics)


def _offsets(answer: ListOffsetsResponse) -> dict[TopicPartition, int]:
    found = {}
    for topic in answer.topics:
        for each in topic.partitions:
            where = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                raise error_for(each.error_code, f"offsets of {where}")
            found[where] = each.offset
    return found
