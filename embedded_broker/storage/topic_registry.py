"""``splashdam-topics.json``: which topics there are, with how many partitions and which options.

Kafka keeps this in its metadata log. A plain file in the root of a data directory is ignored by it, so ours
stands beside the partitions. It is written before directories are made and before they are removed, so that
the next start finishes what a crash interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from splashdam.embedded_broker.storage.files import Files
from splashdam.embedded_broker.storage.log_file import unusable_file
from splashdam.embedded_broker.storage.partition_metadata import format_uuid, parse_uuid
from splashdam.embedded_broker.storage.settings import LogSettings
from splashdam.embedded_broker.storage.topic_names import check_topic_name
from splashdam.model.broker_errors import InvalidTopicError, KafkaStorageError
from splashdam.model.errors import BrokerResponseError, KafkaConfigurationError
from splashdam.model.options import MAX_INT

REGISTRY_NAME = "splashdam-topics.json"
_VERSION = 1


@attrs.frozen
class Topic:
    """One topic of a data directory.

    Attributes:
        name: its name.
        topic_id: 16 bytes.
        partitions: numbers of its partitions, ascending; a directory taken over from a cluster may lack some.
        configs: options set for the topic, by Kafka's dotted names.
    """

    name: str
    topic_id: bytes
    partitions: tuple[int, ...]
    configs: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class NewTopic:
    """A topic to be made.

    Attributes:
        name: its name.
        partitions: how many.
        configs: its options by Kafka's dotted names.
        topic_id: drawn, unless another broker of the cluster has done so already.
        replication_factor: how many brokers keep each partition; -1 for ``default.replication.factor``.
        assignments: for each partition the node ids that keep it; empty: they are chosen.
    """

    name: str
    partitions: int
    configs: Mapping[str, str] = attrs.field(factory=dict)
    topic_id: bytes | None = None
    replication_factor: int = -1
    assignments: Sequence[Sequence[int]] = ()


class TopicRegistry:
    """The topics as the file has them.

    Attributes:
        topics: by name; replaced as a whole at every change.
        deleting: names whose directories are on their way out, and whose names are not free before that.
    """

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._path = f"{root}/{REGISTRY_NAME}"
        self.topics: Mapping[str, Topic] = {}
        self.deleting: frozenset[str] = frozenset()
        data = files.read_bytes(self._path)
        if data is not None:
            self._load(data)

    def settings_of(
        self, topic: Topic, settings_for: Callable[[Mapping[str, str]], LogSettings]
    ) -> LogSettings:
        """What ``settings_for`` makes of the options of one of the topics.

        Raises:
            KafkaStorageError: it takes one of them for illegal.
        """
        try:
            return settings_for(topic.configs)
        except (BrokerResponseError, KafkaConfigurationError) as error:
            raise KafkaStorageError(
                f"an option of topic {topic.name!r} in {self._path} is illegal ({error}); correct it there"
            ) from error

    def put(self, *topics: Topic) -> None:
        """Adds or replaces topics.

        Raises:
            KafkaStorageError: it could not be written; nothing has changed.
        """
        self._replace({**self.topics, **{topic.name: topic for topic in topics}}, self.deleting)

    def begin_deletion(self, name: str) -> None:
        """Moves a topic from ``topics`` to ``deleting``.

        Raises:
            KafkaStorageError: it could not be written; nothing has changed.
        """
        self._replace(_without(self.topics, name), self.deleting | {name})

    def forget(self, name: str) -> None:
        """As ``begin_deletion``, but on a disk that refuses: written with the next change."""
        self.topics, self.deleting = _without(self.topics, name), self.deleting | {name}

    def end_deletions(self) -> None:
        """Frees the names in ``deleting``.

        Raises:
            KafkaStorageError: it could not be written; nothing has changed.
        """
        self._replace(self.topics, frozenset())

    def _replace(self, topics: Mapping[str, Topic], deleting: frozenset[str]) -> None:
        content = {
            "version": _VERSION,
            "topics": {topic.name: _fields(topic) for topic in topics.values()},
            "deleting": sorted(deleting),
        }
        self._files.write_atomic(self._path, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())
        self.topics, self.deleting = topics, deleting

    def _load(self, data: bytes) -> None:
        try:
            content = json.loads(data)
            if content["version"] != _VERSION:
                raise unusable_file(self._path, f"is of version {content['version']}, known is {_VERSION}")
            self.topics = _topics(content["topics"])
            self.deleting = frozenset(map(_checked_name, content["deleting"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidTopicError) as error:
            raise unusable_file(self._path, f"makes no sense ({error!r})") from error


def _without(topics: Mapping[str, Topic], name: str) -> Mapping[str, Topic]:
    return {each: topic for each, topic in topics.items() if each != name}


def _fields(topic: Topic) -> dict[str, object]:
    return {
        "topic_id": format_uuid(topic.topic_id),
        "partitions": list(topic.partitions),
        "configs": dict(topic.configs),
    }


def _topics(content: Mapping[str, Any]) -> dict[str, Topic]:
    topics = {name: _topic(name, fields) for name, fields in content.items()}
    if len({topic.topic_id for topic in topics.values()}) < len(topics):
        raise ValueError("two topics have the same id")
    return topics


def _topic(name: str, fields: Mapping[str, Any]) -> Topic:
    """One topic of the file, which anybody may have written: its name becomes that of directories.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, InvalidTopicError: it cannot be one.
    """
    partitions = sorted(set(fields["partitions"]))
    if any(type(number) is not int or not 0 <= number <= MAX_INT for number in partitions):
        raise ValueError(f"{name} has partitions {partitions}")
    configs = dict(fields["configs"].items())
    if not all(isinstance(value, str) for value in configs.values()):
        raise ValueError(f"an option of {name} is no text")
    return Topic(_checked_name(name), parse_uuid(fields["topic_id"]), tuple(partitions), configs)


def _checked_name(name: str) -> str:
    check_topic_name(name)
    return name
