"""Convert Metadata responses to `ClusterMetadata`, and find partition leaders in it.

A response with an invalid topic is rejected as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from splashdam.model.broker_errors import LeaderNotAvailableError, UnknownTopicOrPartitionError, error_for
from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.model.errors import ProtocolError
from splashdam.model.values import TopicPartition
from splashdam.wire.messages.metadata import MetadataResponse, MetadataResponseTopic


def read_cluster(response: MetadataResponse) -> ClusterMetadata:
    """Convert a response. Topics with an error keep their ``error_code``.

    Raises:
        BrokerResponseError: the broker rejected the whole request (from version 13 on).
        ProtocolError: a topic's partitions are not numbered from 0 without gaps and repetitions.
    """
    if response.error_code:
        raise error_for(response.error_code)
    return ClusterMetadata(
        nodes={
            each.node_id: Node(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
            if each.node_id >= 0  # negative ids stand for bootstrap addresses
        },
        topics={
            topic.name: _read_topic(topic.name, topic) for topic in response.topics if topic.name is not None
        },
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
    )


def _read_topic(name: str, topic: MetadataResponseTopic) -> TopicInfo:
    partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
    for number, each in enumerate(partitions):
        if each.partition_index != number:
            raise ProtocolError(
                f"MetadataResponse: topic {name!r} has {len(partitions)} partitions, and one has number"
                f" {each.partition_index} instead of {number}"
            )
    infos = [
        PartitionInfo(
            name,
            each.partition_index,
            leader=each.leader_id,
            leader_epoch=each.leader_epoch,
            replicas=tuple(each.replica_nodes),
            isr=tuple(each.isr_nodes),
        )
        for each in partitions
    ]
    return TopicInfo(name, tuple(infos), topic.error_code, topic.topic_id)


def leader_in(cluster: ClusterMetadata, topic_partition: TopicPartition) -> Node:
    """Return the partition leader.

    Raises:
        BrokerResponseError: the topic has an error, or the partition does not exist or has no leader.
    """
    topic = cluster.topics.get(topic_partition.topic)
    if topic is not None and topic.error_code:
        raise error_for(topic.error_code, str(topic_partition))
    info = cluster.partition(topic_partition)
    if info is None:
        raise UnknownTopicOrPartitionError(f"{topic_partition} does not exist")
    node = cluster.nodes.get(info.leader)
    if node is None:
        raise LeaderNotAvailableError(f"{topic_partition} has no leader")
    return node


def by_leader(
    cluster: ClusterMetadata, partitions: Iterable[TopicPartition]
) -> dict[Node, list[TopicPartition]]:
    """Group partitions by leader, in order; raise as `leader_in`."""
    led: dict[Node, list[TopicPartition]] = {}
    for each in partitions:
        led.setdefault(leader_in(cluster, each), []).append(each)
    return led
