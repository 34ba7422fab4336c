"""Partitions of a large topic, created a few at a time and not visible before all of them are there.

Creating 1,000 partitions takes 0.15 s, and a topic is shown whole or not at all. So directories and logs are
created first, under a note in the registry; then one change of the registry gives them to the topic and
removes the note. A start removes the partitions of every note that is still there: those that a crash has
left, and those that could not be removed because the disk refused or the directory had failed.
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

_CHECKED_PER_STEP = 200
_COMING = "coming-partitions"
"""Kind of the registry's notes; each preparation has a unique name."""


class PartitionFactory(Protocol):
    """What creates partitions: the log manager."""

    @property
    def directories(self) -> LogDirectories: ...

    @property
    def registry(self) -> TopicRegistry: ...

    def place(self) -> Callable[[], LogDirectory]:
        """Return a function that chooses the directory of a new partition."""
        ...

    def make_log(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        directory: LogDirectory,
        settings: LogSettings,
        now_ms: int,
    ) -> Log:
        """Create a log and its directory, without adding it to the manager."""
        ...


class PreparedPartitions:
    """The prepared partitions of one topic. The topic takes them in the end, or they are given up.

    Args:
        manager: the log manager.
        topic: the topic as it will be.
        numbers: their numbers, ascending; the topic may have other partitions already.
        settings: the options of the topic.

    Attributes:
        topic: see above.
        is_given_up: they are being removed.
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
        """Check that their directories are free, then create a few with each step, which yields its cost.

        Raises:
            UnknownTopicOrPartitionError: the topic was deleted meanwhile.
            KafkaStorageError: the disk refuses; give up what has been created.
        """
        files = self._all_directories.files
        is_known = self.topic.name in self._registry.topics
        wanted = [each for number in self._numbers if hosts(each := TopicPartition(self.topic.name, number))]
        for group in _groups(wanted, _CHECKED_PER_STEP):
            for directory in self._all_directories.online:
                refuse_taken_directories(files, directory.root, group)
                yield PARTITIONS_PER_STEP
        # Before any directory: a start must know what to remove if this is interrupted.
        self._registry.put_resources({self._note: self._note_content()})
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
            # Other requests have had their turns during the ``yield``.
            if is_known and self._is_deleted():
                raise UnknownTopicOrPartitionError(f"topic {quoted(self.topic.name)} was deleted meanwhile")
        for directory in self._directories:
            files.sync_directory(directory.root)

    def _note_content(self) -> dict[str, str]:
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
        """Whether these are the partitions that ``topic`` is to get now."""
        return (
            not self.is_given_up
            and topic.topic_id == self.topic.topic_id
            and set(numbers) == set(self._numbers)
        )

    def check(self) -> None:
        """Check that their directories are still online.

        Raises:
            KafkaStorageError: a directory has failed.
        """
        for directory in self._directories:
            if directory.failure is not None:
                raise directory.failure

    @property
    def note_removal(self) -> Resources:
        """The change of the registry that removes their note."""
        return {self._note: {}}

    def take(self, settings: LogSettings) -> dict[TopicPartition, Log]:
        """Hand their logs over to the manager.

        Args:
            settings: the topic's options, which may have changed meanwhile.
        """
        if settings != self._settings:
            for log in self._logs.values():
                log.reconfigure(settings)
        logs, self._logs = self._logs, {}
        return logs

    def abandon(self) -> None:
        """Close the logs and leave the files as they are."""
        for log in self._logs.values():
            log.abandon()
        self._logs.clear()

    def remove(self) -> Iterator[int]:
        """Remove the partitions after they were given up, a few with each step, which yields how many.

        If this fails, the note stays and the next start removes them.
        """
        self.abandon()
        with log_failures(f"removing partitions of {quoted(self.topic.name)} that were given up"):
            yield from _remove(
                self._all_directories, self.topic.name, (each.partition for each in self._made)
            )
            if all(directory.failure is None for directory in self._directories):
                # On a full disk the line is written later, when there is room.
                self._registry.forget(resources=self.note_removal)


def remove_orphaned_partitions(directories: LogDirectories, registry: TopicRegistry) -> None:
    """At the start, remove prepared partitions that no topic has taken.

    Raises:
        KafkaStorageError: the disk refuses, or a note is damaged.
    """
    notes = {key: kept for key, kept in registry.resources.items() if key[0] == _COMING}
    for kept in notes.values():
        try:
            name, topic_id = kept["topic"], parse_uuid(kept["topic_id"])
            numbers = range(int(kept["first"]), int(kept["end"]))
        except (KeyError, ValueError) as error:
            raise KafkaStorageError(
                f"a note of prepared partitions in {REGISTRY_NAME} is damaged ({error!r}); correct it"
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
    """Remove directories of a topic that was never created, when another topic has its name."""
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
