"""Which membership a heartbeat is for: a consumer group, a new one, or a classic one that goes on as that."""

from __future__ import annotations

from typing import Protocol

from splashdam.embedded_broker.groups.consumer.heartbeat import Heartbeat
from splashdam.embedded_broker.groups.consumer.member import JOINING
from splashdam.embedded_broker.groups.consumer.membership import ConsumerMembership, HeartbeatReply
from splashdam.embedded_broker.groups.group import Group, GroupHost
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode


class Groups(GroupHost, Protocol):
    """The table of groups."""

    def find_or_make(self, group_id: str) -> Group:
        """The group, an empty one where nothing is known."""
        ...

    def find(self, group_id: str) -> Group | None:
        """What is known of a group."""
        ...


def heartbeat_of(groups: Groups, group_id: str, asked: Heartbeat) -> HeartbeatReply:
    """Takes a heartbeat for a group; the first of a group that has no members makes it a consumer group.

    Raises:
        BrokerResponseError: GROUP_ID_NOT_FOUND (69): there is no such group to be a member of, or it has
            members of the classic protocol; or as ``ConsumerMembership.heartbeat``.
    """
    group = groups.find(group_id)
    known = None if group is None else group.membership
    if isinstance(known, ConsumerMembership):
        return known.heartbeat(asked)
    if asked.member_epoch != JOINING:
        what = "does not exist" if known is None else "is not a consumer group"
        raise error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} {what}")
    if known is not None and not known.is_empty:
        raise error_for(
            ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} has members of the classic protocol"
        )
    membership = ConsumerMembership(group_id, groups)
    reply = membership.heartbeat(asked, owed=[(key, None) for key in (known.record_keys if known else ())])
    if known is not None:
        known.dismiss(ErrorCode.UNKNOWN_MEMBER_ID)
    groups.find_or_make(group_id).membership = membership
    return reply
