"""A cluster that answers the questions of ``kafka-local`` from lists of timestamps."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from splashdam.model.broker_errors import UnknownTopicOrPartitionError
from splashdam.model.values import TopicPartition
from splashdam.net.cluster.fetch_client import EARLIEST, LATEST
from splashdam.pipeline.local_source.options import SourceOptions, source_options

BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}


@attrs.define
class FakeLog:
    """A partition: its first offset, and the timestamp of each record from there on."""

    first: int = 0
    timestamps: list[int] = attrs.field(factory=list)

    @property
    def end(self) -> int:
        """The offset behind the last."""
        return self.first + len(self.timestamps)

    def add(self, count: int, timestamp: int = 0) -> None:
        """More records."""
        self.timestamps += [timestamp] * count

    def cut(self, first: int) -> None:
        """Deletes what is before an offset."""
        del self.timestamps[: first - self.first]
        self.first = first


class FakeCluster:
    """Topics with partitions from 0 on; counts what it was asked."""

    def __init__(self, **topics: Sequence[FakeLog]) -> None:
        self.logs = {
            TopicPartition(topic, number): log
            for topic, logs in topics.items()
            for number, log in enumerate(logs)
        }
        self.questions = 0
        self.ids: dict[str, bytes] = {}

    def sizes(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int] | None:
        """Ten bytes for each record that is there."""
        return {each: 10 * len(self.logs[each].timestamps) for each in partitions}

    def topics(self) -> list[str]:
        """All topics."""
        return sorted({each.topic for each in self.logs})

    def partitions(self, topic: str) -> list[int]:
        """A topic's."""
        found = [each.partition for each in self.logs if each.topic == topic]
        if not found:
            raise UnknownTopicOrPartitionError(f"{topic!r} does not exist")
        return found

    def topic_id(self, topic: str) -> bytes:
        """Its name, unless told otherwise."""
        self.partitions(topic)
        return self.ids.get(topic, topic.encode().ljust(16))

    def offsets(self, topic: str, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        """As Kafka answers."""
        self.questions += 1
        found = {}
        for number in partitions:
            log = self.logs[TopicPartition(topic, number)]
            if timestamp in (EARLIEST, LATEST):
                found[number] = log.first if timestamp == EARLIEST else log.end
            else:
                young = (log.first + at for at, each in enumerate(log.timestamps) if each >= timestamp)
                found[number] = next(young, -1)
        return found


def topic(*sizes: int) -> list[FakeLog]:
    """Partitions with so many records each, from offset 0 on."""
    return [FakeLog(0, [0] * size) for size in sizes]


def batch_options(**given: str) -> SourceOptions:
    """Options of a batch query that subscribes to ``t``."""
    return source_options({"subscribe": "t", **BOOTSTRAP, **given}, streaming=False)


def stream_options(**given: str | None) -> SourceOptions:
    """Options of a stream that subscribes to ``t``, unless told otherwise; None removes an option."""
    texts = {"subscribe": "t", **BOOTSTRAP, **given}
    return source_options({name: text for name, text in texts.items() if text is not None}, streaming=True)
