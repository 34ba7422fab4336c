"""The broker's topics as groups see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from splashdam.embedded_broker.groups.consumer.changes import TopicShape
from splashdam.storage.manager.topic_registry import Topic


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
