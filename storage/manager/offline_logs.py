"""Partitions in data directories that have failed: offline until the next start, as in Kafka (KIP-112).

Their logs are read-only from then on and closed with the broker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.log_directories import LogDirectories, LogDirectory
from splashdam.storage.log import Log, LogState
from splashdam.storage.manager.deletions import deletion_notes
from splashdam.storage.manager.topic_registry import Resources, Topic


class ManagedLogs(Protocol):
    """What this part needs of the log manager."""

    @property
    def directories(self) -> LogDirectories: ...

    @property
    def logs(self) -> Mapping[TopicPartition, Log]: ...

    def take_offline(self, directory: LogDirectory) -> dict[TopicPartition, Log]:
        """Remove the logs in a directory from the manager, and return them."""
        ...

    def wake(self) -> None:
        """Make the next turn of the housekeeping come soon."""
        ...


class OfflineLogs:
    """The offline partitions of a log manager.

    Attributes:
        on_offline: called with partitions that have just gone offline.
    """

    def __init__(self, manager: ManagedLogs) -> None:
        self.on_offline: Callable[[list[TopicPartition]], None] = lambda _: None
        self._manager = manager
        self._thread = threading.get_ident()
        self._directories: dict[TopicPartition, LogDirectory] = {}
        self._logs: list[Log] = []
        self._failed: list[LogDirectory] = []  # not processed yet

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._directories

    def check(self, topic_partition: TopicPartition) -> None:
        """Raise for an offline partition.

        Raises:
            KafkaStorageError: it is offline; the text names the directory.
        """
        directory = self._directories.get(topic_partition)
        if directory is not None:
            raise KafkaStorageError(f"{topic_partition} is in {directory.root}, which is offline")

    def root_of(self, topic_partition: TopicPartition) -> str | None:
        """Return the failed directory of an offline partition, or None."""
        directory = self._directories.get(topic_partition)
        return None if directory is None else directory.root

    def logs(self) -> list[Log]:
        """Return the logs that were open when their directory failed."""
        return self._logs

    def note(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Note that a partition is in a failed directory."""
        self._directories[topic_partition] = directory

    def note_missing(self, topics: Iterable[Topic]) -> None:
        """At the start, assume that missing partitions are in a failed directory, if there is one.

        Creating them again, empty, would hide their records.
        """
        manager = self._manager
        failed = next((each for each in manager.directories.all if each.failure is not None), None)
        if failed is not None:
            for topic in topics:
                for number in topic.partitions:
                    topic_partition = TopicPartition(topic.name, number)
                    if topic_partition not in manager.logs:
                        self._directories.setdefault(topic_partition, failed)

    def on_directory_failure(self, directory: LogDirectory) -> None:
        """Take a failed directory's partitions offline; from another thread, with the next turn."""
        self._failed.append(directory)
        if threading.get_ident() == self._thread:
            self.process_failures()
            self._manager.wake()

    def process_failures(self) -> None:
        """Take the logs of failed directories offline. (Without its home the broker ends anyway.)"""
        manager = self._manager
        while self._failed:
            directory = self._failed.pop()
            if directory is manager.directories.home:
                continue
            lost = manager.take_offline(directory)
            for topic_partition, log in lost.items():
                log.state = LogState.FAILED
                self._directories[topic_partition] = directory
                self._logs.append(log)
            self.on_offline(list(lost))

    def notes_of(self, topics: Iterable[Topic]) -> Resources:
        """Return the registry's notes for topics to be deleted that have offline partitions.

        The start at which the directory is online again removes those.
        """
        lost = {each.topic for each in self._directories}
        return deletion_notes(topic for topic in topics if topic.name in lost)

    def forget(self, topics: Iterable[Topic]) -> None:
        """Forget the partitions of deleted topics, whose notes are written."""
        names = {topic.name for topic in topics}
        self._directories = {tp: where for tp, where in self._directories.items() if tp.topic not in names}
