"""The end of a data directory's logs: closed, checkpointed, and marked if all of that went well."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from splashdam.embedded_broker.storage.data_directory import mark_clean_shutdown
from splashdam.embedded_broker.storage.files import Files
from splashdam.embedded_broker.storage.log import Log
from splashdam.embedded_broker.storage.root_checkpoints import RootCheckpoints
from splashdam.embedded_broker.storage.topic_registry import TopicRegistry
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition

_logger = logging.getLogger(__name__)


def close_all(
    files: Files,
    root: str,
    logs: Mapping[TopicPartition, Log],
    checkpoints: RootCheckpoints,
    registry: TopicRegistry,
) -> KafkaStorageError | None:
    """Closes every log, and marks the directory if that went well; returns the first failure."""
    failed: KafkaStorageError | None = None
    for log in logs.values():
        try:
            log.close()
        except KafkaStorageError as error:
            _logger.warning("closing the log of %s: %s", log.topic_partition, error.message)
            failed = failed or error
    try:
        checkpoints.write_all(logs)
        registry.close()
        if failed is None:
            mark_clean_shutdown(files, root)
    except KafkaStorageError as error:
        _logger.warning("closing %s: %s", root, error.message)
        failed = failed or error
    if failed is None:
        return None
    return KafkaStorageError(f"{root} is not left in order, the next start checks it: {failed.message}")
