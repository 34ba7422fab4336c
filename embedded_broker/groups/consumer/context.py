"""What a decision about a group depends on besides the group: topics, settings, the time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from string import ascii_letters, digits
from typing import Protocol

import attrs

from splashdam.embedded_broker.groups.consumer.group import TopicShape
from splashdam.embedded_broker.groups.patterns import compiled
from splashdam.storage.manager.topic_registry import Topic

TOPIC_LETTERS = frozenset(ascii_letters + digits + "._-")
"""All characters that a topic's name can have."""


class TopicsView(Protocol):
    """The topics of the cluster."""

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        ...

    def shape(self, name: str) -> TopicShape | None:
        """Return a topic's id and number of partitions; None if it does not exist."""
        ...

    def shapes(self, names: frozenset[str]) -> dict[str, TopicShape]:
        """Return the shapes of those of the topics that exist."""
        ...


class PatternMatches:
    """Cache of the topics that patterns match, valid while the topics stay the same.

    Two threads may use it at once: results are always right, at worst one of them is not cached.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def matching(self, regex: str, names: frozenset[str]) -> frozenset[str]:
        """Return the names that match a pattern.

        Raises:
            InvalidPatternError: the pattern is invalid, or takes too many steps to match.
        """
        known = self._found.get(regex)
        if known is None or known[0] != names:
            # a pattern counts its steps, so threads must not share it
            pattern = copy(compiled(regex, TOPIC_LETTERS))
            known = self._found[regex] = names, pattern.matching(names)
        return known[1]

    def keep_only(self, regexes: Iterable[str]) -> None:
        """Drop all other patterns."""
        found = self._found
        self._found = {regex: known for regex in regexes if (known := found.get(regex)) is not None}


@attrs.frozen(kw_only=True)
class DecisionContext:
    """What a decision depends on besides the group; passed to every decision.

    Attributes:
        topics: of the cluster.
        matches: cache of the topics that patterns match.
        assignors: names of the allowed assignors, the default one first.
        max_size: ``group.consumer.max.size``.
        wall_ms: wall clock, milliseconds since the epoch.
    """

    topics: TopicsView
    matches: PatternMatches
    assignors: Sequence[str]
    max_size: int
    wall_ms: int


class BrokerTopics:
    """A `TopicsView` on the broker's topics; safe to use in a thread while topics are created and deleted.

    Args:
        topics: the broker's topics, by name.
    """

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return list(self._topics)

    def shape(self, name: str) -> TopicShape | None:
        """Return a topic's id and number of partitions; None if it does not exist."""
        topic = self._topics.get(name)
        if topic is None or not topic.partitions:
            return None
        return TopicShape(topic.topic_id, topic.partitions[-1] + 1)

    def shapes(self, names: frozenset[str]) -> dict[str, TopicShape]:
        """See `TopicsView`; without the intersection 30,000 unknown names took 10 ms."""
        there = names.intersection(list(self._topics)) if len(names) > len(self._topics) else names
        found = ((name, self.shape(name)) for name in there)
        return {name: shape for name, shape in found if shape is not None}
