"""The broker's topics as groups see them."""

from __future__ import annotations

from collections.abc import Iterable

from splashdam.embedded_broker.groups.consumer.changes import TopicShape
from splashdam.embedded_broker.topics import Topics


class BrokerTopics:
    """A `TopicsView`.

    Args:
        topics: the broker's.
    """

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def names(self) -> Iterable[str]:
        """All their names."""
        return (topic.name for topic in self._topics.all())

    def shape(self, name: str) -> TopicShape | None:
        """A topic's id and number of partitions; None where there is no such topic."""
        topic = self._topics.get(name)
        if topic is None or not topic.partitions:
            return None
        return TopicShape(topic.topic_id, topic.partitions[-1] + 1)
