"""Which partitions a query reads: topics by name, topics by pattern, or single partitions."""

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
    """What planning needs of a cluster; `splashdam.pipeline.clusters.ClusterReader` implements it."""

    def topics(self) -> list[str]:
        """Return the names of all topics but internal ones."""
        ...

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partition numbers; raise ``UnknownTopicOrPartitionError`` if it does not exist."""
        ...

    def offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        """Return for each partition the offset of its first record at or after a timestamp, else -1.

        Args:
            topic: its name.
            partitions: their numbers.
            timestamp: milliseconds, `splashdam.net.cluster.fetch_client.EARLIEST` or ``LATEST``.
        """
        ...


@attrs.frozen
class Topics:
    """Topics by name: all their partitions, also those that are added later."""

    names: tuple[str, ...]

    def partitions(self, cluster: Cluster) -> list[TopicPartition]:
        """Return the partitions that exist now; none for a topic that does not exist."""
        return [each for topic in self.names for each in _partitions_of(topic, cluster)]


@attrs.frozen
class TopicPattern:
    """Topics whose whole name matches a regular expression, also those that are created later."""

    pattern: re.Pattern[str]

    def partitions(self, cluster: Cluster) -> list[TopicPartition]:
        """Return the partitions that exist now."""
        names = [name for name in cluster.topics() if self.pattern.fullmatch(name)]
        return [each for topic in sorted(names) for each in _partitions_of(topic, cluster)]


@attrs.frozen
class Assigned:
    """Single partitions."""

    chosen: tuple[TopicPartition, ...]

    def partitions(self, cluster: Cluster) -> list[TopicPartition]:
        """Return the chosen partitions that exist now."""
        there = Topics(tuple(dict.fromkeys(each.topic for each in self.chosen))).partitions(cluster)
        return sorted(set(self.chosen).intersection(there))


Subscription: TypeAlias = Topics | TopicPattern | Assigned


def missing(subscription: Subscription, there: Sequence[TopicPartition]) -> list[str]:
    """Return the topics or partitions that a subscription names and that do not exist."""
    if isinstance(subscription, Assigned):
        return [str(each) for each in subscription.chosen if each not in there]
    if isinstance(subscription, Topics):
        topics = {each.topic for each in there}
        return [name for name in subscription.names if name not in topics]
    return []


def parse_topics(text: str) -> Topics:
    """Parse topic names separated by commas.

    Raises:
        ValueError: there is no name, or an invalid one.
    """
    return Topics(tuple(sorted(map(check_topic_name, comma_list(text)))))


def parse_pattern(text: str) -> TopicPattern:
    """Parse a regular expression.

    Raises:
        ValueError: it is empty, or not valid in Python.
    """
    try:
        return TopicPattern(re.compile(not_empty(text)))
    except re.error as error:
        raise ValueError(f"is not a regular expression that Python accepts: {error}") from None


def _partitions_of(topic: str, cluster: Cluster) -> list[TopicPartition]:
    try:
        return [TopicPartition(topic, number) for number in sorted(cluster.partitions(topic))]
    except UnknownTopicOrPartitionError:
        return []
