"""The start of a log manager: what lies in the data directories is opened, and what is missing is made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.manager.coming_partitions import remove_unfinished
from splashdam.storage.manager.moves import only_directories
from splashdam.storage.manager.topic_directories import adopt_topics
from splashdam.storage.turns import logged

if TYPE_CHECKING:
    from splashdam.storage.manager.log_manager import LogManager


def open_all(manager: LogManager, node_id: int, now_ms: int) -> None:
    """Opens every partition, finishing what was interrupted.

    Args:
        manager: whose directories are taken.
        node_id: of a new home.
        now_ms: wall clock, milliseconds since the epoch.

    Raises:
        KafkaStorageError: something cannot be read or repaired; nothing stays open.
    """
    manager.directories.load(node_id)
    manager.finish_deletions(everywhere=True)
    remove_unfinished(manager)
    if manager.registry.is_unsettled:
        with logged("gathering the changes of topics"):  # it is tried again where the disk is full
            manager.registry.settle()
    found = only_directories(manager, manager.directories.find(manager.topics))
    adopt_topics(manager.files, manager.registry, found)
    try:
        for topic_partition, path in found.items():
            _open(manager, topic_partition, path, now_ms)
        with logged("forgetting the offsets of logs that are gone"):
            for directory in manager.directories.online:
                here = {tp for tp, path in found.items() if os.path.dirname(path) == directory.root}
                directory.checkpoints.keep_only(here)
        manager.offline.note_missing(manager.topics.values())
        manager.make_partitions(manager.topics.values(), now_ms)  # a crash may have left one half made
        manager.moves.resume(now_ms)
    except BaseException:
        for log in manager.logs.values():
            log.abandon()
        manager.registry.abandon()
        raise


def _open(manager: LogManager, topic_partition: TopicPartition, path: str, now_ms: int) -> None:
    directory = manager.directories.at(os.path.dirname(path))
    assert directory is not None, path
    if directory.failure is not None:
        return
    kept = directory.kept
    try:
        manager.open_log(
            topic_partition,
            path,
            now_ms,
            clean_shutdown=directory.was_clean,
            recovery_point=kept.recovery_points.get(topic_partition, 0),
            log_start_offset=kept.log_starts.get(topic_partition, 0),
            high_watermark=kept.high_watermarks.get(topic_partition, 0),
        )
    except KafkaStorageError:
        if directory.failure is None or directory is manager.directories.home:
            raise
