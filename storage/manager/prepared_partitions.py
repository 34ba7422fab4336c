"""Partitions of a large topic: made a few at a time, and counted by nobody before all of them are there.

Making a thousand takes 0.15 s, and a topic is shown whole or not at all. So their directories and logs come
first, under a note in the registry; then the topic gets them in one change of the registry, which takes the
note away. A start removes what it finds under a note that is still there: what a crash has left, and what
could not be removed when it was given up, since the disk refused or the directory had failed.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice, product
from typing import Protocol

from splashdam.model.broker_errors import KafkaStorageError, UnknownTopicOrPartitionError
from splashdam.model.log_text import quoted
from splashdam.model.values import TopicPartition
from splashdam.storage.background import log_failures
from splashdam.storage.directories.identity import REGISTRY_NAME
from splashdam.storage.directories.log_directories import LogDirectories, LogDirectory
from splashdam.storage.directories.partition_metadata import format_uuid, parse_uuid, read_topic_id
from splashdam.storage.directories.scan import refuse_taken_directories
from splashdam.storage.log import Log
from splashdam.storage.manager.deletions import (
    PARTITIONS_PER_STEP,
    remove_partition_directory,
    remove_partitions,
)
from splashdam.storage.manager.topic_registry import Resources, Topic, TopicRegistry
from splashdam.storage.settings import LogSettings

_LOOKED_AT_TOGETHER = 200
_COMING = "coming-partitions"
"""Kind of the registry's notes. Each making has one of its own, by a unique name."""


class PartitionFactory(Protocol):
    """Who makes partitions."""

    @property
    def directories(self) -> LogDirectories: ...

    @property
    def registry(self) -> TopicRegistry: ...

    def place(self) -> Callable[[], LogDirectory]:
        """Choose a directory for each new partition."""
        ...

    def make_log(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        directory: LogDirectory,
        settings: LogSettings,
        now_ms: int,
    ) -> Log:
        """A new log with its directory, which nobody knows of yet."""
        ...


