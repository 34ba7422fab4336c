"""Directories on their way out: of deleted topics, and of partitions that nobody is to have after all.

A deletion is noted in the registry first. Then directories are moved aside, so that no start takes half of
one for whole, and removed, a few with each step; at last their names are free.
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
"""Partitions that are made, or removed, in one step: 2 ms in memory, 5 ms on a disk."""

DELETED = "deleted-topic"
"""Kind of the registry's lines about topics of which something may be left in a directory that had failed."""

_logger = logging.getLogger(__name__)


class DirectoryRemovals:
    """What is to be removed from a broker's data directories.

    Args:
        directories: the data directories.
        registry: which topics there are.

    Attributes:
        scattered: topics of which there may be more directories than they have partitions, since the disk
            refused to remove those that could not be made.
    """

    def __init__(self, directories: LogDirectories, registry: TopicRegistry) -> None:
        self.scattered: set[str] = set()
        self._directories = directories
        self._files = directories.files
        self._registry = registry
        self._removed: set[str] = set()  # of those that are being deleted: nothing of them is there any more
        self._queue: deque[Iterator[int]] = deque()

    @property
    def is_under_way(self) -> bool:
        """Whether there are directories to be removed step by step."""
        return bool(self._queue)

    @property
    def has_unfinished_work(self) -> bool:
        """Whether ``retry`` has something to do."""
        return self._registry.has_unfinished_work or bool(self._queue)

    @property
    def _roots_online(self) -> list[str]:
        return [each.root for each in self._directories.online]

    def add(self, removal: Iterator[int]) -> None:
        """Something else is to be removed: each step says how many directories it took."""
        self._queue.append(removal)

    def add_topics(self, topics: Collection[Topic]) -> None:
        """Topics are deleted, and the registry says so."""
        self.add(self._removal(topics))

    def steps(self) -> Iterator[int]:
        """Remove what there is of topics that were deleted or given up: a few directories with each step.

        The steps say how many. What the disk refuses is logged: of deleted topics ``finish`` tries it again,
        of others the next start.
        """
        while self._queue:
            step = next(self._queue[0], None)
            if step is None:
                self._queue.popleft()
            else:
                yield step

    def run(self) -> None:
        """Take all steps at once."""
        deque(self.steps(), maxlen=0)

    def finish(self, *, everywhere: bool = False) -> None:
        """Remove what is left of deleted topics, and free their names: the files first, which makes room on
        a full disk for the rest. Until a name is free no topic finds the checkpoints of the one before.

        Args:
            everywhere: whether to look into the directories even where nothing should be left.

        Raises:
            KafkaStorageError: the disk refuses; the names stay taken.
        """
        self.run()
        if everywhere or not self._registry.deleting <= self._removed:
            self._remove_all_that_is_found()
        if self._registry.deleting:
            self._directories.checkpoints.forget(self._registry.deleting)
            gone = self._registry.deleting
            self._registry.end_deletions()
            self.scattered -= gone
            self._removed -= gone

    def retry(self) -> None:
        """Do what the disk refused before: removes files of deleted topics, then write the registry.

        Raises:
            KafkaStorageError: the disk refuses again; the rest waits for the next turn.
        """
        self.run()
        if self._registry.deleting:
            self.finish()
        if self._registry.must_rewrite:
            self._registry.rewrite()
            _logger.info("%s: the topics are on disk again as they are", self._directories.home.root)

    def _removal(self, topics: Collection[Topic]) -> Iterator[int]:
        roots = self._roots_online
        with log_failures("removing what there is of deleted topics"):
            try:
                yield from remove_partitions(self._files, roots, topics)
            except KafkaStorageError:
                self._note_what_is_offline(roots, topics)
                raise
            self._note_what_is_offline(roots, topics)
            self._removed.update(topic.name for topic in topics if topic.name not in self.scattered)

    def _note_what_is_offline(self, roots: Collection[str], topics: Iterable[Topic]) -> None:
        """Where a directory has failed meanwhile, it may hold something still."""
        if roots != self._roots_online:
            self._registry.put_resources(deletion_notes(topics))

    def _remove_all_that_is_found(self) -> None:
        """Move the directories of deleted topics aside, wherever they are, then remove them."""
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
    """Remove a directory of one partition, moved aside first so that no start takes half of it for whole.

    Raises:
        KafkaStorageError: the disk refuses; the next start goes on once it is moved aside.
    """
    root = os.path.dirname(path)
    target = f"{root}/{deleted_directory_name(topic_partition, uuid.uuid4().hex)}"
    files.rename(path, target)
    files.sync_directory(root)
    files.remove_tree(target)


def remove_partitions(files: Files, roots: Sequence[str], topics: Iterable[Topic]) -> Iterator[int]:
    """Remove the directories of topics whose partitions are known: it looks at theirs alone.

    It does so a few with each step, which says how many.

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
                files.remove_tree(path)  # empty, or not there at all
        if len(targets) > moved:
            files.sync_directory(root)
    for number, target in enumerate(targets, 1):
        files.remove_tree(target)
        if number % PARTITIONS_PER_STEP == 0:
            yield PARTITIONS_PER_STEP


def deletion_notes(topics: Iterable[Topic]) -> Resources:
    """The registry's lines about topics of which something may be left in a directory that has failed."""
    return {(DELETED, format_uuid(topic.topic_id)): {"topic": topic.name} for topic in topics}
