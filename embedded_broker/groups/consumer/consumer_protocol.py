"""Kafka's ConsumerProtocol: the subscriptions and assignments inside JoinGroup and SyncGroup.

The bytes begin with a version; an unknown later version is read as the latest known one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from splashdam.embedded_broker.groups.consumer.context import TopicsView
from splashdam.embedded_broker.groups.consumer.member import Share, TopicIdPartition
from splashdam.embedded_broker.groups.consumer.records import by_topic
from splashdam.model.errors import ProtocolError
from splashdam.wire.codec import decode
from splashdam.wire.fields import array, binary, int32, string
from splashdam.wire.message import Struct
from splashdam.wire.persisted import Persisted, encode_persisted, version_of

_LATEST = 3


class NamedPartitions(Struct):
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array("int32")


class Subscription(Persisted, versions="0-3"):
    """A member's subscription and owned partitions."""

    topics: list[str] = array("string")
    user_data: bytes | None = binary(nullable="0+")
    owned_partitions: list[NamedPartitions] = array(NamedPartitions, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class ClassicAssignment(Persisted, versions="0-3"):
    """A member's assignment."""

    assigned_partitions: list[NamedPartitions] = array(NamedPartitions)
    user_data: bytes | None = binary(nullable="0+")


def decode_subscription(data: bytes) -> Subscription:
    """Return a member's subscription.

    Raises:
        ProtocolError: the bytes are no subscription.
    """
    version = min(version_of(data), _LATEST)
    return decode(Subscription, data, version, position=2, allow_trailing=True)


def decode_assignment(data: bytes, topics: TopicsView) -> Share:
    """Return a member's assignment, without topics that no longer exist.

    Raises:
        ProtocolError: the bytes are no assignment, or a custom assignor added user data.
    """
    if not data:
        return frozenset()
    version = min(version_of(data), _LATEST)
    found = decode(ClassicAssignment, data, version, position=2, allow_trailing=True)
    if found.user_data:
        raise ProtocolError("a custom assignor is in use")
    return named_share(found.assigned_partitions, topics)


def named_share(partitions: Iterable[NamedPartitions], topics: TopicsView) -> Share:
    """Return partitions by topic id, without topics that do not exist."""
    return frozenset(
        TopicIdPartition(shape.topic_id, number)
        for each in partitions
        if (shape := topics.shape(each.topic)) is not None
        for number in each.partitions
    )


def encode_assignment(
    partitions: Iterable[TopicIdPartition], name_of: Callable[[bytes], str | None], like: bytes
) -> bytes:
    """Encode a member's assignment in the version of its subscription, without topics that no longer exist.

    Args:
        partitions: of the member.
        name_of: returns a topic's name by id.
        like: its subscription.
    """
    named = [
        NamedPartitions(topic=name, partitions=numbers)
        for topic_id, numbers in by_topic(partitions)
        if (name := name_of(topic_id)) is not None
    ]
    version = min(version_of(like), _LATEST)
    return encode_persisted(ClassicAssignment(assigned_partitions=named, user_data=None), version)
