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
"""What consumers call their kind of group; Connect has another one."""

_WRITTEN_VERSION = 3
"""Which every Kafka since 2.3 reads, and Kafka 4 writes."""


class GroupMetadataKey(Persisted, versions="2"):
    """Which group."""

    group: str = string()


class MemberMetadata(Struct):
    """One member with what it was assigned."""

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
    """The front of what members of type ``consumer`` say in every version: which topics they read."""

    topics: list[str] = array("string")


def encode_key(group_id: str) -> bytes:
    """The key of a group's record."""
    return encode_persisted(GroupMetadataKey(group=group_id), CLASSIC_GROUP_KEY_VERSION)


def encode_value(value: GroupMetadataValue) -> bytes:
    """The value, in the version that is written."""
    return encode_persisted(value, _WRITTEN_VERSION)


def decode_value(data: Buffer) -> GroupMetadataValue:
    """What a record holds, of any version.

    Raises:
        CorruptMessageError: the bytes are no such value, or of a version that is not known.
    """
    try:
        return decode_persisted(GroupMetadataValue, data)
    except ProtocolError as error:
        raise CorruptMessageError(f"the members of a group cannot be read: {message_of(error)}") from error


def to_record(member: ClassicMember, protocol_name: str | None) -> MemberMetadata:
    """A member as its group's record has it."""
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
    """The member again; of its assignors the one in use is known."""
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
    """The topics that a member of type ``consumer`` reads; None where its words cannot be read."""
    try:
        # Whatever version stands in front: all begin as the first does.
        found = decode(ConsumerProtocolSubscription, metadata, 0, position=2, allow_trailing=True)
    except ProtocolError:
        return None
    return frozenset(found.topics)
