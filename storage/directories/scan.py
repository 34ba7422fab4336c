"""Find partitions, leftovers of deletions, and foreign directories in a data directory."""

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
    """A topic that may have partitions in a data directory."""

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
    """Return the partitions in a data directory, with the paths of their directories.

    A partition of a known topic counts whatever its directory contains, and so does an empty directory of a
    topic that is being deleted: their creation or removal may have been interrupted.

    Ignored are ``-stray``, ``-future``, Kafka's metadata log and, with a warning, other directories that are
    not a partition's or hold no log. Kafka refuses to start beside those; a data directory among other things
    is common with an embedded broker.

    Args:
        files: the file system.
        root: path of the data directory.
        topics: the known topics by name.
        deleting: names of topics that are being deleted.
        roots: all data directories of the broker; others may lie in this one.
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
                _logger.warning("%s is not a partition of a topic; ignoring it", path)
            continue
        refuse_link(files, path)
        found[topic_partition] = path
    return found


def topic_ids(
    files: Files, partitions: Mapping[TopicPartition, str]
) -> tuple[dict[str, bytes], set[TopicPartition]]:
    """Return the topic ids that partitions have, and the partitions that have none.

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
                f"{directory} belongs to another topic {topic_partition.topic!r} than other partitions of "
                f"that name: their {FILE_NAME} files have different ids"
            )
    return ids, without_id


def remove_deleted(files: Files, root: str) -> None:
    """Remove the ``-delete`` directories of interrupted deletions."""
    for name, is_directory in files.list_directory(root):
        if is_directory and suffix_of_renamed_directory(name) == DELETE:
            files.remove_tree(f"{root}/{name}")


def refuse_taken_directories(files: Files, root: str, partitions: Collection[TopicPartition]) -> None:
    """Refuse new partitions whose directories exist and are not empty: a deletion would destroy that content.

    Raises:
        KafkaStorageError: a directory of one of ``partitions`` exists and is not empty.
    """
    for topic_partition in partitions:
        path = f"{root}/{topic_partition}"
        refuse_link(files, path)
        if files.list_directory(path):
            raise KafkaStorageError(f"{path} exists and is not empty; move it away to use the name")


def make_partition_directory(files: Files, path: str) -> None:
    """Create the directory of a partition if it is missing.

    Raises:
        KafkaStorageError: it is a symbolic link, or the disk refuses.
    """
    refuse_link(files, path)
    files.make_directory(path)


def refuse_link(files: Files, path: str) -> None:
    """Raise if a directory is a symbolic link, which would lead the broker out of its data directory.

    Raises:
        KafkaStorageError: it is a symbolic link.
    """
    if files.is_link(path):
        raise symbolic_link_error(path)


def _is_known(topic_partition: TopicPartition, topics: Mapping[str, KnownTopic]) -> bool:
    topic = topics.get(topic_partition.topic)
    return topic is not None and topic_partition.partition in topic.partitions


def holds_a_log(files: Files, directory: str, *, or_nothing: bool = False) -> bool:
    """Whether a directory has files of a log; with ``or_nothing``, or is empty."""
    names = [name for name, _ in files.list_directory(directory)]
    if or_nothing and set(names) <= {FILE_NAME + TEMPORARY}:
        return True
    return any(name == FILE_NAME or name.endswith(LOG) for name in names)
