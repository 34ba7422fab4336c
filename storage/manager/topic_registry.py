"""``splashdam-topics.json``: the topics of a data directory, with partitions and options.

Kafka keeps them in its metadata log, and ignores plain files in the root of a data directory. Changes go to
``splashdam-topics.changes``: a new topic costs one line, however many topics there are. Both files are
written before directories are created and before they are removed, so that the next start can finish what a
crash has interrupted, in either direction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import attrs

from splashdam.model.broker_errors import (
    BrokerResponseError,
    ErrorCode,
    InvalidTopicError,
    KafkaStorageError,
    TopicAlreadyExistsError,
    error_for,
)
from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.log_text import quoted
from splashdam.model.options import MAX_INT
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.change_log import ChangeLog
from splashdam.storage.directories.identity import REGISTRY_NAME
from splashdam.storage.directories.partition_metadata import format_uuid, new_uuid, parse_uuid, write_topic_id
from splashdam.storage.directories.scan import topic_ids
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import unusable_file_error
from splashdam.storage.settings import LogSettings
from splashdam.storage.topic_names import check_topic_name, folded

CHANGES_NAME = "splashdam-topics.changes"
_VERSION = 1
_MOST_CHANGES = 1_000
"""Changes, beside two for each topic, after which the JSON file is rewritten.

