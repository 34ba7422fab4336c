"""Partitions in data directories that have failed: who asks for them is told so, until the next start.

Kafka does the same (KIP-112). Their logs are read-only from then on and closed with the broker.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.partition_metadata import format_uuid
from splashdam.storage.log import LogState

if TYPE_CHECKING:
    from splashdam.storage.directories.log_directories import LogDirectory
    from splashdam.storage.log import Log
    from splashdam.storage.manager.log_manager import LogManager
    from splashdam.storage.manager.topic_registry import Topic


DELETED = "deleted-topic"
"""Kind of the registry's lines about topics of which something may be left in a directory that had failed."""


class OfflineLogs:
    """What a log manager has lost.

    Attributes:
        on_offline: is told which partitions are gone just now.
    """

    def __init__(self, manager: LogManager) -> None:
        self.on_offline: Callable[[list[TopicPartition]], None] = lambda _: None
        self._manager = manager
        self._thread = threading.get_ident()
        self._directories: dict[TopicPartition, LogDirectory] = {}
        self._logs: list[Log] = []
        self._failed: list[LogDirectory] = []  # and not settled yet

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._directories

    def check(self, topic_partition: TopicPartition) -> None:
        """Refuses a partition that is offline.

        Raises:
            KafkaStorageError: it is; the text names the directory.
        """
        directory = self._directories.get(topic_partition)
        if directory is not None:
            raise KafkaStorageError(f"{topic_partition} lies in {directory.root}, which is offline")

    def root_of(self, topic_partition: TopicPartition) -> str | None:
        """The failed directory that a partition lies in, None for one that is not offline."""
        directory = self._directories.get(topic_partition)
        return None if directory is None else directory.root

    def logs(self) -> list[Log]:
        """The logs that were open when their directory failed."""
        return self._logs

    def note(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """A partition is known to lie in a directory that has failed."""
        self._directories[topic_partition] = directory

    def note_missing(self, topics: Iterable[Topic]) -> None:
        """At the start: partitions that are nowhere, while a directory has failed, are taken to lie there.

        To make them anew would hide what they hold.
        """
        manager = self._manager
        failed = next((each for each in manager.directories.all if each.failure is not None), None)
        if failed is not None:
            for topic in topics:
                for number in topic.partitions:
                    topic_partition = TopicPartition(topic.name, number)
                    if topic_partition not in manager.logs:
                        self._directories.setdefault(topic_partition, failed)

    def take(self, directory: LogDirectory) -> None:
        """A directory has failed; in another thread that is looked into with the next turn."""
        self._failed.append(directory)
        if threading.get_ident() == self._thread:
            self.settle()
            self._manager.wake()

    def settle(self) -> None:
        """Takes the logs of failed directories out of use. (Without the home the broker ends anyway.)"""
        manager = self._manager
        while self._failed:
            directory = self._failed.pop()
            if directory is manager.directories.home:
                continue
            manager.moves.lose(directory)
            root = directory.root
            lost = {tp: log for tp, log in manager.logs.items() if os.path.dirname(log.directory) == root}
            # Another dict, as somebody may be walking over this one.
            manager.logs = {tp: log for tp, log in manager.logs.items() if tp not in lost}
            for topic_partition, log in lost.items():
                log.state = LogState.FAILED
                self._directories[topic_partition] = directory
                self._logs.append(log)
            self.on_offline(list(lost))

    def notes_of(self, topics: Iterable[Topic]) -> dict[tuple[str, str], dict[str, str]]:
        """What the registry keeps of topics that are to be deleted.

        What of them nobody can see now is removed by the start that sees it again.
        """
        lost = {each.topic for each in self._directories}
        return deletion_notes(topic for topic in topics if topic.name in lost)

    def forget(self, topics: Iterable[Topic]) -> None:
        """Topics are deleted, and their notes written."""
        names = {topic.name for topic in topics}
        self._directories = {tp: where for tp, where in self._directories.items() if tp.topic not in names}


def deletion_notes(topics: Iterable[Topic]) -> dict[tuple[str, str], dict[str, str]]:
    """The registry's lines about topics of which something may be left in a directory that has failed."""
    return {(DELETED, format_uuid(topic.topic_id)): {"topic": topic.name} for topic in topics}