class PreparedPartitions:
    """Those of one topic. Whoever has them made either lets the topic take them, or gives them up.

    Args:
        manager: whose they will be.
        topic: as it is to be.
        numbers: theirs, ascending; the topic may have others already.
        settings: of their logs.

    Attributes:
        topic: see above.
        is_given_up: they are on their way out.
    """

    def __init__(
        self, manager: PartitionFactory, topic: Topic, numbers: Sequence[int], settings: LogSettings
    ) -> None:
        self.topic = topic
        self.is_given_up = False
        self._manager = manager
        self._registry = manager.registry
        self._all_directories = manager.directories
        self._numbers = numbers
        self._note = _COMING, uuid.uuid4().hex
        self._settings = settings
        self._directories: set[LogDirectory] = set()
        self._logs: dict[TopicPartition, Log] = {}
        self._made: list[TopicPartition] = []

    def make(self, hosts: Callable[[TopicPartition], bool], now_ms: int) -> Iterator[int]:
        """Look whether there is room for them, then make a few with each step; it says what that cost.

        Raises:
            UnknownTopicOrPartitionError: the topic that was to have more was deleted meanwhile.
            KafkaStorageError: the disk refuses; what has been made is to be given up.
        """
        files = self._all_directories.files
        is_known = self.topic.name in self._registry.topics
        wanted = [each for number in self._numbers if hosts(each := TopicPartition(self.topic.name, number))]
        for group in _groups(wanted, _LOOKED_AT_TOGETHER):
            for directory in self._all_directories.online:
                refuse_taken_directories(files, directory.root, group)
                yield PARTITIONS_PER_STEP
        self._registry.put_resources({self._note: self._said()})
        place = self._manager.place()
        for group in _groups(wanted, PARTITIONS_PER_STEP):
            for topic_partition in group:
                directory = place()
                self._directories.add(directory)
                self._made.append(topic_partition)
                self._logs[topic_partition] = self._manager.make_log(
                    topic_partition, self.topic.topic_id, directory, self._settings, now_ms
                )
            yield len(group)
            if is_known and self._is_deleted():
                raise UnknownTopicOrPartitionError(f"topic {quoted(self.topic.name)} was deleted meanwhile")
        for directory in self._directories:
            files.sync_directory(directory.root)

    def _said(self) -> dict[str, str]:
        return {
            "topic": self.topic.name,
            "topic_id": format_uuid(self.topic.topic_id),
            "first": str(self._numbers[0]),
            "end": str(self._numbers[-1] + 1),
        }

    def _is_deleted(self) -> bool:
        known = self._registry.topics.get(self.topic.name)
        return known is None or known.topic_id != self.topic.topic_id

    def are_for(self, topic: Topic, numbers: Collection[int]) -> bool:
        """Whether a topic that is to get these may have them."""
        return (
            not self.is_given_up
            and topic.topic_id == self.topic.topic_id
            and set(numbers) == set(self._numbers)
        )

    def check(self) -> None:
        """Look whether all that was made can still be used.

        Raises:
            KafkaStorageError: a directory that they lie in has failed.
        """
        for directory in self._directories:
            if directory.failure is not None:
                raise directory.failure

    @property
    def note_removal(self) -> Resources:
        """What the registry is told when they are their topic's, or gone."""
        return {self._note: {}}

    def take(self, settings: LogSettings) -> dict[TopicPartition, Log]:
        """Their logs, which are the topic's from now on.

        Args:
            settings: of the topic; they may have changed meanwhile.
        """
        if settings != self._settings:
            for log in self._logs.values():
                log.reconfigure(settings)
        logs, self._logs = self._logs, {}
        return logs

    def abandon(self) -> None:
        """Close the logs; the files stay as they are."""
        for log in self._logs.values():
            log.abandon()
        self._logs.clear()

    def remove(self) -> Iterator[int]:
        """Remove those that have been given up, a few with each step, which says how many.

        Where that fails the note stays, for the next start.
        """
        self.abandon()
        with log_failures(
            f"removing what there is of partitions of {quoted(self.topic.name)} that could not be made"
        ):
            yield from _remove(
                self._all_directories, self.topic.name, (each.partition for each in self._made)
            )
            if all(directory.failure is None for directory in self._directories):
                # A full disk has no room for a line: it follows when there is some.
                self._registry.forget(resources=self.note_removal)


def remove_orphaned_partitions(directories: LogDirectories, registry: TopicRegistry) -> None:
    """At the start: removes partitions that were made and that no topic has got.

    Raises:
        KafkaStorageError: the disk refuses, or a note makes no sense.
    """
    notes = {key: kept for key, kept in registry.resources.items() if key[0] == _COMING}
    for kept in notes.values():
        try:
            name, topic_id = kept["topic"], parse_uuid(kept["topic_id"])
            numbers = range(int(kept["first"]), int(kept["end"]))
        except (KeyError, ValueError) as error:
            raise KafkaStorageError(
                f"what {REGISTRY_NAME} says of partitions that were coming makes no sense ({error!r}); "
                "correct it there"
            ) from error
        topic = registry.topics.get(name)
        known = () if topic is None else topic.partitions
        deque(_remove(directories, name, sorted(set(numbers).difference(known))), maxlen=0)
        if topic is not None and topic.topic_id != topic_id:
            _remove_of(
                directories, topic_id, [TopicPartition(name, each) for each in known if each in numbers]
            )
    if notes and all(each.failure is None for each in directories.all):
        registry.forget(resources={key: {} for key in notes})


def _remove_of(directories: LogDirectories, topic_id: bytes, partitions: Iterable[TopicPartition]) -> None:
    """Remove directories of a topic that was not made; another one has its name, and others of that name."""
    for topic_partition, directory in product(partitions, directories.online):
        path = f"{directory.root}/{topic_partition}"
        if read_topic_id(directories.files, path) == topic_id:
            remove_partition_directory(directories.files, path, topic_partition)


def _remove(directories: LogDirectories, name: str, numbers: Iterable[int]) -> Iterator[int]:
    roots = [each.root for each in directories.online]
    return remove_partitions(directories.files, roots, [Topic(name, b"", tuple(numbers))])


def _groups(items: Iterable[TopicPartition], size: int) -> Iterator[list[TopicPartition]]:
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group
