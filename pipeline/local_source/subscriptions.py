"""Which partitions a query reads: topics by name, topics by pattern, or partitions one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import attrs

from splashdam.client.sending.arguments import check_topic_name
from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.model.values import TopicPartition
from splashdam.pipeline.options import comma_list
from splashdam.pipeline.options import text as not_empty


class Cluster(Protocol):
    """What is asked of a cluster to plan; `splashdam.pipeline.clusters.ClusterReader` is one."""

    def topics(self) -> list[str]:
        """All topics."""
        ...

    def partitions(self, topic: str) -> list[int]:
        """A topic's partition numbers; ``UnknownTopicOrPartitionError`` if it is not there."""
        ...

    def offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        """By partition the first offset at or after a time, -1 where there is none.

        Args:
            topic: its name.
            partitions: which.
            timestamp: milliseconds, `splashdam.net.cluster.fetch_client.EARLIEST` or ``LATEST``.
        """
        ...


@attrs.frozen
class Topics:
    """Topics by name: all their partitions, those that appear later too."""

    names: tuple[str, ...]

    def partitions(self, cluster: Cluster) -> list[TopicPartition]:
        """Those that are there now; none of a topic that is not there."""
        return [each for topic in self.names for each in _partitions_of(topic, cluster)]


@attrs.frozen
class TopicPattern:
    """Topics whose whole name a regular expression matches, those that appear later too."""

    pattern: re.Pattern[str]

    def partitions(self, cluster: Cluster) -> list[TopicPartition]:
        """Those that are there now."""
        names = [name for name in cluster.topics() if self.pattern.fullmatch(name)]
        return [each for topic in sorted(names) for each in _partitions_of(topic, cluster)]


@attrs.frozen
class Assigned:
    """Partitions one by one."""

    chosen: tuple[TopicPartition, ...]

    def partitions(self, cluster: Cluster) -> list[TopicPartition]:
        """Those that are there now."""
        there = Topics(tuple(dict.fromkeys(each.topic for each in self.chosen))).partitions(cluster)
        return sorted(set(self.chosen).intersection(there))


Subscription: TypeAlias = Topics | TopicPattern | Assigned


def missing(subscription: Subscription, there: Sequence[TopicPartition]) -> list[str]:
    """What was asked for by name and is not there: topics, or partitions."""
    if isinstance(subscription, Assigned):
        return [str(each) for each in subscription.chosen if each not in there]
    if isinstance(subscription, Topics):
        topics = {each.topic for each in there}
        return [name for name in subscription.names if name not in topics]
    return []


def parse_topics(text: str) -> Topics:
    """Names with commas between them.

    Raises:
        ValueError: there is none, or one that no topic can have.
    """
    return Topics(tuple(sorted(map(check_topic_name, comma_list(text)))))


def parse_pattern(text: str) -> TopicPattern:
    """A regular expression.

    Raises:
        ValueError: it is empty, or Python knows no such expression.
    """
    try:
        return TopicPattern(re.compile(not_empty(text)))
    except re.error as error:
        raise ValueError(f"is no regular expression of Python: {error}") from None


def _partitions_of(topic: str, cluster: Cluster) -> list[TopicPartition]:
    try:
        return [TopicPartition(topic, number) for number in sorted(cluster.partitions(topic))]
    except UnknownTopicOrPartitionError:
        return []
