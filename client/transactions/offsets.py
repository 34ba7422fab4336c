"""What ``send_offsets_to_transaction`` accepts, made into our values."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from splashdam.client.sending.topics import check_topic_name
from splashdam.model.groups import ConsumerGroupMetadata, OffsetAndMetadata
from splashdam.model.options import MAX_INT, MAX_LONG
from splashdam.model.values import TopicPartition

_MAX_METADATA_BYTES = 32767


def offsets_of(offsets: Mapping[Any, Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets by partition, from ours or kafka-python's values, from tuples like them, or from plain numbers.

    Raises:
        TypeError: it is no mapping, or something in it is neither.
        ValueError: a topic's name is not legal, or a number is negative.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be a dict of TopicPartition to offset, not {type(offsets).__name__}")
    return {_partition(where): _offset(where, read) for where, read in offsets.items()}


def group_of(group_metadata: Any) -> ConsumerGroupMetadata:
    """The group, from ours or kafka-python's value, or from its name alone.

    Raises:
        TypeError: it is none of these.
        ValueError: the group has no name.
    """
    if isinstance(group_metadata, str):
        group_metadata = ConsumerGroupMetadata(group_metadata)
    try:
        group = ConsumerGroupMetadata(
            *(getattr(group_metadata, name) for name in ConsumerGroupMetadata._fields)
        )
    except AttributeError:
        raise TypeError(
            "group_metadata must be a ConsumerGroupMetadata or the name of a group,"
            f" not {type(group_metadata).__name__}"
        ) from None
    if not group.group_id:
        raise ValueError(f"group_metadata names no group: {group_metadata!r}")
    return group


def _partition(where: Any) -> TopicPartition:
    if not isinstance(where, tuple) or len(where) != 2:
        raise TypeError(f"offsets are given by TopicPartition, not by {where!r}")
    topic, number = where
    try:
        topic_partition = TopicPartition(check_topic_name(topic), operator.index(number))
    except TypeError:
        raise TypeError(f"offsets are given by TopicPartition, not by {where!r}") from None
    if not 0 <= topic_partition.partition <= MAX_INT:
        raise ValueError(f"there is no partition {topic_partition.partition} of topic {topic!r}")
    return topic_partition


def _fields(read: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(OffsetAndMetadata(*read))


def _offset(where: Any, read: Any) -> OffsetAndMetadata:
    if not isinstance(read, tuple):
        read = (read,)
    try:
        offset, metadata, epoch = _fields(read)
        made = OffsetAndMetadata(operator.index(offset), metadata or "", -1 if epoch is None else epoch)
    except TypeError:
        raise TypeError(f"the offset of {where!r} must be an OffsetAndMetadata or a number") from None
    if made.offset < 0:
        raise ValueError(f"the offset of {where!r} is negative: {made.offset}")
    if made.offset > MAX_LONG:
        raise ValueError(f"the offset of {where!r} does not fit 64 bits: {made.offset}")
    if not isinstance(made.metadata, str):
        raise TypeError(f"the metadata of {where!r} must be str, not {type(made.metadata).__name__}")
    size = len(made.metadata.encode())
    if size > _MAX_METADATA_BYTES:
        raise ValueError(
            f"the metadata of {where!r} takes {size} bytes, and the protocol has room for"
            f" {_MAX_METADATA_BYTES}; brokers take 4096 by default (offset.metadata.max.bytes)"
        )
    return made
