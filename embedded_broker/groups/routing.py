"""Finds the membership for a request, by the group's id and the protocol of the member.

An empty group takes over the protocol of the first member that joins. A group with members keeps its
protocol, or is converted if ``group.consumer.migration.policy`` allows it (KIP-848).
"""

from __future__ import annotations

from itertools import count
from typing import Protocol, TypeAlias

from splashdam.embedded_broker.execution.turns import Steps
from splashdam.embedded_broker.groups.classic.membership import ClassicMembership
from splashdam.embedded_broker.groups.classic.records import CONSUMER_PROTOCOL_TYPE
from splashdam.embedded_broker.groups.consumer.classic_members import ClassicRequests
from splashdam.embedded_broker.groups.consumer.group import Change
from splashdam.embedded_broker.groups.consumer.member import JOINING
from splashdam.embedded_broker.groups.consumer.membership import (
    Asked,
    ConsumerMembership,
    Decided,
    HeartbeatReply,
    HeartbeatWork,
)
from splashdam.embedded_broker.groups.consumer.migration import to_consumer
from splashdam.embedded_broker.groups.group import Group, GroupHost, Membership
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.errors import ProtocolError, message_of
from splashdam.model.log_text import quoted
from splashdam.wire.messages.sync_group import SyncGroupRequest

_FIRST_SYNC_PROTOCOL_VERSION = 5

ClassicTarget: TypeAlias = ClassicMembership | ClassicRequests
"""`ClassicRequests` serves members of a consumer group that speak the classic protocol."""


class GroupTable(GroupHost, Protocol):
    """The table of groups, and the host of their memberships."""

    def find(self, group_id: str) -> Group | None:
        """Return a group; None if it does not exist."""
        ...


def check_group_id(group_id: str) -> None:
    """Raise INVALID_GROUP_ID (24) for an empty id."""
    if not group_id:
        raise error_for(ErrorCode.INVALID_GROUP_ID, "the group's id is empty")


def lacks_protocol(request: SyncGroupRequest, version: int) -> bool:
    """Whether a SyncGroup names no protocol although its version requires one."""
    return version >= _FIRST_SYNC_PROTOCOL_VERSION and None in (request.protocol_type, request.protocol_name)


def membership_of(groups: GroupTable, group_id: str) -> ClassicTarget:
    """Return the membership for a request of a member that speaks the classic protocol.

    Raises:
        BrokerResponseError: INVALID_GROUP_ID; UNKNOWN_MEMBER_ID: the group has no members; as ``find``.
    """
    check_group_id(group_id)
    membership = _membership_of(groups, group_id)
    if isinstance(membership, ConsumerMembership):
        return ClassicRequests(membership)
    if not isinstance(membership, ClassicMembership):
        raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"group {quoted(group_id)} has no such member")
    return membership


def membership_to_join(groups: GroupTable, group_id: str, member_id: str) -> ClassicTarget:
    """Return the membership for a JoinGroup; created, with its record, if the group has none.

    An empty group of the consumer protocol becomes a classic one.

    Raises:
        BrokerResponseError: UNKNOWN_MEMBER_ID: a member with an id joins a group that does not exist; or the
            append failed.
    """
    check_group_id(group_id)
    group = groups.find(group_id)
    membership = None if group is None else group.membership
    if isinstance(membership, ClassicMembership):
        return membership
    if group is None and member_id:
        raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {quoted(group_id)}")
    if isinstance(membership, ConsumerMembership) and not membership.is_empty:
        return ClassicRequests(membership)
    tombstones = [] if membership is None else [(key, None) for key in membership.record_keys]
    created = ClassicMembership.create(group_id, groups, tombstones)
    if membership is not None:
        membership.dismiss(ErrorCode.UNKNOWN_MEMBER_ID)
    groups.replace_membership(group_id, created)
    return created


_ROUNDS_BESIDE = 3
"""A decision made in a thread is stale if the group has changed; after so many the loop decides itself."""


def heartbeat_of(groups: GroupTable, group_id: str, asked: Asked) -> Steps[HeartbeatReply]:
    """Handle a ConsumerGroupHeartbeat; the first one of an empty group makes it a consumer group.

    A large heartbeat is decided in a thread, and again if the group has changed meanwhile; after a few such
    rounds in the loop. After the last step the change is in the log.

    Args:
        groups: the table of groups.
        group_id: the group.
        asked: the heartbeat.

    Raises:
        BrokerResponseError: GROUP_ID_NOT_FOUND (69): there is no such group, or it has members of the classic
            protocol; or as ``HeartbeatWork`` and ``ConsumerMembership.finish_heartbeat``.
    """
    for round_number in count():
        known = _membership_of(groups, group_id)
        if isinstance(known, ConsumerMembership):
            decided = yield from _decided(known.heartbeat_work(asked), round_number)
            # The decision may have been made in a thread, while other heartbeats changed the group.
            if _membership_of(groups, group_id) is known and known.is_still(decided):
                return known.finish_heartbeat(decided)
            continue
        if asked.member_epoch != JOINING:
            raise _not_a_consumer_group(group_id, "there is none" if known is None else "it is a classic one")
        conversion = _conversion_of(groups, group_id, known)
        membership = ConsumerMembership(group_id, groups)
        decided = yield from _decided(membership.heartbeat_work(asked, conversion), round_number)
        if (
            _membership_of(groups, group_id) is known
            and _conversion_of(groups, group_id, known) == conversion
        ):
            break
    reply = membership.finish_heartbeat(
        decided, [(key, None) for key in (known.record_keys if known else ())]
    )
    if known is not None:
        # Behind the append, which may fail: waiting members join again, and then find the consumer group.
        known.dismiss(ErrorCode.REBALANCE_IN_PROGRESS)
    groups.replace_membership(group_id, membership)
    membership.loaded()
    return reply


def _decided(work: HeartbeatWork, round_number: int) -> Steps[Decided[HeartbeatReply]]:
    if round_number < _ROUNDS_BESIDE:
        decided: Decided[HeartbeatReply] = yield work
        return decided
    return work.do(0)  # the argument only limits what a work unpacks


def _membership_of(groups: GroupTable, group_id: str) -> Membership | None:
    group = groups.find(group_id)
    return None if group is None else group.membership


def _conversion_of(groups: GroupTable, group_id: str, known: Membership | None) -> list[Change]:
    return [] if known is None or known.is_empty else _upgraded(groups, group_id, known)


def _upgraded(groups: GroupHost, group_id: str, known: Membership) -> list[Change]:
    """Return a classic group's members as changes of a consumer group, if it can be upgraded.

    Raises:
        BrokerResponseError: GROUP_ID_NOT_FOUND (69).
    """
    settings = groups.settings
    is_allowed = settings.groups.group_consumer_migration_policy in ("upgrade", "bidirectional")
    if not (
        is_allowed
        and isinstance(known, ClassicMembership)
        and known.protocol_type == CONSUMER_PROTOCOL_TYPE
        and len(known.members) <= settings.groups.group_consumer_max_size
    ):
        raise _not_a_consumer_group(group_id, "it has members of the classic protocol")
    try:
        return to_consumer(known, groups.topics)
    except ProtocolError as error:
        raise _not_a_consumer_group(group_id, message_of(error)) from error


def _not_a_consumer_group(group_id: str, why: str) -> BrokerResponseError:
    return error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {quoted(group_id)} is not a consumer group: {why}")
