"""Partitions of a large topic: made a few at a time, and counted by nobody before all of them are there.

Making a thousand takes 0.15 s, and a topic is shown whole or not at all. So their directories and logs come
first, under a note in the registry; then the topic gets them in one change of the registry, which takes the
note away. A start removes what it finds under a note that is still there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from splashdam.embedded_broker.storage.directory_scan import refuse_taken_directories
from splashdam.embedded_broker.storage.housekeeping import logged
from splashdam.embedded_broker.storage.log import Log
from splashdam.embedded_broker.storage.settings import LogSettings
from splashdam.embedded_broker.storage.topic_directories import TOGETHER, remove_partitions
from splashdam.embedded_broker.storage.topic_registry import REGISTRY_NAME, Resources, Topic
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.quoting import quoted
from splashdam.model.values import TopicPartition

if TYPE_CHECKING:
    from splashdam.embedded_broker.storage.log_directories import LogDirectory
    from splashdam.embedded_broker.storage.log_manager import LogManager

_LOOKED_AT_TOGETHER = 200
_COMING = "coming-partitions"
"""Kind of the registry's notes: by topic the first of them and their end."""


class ComingPartitions:
    """Those of one topic. Whoever has them made either lets the topic take them, or gives them up.

    Args:
        manager: whose they will be.
        topic: as it is to be.
        first: their first number; below it are those that the topic has already.
        settings: of their logs.

    Attributes:
        topic: see above.
        is_given_up: they are on their way out.
    """

    def __init__(self, manager: LogManager, topic: Topic, first: int, settings: LogSettings) -> None:
        self.topic = topic
        self.is_given_up = False
        self._manager = manager
        self._first = first
        self._settings = settings
        self._directories: set[LogDirectory] = set()
        self._logs: dict[TopicPartition, Log] = {}
        self._made: list[TopicPartition] = []

    def make(self, hosts: Callable[[TopicPartition], bool], now_ms: int) -> Iterator[int]:
        """Makes a few with each step, which says how many.

        Raises:
            KafkaStorageError: the disk refuses; what has been made is to be given up.
        """
        manager = self._manager
        wanted = [
            each
            for number in self.topic.partitions[self._first :]
            if hosts(each := TopicPartition(self.topic.name, number))
        ]
        for group in _groups(wanted, _LOOKED_AT_TOGETHER):
            for directory in manager.directories.online:
                refuse_taken_directories(manager.files, directory.root, group)
            yield TOGETHER
        note = {"first": str(self._first), "end": str(len(self.topic.partitions))}
        manager.registry.put_resources({(_COMING, self.topic.name): note})
        place = manager.directories.place([*manager.logs.values(), *manager.moves.futures.values()])
        for group in _groups(wanted, TOGETHER):
            for topic_partition in group:
                directory = place()
                self._directories.add(directory)
                self._made.append(topic_partition)
                self._logs[topic_partition] = manager.make_log(
                    topic_partition, self.topic.topic_id, directory, self._settings, now_ms
                )
            yield len(group)
        for directory in self._directories:
            manager.files.sync_directory(directory.root)

    def take(self, settings: LogSettings) -> dict[TopicPartition, Log]:
        """Their logs, which are the topic's from now on.

        Args:
            settings: of the topic; they may have changed meanwhile.

        Raises:
            KafkaStorageError: a directory that they lie in has failed.
        """
        for directory in self._directories:
            if directory.failure is not None:
                raise directory.failure
        if settings != self._settings:
            for log in self._logs.values():
                log.reconfigure(settings)
        logs, self._logs = self._logs, {}
        return logs

    def abandon(self) -> None:
        """Closes the logs; the files stay as they are."""
        for log in self._logs.values():
            log.abandon()
        self._logs.clear()

    def remove(self) -> Iterator[int]:
        """Removes those that have been given up, a few with each step, which says how many."""
        self.abandon()
        with logged(
            f"removing what there is of partitions of {quoted(self.topic.name)} that could not be made"
        ):
            yield from _remove(self._manager, self.topic.name, (each.partition for each in self._made))
            # A full disk has no room for a line: it follows when there is some.
            self._manager.registry.forget(resources=end_of_notes([self]))


def end_of_notes(coming: Iterable[ComingPartitions]) -> Resources:
    """What the registry is told when partitions are their topic's, or gone."""
    return {(_COMING, each.topic.name): {} for each in coming}


def remove_unfinished(manager: LogManager) -> None:
    """At the start: removes partitions that were being made when the broker was killed.

    Raises:
        KafkaStorageError: the disk refuses, or a note makes no sense.
    """
    notes = {name: kept for (kind, name), kept in manager.registry.resources.items() if kind == _COMING}
    for name, kept in notes.items():
        known = manager.topics[name].partitions if name in manager.topics else ()
        try:
            numbers = set(range(int(kept["first"]), int(kept["end"]))).difference(known)
        except (KeyError, ValueError) as error:
            raise KafkaStorageError(
                f"what {REGISTRY_NAME} says of partitions of {quoted(name)} that were coming makes no sense "
                f"({error!r}); correct it there"
            ) from error
        deque(_remove(manager, name, sorted(numbers)), maxlen=0)
    if notes and all(each.failure is None for each in manager.directories.all):
        manager.registry.forget(resources={(_COMING, name): {} for name in notes})


def _remove(manager: LogManager, name: str, numbers: Iterable[int]) -> Iterator[int]:
    roots = [each.root for each in manager.directories.online]
    return remove_partitions(manager.files, roots, [Topic(name, b"", tuple(numbers))])


def _groups(items: Iterable[TopicPartition], size: int) -> Iterator[list[TopicPartition]]:
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group
