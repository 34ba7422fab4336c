"""Names of topics and of the directories of their partitions, by Kafka's rules."""

from __future__ import annotations

import re
from collections.abc import Iterable

from splashdam.model.broker_errors import InvalidTopicError
from splashdam.model.log_text import quoted
from splashdam.model.options import MAX_INT
from splashdam.model.values import TopicPartition

MAX_NAME_CHARACTERS = 249
MAX_DIRECTORY_CHARACTERS = 255
METADATA_TOPIC = "__cluster_metadata"
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"})
"""Kafka's ``Topic.INTERNAL_TOPICS``: Metadata marks them as internal, and clients may not produce to them."""
DELETE, STRAY, FUTURE = "-delete", "-stray", "-future"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_MOVED_ASIDE = re.compile(rf"[a-zA-Z0-9._-]+-[0-9]+\.[0-9a-f]{{32}}({DELETE}|{STRAY}|{FUTURE})")
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})")


def folded(name: str) -> str:
    """Return the name as Kafka's metrics write it; topics whose folded names are equal collide."""
    return name.replace(".", "_")


def check_topic_name(name: str, existing: Iterable[str] = ()) -> None:
    """Raise for a topic name that Kafka refuses.

    Raises:
        InvalidTopicError: the name is empty, too long, has an illegal character, is ``.`` or ``..``, or
            differs from an existing name only in ``.`` and ``_``, which metrics cannot tell apart.
    """
    if name in (".", ".."):
        raise InvalidTopicError(f"a topic cannot be called {quoted(name)}")
    if not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise InvalidTopicError(
            f"a topic name has 1 to {MAX_NAME_CHARACTERS} characters, {quoted(name)} has {len(name)}"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicError(f"{quoted(name)} has characters other than letters, digits, '.', '_' and '-'")
    for other in existing:
        if other != name and folded(other) == folded(name):
            raise InvalidTopicError(
                f"{quoted(name)} collides with {quoted(other)}: '.' and '_' count as the same"
            )


def is_topic_name(name: str) -> bool:
    """Whether Kafka accepts the name if there is no other topic."""
    try:
        check_topic_name(name)
    except InvalidTopicError:
        return False
    return True


def partition_of_directory(name: str) -> TopicPartition | None:
    """Return the partition whose directory has exactly this name, or None."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or not _LEGAL.fullmatch(match["topic"]) or match["topic"] in (".", ".."):
        return None
    partition = int(match["partition"])
    return TopicPartition(match["topic"], partition) if partition <= MAX_INT else None


def suffix_of_renamed_directory(name: str) -> str | None:
    """Return ``DELETE``, ``STRAY`` or ``FUTURE`` if a broker gave a partition's directory this name, or None.

    The whole name must match what brokers write: a directory called ``to-delete`` is the user's.
    """
    match = _MOVED_ASIDE.fullmatch(name)
    return None if match is None else match[1]


def deleted_directory_name(topic_partition: TopicPartition, unique: str) -> str:
    """``<topic>-<partition>.<unique>-delete``, the topic cut so that a file system takes the whole."""
    ending = f"-{topic_partition.partition}.{unique}{DELETE}"
    return topic_partition.topic[: MAX_DIRECTORY_CHARACTERS - len(ending)] + ending
