"""What lies in a data directory: partitions, what is to be removed, and what is none of our business."""

from __future__ import annotations

import logging
from collections.abc import Collection

from splashdam.embedded_broker.storage.files import Files
from splashdam.embedded_broker.storage.partition_metadata import FILE_NAME, read_topic_id
from splashdam.embedded_broker.storage.segment import LOG
from splashdam.embedded_broker.storage.topic_names import (
    DELETE,
    FUTURE,
    METADATA_TOPIC,
    STRAY,
    partition_of_directory,
)
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition

_logger = logging.getLogger(__name__)


def find_partitions(files: Files, root: str, known_topics: Collection[str]) -> dict[TopicPartition, str]:
    """The partitions in a data directory with the paths of their directories.

    A directory of a known topic counts as it is: its making or removal may have been interrupted.

    Left alone: ``-stray``, ``-future`` and Kafka's metadata log, and, with a warning, directories whose name
    is no partition's or that hold nothing of a log. (Kafka itself would not start beside the latter.)
    """
    found: dict[TopicPartition, str] = {}
    for name, is_directory in files.list_directory(root):
        if not is_directory or name.endswith((DELETE, STRAY, FUTURE)):
            continue
        topic_partition = partition_of_directory(name)
        if topic_partition is not None and topic_partition.topic == METADATA_TOPIC:
            continue
        if topic_partition is None or not (
            topic_partition.topic in known_topics or _holds_a_log(files, f"{root}/{name}")
        ):
            _logger.warning("%s/%s is no partition of a topic; it is left alone", root, name)
            continue
        found[topic_partition] = f"{root}/{name}"
    return found


def topic_ids(files: Files, partitions: dict[TopicPartition, str]) -> dict[str, bytes]:
    """The id of each topic as its partitions have it; topics without any are left out.

    Raises:
        KafkaStorageError: partitions of one topic have different ids.
    """
    ids: dict[str, bytes] = {}
    for topic_partition, directory in sorted(partitions.items()):
        topic_id = read_topic_id(files, directory)
        if topic_id is None:
            continue
        if ids.setdefault(topic_partition.topic, topic_id) != topic_id:
            raise KafkaStorageError(
                f"{directory} belongs to another topic {topic_partition.topic!r} than its neighbours: "
                f"their {FILE_NAME} files differ"
            )
    return ids


def remove_deleted(files: Files, root: str) -> None:
    """Removes what a deletion moved aside."""
    for name, is_directory in files.list_directory(root):
        if is_directory and name.endswith(DELETE):
            files.remove_tree(f"{root}/{name}")


def _holds_a_log(files: Files, directory: str) -> bool:
    return any(name == FILE_NAME or name.endswith(LOG) for name, _ in files.list_directory(directory))
