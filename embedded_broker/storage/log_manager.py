"""All logs of one data directory: who may use it, what is in it, and how it is left.

Opening takes the lock, reads whether the last broker left in order, finishes interrupted creations and
deletions of topics, and opens every partition. What is no partition is left alone.
"""

from __future__ import annotations

import logging
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import attrs

from splashdam.embedded_broker.storage.checkpoints import (
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    OffsetCheckpoint,
)
from splashdam.embedded_broker.storage.data_directory import (
    DirectoryIdentity,
    load_identity,
    mark_clean_shutdown,
    take_clean_shutdown,
)
from splashdam.embedded_broker.storage.directory_scan import (
    find_partitions,
    refuse_taken_directories,
    remove_deleted,
    topic_ids,
)
from splashdam.embedded_broker.storage.files import Files, StorageLock
from splashdam.embedded_broker.storage.log import Log
from splashdam.embedded_broker.storage.partition_metadata import new_uuid, read_topic_id, write_topic_id
from splashdam.embedded_broker.storage.settings import DAY_MS, LogSettings
from splashdam.embedded_broker.storage.topic_names import check_topic_name, deleted_directory_name, folded
from splashdam.embedded_broker.storage.topic_registry import NewTopic, Topic, TopicRegistry
from splashdam.model.broker_errors import (
    KafkaStorageError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_for,
)
from splashdam.model.error_codes import ErrorCode
from splashdam.model.values import TopicPartition

SettingsFor: TypeAlias = Callable[[Mapping[str, str]], LogSettings]
"""Makes a log's settings of a topic's own options (Kafka's dotted names); raises what refuses them."""

DEFAULT_SETTINGS_FOR: SettingsFor = LogSettings().with_configs

_logger = logging.getLogger(__name__)


@attrs.define
class _Task:
    """Something done every ``interval_ms``, for the first time that long after the start."""

    interval_ms: float
    run: Callable[[int], None]
    due_ms: float | None = None


