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
"""All that a topic's name can consist of."""


class TopicsView(Protocol):
    """The topics of the cluster."""

    def names(self) -> Iterable[str]:
        """All their names."""
        ...

    def shape(self, name: str) -> TopicShape | None:
        """A topic's id and number of partitions; None where there is no such topic."""
        ...

    def shapes(self, names: frozenset[str]) -> dict[str, TopicShape]:
        """The shapes of those of the topics that are there."""
        ...


class PatternMatches:
    """What patterns match, remembered for as long as the topics stay the same.

    Two threads may ask at once: neither hears anything wrong, one of them may ask in vain next time.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def matching(self, regex: str, names: frozenset[str]) -> frozenset[str]:
        """Those of the names that match.

        Raises:
            InvalidPatternError: the pattern is none, or costs too much.
        """
        known = self._found.get(regex)
        if known is None or known[0] != names:
            pattern = copy(compiled(regex, TOPIC_LETTERS))  # which counts its steps: two threads may have one
            known = self._found[regex] = names, pattern.matching(names)
        return known[1]

    def keep_only(self, regexes: Iterable[str]) -> None:
        """Forgets all others."""
        found = self._found
        self._found = {regex: known for regex in regexes if (known := found.get(regex)) is not None}


@attrs.frozen(kw_only=True)
class World:
    """What a decision depends on besides the group.

    Attributes:
        topics: of the cluster.
        matches: what patterns match of them.
        assignors: names of those that may be used, the default one first.
        max_size: most members of a group.
        wall_ms: wall clock, milliseconds since the epoch.
    """

    topics: TopicsView
    matches: PatternMatches
    assignors: Sequence[str]
    max_size: int
    wall_ms: int


class BrokerTopics:
    """A `TopicsView`; a thread may look through it while topics come and go.

    Args:
        topics: the broker's, by name.
    """

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics

    def names(self) -> Iterable[str]:
        """All their names."""
        return list(self._topics)

    def shape(self, name: str) -> TopicShape | None:
        """A topic's id and number of partitions; None where there is no such topic."""
        topic = self._topics.get(name)
        if topic is None or not topic.partitions:
            return None
        return TopicShape(topic.topic_id, topic.partitions[-1] + 1)

    def shapes(self, names: frozenset[str]) -> dict[str, TopicShape]:
        """The shapes of those of the topics that are there; 30,000 names of none took 10 ms one by one."""
        there = names.intersection(list(self._topics)) if len(names) > len(self._topics) else names
        found = ((name, self.shape(name)) for name in there)
        return {name: shape for name, shape in found if shape is not None}
