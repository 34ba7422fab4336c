"""Remove the directories of deleted topics, and of prepared partitions that were given up.

A deletion is written to the registry first. Then each directory is renamed ``-delete``, so that no start
takes half of one for a log, and removed, a few with each step. Last, the topics' names become free.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.background import log_failures
from splashdam.storage.directories.log_directories import LogDirectories
from splashdam.storage.directories.partition_metadata import format_uuid
from splashdam.storage.directories.scan import (
    find_partitions,
    holds_a_log,
    refuse_link,
    remove_deleted,
)
from splashdam.storage.files.disk import Files
from splashdam.storage.manager.topic_registry import Resources, Topic, TopicRegistry
from splashdam.storage.topic_names import deleted_directory_name

PARTITIONS_PER_STEP = 12
"""Partitions created or removed in one step: 2 ms in memory, 5 ms on disk."""

DELETED = "deleted-topic"
"""Kind of the registry's notes about deleted topics with partitions in a directory that was offline."""

_logger = logging.getLogger(__name__)


class DirectoryRemovals:
    """The removals in a broker's data directories.

    Args:
        directories: the data directories.
        registry: the topics.

    Attributes:
        scattered: topics that may have more directories than partitions, because the disk refused to remove
            some of partitions that could not be created.
    """

    def __init__(self, directories: LogDirectories, registry: TopicRegistry) -> None:
        self.scattered: set[str] = set()
        self._directories = directories
        self._files = directories.files
        self._registry = registry
        self._removed: set[str] = set()  # topics being deleted whose directories are all gone
        self._queue: deque[Iterator[int]] = deque()

    @property
    def is_under_way(self) -> bool:
        return bool(self._queue)

    @property
    def has_unfinished_work(self) -> bool:
        """Whether ``retry`` has something to do."""
        return self._registry.has_unfinished_work or bool(self._queue)

    @property
    def _roots_online(self) -> list[str]:
        return [each.root for each in self._directories.online]

    def add(self, removal: Iterator[int]) -> None:
        """Queue a removal, whose steps yield the number of directories removed."""
        self._queue.append(removal)

    def add_topics(self, topics: Collection[Topic]) -> None:
        """Queue the removal of topics whose deletion is in the registry."""
        self.add(self._removal(topics))

    def steps(self) -> Iterator[int]:
        """Run the queued removals, a few directories with each step, which yields how many.

        A refusal of the disk is logged; ``finish`` tries deleted topics again, the next start the others.
        """
        while self._queue:
            step = next(self._queue[0], None)
            if step is None:
                self._queue.popleft()
            else:
                yield step

    def run(self) -> None:
        """Run the queued removals at once."""
        deque(self.steps(), maxlen=0)

    def finish(self, *, everywhere: bool = False) -> None:
        """Remove what is left of deleted topics, and free their names.

        Args:
            everywhere: search the directories even if nothing should be left.

        Raises:
            KafkaStorageError: the disk refuses; the names stay taken.
        """
        # The files first: that makes room on a full disk for the writes below.
        self.run()
        if everywhere or not self._registry.deleting <= self._removed:
            self._remove_all_that_is_found()
        if self._registry.deleting:
            # Before the names are free, or a new topic of the same name would start with these offsets.
            self._directories.checkpoints.forget(self._registry.deleting)
            gone = self._registry.deleting
            self._registry.end_deletions()
            self.scattered -= gone
            self._removed -= gone

    def retry(self) -> None:
        """Do what the disk refused before: remove files of deleted topics, then write the registry.

        Raises:
            KafkaStorageError: the disk refuses again; the next turn tries again.
        """
        self.run()
        if self._registry.deleting:
            self.finish()
        if self._registry.must_rewrite:
            self._registry.rewrite()
            _logger.info("%s: all changes of topics are on disk again", self._directories.home.root)

    def _removal(self, topics: Collection[Topic]) -> Iterator[int]:
        roots = self._roots_online
        with log_failures("removing directories of deleted topics"):
            try:
                yield from remove_partitions(self._files, roots, topics)
            except KafkaStorageError:
                self._note_what_is_offline(roots, topics)
                raise
            self._note_what_is_offline(roots, topics)
            self._removed.update(topic.name for topic in topics if topic.name not in self.scattered)

    def _note_what_is_offline(self, roots: Collection[str], topics: Iterable[Topic]) -> None:
        """Note the topics if a directory has failed meanwhile: it may still hold some of their partitions."""
        if roots != self._roots_online:
            self._registry.put_resources(deletion_notes(topics))

    def _remove_all_that_is_found(self) -> None:
        """Find the directories of deleted topics, rename them ``-delete``, and remove them."""
        deleting, roots = self._registry.deleting, self._roots_online
        if deleting:
            for root in roots:
                found = find_partitions(self._files, root, self._registry.topics, deleting, roots=roots)
                for topic_partition, path in found.items():
                    if topic_partition.topic in deleting:
                        target = deleted_directory_name(topic_partition, uuid.uuid4().hex)
                        self._files.rename(path, f"{root}/{target}")
                self._files.sync_directory(root)
        for root in roots:
            remove_deleted(self._files, root)


def remove_partition_directory(files: Files, path: str, topic_partition: TopicPartition) -> None:
    """Remove the directory of one partition.

    Raises:
        KafkaStorageError: the disk refuses; once it is renamed, the next start removes it.
    """
    root = os.path.dirname(path)
    target = f"{root}/{deleted_directory_name(topic_partition, uuid.uuid4().hex)}"
    # Durably, before the first file goes: a start after a crash would load what is left.
    files.rename(path, target)
    files.sync_directory(root)
    files.remove_tree(target)


def remove_partitions(files: Files, roots: Sequence[str], topics: Iterable[Topic]) -> Iterator[int]:
    """Remove the directories of topics with known partitions, a few with each step, which yields how many.

    Raises:
        KafkaStorageError: the disk refuses; ``DirectoryRemovals.finish`` goes on.
    """
    names = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
    targets: list[str] = []
    for root in roots:
        moved = len(targets)
        for number, topic_partition in enumerate(names, 1):
            if number % PARTITIONS_PER_STEP == 0:
                yield PARTITIONS_PER_STEP
            path = f"{root}/{topic_partition}"
            refuse_link(files, path)
            if path in roots or not holds_a_log(files, path, or_nothing=True):
                continue
            if files.list_directory(path):
                targets.append(f"{root}/{deleted_directory_name(topic_partition, uuid.uuid4().hex)}")
                files.rename(path, targets[-1])
            else:
                files.remove_tree(path)  # empty or missing
        if len(targets) > moved:
            files.sync_directory(root)
    for number, target in enumerate(targets, 1):
        files.remove_tree(target)
        if number % PARTITIONS_PER_STEP == 0:
            yield PARTITIONS_PER_STEP


def deletion_notes(topics: Iterable[Topic]) -> Resources:
    """Return the registry's notes about deleted topics with partitions in a directory that is offline."""
    return {(DELETED, format_uuid(topic.topic_id)): {"topic": topic.name} for topic in topics}