class LogManager:
    """The logs of one data directory; made by ``LogManager.open``, ended by ``close``.

    Attributes:
        root: absolute path of the data directory.
        identity: cluster id, node id and directory id.
        logs: every partition's log.
        topics: every topic by name.
    """

    def __init__(
        self, files: Files, root: str, lock: StorageLock, settings_for: SettingsFor, expiration_ms: int
    ) -> None:
        self.root = root
        self.identity: DirectoryIdentity
        self.logs: dict[TopicPartition, Log] = {}
        self._files = files
        self._lock = lock
        self._settings_for = settings_for
        self._producer_id_expiration_ms = expiration_ms
        self._recovery_points = OffsetCheckpoint(files, f"{root}/{RECOVERY_POINT_NAME}")
        self._high_watermarks = OffsetCheckpoint(files, f"{root}/{HIGH_WATERMARK_NAME}")
        self._log_starts = OffsetCheckpoint(files, f"{root}/{LOG_START_NAME}")
        self._registry = TopicRegistry(files, root)
        self._is_closed = False
        self._pid = os.getpid()
        self._tasks = (
            _Task(5_000, self._write_high_watermarks),
            _Task(60_000, self._write_flush_state),
            _Task(600_000, self._expire_producers),
        )

    @classmethod
    def open(
        cls,
        files: Files,
        root: str,
        *,
        now_ms: int,
        settings_for: SettingsFor = DEFAULT_SETTINGS_FOR,
        node_id: int = 1,
        producer_id_expiration_ms: int = DAY_MS,
    ) -> LogManager:
        """Opens a data directory, making it where it is missing.

        Args:
            files: the file system.
            root: path of the directory.
            now_ms: wall clock, milliseconds since the epoch.
            settings_for: makes a log's settings of its topic's options.
            node_id: of a new directory; one that exists has its own.
            producer_id_expiration_ms: silence after which a producer is forgotten.

        Raises:
            IllegalStateError: another broker uses the directory; the text names its process.
            KafkaStorageError: something in it cannot be read or repaired.
        """
        root = os.path.abspath(root)
        for made in files.make_directory(root):
            files.sync_directory(os.path.dirname(made))
        lock = files.lock(root)
        try:
            manager = cls(files, root, lock, settings_for, producer_id_expiration_ms)
            manager._load(node_id, now_ms)
        except BaseException:
            lock.release()
            raise
        return manager

    def _load(self, node_id: int, now_ms: int) -> None:
        is_clean = take_clean_shutdown(self._files, self.root)
        self.identity = load_identity(self._files, self.root, node_id=node_id)
        self._finish_deletions()
        recovery_points, log_starts = self._recovery_points.read(), self._log_starts.read()
        found = find_partitions(self._files, self.root, self.topics)
        self._adopt_topics(found)
        try:
            for topic_partition in found:
                self._open_log(
                    topic_partition,
                    now_ms,
                    clean_shutdown=is_clean,
                    recovery_point=recovery_points.get(topic_partition, 0),
                    log_start_offset=log_starts.get(topic_partition, 0),
                )
            self._make_partitions(self.topics.values(), now_ms)  # a crash may have left one half made
        except BaseException:
            for log in self.logs.values():
                log.abandon()
            raise

    @property
    def topics(self) -> Mapping[str, Topic]:
        return self._registry.topics

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
        topics = self._checked(wanted)
        if any(topic.name in self._registry.deleting for topic in topics):
            self._finish_deletions()
        partitions = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
        refuse_taken_directories(self._files, self.root, partitions)
        self._registry.put(*topics)
        try:
            self._make_partitions(topics, now_ms)
        except BaseException:
            self._undo_creation(topics)
            raise
        return [topic.topic_id for topic in topics]

    def _checked(self, wanted: Sequence[NewTopic]) -> list[Topic]:
        by_fold = {folded(name): name for name in self.topics}
        topics: dict[str, Topic] = {}
        for new in wanted:
            if new.name in self.topics or new.name in topics:
                raise TopicAlreadyExistsError(f"topic {new.name!r} exists")
            check_topic_name(new.name, filter(None, [by_fold.get(folded(new.name))]))
            if new.partitions < 1:
                raise error_for(
                    ErrorCode.INVALID_PARTITIONS, f"a topic has at least one partition, not {new.partitions}"
                )
            self._settings_for(new.configs)
            by_fold[folded(new.name)] = new.name
            topics[new.name] = Topic(new.name, new_uuid(), tuple(range(new.partitions)), dict(new.configs))
        return list(topics.values())

    def delete_topic(self, name: str) -> None:
        """Removes a topic and its logs; slices that are being read stay readable.

        Raises:
            UnknownTopicOrPartitionError: there is none of this name.
            KafkaStorageError: the disk refuses; the next start finishes what was begun.
        """
        if name not in self.topics:
            raise UnknownTopicOrPartitionError(f"there is no topic {name!r}")
        self._registry.begin_deletion(name)
        self._abandon_logs(name)
        self._finish_deletions()

    def _make_partitions(self, topics: Iterable[Topic], now_ms: int) -> None:
        wanted = [
            (TopicPartition(topic.name, number), topic) for topic in topics for number in topic.partitions
        ]
        for topic_partition, topic in wanted:
            if topic_partition not in self.logs:
                directory = self._directory(topic_partition)
                self._files.make_directory(directory)
                # Not synced, which would cost thousands of turns of the disk: the registry has the id too.
                write_topic_id(self._files, directory, topic.topic_id, sync=False)
                self._open_log(topic_partition, now_ms, clean_shutdown=True, recovery_point=0)
        self._files.sync_directory(self.root)

    def _open_log(
        self,
        topic_partition: TopicPartition,
        now_ms: int,
        *,
        clean_shutdown: bool,
        recovery_point: int,
        log_start_offset: int = 0,
    ) -> None:
        topic = self.topics[topic_partition.topic]
        self.logs[topic_partition] = Log.open(
            self._files,
            self._directory(topic_partition),
            topic_partition,
            self._settings_for(topic.configs),
            topic_id=topic.topic_id,
            now_ms=now_ms,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )

    def _directory(self, topic_partition: TopicPartition) -> str:
        return f"{self.root}/{topic_partition}"

    def _undo_creation(self, topics: Iterable[Topic]) -> None:
        for topic in topics:
            self._abandon_logs(topic.name)
            self._registry.forget(topic.name)
        with _logged("removing what there is of a topic that could not be made"):
            self._finish_deletions()

    def _abandon_logs(self, name: str) -> None:
        for topic_partition in [tp for tp in self.logs if tp.topic == name]:
            self.logs.pop(topic_partition).abandon()

    def _finish_deletions(self) -> None:
        """Moves the directories of deleted topics aside, then removes them."""
        if self._registry.deleting:
            # A later topic of the same name must not find offsets of this one.
            for checkpoint in (self._recovery_points, self._log_starts, self._high_watermarks):
                checkpoint.forget(self._registry.deleting)
            deleting = self._registry.deleting
            for topic_partition, directory in find_partitions(
                self._files, self.root, self.topics, deleting
            ).items():
                if topic_partition.topic in deleting:
                    target = deleted_directory_name(topic_partition, uuid.uuid4().hex)
                    self._files.rename(directory, f"{self.root}/{target}")
            self._files.sync_directory(self.root)
            self._registry.end_deletions()
        remove_deleted(self._files, self.root)

    # --- housekeeping and end ------------------------------------------------------------------------------

    def _adopt_topics(self, found: dict[TopicPartition, str]) -> None:
        """Brings the registry in line with the partitions that are there; their own files count."""
        adopted: dict[str, Topic] = {}
        ids = topic_ids(self._files, found)
        for topic_partition, directory in sorted(found.items()):
            name, partition = topic_partition
            known = adopted.get(name) or self.topics.get(name)
            topic_id = ids.get(name) or (known.topic_id if known else new_uuid())
            partitions = {partition, *(known.partitions if known else ())}
            configs = known.configs if known else {}
            adopted[name] = Topic(name, topic_id, tuple(sorted(partitions)), configs)
            if name not in ids or read_topic_id(self._files, directory) is None:
                write_topic_id(self._files, directory, topic_id)
        if any(topic != self.topics.get(name) for name, topic in adopted.items()):
            self._registry.put(*adopted.values())

    async def step(self, now_ms: float, wall_ms: int) -> float:
        """One turn of the housekeeping: flushes closed segments and does what is due of the rest.

        Kafka's intervals: high watermarks every 5 s, recovery points and log starts every 60 s, expired
        producers every 10 min. A failure is logged and tried again when it is due next.

        Args:
            now_ms: monotonic clock.
            wall_ms: wall clock, milliseconds since the epoch.

        Returns:
            Milliseconds until the next turn is due; infinity in a forked child, whose directory it is not.
        """
        if os.getpid() != self._pid:
            return math.inf
        for log in [log for log in self.logs.values() if log.needs_flush]:
            with _logged("flushing a log"):
                await log.sync()
        for task in self._tasks:
            if task.due_ms is None:
                task.due_ms = now_ms + task.interval_ms
            elif task.due_ms <= now_ms:
                task.due_ms = now_ms + task.interval_ms
                with _logged("housekeeping"):
                    task.run(wall_ms)
        return min(task.due_ms for task in self._tasks if task.due_ms is not None) - now_ms

    def close(self) -> None:
        """Leaves the directory in order: logs flushed and closed, checkpoints, marker, lock. Once is enough.

        What fails is logged; the marker is then missing, and the next start recovers. In a forked child
        nothing happens: the directory is its parent's.
        """
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_closed = True
        is_clean = True
        try:
            for log in self.logs.values():
                try:
                    log.close()
                except KafkaStorageError as error:
                    _logger.warning("closing the log of %s: %s", log.topic_partition, error)
                    is_clean = False
            self._write_high_watermarks(0)
            self._write_flush_state(0)
            if is_clean:
                mark_clean_shutdown(self._files, self.root)
        except KafkaStorageError as error:
            _logger.warning("closing %s: %s", self.root, error)
        finally:
            self._lock.release()

    def _write_high_watermarks(self, _wall_ms: int) -> None:
        self._high_watermarks.write({tp: log.high_watermark for tp, log in self.logs.items()})

    def _write_flush_state(self, _wall_ms: int) -> None:
        self._recovery_points.write({tp: log.recovery_point for tp, log in self.logs.items()})
        self._log_starts.write(
            {
                tp: log.log_start_offset
                for tp, log in self.logs.items()
                if log.log_start_offset > log.segments[0].base_offset
            }
        )

    def _expire_producers(self, wall_ms: int) -> None:
        for log in self.logs.values():
            log.producers.expire(wall_ms, self._producer_id_expiration_ms)


@contextmanager
def _logged(what: str) -> Iterator[None]:
    try:
        yield
    except KafkaStorageError as error:
        _logger.warning("%s: %s", what, error)
