"""Moves of logs to another data directory of the same broker (AlterReplicaLogDirs, KIP-113).

A log in use is copied to ``<topic>-<partition>.<unique>-future``, Kafka's name for it. When the copy is
complete, it is flushed and renamed to the partition's name, and the log uses it. Before that a synced line in
the registry says which directory counts, because after a crash there may be two; Kafka refuses to start then.
An interrupted copy is continued at the next start.
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Mapping
from typing import Protocol

import trio

from splashdam.model.broker_errors import BrokerResponseError, KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.background import Now, log_failures
from splashdam.storage.cleaning.log_cleaner import LogCleaner
from splashdam.storage.directories.log_directories import LogDirectories, LogDirectory
from splashdam.storage.directories.partition_metadata import format_uuid, read_topic_id, write_topic_id
from splashdam.storage.directories.scan import make_partition_directory, refuse_link
from splashdam.storage.files.disk import Files
from splashdam.storage.log import Log
from splashdam.storage.manager.deletions import DELETED, remove_partition_directory
from splashdam.storage.manager.topic_registry import TopicRegistry
from splashdam.storage.recovery import LogLoader
from splashdam.storage.topic_names import FUTURE, partition_of_directory

_logger = logging.getLogger(__name__)

_READ_BYTES = 1 << 20
_READS_IN_TURN = 8
"""Reads in one turn; then the rest of the housekeeping runs."""
_PAUSE_MS = 100
"""Pause before the next try when a complete copy cannot replace the log."""
_RETRY_MS = 10_000
"""Pause after a failure, which is logged each time."""
_COUNTS = "log-dir"
"""Kind of the registry's lines about partitions that may be in two directories."""
_FUTURE_NAME = re.compile(rf"(?P<partition>.+)\.[0-9a-f]{{32}}{FUTURE}")


class MovableLogs(Protocol):
    """What moves need of the log manager."""

    @property
    def directories(self) -> LogDirectories: ...

    @property
    def registry(self) -> TopicRegistry: ...

    @property
    def logs(self) -> Mapping[TopicPartition, Log]: ...

    @property
    def cleaner(self) -> LogCleaner: ...

    def wake(self) -> None:
        """Make the next turn of the housekeeping come soon."""
        ...


