"""The end of a broker's logs: closed, checkpointed, and each directory marked if all of that went well."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.identity import mark_clean_shutdown
from splashdam.storage.directories.log_directories import LogDirectories, LogDirectory
from splashdam.storage.files.disk import Files
from splashdam.storage.log import Log
from splashdam.storage.manager.topic_registry import TopicRegistry

_logger = logging.getLogger(__name__)


def close_all(
    files: Files, directories: LogDirectories, logs: Mapping[TopicPartition, Log], registry: TopicRegistry
) -> KafkaStorageError | None:
    """Closes every log, and marks the directories where that went well; returns the first failure.

    One of a directory that has failed before is not counted: it was told then.
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
            if directory not in failures:
                mark_clean_shutdown(files, directory.root)
        except KafkaStorageError as error:
            _logger.warning("closing %s: %s", directory.root, error.message)
            failures.setdefault(directory, error)
    for directory, failed in failures.items():
        return KafkaStorageError(
            f"{directory.root} is not left in order, the next start checks it: {failed.message}"
        )
    return None
