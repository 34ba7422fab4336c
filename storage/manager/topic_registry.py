"""``splashdam-topics.json``: which topics there are, with how many partitions and which options.

Kafka keeps this in its metadata log. A plain file in the root of a data directory is ignored by it, so ours
stands beside the partitions, with ``splashdam-topics.changes``, which has what changed since: a topic more
costs one line, however many there are. Both are written before directories are made and before they are
removed, so that the next start finishes what a crash interrupted.
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
"""Beside two for each topic; then the whole is written anew, which at this pace costs each of them little."""

Resources: TypeAlias = Mapping[tuple[str, str], Mapping[str, str]]
"""Options of things other than topics, by kind and name."""


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
    """The topics as the files have them, and whatever else is set for good: options of brokers, groups, ….

    Attributes:
        topics: by name. Changes at every change, so whoever waits in between keeps a copy.
        names_by_fold: the same names by what metrics make of them (``folded``).
        resources: what is kept besides, by kind and name: each a set of options by their names.
        deleting: names whose directories are on their way out, and whose names are not free before that.
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

    def put(self, *topics: Topic, resources: Resources | None = None) -> None:
        """Add or replaces topics, and keep options as ``put_resources``: one change.

        Raises:
            KafkaStorageError: it could not be written; nothing has changed.
        """
        changes = ({"topic": topic.name, **_fields(topic)} for topic in topics)
        self._keep(*changes, *_kept_resources(resources or {}))

    def put_resources(self, resources: Resources) -> None:
        """Replace the options kept for each of these; none at all: nothing is kept any longer.

        Raises:
            KafkaStorageError: it could not be written; nothing has changed.
        """
        self._keep(*_kept_resources(resources))

    def begin_deletion(self, *names: str, resources: Resources | None = None) -> None:
        """Move topics from ``topics`` to ``deleting``, and keep options as ``put_resources``: one change.

        Raises:
            KafkaStorageError: it could not be written; nothing has changed.
        """
        self._keep(*_deletion(names, resources or {}))

    def forget(self, *names: str, resources: Resources | None = None) -> None:
        """As ``begin_deletion``, but on a disk that refuses: written with the next change."""
        for change in _deletion(names, resources or {}):
            self._apply(change)
        self._changes.must_rewrite = True

    def restore(self, *topics: Topic) -> None:
        """As ``put``, but on a disk that refuses: written with the next change."""
        self.topics.update((topic.name, topic) for topic in topics)
        self._changes.must_rewrite = True

    def take_back(self, before: Mapping[str, Topic | None]) -> None:
        """Undo ``put``, the last change, for topics that were as in ``before``: on a full disk, too.

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
        """Whether a refused write left the file in doubt."""
        return self._changes.must_rewrite

    @property
    def has_unfinished_work(self) -> bool:
        """Whether a refused write left the file in doubt, or files of deleted topics are still there."""
        return bool(self.deleting) or self.must_rewrite

    def rewrite(self) -> None:
        """Write the whole anew where a refused write left it unknown which changes are in the file.

        The names in ``deleting`` stay there: ``end_deletions`` frees them when the files are gone.

        Raises:
            KafkaStorageError: the disk refuses again.
        """
        if self._changes.must_rewrite:
            self._replace()

    def end_deletions(self) -> None:
        """Free the names in ``deleting``.

        Raises:
            KafkaStorageError: it could not be written; nothing has changed.
        """
        self._keep({"deleted": sorted(self.deleting)})

    def close(self) -> None:
        """Leave one file that says it all.

        Raises:
            KafkaStorageError: the disk refuses; what is there says it all, too.
        """
        if self._changes.length or self._changes.must_rewrite:
            self._replace()
            self._changes.remove()
        self.abandon()

    def abandon(self) -> None:
        """Close the files as they are."""
        self._changes.close()

    def _keep(self, *changes: Mapping[str, Any]) -> None:
        """Make changes last, then make them: all in one turn of the disk, whatever else there is."""
        if self._changes.must_rewrite or self._changes.length > _MOST_CHANGES + 2 * len(self.topics):
            self._replace()
        self._changes.append(*changes)
        for change in changes:
            self._apply(change)

    def _apply(self, change: Mapping[str, Any]) -> None:
        """Raise as ``_topic``, too: a change may come from the file, which anybody may have written."""
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
        """Write the whole anew, so that all changes are in it."""
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
        self._generation += 1
        self._changes.begin(self._generation)

    def _load(self) -> None:
        data = self._files.read_bytes(self._path)
        if data is not None:
            with self._makes_sense(self._path):
                self._load_whole(json.loads(data))
                self._check_ids()
        changes = self._changes.read(self._generation)
        with self._makes_sense(f"{self._path.removesuffix(REGISTRY_NAME)}{CHANGES_NAME}"):
            for change in changes:
                self._apply(change)
            self._check_ids()
        # The end of the changes may be torn: nothing is appended there. A full disk has no room for the whole
        # before deleted topics are gone, so this waits for `rewrite`.
        self._changes.must_rewrite = bool(changes)

    def _check_ids(self) -> None:
        if len({topic.topic_id for topic in self.topics.values()}) < len(self.topics):
            raise ValueError("two topics have the same id")

    def _load_whole(self, content: Mapping[str, Any]) -> None:
        if content["version"] != _VERSION:
            raise unusable_file_error(self._path, f"is of version {content['version']}, known is {_VERSION}")
        self._generation = _generation(content.get("generation", 0))
        for name, fields in content["topics"].items():
            self._apply({"topic": name, **fields})
        self.deleting = frozenset(map(_checked_name, content["deleting"]))
        for kind, named in content.get("resources", {}).items():
            for name, configs in named.items():
                self._apply_resource(kind, name, configs)

    @contextmanager
    def _makes_sense(self, path: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidTopicError) as error:
            raise unusable_file_error(path, f"makes no sense ({error!r})") from error


def new_topics(
    wanted: Sequence[NewTopic],
    known: Mapping[str, Topic],
    check_configs: Callable[[Mapping[str, str]], object],
    names_by_fold: Mapping[str, str] | None = None,
) -> list[Topic]:
    """The topics that are wanted, each with an id.

    Args:
        wanted: what is to be made.
        known: the topics that there are.
        check_configs: raises what refuses a topic's options.
        names_by_fold: of ``known``, by what metrics make of them, where the caller has that at hand.

    Raises:
        As ``LogManager.create_topic``, for the first topic that is refused.
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
    """Bring the registry in line with the partitions that are there; their own files count.

    Raises:
        KafkaStorageError: something could not be read or written.
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
    """One topic of the file, which anybody may have written: its name becomes that of directories.

    Raises:
        ValueError, KeyError, TypeError, AttributeError, InvalidTopicError: it cannot be one.
    """
    partitions = sorted(set(fields["partitions"]))
    if any(type(number) is not int or not 0 <= number <= MAX_INT for number in partitions):
        raise ValueError(f"{name} has partitions {partitions}")
    configs = _texts(fields["configs"], name)
    return Topic(_checked_name(name), parse_uuid(fields["topic_id"]), tuple(partitions), configs)


def _texts(configs: Mapping[str, Any], of: str) -> dict[str, str]:
    found = dict(configs.items())
    if not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"an option of {of} is no text")
    return found


def _checked_name(name: str) -> str:
    check_topic_name(name)
    return name


def _kept_resources(resources: Resources) -> list[dict[str, Any]]:
    return [{"kind": kind, "name": name, "configs": dict(kept)} for (kind, name), kept in resources.items()]


def _deletion(names: Iterable[str], resources: Resources) -> list[dict[str, Any]]:
    return [*_kept_resources(resources), *({"deleting": name} for name in names)]
