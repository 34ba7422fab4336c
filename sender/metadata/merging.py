"""How a new snapshot of the cluster follows the one before."""

from __future__ import annotations

from collections.abc import Container

import attrs

from splashdam.model.cluster import ClusterMetadata, PartitionInfo, TopicInfo


def follow(before: ClusterMetadata, found: ClusterMetadata, *, keep: Container[str]) -> ClusterMetadata:
    """The snapshot that follows ``before``.

    Args:
        before: what was known. Where it knows a newer leader of the same topic, it stays: brokers learn of a
            new leader at different times.
        found: what the broker answered; its topics replace those of ``before``.
        keep: topics that were not asked for and stay as they are.
    """
    topics = {name: info for name, info in before.topics.items() if name in keep}
    for name, info in found.topics.items():
        topics[name] = _follow_topic(before.topics.get(name), info)
    return attrs.evolve(found, topics=topics)


def _follow_topic(before: TopicInfo | None, found: TopicInfo) -> TopicInfo:
    if before is None or before.topic_id != found.topic_id:
        return found  # the first, or another topic of the same name: leader epochs start again
    known = before.partitions
    return found._replace(
        partitions=tuple(
            known[each.partition] if each.partition < len(known) and _older(each, known) else each
            for each in found.partitions
        ),
    )


def _older(found: PartitionInfo, known: tuple[PartitionInfo, ...]) -> bool:
    return 0 <= found.leader_epoch < known[found.partition].leader_epoch
