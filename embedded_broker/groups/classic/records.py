"""The record of a classic group. Format: docs/format/consumer-offsets.md."""

from __future__ import annotations

from splashdam.embedded_broker.groups.classic.members import AssignorProtocol, ClassicMember
from splashdam.embedded_broker.groups.offset_records import CLASSIC_GROUP_KEY_VERSION
from splashdam.model.broker_errors import CorruptMessageError
from splashdam.model.errors import ProtocolError, message_of
from splashdam.model.values import Buffer
from splashdam.wire.codec import decode
from splashdam.wire.fields import array, binary, int32, int64, string
from splashdam.wire.message import Message, Struct
from splashdam.wire.persisted import Persisted, decode_persisted, encode_persisted

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of consumers; Kafka Connect uses another one."""

_WRITTEN_VERSION = 3
"""Every Kafka since 2.3 reads this version, and Kafka 4 writes it."""


class GroupMetadataKey(Persisted, versions="2"):
    """Key of the record: the group's id."""

    group: str = string()


class MemberMetadata(Struct):
    """One member with its subscription and assignment."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


class GroupMetadataValue(Persisted, versions="0-4", flexible="4+"):
    """A generation of a group; times in milliseconds since the epoch, -1 for none."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class ConsumerProtocolSubscription(Message, versions="0"):
    """The first field of a consumer's subscription, the same in every version: its topics."""

    topics: list[str] = array("string")


def encode_key(group_id: str) -> bytes:
    """Return the key of a group's record."""
    return encode_persisted(GroupMetadataKey(group=group_id), CLASSIC_GROUP_KEY_VERSION)


def encode_value(value: GroupMetadataValue) -> bytes:
    """Return the value of a group's record."""
    return encode_persisted(value, _WRITTEN_VERSION)


def decode_value(data: Buffer) -> GroupMetadataValue:
    """Return the value of a group's record, written in any version.

    Raises:
        CorruptMessageError: the bytes are not such a value, or the version is unknown.
    """
    try:
        return decode_persisted(GroupMetadataValue, data)
    except ProtocolError as error:
        raise CorruptMessageError(f"the members of a group cannot be read: {message_of(error)}") from error


def to_record(member: ClassicMember, protocol_name: str | None) -> MemberMetadata:
    """Return a member in the form of the group's record."""
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol_name),
        assignment=member.assignment,
    )


def from_record(found: MemberMetadata, protocol_name: str | None) -> ClassicMember:
    """Return a member from the group's record, which names only the assignor in use."""
    has_timeout = found.rebalance_timeout != -1
    return ClassicMember(
        found.member_id,
        found.group_instance_id,
        found.client_id,
        found.client_host,
        found.rebalance_timeout if has_timeout else found.session_timeout,
        found.session_timeout,
        (AssignorProtocol(protocol_name or "", bytes(found.subscription)),),
        bytes(found.assignment),
    )


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics that a consumer subscribes to; None if its subscription cannot be read."""
    try:
        # All versions begin with the fields of version 0, so the version in front does not matter.
        found = decode(ConsumerProtocolSubscription, metadata, 0, position=2, allow_trailing=True)
    except ProtocolError:
        return None
    return frozenset(found.topics)
