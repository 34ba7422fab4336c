"""Which membership answers a member's request, by the group's id and the protocol that the member speaks.

A group that has no members goes on with the protocol of the first that joins. One that has goes on with its
own, or is converted where ``group.consumer.migration.policy`` allows it (KIP-848).
"""

from __future__ import annotations

from itertools import count
from typing import Protocol, TypeAlias

from splashdam.embedded_broker.answering.turns import Steps
from splashdam.embedded_broker.groups.classic.membership import ClassicMembership
from splashdam.embedded_broker.groups.classic.records import CONSUMER_PROTOCOL_TYPE
from splashdam.embedded_broker.groups.consumer.classic_members import ClassicRequests
from splashdam.embedded_broker.groups.consumer.group import Change
from splashdam.embedded_broker.groups.consumer.member import JOINING
from splashdam.embedded_broker.groups.consumer.membership import (
    Asked,
    ConsumerMembership,
    Decided,
    Hearing,
    HeartbeatReply,
)
from splashdam.embedded_broker.groups.consumer.migration import to_consumer
from splashdam.embedded_broker.groups.group import Group, GroupHost, Membership
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.errors import ProtocolError, message_of
from splashdam.model.log_text import quoted
from splashdam.wire.messages.sync_group import SyncGroupRequest

_FIRST_SYNC_PROTOCOL_VERSION = 5

Answering: TypeAlias = ClassicMembership | ClassicRequests
"""The second for members of a consumer group that speak the classic protocol."""


class GroupTable(GroupHost, Protocol):
    """The table of groups, which hosts their memberships."""

    def find(self, group_id: str) -> Group | None:
        """The group, if it is known."""
        ...


def check_group_id(group_id: str) -> None:
    """Raises INVALID_GROUP_ID (24) where it is empty."""
    if not group_id:
        raise error_for(ErrorCode.INVALID_GROUP_ID, "the group's id is empty")


def lacks_protocol(request: SyncGroupRequest, version: int) -> bool:
    """Whether no protocol is named by a request whose version wants one: nobody is answered that."""
    return version >= _FIRST_SYNC_PROTOCOL_VERSION and None in (request.protocol_type, request.protocol_name)


def membership_of(groups: GroupTable, group_id: str) -> Answering:
    """The membership that a member speaks of.

    Raises:
        BrokerResponseError: INVALID_GROUP_ID; UNKNOWN_MEMBER_ID: there is none; what ``find`` raises.
    """
    check_group_id(group_id)
    membership = _membership_of(groups, group_id)
    if isinstance(membership, ConsumerMembership):
        return ClassicRequests(membership)
    if not isinstance(membership, ClassicMembership):
        raise error_for(ErrorCode.UNKNOWN_MEMBER_ID, f"group {quoted(group_id)} has no such member")
    return membership


def membership_to_join(groups: GroupTable, group_id: str, member_id: str) -> Answering:
    """The membership that somebody joins; made, with its record, for a group that has none.

    An empty group of the other protocol goes on with this one.

    Raises:
        BrokerResponseError: UNKNOWN_MEMBER_ID: who has an id joins a group that is not there; the log
            refuses.
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
    owed = [] if membership is None else [(key, None) for key in membership.record_keys]
    founded = ClassicMembership.found(group_id, groups, owed)
    if membership is not None:
        membership.dismiss(ErrorCode.UNKNOWN_MEMBER_ID)
    groups.replace_membership(group_id, founded)
    return founded


_ROUNDS_BESIDE = 3
"""So often a decision may come too late, since others of the group were quicker."""


def heartbeat_of(groups: GroupTable, group_id: str, asked: Asked) -> Steps[HeartbeatReply]:
    """Takes a heartbeat for a group; the first of a group that has no members makes it a consumer group.

    A large one is decided on beside the loop, and anew where the group has changed meanwhile; in the loop,
    where that has happened a few times. With the last step it is in the log.

    Args:
        groups: the table of groups.
        group_id: the group's name.
        asked: what the member says.

    Raises:
        BrokerResponseError: GROUP_ID_NOT_FOUND (69): there is no such group to be a member of, or it has
            members of the classic protocol; or as ``Hearing`` and ``ConsumerMembership.heard``.
    """
    for round_number in count():
        known = _membership_of(groups, group_id)
        if isinstance(known, ConsumerMembership):
            decided = yield from _decided(known.hearing(asked), round_number)
            if _membership_of(groups, group_id) is known and known.is_still(decided):
                return known.heard(decided)
            continue
        if asked.member_epoch != JOINING:
            raise _not_a_consumer_group(group_id, "there is none" if known is None else "it is a classic one")
        seed = _seed_of(groups, group_id, known)
        membership = ConsumerMembership(group_id, groups)
        decided = yield from _decided(membership.hearing(asked, seed), round_number)
        if _membership_of(groups, group_id) is known and _seed_of(groups, group_id, known) == seed:
            break
    reply = membership.heard(decided, [(key, None) for key in (known.record_keys if known else ())])
    if known is not None:
        known.dismiss(ErrorCode.REBALANCE_IN_PROGRESS)
    groups.replace_membership(group_id, membership)
    membership.loaded()
    return reply


def _decided(hearing: Hearing, round_number: int) -> Steps[Decided[HeartbeatReply]]:
    if round_number < _ROUNDS_BESIDE:
        decided: Decided[HeartbeatReply] = yield hearing
        return decided
    return hearing.do(0)  # it unpacks nothing


def _membership_of(groups: GroupTable, group_id: str) -> Membership | None:
    group = groups.find(group_id)
    return None if group is None else group.membership


def _seed_of(groups: GroupTable, group_id: str, known: Membership | None) -> list[Change]:
    return [] if known is None or known.is_empty else _upgraded(groups, group_id, known)


def _upgraded(groups: GroupHost, group_id: str, known: Membership) -> list[Change]:
    """The members of a classic group as those of a consumer group, where that is allowed and can be.

    Raises:
        BrokerResponseError: GROUP_ID_NOT_FOUND (69).
    """
    settings = groups.settings
    is_allowed = settings.groups.group_consumer_migration_policy in ("upgrade", "bidirectional")
    if not (
        is_allowed
        and isinstance(known, ClassicMembership)
        and known.protocol_type == CONSUMER_PROTOCOL_TYPE
        and len(known.roster) <= settings.groups.group_consumer_max_size
    ):
        raise _not_a_consumer_group(group_id, "it has members of the classic protocol")
    try:
        return to_consumer(known, groups.topics)
    except ProtocolError as error:
        raise _not_a_consumer_group(group_id, message_of(error)) from error


def _not_a_consumer_group(group_id: str, why: str) -> BrokerResponseError:
    return error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {quoted(group_id)} is not a consumer group: {why}")
