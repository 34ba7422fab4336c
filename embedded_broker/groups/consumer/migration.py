"""Conversion of a group with members between the two protocols (upgrade and downgrade of KIP-848)."""

from __future__ import annotations

from collections.abc import Iterator

from splashdam.embedded_broker.groups.classic.members import ClassicMember, GroupMembers
from splashdam.embedded_broker.groups.classic.membership import ClassicMembership, GroupState
from splashdam.embedded_broker.groups.classic.records import CONSUMER_PROTOCOL_TYPE
from splashdam.embedded_broker.groups.consumer.consumer_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from splashdam.embedded_broker.groups.consumer.context import TopicsView
from splashdam.embedded_broker.groups.consumer.group import (
    Change,
    ConsumerGroup,
    CurrentChange,
    GroupEpochChange,
    MetadataChange,
    TargetChange,
    TargetEpochChange,
)
from splashdam.embedded_broker.groups.consumer.member import (
    ClassicSide,
    ConsumerMember,
    CurrentAssignment,
    MemberMetadata,
)
from splashdam.embedded_broker.groups.group import GroupHost


def to_consumer(classic: ClassicMembership, topics: TopicsView) -> list[Change]:
    """Return the changes that make a classic group a consumer group; members keep their assignments.

    Raises:
        ProtocolError: a subscription or assignment cannot be read, or a custom assignor is in use.
    """
    epoch = classic.generation_id
    members = list(classic.members.by_id.values())
    shares = {each.member_id: decode_assignment(each.assignment, topics) for each in members}
    return [
        *(MetadataChange(each.member_id, _metadata(each, classic.protocol_name)) for each in members),
        GroupEpochChange(epoch),
        *(TargetChange(member_id, share) for member_id, share in shares.items()),
        TargetEpochChange(epoch),
        *(
            CurrentChange(
                member_id,
                CurrentAssignment(
                    member_epoch=epoch, previous_member_epoch=epoch, assigned=dict.fromkeys(share, epoch)
                ),
            )
            for member_id, share in shares.items()
        ),
    ]


def _metadata(member: ClassicMember, protocol_name: str | None) -> MemberMetadata:
    subscription = decode_subscription(member.metadata(protocol_name))
    return MemberMetadata(
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topic_names=frozenset(subscription.topics),
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )


def to_classic(group: ConsumerGroup, host: GroupHost, generation_id: int) -> ClassicMembership:
    """Return a consumer group, whose members all speak the classic protocol, as a classic group.

    Args:
        group: without the last member of the consumer protocol.
        host: of the membership.
        generation_id: the group epoch that members know; their next heartbeat tells them to rejoin.
    """
    names = {shape.topic_id: name for name, shape in group.topics.items()}
    membership = ClassicMembership(group.group_id, host)
    membership.members = GroupMembers(_classic_members(group, names))
    membership.state = GroupState.STABLE
    membership.generation_id = generation_id
    membership.protocol_type = CONSUMER_PROTOCOL_TYPE
    membership.protocol_name = membership.members.selected_protocol()
    membership.topics = membership.subscribed_topics()
    return membership


def _classic_members(group: ConsumerGroup, names: dict[bytes, str]) -> Iterator[ClassicMember]:
    for member in group.members.values():
        side = side_of(member)
        yield ClassicMember(
            member.member_id,
            member.metadata.instance_id,
            member.metadata.client_id,
            member.metadata.client_host,
            member.metadata.rebalance_timeout_ms,
            side.session_timeout_ms,
            side.supported_protocols,
            encode_assignment(member.current.assigned, names.get, side.supported_protocols[0].metadata),
        )


def side_of(member: ConsumerMember) -> ClassicSide:
    """Return the classic protocol's data of a member that speaks it."""
    assert member.metadata.classic is not None
    return member.metadata.classic