class LogMoves:
    """The moves of a log manager.

    Attributes:
        futures: the copies (Kafka's future logs), by partition.
    """

    def __init__(self, manager: MovableLogs) -> None:
        self.futures: dict[TopicPartition, Log] = {}
        self._manager = manager
        self._directories = manager.directories
        self._files = manager.directories.files
        self._pause_until_ms: dict[TopicPartition, float] = {}

    def due_ms(self) -> float:
        """When ``work`` has something to do; infinity for never."""
        return min((self._pause_until_ms.get(each, 0.0) for each in self.futures), default=float("inf"))

    def begin(self, topic_partition: TopicPartition, directory: LogDirectory, *, now_ms: int) -> None:
        """Begin to move a log to ``directory``; this replaces a move to another directory.

        Raises:
            KafkaStorageError: the disk refuses.
        """
        log = self._manager.logs[topic_partition]
        future = self.futures.get(topic_partition)
        if future is not None:
            if self._directories.of(future) is directory:
                return
            self.forget(topic_partition)
        if self._directories.of(log) is directory:
            return
        path = f"{directory.root}/{future_directory_name(topic_partition)}"
        make_partition_directory(self._files, path)
        write_topic_id(self._files, path, log.topic_id, sync=False)
        self._open(log, path, now_ms, clean_shutdown=True)
        self._manager.wake()

    def _open(self, log: Log, path: str, now_ms: int, *, clean_shutdown: bool) -> None:
        self.futures[log.topic_partition] = Log.open(
            self._files,
            path,
            log.topic_partition,
            log.settings,
            topic_id=log.topic_id,
            now_ms=now_ms,
            clean_shutdown=clean_shutdown,
            recovery_point=0,
        )

    def resume(self, now_ms: int) -> None:
        """At the start, continue the copies that are there; ignore those of unknown partitions."""
        directories = self._directories
        for directory in directories.online if len(directories.all) > 1 else ():
            for name, is_directory in self._files.list_directory(directory.root):
                topic_partition = _partition_of_future(name) if is_directory else None
                log = None if topic_partition is None else self._manager.logs.get(topic_partition)
                if log is not None:
                    with log_failures(f"continuing the move to {directory.root}/{name}"):
                        self._resume(log, directory, f"{directory.root}/{name}", now_ms)

    def _resume(self, log: Log, directory: LogDirectory, path: str, now_ms: int) -> None:
        where = log.topic_partition
        refuse_link(self._files, path)
        if where in self.futures or self._directories.of(log) is directory:
            remove_partition_directory(self._files, path, where)
        else:
            # Copies are closed as they are, so this one has to be recovered.
            self._open(log, path, now_ms, clean_shutdown=False)

    # --- a turn -----------------------------------------------------------------------------------

    async def work(self, now: Now) -> None:
        """Copy a part of each log; switch a log to its copy when that is complete."""
        for topic_partition, future in list(self.futures.items()):
            log = self._manager.logs.get(topic_partition)
            if log is None or self._pause_until_ms.get(topic_partition, 0.0) > now.now_ms:
                continue
            # Before the try, so that it holds if the try fails.
            self._pause_until_ms[topic_partition] = now.now_ms + _RETRY_MS
            with log_failures(f"moving {topic_partition}"):
                pause_ms = 0
                if await self._copy(log, future, now):
                    await self._try_to_swap(log, future, now)
                    pause_ms = _PAUSE_MS
                self._pause_until_ms[topic_partition] = now.now_ms + pause_ms
            if self.futures.get(topic_partition) is not future:
                self._pause_until_ms.pop(topic_partition, None)

    async def _copy(self, log: Log, future: Log, now: Now) -> bool:
        """Copy a few reads; return whether the copy is complete."""
        for _ in range(_READS_IN_TURN):
            # A request may have cancelled or replaced the move during an await.
            if self.futures.get(log.topic_partition) is not future:
                return False
            # The copy may be truncated below, and no file is cut while the disk works on it.
            await future.wait_for_sync()
            if copy_some(log, future, now.wall_ms):
                return True
            if future.needs_flush:
                await future.sync(now.wall_ms)
            # A MiB was copied in the loop's thread: clients come next.
            await trio.lowlevel.checkpoint()
        return False

    async def _try_to_swap(self, log: Log, future: Log, now: Now) -> None:
        await future.sync(now.wall_ms)  # so that little is left to sync in the swap
        await log.wait_for_sync()
        where = log.topic_partition
        # During the awaits the move may have been cancelled, the topic deleted, or a directory have failed.
        if self.futures.get(where) is not future or self._manager.logs.get(where) is not log:
            return
        # No await from here on: a batch that is appended in between would be missing in the copy. A cleaning
        # has segments of the old directory in its hands.
        if not self._manager.cleaner.is_cleaning(log) and copy_some(log, future, now.wall_ms):
            self._swap(log, future, now.wall_ms)

    def _swap(self, log: Log, future: Log, wall_ms: int) -> None:
        """Switch the log to the copy, in one turn of the loop.

        The order is Kafka's: the copy gets the partition's name, then the old directory goes. In between
        there are two directories of that name, and the registry says which one counts.
        """
        where, checkpoints = log.topic_partition, self._directories.checkpoints
        old, new = self._directories.of(log), self._directories.of(future)
        path, old_path = f"{new.root}/{where}", log.directory
        # Read now: the offsets are found by the log's directory, which changes below.
        cleaned = checkpoints.cleaner_offsets.read()
        del self.futures[where]
        future.close()  # flushed and clean, before it counts
        # Its directory must know the offsets by then, above all a log start that DeleteRecords has moved.
        logs = self._manager.logs
        there = {each: logs[each] for each in logs if self._directories.of(logs[each]) is new}
        new.checkpoints.write_all({**there, where: log})
        self._note_which_counts(where, new)
        self._files.rename(future.directory, path)
        try:
            self._files.sync_directory(new.root)
            loader = LogLoader(
                self._files, path, log.settings, log_start_offset=log.log_start_offset, now_ms=wall_ms
            )
            log.move_to_directory(path, loader.load(clean_shutdown=True, recovery_point=log.log_end_offset))
        except BrokerResponseError:
            self._note_which_counts(where, old)  # before the copy that the line names goes
            remove_partition_directory(self._files, path, where)
            raise
        _logger.info("%s is in %s now, no longer in %s", where, new.root, old.root)
        # At once, not after file.delete.delay.ms: readers hold descriptors, not names.
        remove_partition_directory(self._files, old_path, where)
        self._note_which_counts(where, None)
        checkpoints.write_all(self._manager.logs)
        checkpoints.cleaner_offsets.write(cleaned)

    def _note_which_counts(self, topic_partition: TopicPartition, directory: LogDirectory | None) -> None:
        kept = {} if directory is None else {"directory.id": directory.identity.directory_id}
        self._manager.registry.put_resources({(_COUNTS, str(topic_partition)): kept})

    # --- the end of moves -----------------------------------------------------------------------------------

    def forget(self, topic_partition: TopicPartition) -> None:
        """Cancel a move and remove the copy; if the disk refuses, the next start removes it."""
        future = self.futures.pop(topic_partition, None)
        self._pause_until_ms.pop(topic_partition, None)
        if future is not None:
            future.abandon()
            with log_failures(f"removing {future.directory}"):
                remove_partition_directory(self._files, future.directory, topic_partition)

    def on_directory_failure(self, directory: LogDirectory) -> None:
        """Stop the moves from and to a failed directory; the next start continues them."""
        for topic_partition, future in list(self.futures.items()):
            log = self._manager.logs.get(topic_partition)
            roots = {os.path.dirname(each.directory) for each in (future, log) if each is not None}
            if directory.root in roots:
                del self.futures[topic_partition]
                future.abandon()

    def close(self) -> None:
        """Close the copies as they are; the next start continues them."""
        for future in self.futures.values():
            future.abandon()
        self.futures.clear()


