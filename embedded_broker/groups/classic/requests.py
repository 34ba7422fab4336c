"""From a group's id to who answers the requests of members that speak the classic protocol."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from splashdam.embedded_broker.groups.classic.membership import ClassicMembership
from splashdam.embedded_broker.groups.consumer.classic_requests import ClassicRequests
from splashdam.embedded_broker.groups.consumer.membership import ConsumerMembership
from splashdam.embedded_broker.groups.group import Group, GroupHost
from splashdam.model.broker_errors import ErrorCode, error_for
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

    def find_or_make(self, group_id: str) -> Group:
        """The group, made where it is not."""
        ...

    def drop_if_gone(self, group_id: str) -> None:
        """Forgets a group of which nothing is known."""
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
    group = groups.find(group_id)
    membership = None if group is None else group.membership
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
    groups.find_or_make(group_id).membership = founded
    return founded
