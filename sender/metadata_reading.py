"""From a Metadata response to a snapshot of the cluster."""

from __future__ import annotations

from collections.abc import Container

from splashdam.model.cluster import ClusterMetadata, Node, PartitionInfo, TopicInfo
from splashdam.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def read_cluster(
    response: MetadataResponse, before: ClusterMetadata, *, keep: Container[str]
) -> ClusterMetadata:
    """The snapshot that follows ``before``.

    Args:
        response: the broker's answer; its topics replace those of ``before``.
        before: what was known. Where it knows a newer leader of the same topic, it stays: brokers learn of a
            new leader at different times.
        keep: topics that were not asked for and stay as they are.
    """
    topics = {name: info for name, info in before.topics.items() if name in keep}
    for topic in response.topics:
        if topic.name is not None:
            topics[topic.name] = _topic(topic, before.topics.get(topic.name))
    return ClusterMetadata(
        nodes={
            each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers
        },
        topics=topics,
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
    )


def _topic(topic: MetadataResponseTopic, before: TopicInfo | None) -> TopicInfo:
    name = topic.name or ""
    if before is not None and before.topic_id != topic.topic_id:
        before = None  # another topic of the same name: leader epochs start again
    count = max((each.partition_index + 1 for each in topic.partitions), default=0)
    partitions = [PartitionInfo(name, number, leader=-1) for number in range(count)]
    for each in topic.partitions:
        partitions[each.partition_index] = _partition(name, each, before)
    return TopicInfo(name, tuple(partitions), topic.error_code, topic.topic_id)


def _partition(name: str, partition: MetadataResponsePartition, before: TopicInfo | None) -> PartitionInfo:
    number = partition.partition_index
    known = before.partitions[number] if before is not None and number < len(before.partitions) else None
    if known is not None and 0 <= partition.leader_epoch < known.leader_epoch:
        return known
    return PartitionInfo(
        name,
        number,
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replicas=tuple(partition.replica_nodes),
        isr=tuple(partition.isr_nodes),
    )