def copy_some(log: Log, future: Log, now_ms: int) -> bool:
    """Copy one read, after cutting what the log does not have; return whether the copy is complete.

    Raises:
        KafkaStorageError: a disk refuses.
        CorruptMessageError: the log is damaged.
    """
    future.finish_truncation(now_ms=now_ms)
    _cut_what_differs(log, future, now_ms)
    if future.log_end_offset < log.log_start_offset:
        future.truncate_fully_and_start_at(log.log_start_offset, now_ms=now_ms)
    if future.log_end_offset < log.log_end_offset:
        piece = log.read(future.log_end_offset, _READ_BYTES, up_to=log.log_end_offset)
        try:
            future.append_as_follower(memoryview(piece.read()), now_ms=now_ms)
        finally:
            piece.close()
    return future.log_end_offset == log.log_end_offset


def _cut_what_differs(log: Log, future: Log, now_ms: int) -> None:
    """Truncate the copy as a follower truncates its log: the original may have been truncated itself."""
    if future.log_end_offset == 0 or future.last_epoch < 0:
        return
    epoch, end = log.end_of_epoch(future.last_epoch)
    if epoch < 0:
        future.truncate_fully_and_start_at(log.log_start_offset, now_ms=now_ms)
        return
    if epoch < future.last_epoch:
        end = min(end, future.end_of_epoch(epoch).end_offset)
    if end < future.log_end_offset:
        future.truncate_to(end, now_ms=now_ms)


def future_directory_name(topic_partition: TopicPartition) -> str:
    """``<topic>-<partition>.<unique>-future``."""
    return f"{topic_partition}.{uuid.uuid4().hex}{FUTURE}"


def _partition_of_future(name: str) -> TopicPartition | None:
    match = _FUTURE_NAME.fullmatch(name)
    return None if match is None else partition_of_directory(match["partition"])


def _is_of_deleted_topic(
    files: Files, registry: TopicRegistry, topic_partition: TopicPartition, path: str
) -> bool:
    """Remove the directory if its topic was deleted while it was offline; return whether it was."""
    if not any(kind == DELETED for kind, _ in registry.resources):
        return False
    topic_id = read_topic_id(files, path)
    topic = registry.topics.get(topic_partition.topic)
    if topic is not None and topic.topic_id == topic_id:  # it is in use: its deletion never completed
        return False
    if topic_id is None or (DELETED, format_uuid(topic_id)) not in registry.resources:
        return False
    remove_partition_directory(files, path, topic_partition)
    return True


def choose_directories(
    directories: LogDirectories, registry: TopicRegistry, found: Mapping[TopicPartition, list[str]]
) -> dict[TopicPartition, str]:
    """Return the directory of each partition; if there are two, remove the one that does not count.

    Raises:
        KafkaStorageError: the registry does not say which of two counts.
    """
    ids = {each.identity.directory_id: each for each in directories.online}
    chosen: dict[TopicPartition, str] = {}
    for topic_partition, all_paths in found.items():
        paths = [
            path
            for path in all_paths
            if not _is_of_deleted_topic(directories.files, registry, topic_partition, path)
        ]
        if not paths:
            continue
        counting_id = registry.resources.get((_COUNTS, str(topic_partition)), {}).get("directory.id")
        counts = None if counting_id is None else ids.get(counting_id)
        if counting_id is not None and counts is None:  # in a failed directory; this one may be old
            continue
        right = [path for path in paths if counts and os.path.dirname(path) == counts.root] or paths
        if len(right) > 1:
            raise KafkaStorageError(
                f"{topic_partition} is in two directories: {' and '.join(right)}; move the wrong one away"
            )
        chosen[topic_partition] = right[0]
        for path in paths:
            if path != right[0]:
                _logger.warning("removing %s, which a move has replaced by %s", path, right[0])
                remove_partition_directory(directories.files, path, topic_partition)
    # With a directory offline, a line may be needed at the start that sees it again.
    if len(directories.online) == len(directories.all):
        settled = [key for key in registry.resources if key[0] in (_COUNTS, DELETED)]
        if settled:
            registry.put_resources({key: {} for key in settled})
    return chosen
