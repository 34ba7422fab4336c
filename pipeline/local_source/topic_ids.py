"""Whether a topic is still the one that was read: a name says little, a later topic may have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import attrs

from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.pipeline.local_source.planning import OffsetRange
from splashdam.wire.fields import NO_UUID

TopicIds = Mapping[str, bytes]
"""By name; brokers before Kafka 2.8 know no ids, which is as if a topic were always the same."""


class KnowsTopics(Protocol):
    """What is asked of a cluster; `splashdam.pipeline.clusters.ClusterReader` is one."""

    def topic_id(self, topic: str) -> bytes:
        """Of a topic that is there now, ``NO_UUID`` where the broker knows none."""
        ...


def topic_ids(topics: Iterable[str], cluster: KnowsTopics) -> dict[str, bytes]:
    """The ids of topics as far as they are there; whoever reads the others finds out."""
    found = {}
    for topic in dict.fromkeys(topics):
        try:
            found[topic] = cluster.topic_id(topic)
        except UnknownTopicOrPartitionError:
            continue
    return found


def made_anew(before: TopicIds, now: TopicIds) -> set[str]:
    """Topics that were deleted and made again between two times."""
    return {
        topic
        for topic, topic_id in now.items()
        if NO_UUID not in (topic_id, before.get(topic, NO_UUID)) and topic_id != before[topic]
    }


def for_topics(ranges: Sequence[OffsetRange], ids: TopicIds) -> list[OffsetRange]:
    """The ranges as those of these topics and of no later ones."""
    return [attrs.evolve(each, topic_id=ids.get(each.where.topic, NO_UUID)) for each in ranges]
