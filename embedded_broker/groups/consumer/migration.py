"""Which membership a heartbeat is for: a consumer group, a new one, or a classic one that goes on as that."""

from __future__ import annotations

from typing import Protocol

from splashdam.embedded_broker.groups.classic.membership import ClassicMembership
from splashdam.embedded_broker.groups.consumer.changes import Change
from splashdam.embedded_broker.groups.consumer.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from splashdam.embedded_broker.groups.consumer.converting import to_consumer
from splashdam.embedded_broker.groups.consumer.heartbeat import Heartbeat
from splashdam.embedded_broker.groups.consumer.member import JOINING
from splashdam.embedded_broker.groups.consumer.membership import ConsumerMembership, HeartbeatReply
from splashdam.embedded_broker.groups.group import Group, GroupHost, Membership
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.errors import BrokerResponseError, ProtocolError, message_of
from splashdam.model.quoting import quoted


class Groups(GroupHost, Protocol):
    """The table of groups."""

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
        raise _not_a_consumer_group(group_id, "there is none" if known is None else "it is a classic one")
    seed = [] if known is None or known.is_empty else _upgraded(groups, group_id, known)
    membership = ConsumerMembership(group_id, groups)
    owed = [(key, None) for key in (known.record_keys if known else ())]
    reply = membership.heartbeat(asked, owed=owed, seed=seed)
    if known is not None:
        known.dismiss(ErrorCode.REBALANCE_IN_PROGRESS)
    groups.replace_membership(group_id, membership)
    membership.loaded()
    return reply


def _upgraded(groups: GroupHost, group_id: str, known: Membership) -> list[Change]:
    """The members of a classic group as those of a consumer group, where that is allowed and can be.

    Raises:
        BrokerResponseError: GROUP_ID_NOT_FOUND (69).
    """
    settings = groups.settings
    is_allowed = settings.group_consumer_migration_policy in ("upgrade", "bidirectional")
    if not (
        is_allowed
        and isinstance(known, ClassicMembership)
        and known.protocol_type == CONSUMER_PROTOCOL_TYPE
        and len(known.roster) <= settings.group_consumer_max_size
    ):
        raise _not_a_consumer_group(group_id, "it has members of the classic protocol")
    try:
        return to_consumer(known, groups.topics)
    except ProtocolError as error:
        raise _not_a_consumer_group(group_id, message_of(error)) from error


def _not_a_consumer_group(group_id: str, why: str) -> BrokerResponseError:
    return error_for(ErrorCode.GROUP_ID_NOT_FOUND, f"group {quoted(group_id)} is not a consumer group: {why}")
