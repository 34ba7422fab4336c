"""All logs of one broker: topics and partitions in its data directories, from start to shutdown.

``LogManager.open`` locks the directories, reads the clean shutdown markers, finishes interrupted creations
and deletions of topics, and opens every partition. Directories that are no partitions are ignored.
"""

from __future__ import annotations

import gc
import logging
import math
import os
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import TypeAlias

import trio

from splashdam.model.broker_errors import (
    ErrorCode,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
    error_for,
)
from splashdam.model.log_text import quoted
from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition
from splashdam.storage.background import log_failures
from splashdam.storage.cleaning.log_cleaner import LogCleaner
from splashdam.storage.directories.checkpoints import RootCheckpoints, SpreadCheckpoints
from splashdam.storage.directories.identity import DirectoryIdentity, mark_clean_shutdown
from splashdam.storage.directories.log_directories import LogDirectories, LogDirectory
from splashdam.storage.directories.partition_metadata import write_topic_id
from splashdam.storage.directories.scan import (
    make_partition_directory,
    refuse_taken_directories,
)
from splashdam.storage.directories.written_by import claim_format
from splashdam.storage.files.disk import Files
from splashdam.storage.files.log_file import is_disk_full
from splashdam.storage.log import Log
from splashdam.storage.manager.deletions import DirectoryRemovals, remove_partition_directory
from splashdam.storage.manager.housekeeping import Housekeeping
from splashdam.storage.manager.moves import LogMoves, choose_directories
from splashdam.storage.manager.offline_logs import OfflineLogs
from splashdam.storage.manager.prepared_partitions import PreparedPartitions, remove_orphaned_partitions
from splashdam.storage.manager.topic_registry import (
    NewTopic,
    Topic,
    TopicRegistry,
    adopt_topics,
    new_topics,
)
from splashdam.storage.settings import DirectorySettings, LogSettings

SettingsFor: TypeAlias = Callable[[Mapping[str, str]], LogSettings]
"""Returns a log's settings for a topic's own options (Kafka's dotted names); raises for illegal ones."""

Hosts: TypeAlias = Callable[[TopicPartition], bool]
"""Whether this broker keeps a replica of a partition."""

MAX_REMOVED_AT_ONCE = 64
"""Partitions whose directories are removed at once; more are removed step by step."""

DEFAULT_SETTINGS_FOR: SettingsFor = LogSettings().with_configs

