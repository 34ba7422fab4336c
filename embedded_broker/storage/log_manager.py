"""All logs of one data directory: who may use it, what is in it, and how it is left.

Opening takes the lock, reads whether the last broker left in order, finishes interrupted creations and
deletions of topics, and opens every partition. What is no partition is left alone.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import trio

from splashdam.embedded_broker.storage.cleaning.cleaner import LogCleaner
from splashdam.embedded_broker.storage.closing import close_all
from splashdam.embedded_broker.storage.data_directory import (
    DirectoryIdentity,
    check_is_there,
    load_identity,
    remove_half_written,
    take_clean_shutdown,
)
from splashdam.embedded_broker.storage.directory_scan import find_partitions, refuse_taken_directories
from splashdam.embedded_broker.storage.files import Files, StorageLock
from splashdam.embedded_broker.storage.housekeeping import Housekeeping, logged
from splashdam.embedded_broker.storage.log import Log
from splashdam.embedded_broker.storage.partition_metadata import write_topic_id
from splashdam.embedded_broker.storage.root_checkpoints import RootCheckpoints
from splashdam.embedded_broker.storage.settings import DirectorySettings, LogSettings
from splashdam.embedded_broker.storage.topic_creation import new_topics
from splashdam.embedded_broker.storage.topic_directories import (
    adopt_topics,
    finish_deletions,
    remove_partition,
)
from splashdam.embedded_broker.storage.topic_registry import NewTopic, Topic, TopicRegistry
from splashdam.model.broker_errors import KafkaStorageError, UnknownTopicOrPartitionError
from splashdam.model.options import MAX_LONG
from splashdam.model.values import TopicPartition

SettingsFor: TypeAlias = Callable[[Mapping[str, str]], LogSettings]
"""Makes a log's settings of a topic's own options (Kafka's dotted names); raises what refuses them."""

Hosts: TypeAlias = Callable[[TopicPartition], bool]
"""Whether a partition of a topic of the registry belongs into this directory."""

DEFAULT_SETTINGS_FOR: SettingsFor = LogSettings().with_configs

_logger = logging.getLogger(__name__)


class LogManager:
    """The logs of one data directory; made by ``LogManager.open``, ended by ``close``.

    Attributes:
        root: absolute path of the data directory.
        identity: cluster id, node id and directory id.
        logs: every partition's log.
        logs_with_work: those in which closed segments may wait for a flush, or files for their end; the
            housekeeping looks at no others for that, and takes out those that need nothing more.
        smallest_flush_ms: the smallest ``flush.ms`` of all logs.
        topics: every topic by name.
        registry: which topics there are, on disk.
        settings: when the housekeeping is due.
        settings_for: makes a log's settings of its topic's options.
        cleaner: compacts the logs of topics that want it.
        files: the file system.
        checkpoints: the files in the root that say where logs start, what is flushed, and so on.
    """

    def __init__(
        self,
        files: Files,
        root: str,
        lock: StorageLock,
        settings_for: SettingsFor,
        settings: DirectorySettings,
        *,
        hosts: Hosts,
    ) -> None:
        self.root = root
        self.identity: DirectoryIdentity
        self.logs: dict[TopicPartition, Log] = {}
        self.logs_with_work: dict[Log, None] = {}
        self.smallest_flush_ms = MAX_LONG
        self.settings = settings
        self.checkpoints = RootCheckpoints(files, root)
        self.cleaner = LogCleaner(files, settings, self.checkpoints.cleaner_offsets)
        self.files = files
        self._lock = lock
        self.settings_for = settings_for
        self._hosts = hosts
        self.registry = TopicRegistry(files, root)
        self._is_closed = False
        self._pid = os.getpid()
        self._housekeeping = Housekeeping(self)
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
    ) -> LogManager:
        """Opens a data directory, making it where it is missing.

        Args:
            files: the file system.
            root: path of the directory.
            now_ms: wall clock, milliseconds since the epoch.
            settings_for: makes a log's settings of its topic's options.
            node_id: of a new directory; one that exists has its own.
            settings: when its housekeeping is due; Kafka's defaults unless given.
            hosts: which partitions are made; where several brokers share the topics, not all. One whose
                directory is here is opened in any case.

        Raises:
            IllegalStateError: another broker uses the directory; the text names its process.
            KafkaStorageError: something in it cannot be read or repaired.
        """
        root = os.path.abspath(root)
        for made in files.make_directory(root):
            files.sync_directory(os.path.dirname(made))
        lock = files.lock(root)
        try:
            manager = cls(files, root, lock, settings_for, settings or DirectorySettings(), hosts=hosts)
            manager._load(node_id, now_ms)
        except BaseException:
            lock.release()
            raise
        return manager

    def _load(self, node_id: int, now_ms: int) -> None:
        is_clean = take_clean_shutdown(self.files, self.root)
        self.identity = load_identity(self.files, self.root, node_id=node_id)
        remove_half_written(self.files, self.root)
        self._finish_deletions()
        recovery_points, log_starts = self.checkpoints.recovery_points(), self.checkpoints.log_starts()
        high_watermarks = self.checkpoints.high_watermarks()
        found = find_partitions(self.files, self.root, self.topics)
        adopt_topics(self.files, self.registry, found)
        try:
            for topic_partition in found:
                self._open_log(
                    topic_partition,
                    now_ms,
                    clean_shutdown=is_clean,
                    recovery_point=recovery_points.get(topic_partition, 0),
                    log_start_offset=log_starts.get(topic_partition, 0),
                    high_watermark=high_watermarks.get(topic_partition, 0),
                )
            self.make_partitions(self.topics.values(), now_ms)  # a crash may have left one half made
        except BaseException:
            for log in self.logs.values():
                log.abandon()
            self.registry.abandon()
            raise

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self.registry.topics

    # --- topics ---------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None, *, now_ms: int
    ) -> bytes:
        """Makes a topic with its partitions, all or nothing, and returns its id.

        Raises:
            InvalidTopicError: Kafka would not accept the name, or it collides with another.
            TopicAlreadyExistsError: there is one of this name.
            BrokerResponseError: INVALID_PARTITIONS, or what ``settings_for`` raises for the options.
            KafkaStorageError: the disk refuses; nothing of the topic is left.
        """
        return self.create_topics([NewTopic(name, partitions, dict(configs or {}))], now_ms=now_ms)[0]

    def create_topics(self, wanted: Sequence[NewTopic], *, now_ms: int) -> list[bytes]:
        """As ``create_topic`` for several, all or none, at the cost of one change of the registry.

        Raises:
            As ``create_topic``, for the first topic that is refused.
        """
        topics = new_topics(wanted, self.topics, self.settings_for, self.registry.names_by_fold)
        if any(topic.name in self.registry.deleting for topic in topics):
            self._finish_deletions()
        partitions = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        refuse_taken_directories(self.files, self.root, partitions)
        self.registry.put(*topics)
        try:
            self.make_partitions(topics, now_ms)
        except BaseException:
            self._undo_creation(topics)
            raise
        return [topic.topic_id for topic in topics]

    def delete_topic(self, name: str) -> None:
        """Removes a topic and its logs; slices that are being read stay readable.

        Raises:
            UnknownTopicOrPartitionError: there is none of this name.
            KafkaStorageError: the disk refuses; the next start finishes what was begun.
        """
        if name not in self.topics:
            raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
        self.registry.begin_deletion(name)
        self.abandon_logs(each for each in self.logs if each.topic == name)
        self._finish_deletions()

    def make_partitions(self, topics: Iterable[Topic], now_ms: int) -> None:
        """Makes the partitions that topics of the registry lack here; KafkaStorageError as ever."""
        wanted = [
            (TopicPartition(topic.name, number), topic) for topic in topics for number in topic.partitions
        ]
        for topic_partition, topic in wanted:
            if topic_partition not in self.logs and self._hosts(topic_partition):
                self._make_log(topic_partition, topic.topic_id, now_ms)
        self.files.sync_directory(self.root)

    def _make_log(self, topic_partition: TopicPartition, topic_id: bytes, now_ms: int) -> None:
        directory = self._directory(topic_partition)
        self.files.make_directory(directory)
        # Not synced, which would cost thousands of turns of the disk: the registry has the id too.
        write_topic_id(self.files, directory, topic_id, sync=False)
        self._open_log(topic_partition, now_ms, clean_shutdown=True, recovery_point=0)

    def add_replica(self, topic_partition: TopicPartition, *, now_ms: int) -> Log:
        """The log of a partition of a known topic, made where it is not here yet.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        if topic_partition not in self.logs:
            self._make_log(topic_partition, self.topics[topic_partition.topic].topic_id, now_ms)
            self.files.sync_directory(self.root)
        return self.logs[topic_partition]

    def remove_replica(self, topic_partition: TopicPartition) -> None:
        """Removes a log that others keep from now on; slices that are being read stay readable.

        Raises:
            KafkaStorageError: the disk refuses; the log is closed.
        """
        self.logs.pop(topic_partition).abandon()
        remove_partition(self.files, self.root, topic_partition)
        self.checkpoints.truncated(topic_partition, self.logs)

    def _open_log(
        self,
        topic_partition: TopicPartition,
        now_ms: int,
        *,
        clean_shutdown: bool,
        recovery_point: int,
        log_start_offset: int = 0,
        high_watermark: int | None = None,
    ) -> None:
        topic = self.topics[topic_partition.topic]
        self.logs[topic_partition] = Log.open(
            self.files,
            self._directory(topic_partition),
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
        self.smallest_flush_ms = min(self.smallest_flush_ms, self.logs[topic_partition].settings.flush_ms)
        self.wake()

    def release(self, topic_partition: TopicPartition) -> None:
        """Closes a partition's log in order; its directory then goes to another broker.

        Raises:
            KafkaStorageError: it is closed, but whoever takes it over has to recover it.
        """
        log = self.logs.pop(topic_partition)
        self.logs_with_work.pop(log, None)
        log.close()

    def take_over(
        self, topic_partition: TopicPartition, *, leader_epoch: int, now_ms: int, clean_shutdown: bool
    ) -> None:
        """Opens a partition whose directory came from another broker, and leads it from now on.

        Raises:
            KafkaStorageError: the files cannot be read or repaired.
        """
        self._open_log(topic_partition, now_ms, clean_shutdown=clean_shutdown, recovery_point=0)
        self.logs[topic_partition].begin_leader_epoch(leader_epoch)

    def _directory(self, topic_partition: TopicPartition) -> str:
        return f"{self.root}/{topic_partition}"

    def _undo_creation(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self.abandon_logs(each for each in self.logs if each.topic == topic.name)
            self.registry.forget(topic.name)
        with logged("removing what there is of a topic that could not be made"):
            self._finish_deletions()

    def abandon_logs(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Closes logs whose directories go."""
        for topic_partition in list(topic_partitions):
            self.logs.pop(topic_partition).abandon()
        self.note_flush_ms()

    def note_flush_ms(self) -> None:
        self.smallest_flush_ms = min((log.settings.flush_ms for log in self.logs.values()), default=MAX_LONG)

    def _finish_deletions(self) -> None:
        if self.registry.deleting:
            self.checkpoints.forget(self.registry.deleting)
        finish_deletions(self.files, self.root, self.registry)

    # --- housekeeping and end ------------------------------------------------------------------------------

    async def step(self, now_ms: float, wall_ms: int) -> float:
        """One turn of the housekeeping: what is due of the tasks in ``housekeeping.TASKS``.

        A failure is logged and tried again when it is due next. Without its directory alone the broker cannot
        go on: appends would be taken and lost.

        Args:
            now_ms: monotonic clock.
            wall_ms: wall clock, milliseconds since the epoch.

        Returns:
            Milliseconds until the next turn is due, unless ``wait_for_work`` returns before; infinity in a
            forked child, whose directory it is not.

        Raises:
            KafkaStorageError: the data directory was removed.
        """
        if os.getpid() != self._pid:
            return math.inf
        check_is_there(self.files, self.root)
        self._work = trio.Event()
        return await self._housekeeping.step(now_ms, wall_ms)

    async def wait_for_work(self) -> None:
        """Returns when something happened since the last turn that may ask for another one at once."""
        await self._work.wait()

    def wake(self) -> None:
        """Lets ``wait_for_work`` return: something else may be due."""
        self._work.set()

    def _note_work(self, log: Log) -> None:
        self.logs_with_work[log] = None
        self.wake()

    async def keep_log_starts(self, logs: Iterable[Log]) -> None:
        """Makes the starts of logs survive whatever comes: what is below them flushed, then the checkpoint.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        for log in logs:
            if log.log_start_offset > log.recovery_point:
                await log.sync()
        self.checkpoints.write_log_starts(self.logs)

    def close(self, *, orderly: bool = True) -> KafkaStorageError | None:
        """Leaves the directory in order: logs flushed and closed, checkpoints, marker, lock. Once is enough.

        What fails is logged; the marker is then missing, and the next start recovers. In a forked child
        nothing happens: it is its parent's. If not ``orderly``, files are left as by ``kill -9``.

        Returns:
            Why the directory is not in order, None where it is.
        """
        if self._is_closed or os.getpid() != self._pid:
            return None
        self._is_closed, failed = True, None
        try:
            self.cleaner.close()
            if orderly:
                check_is_there(self.files, self.root)
                failed = close_all(self.files, self.root, self.logs, self.checkpoints, self.registry)
        except KafkaStorageError as error:
            failed = error
        finally:
            for log in self.logs.values():
                log.abandon()
            self.registry.abandon()
            self._lock.release()
        return failed