This costs each change little.
"""

Resources: TypeAlias = Mapping[tuple[str, str], Mapping[str, str]]
"""Options of other resources than topics, and notes for the next start, by kind and name."""


@attrs.frozen
class Topic:
    """One topic of a data directory.

    Attributes:
        name: the topic's name.
        topic_id: 16 bytes.
        partitions: its partition numbers, ascending; a directory from a cluster may lack some.
        configs: options set for the topic, by Kafka's dotted names.
    """

    name: str
    topic_id: bytes
    partitions: tuple[int, ...]
    configs: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class NewTopic:
    """A topic to be created.

    Attributes:
        name: the topic's name.
        partitions: the number of partitions.
        configs: its options by Kafka's dotted names.
        topic_id: drawn by default; given if the cluster's controller has drawn it.
        replication_factor: replicas of each partition; -1 for ``default.replication.factor``.
        assignments: the node ids of each partition's replicas; empty to have them chosen.
    """

    name: str
    partitions: int
    configs: Mapping[str, str] = attrs.field(factory=dict)
    topic_id: bytes | None = None
    replication_factor: int = -1
    assignments: Sequence[Sequence[int]] = ()


class TopicRegistry:
    """The topics, and options of other resources (brokers, groups, …), as the files have them.

    Attributes:
        topics: the topics by name. It changes in place, so callers that wait in between copy it.
        names_by_fold: topic names by their ``folded`` names.
        resources: options of other resources, by kind and name.
        deleting: names of deleted topics whose directories are still being removed; they are not free yet.
    """

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._path = f"{root}/{REGISTRY_NAME}"
        self._changes = ChangeLog(files, f"{root}/{CHANGES_NAME}")
        self._generation = 0
        self.names_by_fold: dict[str, str] = {}
        self.topics: dict[str, Topic] = {}
        self.resources: dict[tuple[str, str], Mapping[str, str]] = {}
        self.deleting: frozenset[str] = frozenset()
        self._load()

    def settings_of(
        self, topic: Topic, settings_for: Callable[[Mapping[str, str]], LogSettings]
    ) -> LogSettings:
        """Return the settings of a topic of the registry.

        Raises:
            KafkaStorageError: ``settings_for`` refuses an option.
        """
        try:
            return settings_for(topic.configs)
        except (BrokerResponseError, KafkaConfigurationError) as error:
            raise KafkaStorageError(
                f"an option of topic {topic.name!r} in {self._path} is illegal ({error}); correct it there"
            ) from error

    def put(self, *topics: Topic, resources: Resources | None = None) -> None:
        """Add or replace topics, and options as ``put_resources`` does: one change.

        Raises:
            KafkaStorageError: the change could not be written; nothing has changed.
        """
        changes = ({"topic": topic.name, **_fields(topic)} for topic in topics)
        self._keep(*changes, *_kept_resources(resources or {}))

    def put_resources(self, resources: Resources) -> None:
        """Replace the options of each resource; remove a resource with no options.

        Raises:
            KafkaStorageError: the change could not be written; nothing has changed.
        """
        self._keep(*_kept_resources(resources))

    def begin_deletion(self, *names: str, resources: Resources | None = None) -> None:
        """Move topics to ``deleting``, and replace options as ``put_resources`` does: one change.

        Raises:
            KafkaStorageError: the change could not be written; nothing has changed.
        """
        self._keep(*_deletion(names, resources or {}))

    def forget(self, *names: str, resources: Resources | None = None) -> None:
        """Do what ``begin_deletion`` does in memory; it is written with the next change, after a refusal."""
        for change in _deletion(names, resources or {}):
            self._apply(change)
        self._changes.must_rewrite = True

    def restore(self, *topics: Topic) -> None:
        """Do what ``put`` does in memory; it is written with the next change, after a refusal."""
        self.topics.update((topic.name, topic) for topic in topics)
        self._changes.must_rewrite = True

    def take_back(self, before: Mapping[str, Topic | None]) -> None:
        """Undo the last ``put`` of topics that were as in ``before``; this needs no room on a full disk.

        Raises:
            KafkaStorageError: the disk refuses; nothing has changed.
        """
        self._changes.take_back()
        for name, topic in before.items():
            if topic is None:
                self._remove(name)
            else:
                self.topics[name] = topic

    @property
    def must_rewrite(self) -> bool:
        """Whether a refused write left the changes file in an unknown state."""
        return self._changes.must_rewrite

    @property
    def has_unfinished_work(self) -> bool:
        """Whether the JSON file must be rewritten, or directories of deleted topics are still there."""
        return bool(self.deleting) or self.must_rewrite

    def rewrite(self) -> None:
        """Rewrite the JSON file if a refused write left the changes file in an unknown state.

        ``deleting`` stays: ``end_deletions`` frees the names when the directories are gone.

        Raises:
            KafkaStorageError: the disk refuses again.
        """
        if self._changes.must_rewrite:
            self._replace()

    def end_deletions(self) -> None:
        """Free the names in ``deleting``.

        Raises:
            KafkaStorageError: the change could not be written; nothing has changed.
        """
        self._keep({"deleted": sorted(self.deleting)})

    def close(self) -> None:
        """Merge all changes into the JSON file, and close.

        Raises:
            KafkaStorageError: the disk refuses; the two files together are still complete.
        """
        if self._changes.length or self._changes.must_rewrite:
            self._replace()
            self._changes.remove()
        self.abandon()

    def abandon(self) -> None:
        """Close the changes file as it is."""
        self._changes.close()

    def _keep(self, *changes: Mapping[str, Any]) -> None:
        """Write and sync changes, then apply them in memory."""
        if self._changes.must_rewrite or self._changes.length > _MOST_CHANGES + 2 * len(self.topics):
            self._replace()
        self._changes.append(*changes)
        for change in changes:
            self._apply(change)

    def _apply(self, change: Mapping[str, Any]) -> None:
        """Apply one change; raises as ``_topic``, because the change may come from an edited file."""
        if "topic" in change:
            topic = _topic(change["topic"], change)
            self.topics[topic.name] = topic
            self.names_by_fold[folded(topic.name)] = topic.name
        elif "kind" in change:
            self._apply_resource(change["kind"], change["name"], change["configs"])
        elif "deleted" in change:
            self.deleting -= frozenset(map(_checked_name, change["deleted"]))
        else:
            name = _checked_name(change["deleting"])
            self._remove(name)
            self.deleting |= {name}

    def _remove(self, name: str) -> None:
        self.topics.pop(name, None)
        if self.names_by_fold.get(folded(name)) == name:
            del self.names_by_fold[folded(name)]

    def _apply_resource(self, kind: str, name: str, configs: Mapping[str, Any]) -> None:
        if configs:
            self.resources[kind, name] = _texts(configs, f"{kind} {name!r}")
        else:
            self.resources.pop((kind, name), None)

    def _replace(self) -> None:
        """Rewrite the JSON file with all changes, as the next generation."""
        kinds: dict[str, dict[str, Mapping[str, str]]] = {}
        for (kind, name), configs in self.resources.items():
            kinds.setdefault(kind, {})[name] = configs
        content = {
            "version": _VERSION,
            "generation": self._generation + 1,
            "topics": {topic.name: _fields(topic) for topic in self.topics.values()},
            "deleting": sorted(self.deleting),
            **({"resources": kinds} if kinds else {}),
        }
        self._files.write_atomic(self._path, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())
        # From here on the old changes are void, even if their file stays.
        self._generation += 1
        self._changes.begin(self._generation)

    def _load(self) -> None:
        data = self._files.read_bytes(self._path)
        if data is not None:
            with self._raises_if_damaged(self._path):
                self._load_whole(json.loads(data))
                self._check_ids()
        changes = self._changes.read(self._generation)
        with self._raises_if_damaged(f"{self._path.removesuffix(REGISTRY_NAME)}{CHANGES_NAME}"):
            for change in changes:
                self._apply(change)
            self._check_ids()
        # The end of the changes may be torn, so nothing is appended there. The JSON file is not rewritten at
        # once: a full disk has no room for it before the directories of deleted topics are gone.
        self._changes.must_rewrite = bool(changes)

    def _check_ids(self) -> None:
        if len({topic.topic_id for topic in self.topics.values()}) < len(self.topics):
            raise ValueError("two topics have the same id")

    def _load_whole(self, content: Mapping[str, Any]) -> None:
        if content["version"] != _VERSION:
            raise unusable_file_error(
                self._path, f"has version {content['version']}; only {_VERSION} is supported"
            )
        self._generation = _generation(content.get("generation", 0))
        for name, fields in content["topics"].items():
            self._apply({"topic": name, **fields})
        self.deleting = frozenset(map(_checked_name, content["deleting"]))
        for kind, named in content.get("resources", {}).items():
            for name, configs in named.items():
                self._apply_resource(kind, name, configs)

    @contextmanager
    def _raises_if_damaged(self, path: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidTopicError) as error:
            raise unusable_file_error(path, f"is damaged ({error!r})") from error


def new_topics(
    wanted: Sequence[NewTopic],
    known: Mapping[str, Topic],
    check_configs: Callable[[Mapping[str, str]], object],
    names_by_fold: Mapping[str, str] | None = None,
) -> list[Topic]:
    """Check new topics, and return them with ids.

    Args:
        wanted: the topics to create.
        known: the existing topics.
        check_configs: raises for illegal options.
        names_by_fold: the names of ``known`` by their ``folded`` names, if the caller has them.

    Raises:
        Errors: as ``LogManager.create_topic``, for the first topic that is refused.
    """
    known_by_fold = {folded(name): name for name in known} if names_by_fold is None else names_by_fold
    by_fold: dict[str, str] = {}
    topics: dict[str, Topic] = {}
    for new in wanted:
        if new.name in known or new.name in topics:
            raise TopicAlreadyExistsError(f"topic {quoted(new.name)} exists")
        colliding = known_by_fold.get(folded(new.name)) or by_fold.get(folded(new.name))
        check_topic_name(new.name, filter(None, [colliding]))
        if new.partitions < 1:
            raise error_for(
                ErrorCode.INVALID_PARTITIONS, f"a topic has at least one partition, not {new.partitions}"
            )
        check_configs(new.configs)
        by_fold[folded(new.name)] = new.name
        topic_id = new.topic_id or new_uuid()
        topics[new.name] = Topic(new.name, topic_id, tuple(range(new.partitions)), dict(new.configs))
    return list(topics.values())


def adopt_topics(files: Files, registry: TopicRegistry, found: Mapping[TopicPartition, str]) -> None:
    """Add the partitions that are in the directories to the registry; their ``partition.metadata`` counts.

    Raises:
        KafkaStorageError: a file could not be read or written.
    """
    adopted: dict[str, Topic] = {}
    ids, without_id = topic_ids(files, found)
    for topic_partition, directory in sorted(found.items()):
        name, partition = topic_partition
        known = adopted.get(name) or registry.topics.get(name)
        topic_id = ids.get(name) or (known.topic_id if known else new_uuid())
        partitions = {partition, *(known.partitions if known else ())}
        configs = known.configs if known else {}
        adopted[name] = Topic(name, topic_id, tuple(sorted(partitions)), configs)
        if topic_partition in without_id:
            write_topic_id(files, directory, topic_id)
    if any(topic != registry.topics.get(name) for name, topic in adopted.items()):
        registry.put(*adopted.values())


def _generation(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"its generation is {value!r}")
    return value


def _fields(topic: Topic) -> dict[str, object]:
    return {
        "topic_id": format_uuid(topic.topic_id),
        "partitions": list(topic.partitions),
        "configs": dict(topic.configs),
    }


def _topic(name: str, fields: Mapping[str, Any]) -> Topic:
    """Return a topic of the file. Users may edit that, and the name becomes part of paths, so it is checked.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, InvalidTopicError: this is not a topic.
    """
    partitions = sorted(set(fields["partitions"]))
    if any(type(number) is not int or not 0 <= number <= MAX_INT for number in partitions):
        raise ValueError(f"{name} has partitions {partitions}")
    configs = _texts(fields["configs"], name)
    return Topic(_checked_name(name), parse_uuid(fields["topic_id"]), tuple(partitions), configs)


def _texts(configs: Mapping[str, Any], of: str) -> dict[str, str]:
    found = dict(configs.items())
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"an option of {of} is not a string")
    return found


def _checked_name(name: str) -> str:
    check_topic_name(name)
    return name


def _kept_resources(resources: Resources) -> list[dict[str, Any]]:
    return [{"kind": kind, "name": name, "configs": dict(kept)} for (kind, name), kept in resources.items()]


def _deletion(names: Iterable[str], resources: Resources) -> list[dict[str, Any]]:
    return [*_kept_resources(resources), *({"deleting": name} for name in names)]
