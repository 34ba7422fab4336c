"""Which membership a heartbeat is for: a consumer group, a new one, or a classic one that goes on as that."""

from __future__ import annotations

from itertools import count
from typing import Protocol

from splashdam.embedded_broker.answering.turns import Steps
from splashdam.embedded_broker.groups.classic.membership import ClassicMembership
from splashdam.embedded_broker.groups.consumer.changes import Change
from splashdam.embedded_broker.groups.consumer.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from splashdam.embedded_broker.groups.consumer.converting import to_consumer
from splashdam.embedded_broker.groups.consumer.member import JOINING
from splashdam.embedded_broker.groups.consumer.membership import (
    Asked,
    ConsumerMembership,
    Decided,
    Hearing,
    HeartbeatReply,
)
from splashdam.embedded_broker.groups.group import Group, GroupHost, Membership
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.errors import ProtocolError, message_of
from splashdam.model.log_text import quoted

_ROUNDS_BESIDE = 3
"""So often a decision may come too late, since others of the group were quicker."""


class Groups(GroupHost, Protocol):
    """The table of groups."""

    def find(self, group_id: str) -> Group | None:
        """What is known of a group."""
        ...


def heartbeat_of(groups: Groups, group_id: str, asked: Asked) -> Steps[HeartbeatReply]:
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


def _membership_of(groups: Groups, group_id: str) -> Membership | None:
    group = groups.find(group_id)
    return None if group is None else group.membership


def _seed_of(groups: Groups, group_id: str, known: Membership | None) -> list[Change]:
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