_logger = logging.getLogger(__name__)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Let the garbage collector of the whole process rest.

    A log is some hundred objects that stay. With 10,000 of them a fifth of a start went into looking for
    garbage among the logs that were open already.
    """
    was_on = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()


class LogManager:
    """The logs of one broker; created by ``LogManager.open``, ended by ``close``.

    Attributes:
        directories: its data directories.
        logs: the logs by partition; a new dict whenever a directory fails.
        offline: the partitions in failed directories.
        moves: the moves of logs to other directories.
        logs_with_work: logs in which closed segments may wait for a flush, or removed files to be unlinked.
            The housekeeping looks at no others for that, and removes those that need nothing more.
        smallest_flush_ms: the smallest ``flush.ms`` of all logs.
        topics: every topic by name.
        registry: the topics on disk.
        settings: the schedule of the housekeeping.
        settings_for: returns a log's settings for its topic's options.
        cleaner: compacts the logs of compacted topics.
        files: the file system.
        on_log_start: called with partitions whose log start offset retention has moved.
        prepared: partitions created before their topic has them, by topic name.
        removals: the directories to remove.
        housekeeping: runs the scheduled tasks.
    """

    def __init__(
        self,
        files: Files,
        root: str,
        log_dirs: Sequence[str],
        settings_for: SettingsFor,
        settings: DirectorySettings,
        *,
        hosts: Hosts,
    ) -> None:
        self.offline = OfflineLogs(self)
        self.directories = LogDirectories(
            files, root, log_dirs, self.offline.on_directory_failure, self.root_of
        )
        self.logs: dict[TopicPartition, Log] = {}
        self.logs_with_work: dict[Log, None] = {}
        self.smallest_flush_ms = MAX_LONG
        self._moved: dict[Log, None] = {}  # logs whose high watermarks moved since the last checkpoint
        self._logs_kept = -1
        self.prepared: dict[str, PreparedPartitions] = {}
        self.on_log_start: Callable[[TopicPartition], None] = lambda _: None
        self.settings = settings
        self.files = self.directories.files
        self.cleaner = LogCleaner(self.files, settings, self.checkpoints.cleaner_offsets)
        self.moves = LogMoves(self)
        self.settings_for = settings_for
        self._hosts = hosts
        self.registry: TopicRegistry
        self.removals: DirectoryRemovals
        self._is_closed, self._pid = False, os.getpid()
        self.housekeeping = Housekeeping(self)
        self._work = trio.Event()

    @classmethod
    def open(
        cls,
        files: Files,
        root: str,
        *,
        now_ms: int,
        settings_for: SettingsFor = DEFAULT_SETTINGS_FOR,
        node_id: int = 1,
        settings: DirectorySettings | None = None,
        hosts: Hosts = lambda _: True,
        log_dirs: Sequence[str] = (),
    ) -> LogManager:
        """Open a broker's data directories; create missing ones.

        Args:
            files: the file system.
            root: path of the home directory.
            now_ms: wall clock, milliseconds since the epoch.
            settings_for: returns a log's settings for its topic's options.
            node_id: node id of a new directory.
            settings: the schedule of the housekeeping; Kafka's defaults unless given.
            hosts: which partitions to create; not all in a cluster. Partitions whose directories exist are
                opened in any case.
            log_dirs: the directories for partitions; by default ``root``.

        Raises:
            IllegalStateError: another broker uses a directory; the text names its process.
            KafkaStorageError: a newer version of splashdam wrote ``root`` in a format that this one does not
                read, or a file in it cannot be read or repaired, or none of ``log_dirs`` can be
                used. (If some can, the others are offline.)
        """
        paths = [os.path.abspath(each) for each in log_dirs]
        settings = settings or DirectorySettings()
        manager = cls(files, os.path.abspath(root), paths, settings_for, settings, hosts=hosts)
        try:
            manager.directories.open()
            claim_format(manager.files, manager.root)
            manager.registry = TopicRegistry(manager.files, manager.root)
            manager.removals = DirectoryRemovals(manager.directories, manager.registry)
            manager._open_all(node_id, now_ms)
        except BaseException:
            manager.directories.release()
            raise
        return manager

    def _open_all(self, node_id: int, now_ms: int) -> None:
        """Finish interrupted changes, and open every partition.

        Raises:
            KafkaStorageError: a file cannot be read or repaired; nothing stays open.
        """
        self.directories.load(node_id)
        is_clean = all(directory.was_clean for directory in self.directories.online)
        # Not after a crash: to recover all logs may take minutes, in which other threads make garbage.
        with _without_collector() if is_clean else nullcontext():
            self._open_logs(now_ms)

    def _open_logs(self, now_ms: int) -> None:
        directories, registry = self.directories, self.registry
        # Before the directories are searched: what is left of a deleted topic would be adopted as a topic.
        self.removals.finish(everywhere=True)
        remove_orphaned_partitions(directories, registry)
        if registry.has_unfinished_work:
            with log_failures("rewriting the topic registry"):  # on a full disk the housekeeping tries again
                registry.rewrite()
        found = choose_directories(directories, registry, directories.find(self.topics))
        adopt_topics(self.files, registry, found)
        try:
            for topic_partition, path in found.items():
                self._open_found(topic_partition, path, now_ms)
            # Only tidying: on a full disk the start goes on, and the next one tries again.
            with log_failures("removing checkpointed offsets of logs that are gone"):
                for directory in directories.online:
                    here = {tp for tp, path in found.items() if os.path.dirname(path) == directory.root}
                    directory.checkpoints.keep_only(here)
            # Before ``make_partitions``, which would create them again, empty.
            self.offline.note_missing(self.topics.values())
            self.make_partitions(self.topics.values(), now_ms)  # a crash may have interrupted a creation
            self.moves.resume(now_ms)
        except BaseException:
            for log in self.logs.values():
                log.abandon()
            registry.abandon()
            raise

    def _open_found(self, topic_partition: TopicPartition, path: str, now_ms: int) -> None:
        directory = self.directories.at(os.path.dirname(path))
        assert directory is not None, path
        if directory.failure is not None:
            return
        kept = directory.checkpointed
        try:
            self.open_log(
                topic_partition,
                path,
                now_ms,
                clean_shutdown=directory.was_clean,
                recovery_point=kept.recovery_points.get(topic_partition, 0),
                log_start_offset=kept.log_starts.get(topic_partition, 0),
                high_watermark=kept.high_watermarks.get(topic_partition, 0),
            )
        except KafkaStorageError:
            # If its disk has failed, the directory is offline from now on, and the start goes on without it.
            if directory.failure is None or directory is self.directories.home:
                raise

    @property
    def root(self) -> str:
        """Absolute path of the broker's home directory."""
        return self.directories.home.root

    @property
    def identity(self) -> DirectoryIdentity:
        """Cluster id, node id, and the home's directory id."""
        return self.directories.home.identity

    @property
    def checkpoints(self) -> RootCheckpoints | SpreadCheckpoints:
        """The checkpoint files of the data directories."""
        return self.directories.checkpoints

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self.registry.topics

    # --- topics ---------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None, *, now_ms: int
    ) -> bytes:
        """Create a topic with its partitions, all or nothing; return its id.

        Raises:
            InvalidTopicError: the name is illegal, or collides with another.
            TopicAlreadyExistsError: the topic exists.
            BrokerResponseError: INVALID_PARTITIONS, or what ``settings_for`` raises for the options.
            KafkaStorageError: the disk refuses; nothing of the topic is left.
        """
        return self.create_topics([NewTopic(name, partitions, dict(configs or {}))], now_ms=now_ms)[0]

    def create_topics(self, wanted: Sequence[NewTopic], *, now_ms: int) -> list[bytes]:
        """Create several topics, all or none, with one change of the registry.

        A topic whose partitions were created by ``prepare`` takes those.

        Raises:
            Errors: as ``create_topic``, for the first topic that is refused.
        """
        topics = new_topics(wanted, self.topics, self.settings_for, self.registry.names_by_fold)
        prepared = [
            each for topic in topics if (each := self.prepared_for(topic, topic.partitions)) is not None
        ]
        if any(topic.name in self.registry.deleting for topic in topics):
            self.removals.finish()
        partitions = [
            TopicPartition(topic.name, number)
            for topic in topics
            if topic.name not in self.prepared
            for number in topic.partitions
        ]
        for directory in self.directories.online:
            refuse_taken_directories(self.files, directory.root, partitions)
        # The registry first: a start completes what the registry has, and would adopt directories that it
        # lacks.
        self.put_topics(topics, prepared)
        try:
            self.make_partitions(topics, now_ms, prepared)
        except BaseException:
            self._undo_creation(topics)
            raise
        return [topic.topic_id for topic in topics]

    def change_topics(self, *topics: Topic, now_ms: int) -> None:
        """Give topics more partitions or other options, which their logs use from now on.

        Raises:
            KafkaStorageError: the disk refuses; nothing has changed.
            Other errors: as ``settings_for``, for illegal options.
        """
        settings = {topic.name: self.settings_for(topic.configs) for topic in topics}
        before = [self.topics[topic.name] for topic in topics]
        new = [
            TopicPartition(topic.name, number)
            for topic, old in zip(topics, before, strict=True)
            for number in sorted(set(topic.partitions).difference(old.partitions))
        ]
        growing: dict[str, list[int]] = {}
        for each in new:
            growing.setdefault(each.topic, []).append(each.partition)
        prepared = [
            found
            for name, numbers in growing.items()
            if (found := self.prepared_for(self.topics[name], numbers)) is not None
        ]
        unprepared = [each for each in new if each.topic not in self.prepared]
        for directory in self.directories.online:
            refuse_taken_directories(self.files, directory.root, unprepared)
        self.put_topics(topics, prepared)
        try:
            if new:
                self.make_partitions(topics, now_ms, prepared)
        except BaseException:
            if not self._undo({topic.name: topic for topic in before}, new):
                self.registry.restore(*before)
                self.removals.scattered.update(topic.name for topic in before)
                self.wake()
            raise
        for topic, old in zip(topics, before, strict=True):
            for number in topic.partitions if topic.configs != old.configs else ():
                log = self.logs.get(TopicPartition(topic.name, number))
                if log is not None:
                    log.reconfigure(settings[topic.name])
        self.note_flush_ms()
        self.wake()

    def put_topics(self, topics: Iterable[Topic], prepared: Iterable[PreparedPartitions]) -> None:
        """Write topics, which take prepared partitions, to the registry: one change.

        Raises:
            KafkaStorageError: a directory of the partitions has failed, or the registry could not be written;
                nothing has changed.
        """
        ends: dict[tuple[str, str], Mapping[str, str]] = {}
        for each in prepared:
            each.check()
            ends.update(each.note_removal)
        self.registry.put(*topics, resources=ends)

    def prepare(
        self, topic: Topic, numbers: Sequence[int], *, now_ms: int
    ) -> Generator[int, None, PreparedPartitions]:
        """Create partitions of a topic before it has them, a few with each step, which yields its cost.

        The partitions are not visible before ``create_topics`` or ``change_topics`` gives them to the topic.
        The caller calls ``give_up`` in the end, in any case. Until the topic has them, or they are removed,
        no other partitions can be created under this topic name.

        Raises:
            BrokerResponseError: what ``settings_for`` raises for the options; REQUEST_TIMED_OUT (7): another
                caller is creating partitions of this topic; UNKNOWN_TOPIC_OR_PARTITION (3): it was deleted.
            KafkaStorageError: the disk refuses.
        """
        settings = self.settings_for(topic.configs)
        self.prepared_for(topic, ())
        self.prepared[topic.name] = partitions = PreparedPartitions(self, topic, numbers, settings)
        try:
            if topic.name in self.registry.deleting:
                yield from self.removals.steps()
                self.removals.finish()
            yield from partitions.make(self._hosts, now_ms)
        except BaseException:
            self.give_up(partitions)
            raise
        return partitions

    def give_up(self, prepared: PreparedPartitions) -> None:
        """Let the housekeeping remove prepared partitions, unless their topic has taken them."""
        if self.prepared.get(prepared.topic.name) is prepared:
            prepared.is_given_up = True
            self.removals.add(self._removal_of_prepared(prepared))
            self.wake()

    def _removal_of_prepared(self, prepared: PreparedPartitions) -> Iterator[int]:
        yield from prepared.remove()
        del self.prepared[prepared.topic.name]

    def prepared_for(self, topic: Topic, numbers: Collection[int]) -> PreparedPartitions | None:
        """Return the partitions that were prepared for ``topic`` with these numbers, or None.

        Raises:
            BrokerResponseError: REQUEST_TIMED_OUT (7), so that the client tries again: other partitions of
                this topic are being created or removed.
        """
        prepared = self.prepared.get(topic.name)
        if prepared is None or prepared.are_for(topic, numbers):
            return prepared
        raise error_for(
            ErrorCode.REQUEST_TIMED_OUT,
            f"partitions of topic {quoted(topic.name)} are being created or removed",
        )

    def is_busy(self, name: str) -> bool:
        """Whether partitions of a topic are being created or removed step by step."""
        return name in self.prepared or (name in self.registry.deleting and self.removals.is_under_way)

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its logs; slices that are being read stay readable.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaStorageError: the registry could not be written. Nothing has changed, unless the disk is
                full: then the topic is gone, and the registry is written when there is room.
        """
        self.delete_topics([name])
        self.free_names()

    def delete_topics(self, names: Collection[str]) -> None:
        """Remove several topics with one change of the registry.

        Call ``free_names`` afterwards, perhaps after more deletions, because it rewrites the checkpoints of
        all partitions. A start, or the creation of a topic of such a name, does it as well.

        Raises:
            Errors: as ``delete_topic``.
        """
        for name in names:
            if name not in self.topics:
                raise UnknownTopicOrPartitionError(f"there is no topic {quoted(name)}")
        if not names:
            return
        topics = [self.topics[name] for name in names]
        notes = self.offline.notes_of(topics)
        full: KafkaStorageError | None = None
        try:
            self.registry.begin_deletion(*names, resources=notes)
        except KafkaStorageError as error:
            if not is_disk_full(error):
                raise
            # In memory only for now: removing the files makes room for the registry.
            self.registry.forget(*names, resources=notes)
            full = error
        self.offline.forget(topics)
        of_topics = (TopicPartition(each.name, number) for each in topics for number in each.partitions)
        # Before the directories go: no turn may append to files that are being removed.
        self.abandon_logs(each for each in of_topics if each in self.logs)
        is_small = (
            not self.removals.is_under_way
            and sum(len(topic.partitions) for topic in topics) <= MAX_REMOVED_AT_ONCE
        )
        self.removals.add_topics(topics)
        if full is not None or is_small:
            self.removals.run()
        if full is not None:
            self.free_names()
            if self.registry.must_rewrite:
                raise full

    def free_names(self) -> None:
        """Free the names of deleted topics; if the disk refuses, the housekeeping tries again.

        If there are still directories to remove, the housekeeping does both.
        """
        if self._is_closed or os.getpid() != self._pid or not self.removals.has_unfinished_work:
            return
        if self.removals.is_under_way:
            self.wake()
            return
        with log_failures("removing directories of deleted topics"):
            self.removals.finish()
        if self.registry.has_unfinished_work:
            self.wake()

    def _undo_creation(self, topics: Iterable[Topic]) -> None:
        """Remove topics that could not be created, durably; this needs no room on a full disk.

        If the disk refuses even that, it is logged, and the housekeeping tries again.
        """
        new = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        names = {each.topic for each in new}
        if not self._undo(dict.fromkeys(names), new):
            for name in names:
                self.registry.forget(name)
            self.wake()

    def _undo(self, before: Mapping[str, Topic | None], new: list[TopicPartition]) -> bool:
        """Remove partitions that could not be created; return whether the disk allowed it."""
        self.abandon_logs([topic_partition for topic_partition in new if topic_partition in self.logs])
        is_undone = False
        with log_failures("removing partitions that could not be created"):
            for directory in self.directories.online:
                for topic_partition in new:
                    self.files.remove_tree(f"{directory.root}/{topic_partition}")
                self.files.sync_directory(directory.root)
            # Last: a start creates again what the registry has, but it would load directories that the
            # registry does not have as those of a topic.
            self.registry.take_back(before)
            is_undone = True
        return is_undone

    # --- logs -----------------------------------------------------------------------------------------------

    def make_partitions(
        self, topics: Iterable[Topic], now_ms: int, prepared: Iterable[PreparedPartitions] = ()
    ) -> None:
        """Create the partitions that topics of the registry lack here, or take the prepared ones.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        for each in prepared:
            del self.prepared[each.topic.name]
            topic = self.topics[each.topic.name]
            for log in each.take(self.registry.settings_of(topic, self.settings_for)).values():
                self._add_log(log)
        place = self.place()
        roots = {self.root: None}
        for topic in topics:
            settings = self.registry.settings_of(topic, self.settings_for)
            for number in topic.partitions:
                topic_partition = TopicPartition(topic.name, number)
                if topic_partition in self.logs or topic_partition in self.offline:
                    continue
                if self._hosts(topic_partition):
                    directory = place()
                    roots[directory.root] = None
                    self._add_log(self.make_log(topic_partition, topic.topic_id, directory, settings, now_ms))
        for root in roots:
            self.files.sync_directory(root)
        self.wake()

    def place(self) -> Callable[[], LogDirectory]:
        """Choose directories as ``LogDirectories.place`` does, counting copies of logs that move."""
        return self.directories.place(chain(self.logs.values(), self.moves.futures.values()))

    def make_log(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        directory: LogDirectory,
        settings: LogSettings,
        now_ms: int,
    ) -> Log:
        """Create a log and its directory, without adding it to ``logs``.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        path = f"{directory.root}/{topic_partition}"
        make_partition_directory(self.files, path)
        # Not synced, which would take thousands of syncs for a large topic: the synced registry has the id,
        # too.
        write_topic_id(self.files, path, topic_id, sync=False)
        return Log.open(
            self.files,
            path,
            topic_partition,
            settings,
            topic_id=topic_id,
            now_ms=now_ms,
            clean_shutdown=True,
            recovery_point=0,
            on_work=self._note_work,
        )

    def _add_log(self, log: Log) -> None:
        self.logs[log.topic_partition] = log
        log.moved_high_watermarks = self._moved
        self._moved[log] = None
        self.smallest_flush_ms = min(self.smallest_flush_ms, log.settings.flush_ms)

    def add_replica(self, topic_partition: TopicPartition, *, now_ms: int) -> Log:
        """Return the log of a partition of a known topic; create it if it is missing.

        Raises:
            KafkaStorageError: the disk refuses, or the partition is offline.
        """
        self.offline.check(topic_partition)
        if topic_partition not in self.logs:
            directory = self.directories.place(self.logs.values())()
            make_partition_directory(self.files, f"{directory.root}/{topic_partition}")
            # Before the log is in ``logs``: a retry would find it there and skip the sync.
            self.files.sync_directory(directory.root)
            topic = self.topics[topic_partition.topic]
            settings = self.registry.settings_of(topic, self.settings_for)
            self._add_log(self.make_log(topic_partition, topic.topic_id, directory, settings, now_ms))
            self.wake()
        return self.logs[topic_partition]

    def remove_replica(self, topic_partition: TopicPartition) -> None:
        """Remove a log that this broker no longer replicates; slices that are being read stay readable.

        Raises:
            KafkaStorageError: the disk refuses; the log is closed.
        """
        self.moves.forget(topic_partition)
        log = self.logs.pop(topic_partition)
        log.abandon()
        remove_partition_directory(self.files, log.directory, topic_partition)
        # If the partition comes back, its new log must not find the offsets of this one.
        self.checkpoints.log_truncated(topic_partition, self.logs)

    def open_log(
        self,
        topic_partition: TopicPartition,
        path: str,
        now_ms: int,
        *,
        clean_shutdown: bool,
        recovery_point: int,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
    ) -> None:
        """Open the log in an existing directory; arguments as for ``Log.open``."""
        topic = self.topics[topic_partition.topic]
        log = Log.open(
            self.files,
            path,
            topic_partition,
            self.registry.settings_of(topic, self.settings_for),
            topic_id=topic.topic_id,
            now_ms=now_ms,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            on_work=self._note_work,
        )
        self._add_log(log)
        self.wake()

    def release(self, topic_partition: TopicPartition) -> None:
        """Close a partition's log in order, to hand its directory to another broker.

        Raises:
            KafkaStorageError: the log is closed, but the other broker has to recover it.
        """
        log = self.logs.pop(topic_partition)
        self.logs_with_work.pop(log, None)
        log.close()

    def take_over(
        self, topic_partition: TopicPartition, *, leader_epoch: int, now_ms: int, clean_shutdown: bool
    ) -> None:
        """Open a partition whose directory came from another broker, and begin a leader epoch.

        Raises:
            KafkaStorageError: the files cannot be read or repaired.
        """
        path = f"{self.root}/{topic_partition}"
        self.open_log(topic_partition, path, now_ms, clean_shutdown=clean_shutdown, recovery_point=0)
        self.logs[topic_partition].begin_leader_epoch(leader_epoch)

    def root_of(self, topic_partition: TopicPartition) -> str | None:
        """Return the data directory of a partition, also of an offline one; None for an unknown one."""
        log = self.logs.get(topic_partition)
        return self.offline.root_of(topic_partition) if log is None else self.directories.of(log).root

    def takes_appends(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker has the partition online and leads it."""
        log = self.logs.get(topic_partition)
        if log is None or log.replication is None:
            return log is not None
        try:
            log.replication.check_leading()
        except NotLeaderOrFollowerError:
            return False
        return True

    def take_offline(self, directory: LogDirectory) -> dict[TopicPartition, Log]:
        """Remove the logs in a directory from ``logs``, and return them."""
        self.moves.on_directory_failure(directory)
        lost = {tp: log for tp, log in self.logs.items() if self.directories.of(log) is directory}
        # A new dict, because a caller may be iterating over the old one.
        self.logs = {tp: log for tp, log in self.logs.items() if tp not in lost}
        return lost

    def abandon_logs(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Close logs whose directories are about to be removed."""
        smallest_ms = MAX_LONG
        for topic_partition in list(topic_partitions):
            self.moves.forget(topic_partition)
            log = self.logs.pop(topic_partition)
            log.abandon()
            smallest_ms = min(smallest_ms, log.settings.flush_ms)
        if smallest_ms < MAX_LONG:  # otherwise another log has the smallest
            self.note_flush_ms()

    def note_flush_ms(self) -> None:
        self.smallest_flush_ms = min((log.settings.flush_ms for log in self.logs.values()), default=MAX_LONG)

    # --- settings, housekeeping and end ---------------------------------------------------------------------

    def reconfigure(self, settings: DirectorySettings, settings_for: SettingsFor) -> None:
        """Use other settings of the broker: the schedule, and the defaults of topics.

        Raises:
            Errors: as ``settings_for``; nothing has changed.
        """
        for_topics = {topic.name: settings_for(topic.configs) for topic in self.topics.values()}
        self.settings = self.cleaner.settings = settings
        self.settings_for = settings_for
        for topic_partition, log in self.logs.items():
            log.reconfigure(for_topics[topic_partition.topic])
        self.note_flush_ms()
        self.wake()

    async def step(self, now_ms: float, wall_ms: int) -> float:
        """Run one turn of the housekeeping: the tasks in ``housekeeping.TASKS`` that are due.

        A failure is logged, and the task runs again when it is due. Only the loss of the home directory is
        raised: the broker would go on acknowledging appends that are lost.

        Args:
            now_ms: monotonic clock.
            wall_ms: wall clock, milliseconds since the epoch.

        Returns:
            Milliseconds until the next turn is due, unless ``wait_for_work`` returns earlier; infinity in a
            forked child, which does not own the directory.

        Raises:
            KafkaStorageError: the home directory was removed or has failed.
        """
        if os.getpid() != self._pid:
            return math.inf
        self.directories.check_exist()
        # Before the tasks run: work that is reported during one of their awaits needs another turn.
        self._work = trio.Event()
        self.offline.process_failures()
        return await self.housekeeping.step(now_ms, wall_ms)

    async def wait_for_work(self) -> None:
        """Wait for an event since the last turn that may need another turn at once."""
        await self._work.wait()

    def wake(self) -> None:
        """Let ``wait_for_work`` return."""
        self._work.set()

    def _note_work(self, log: Log) -> None:
        self.logs_with_work[log] = None
        self.wake()

    def write_high_watermarks(self) -> None:
        """Checkpoint the high watermarks if one has moved, or a log was added or removed.

        Raises:
            KafkaStorageError: the disk refuses; the next call tries again.
        """
        if not self._moved and len(self.logs) == self._logs_kept:
            return
        moved = dict(self._moved)
        self._moved.clear()
        try:
            self.checkpoints.write_high_watermarks(self.logs)
        except BaseException:
            self._moved.update(moved)
            raise
        self._logs_kept = len(self.logs)

    async def persist_log_starts(self, logs: Iterable[Log]) -> None:
        """Make log start offsets durable: flush what is below them, then write the checkpoint.

        In this order: a checkpointed start above what is flushed would lie behind the end of the log after a
        power cut. DeleteRecords answers after this, or deleted records could be back.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        for log in logs:
            if log.log_start_offset > log.recovery_point:
                await log.sync()
        self.checkpoints.write_log_starts(self.logs)

    def close(self, *, orderly: bool = True) -> KafkaStorageError | None:
        """Flush and close the logs, write checkpoints and clean shutdown markers, release the locks.

        A failure is logged; its directory then gets no marker, and the next start recovers it. A second call
        does nothing, nor does one in a forked child, which does not own the directory. If not ``orderly``,
        leave the files as ``kill -9`` would.

        Returns:
            Why a directory is not in order, or None.
        """
        if self._is_closed or os.getpid() != self._pid:
            return None
        self._is_closed, failed = True, None
        try:
            self.cleaner.close()
            if orderly:
                self.directories.check_exist()
                failed = _close_all(self.files, self.directories, self.logs, self.registry)
        except KafkaStorageError as error:
            failed = error
        finally:
            self.moves.close()
            for prepared in self.prepared.values():
                prepared.abandon()
            for log in [*self.logs.values(), *self.offline.logs()]:
                log.abandon()
            self.registry.abandon()
            self.directories.release()
        return failed


def _close_all(
    files: Files, directories: LogDirectories, logs: Mapping[TopicPartition, Log], registry: TopicRegistry
) -> KafkaStorageError | None:
    """Close every log and mark the directories in which that succeeded; return the first failure.

    Failures in directories that were offline already do not count: they were reported then.
    """
    failures: dict[LogDirectory, KafkaStorageError] = {}
    for log in logs.values():
        try:
            log.close()
        except KafkaStorageError as error:
            _logger.warning("closing the log of %s: %s", log.topic_partition, error.message)
            failures.setdefault(directories.of(log), error)
    for directory in directories.online:
        try:
            directory.checkpoints.write_all(
                {tp: log for tp, log in logs.items() if directories.of(log) is directory}
            )
            if directory is directories.home:
                registry.close()
            # Last of all: the marker vouches for everything that is written before it.
            if directory not in failures:
                mark_clean_shutdown(files, directory.root)
        except KafkaStorageError as error:
            _logger.warning("closing %s: %s", directory.root, error.message)
            failures.setdefault(directory, error)
    for directory, failed in failures.items():
        return KafkaStorageError(
            f"{directory.root} was not closed in order, so the next start recovers it: {failed.message}"
        )
    return None
