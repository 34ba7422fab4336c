"""What lies in a data directory: partitions, what is to be removed, and what is none of our business."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.directories.partition_metadata import FILE_NAME, read_topic_id
from splashdam.storage.files.disk import TEMPORARY, Files
from splashdam.storage.files.log_file import symbolic_link_error
from splashdam.storage.segments.segment import LOG
from splashdam.storage.topic_names import (
    DELETE,
    METADATA_TOPIC,
    partition_of_directory,
    suffix_of_renamed_directory,
)

_logger = logging.getLogger(__name__)


class KnownTopic(Protocol):
    """What is known of a topic that may have partitions in a directory."""

    @property
    def partitions(self) -> Collection[int]: ...


def find_partitions(
    files: Files,
    root: str,
    topics: Mapping[str, KnownTopic],
    deleting: Collection[str] = (),
    *,
    roots: Collection[str],
) -> dict[TopicPartition, str]:
    """The partitions in a data directory with the paths of their directories.

    A partition that a known topic has counts whatever is in its directory, and an empty directory counts for
    a topic that is being deleted: their making or removal may have been interrupted.

    ``roots`` are all data directories of the broker: others may lie in this one.

    Left alone: ``-stray``, ``-future`` and Kafka's metadata log, and, with a warning, directories whose name
    is no partition's or that hold nothing of a log. (Kafka itself would not start beside the latter.)
    """
    found: dict[TopicPartition, str] = {}
    for name, is_directory in files.list_directory(root):
        path = f"{root}/{name}"
        if not is_directory or suffix_of_renamed_directory(name) or path in roots:
            continue
        topic_partition = partition_of_directory(name)
        if topic_partition is not None and topic_partition.topic == METADATA_TOPIC:
            continue
        if topic_partition is None or not (
            _is_known(topic_partition, topics)
            or holds_a_log(files, path, or_nothing=topic_partition.topic in deleting)
        ):
            if not any(each.startswith(f"{path}/") for each in roots):
                _logger.warning("%s is no partition of a topic; it is left alone", path)
            continue
        refuse_link(files, path)
        found[topic_partition] = path
    return found


def topic_ids(
    files: Files, partitions: Mapping[TopicPartition, str]
) -> tuple[dict[str, bytes], set[TopicPartition]]:
    """The id of each topic as its partitions have it, topics without any left out; and who says none.

    Raises:
        KafkaStorageError: partitions of one topic have different ids.
    """
    ids: dict[str, bytes] = {}
    without_id: set[TopicPartition] = set()
    for topic_partition, directory in sorted(partitions.items()):
        topic_id = read_topic_id(files, directory)
        if topic_id is None:
            without_id.add(topic_partition)
            continue
        if ids.setdefault(topic_partition.topic, topic_id) != topic_id:
            raise KafkaStorageError(
                f"{directory} belongs to another topic {topic_partition.topic!r} than its neighbours: "
                f"their {FILE_NAME} files differ"
            )
    return ids, without_id


def remove_deleted(files: Files, root: str) -> None:
    """Remove what a deletion moved aside."""
    for name, is_directory in files.list_directory(root):
        if is_directory and suffix_of_renamed_directory(name) == DELETE:
            files.remove_tree(f"{root}/{name}")


def refuse_taken_directories(files: Files, root: str, partitions: Collection[TopicPartition]) -> None:
    """Keep a new topic out of directories that hold something: its deletion would destroy that.

    Raises:
        KafkaStorageError: the directory of one of ``partitions`` is there and not empty.
    """
    for topic_partition in partitions:
        path = f"{root}/{topic_partition}"
        refuse_link(files, path)
        if files.list_directory(path):
            raise KafkaStorageError(f"{path} is there already and not empty; move it away to use the name")


def make_partition_directory(files: Files, path: str) -> None:
    """Make the directory of a log, or of its copy, where it is not there yet.

    Raises:
        KafkaStorageError: it is a symbolic link, or the disk refuses.
    """
    refuse_link(files, path)
    files.make_directory(path)


def refuse_link(files: Files, path: str) -> None:
    """Keep the broker out of a directory that lies elsewhere.

    Raises:
        KafkaStorageError: it is a symbolic link.
    """
    if files.is_link(path):
        raise symbolic_link_error(path)


def _is_known(topic_partition: TopicPartition, topics: Mapping[str, KnownTopic]) -> bool:
    topic = topics.get(topic_partition.topic)
    return topic is not None and topic_partition.partition in topic.partitions


def holds_a_log(files: Files, directory: str, *, or_nothing: bool = False) -> bool:
    names = [name for name, _ in files.list_directory(directory)]
    if or_nothing and set(names) <= {FILE_NAME + TEMPORARY}:
        return True
    return any(name == FILE_NAME or name.endswith(LOG) for name in names)
