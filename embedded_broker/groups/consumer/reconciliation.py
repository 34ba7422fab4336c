"""The way of one member towards its share of the target assignment, as Kafka's CurrentAssignmentBuilder.

A partition is first given up by one member and then given to the next, so no two ever hold it. A member that
has to give something up keeps its epoch until a heartbeat no longer names it among what it owns; then it goes
to the epoch of the target at once, with what is free of its share, and waits for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import auto

import attrs

from splashdam.embedded_broker.groups.consumer.member import (
    CurrentAssignment,
    Held,
    MemberState,
    Share,
    TopicIdPartition,
)
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode
from splashdam.model.lifecycle import Stage, next_state


class Found(Stage):
    """What the comparison of what a member holds with its share shows."""

    MUST_REVOKE = auto()
    """It owns what is not in its share."""
    LACKS_PARTITIONS = auto()
    """Others still hold some of its share."""
    HAS_ALL = auto()
    """Nothing is left to do."""


_TABLE = {
    (state, found): after
    for state in MemberState
    for found, after in (
        (Found.MUST_REVOKE, MemberState.UNREVOKED_PARTITIONS),
        (Found.LACKS_PARTITIONS, MemberState.UNRELEASED_PARTITIONS),
        (Found.HAS_ALL, MemberState.STABLE),
    )
}


def reconcile(
    current: CurrentAssignment,
    target: Share,
    target_epoch: int,
    *,
    is_held: Callable[[TopicIdPartition], bool],
    owned: Share | None,
) -> CurrentAssignment:
    """The next step of a member; the same object where there is none to make.

    Args:
        current: how far it has come.
        target: its share.
        target_epoch: the epoch of the target assignment.
        is_held: whether any member of the group holds a partition.
        owned: what the member says that it owns; None where it does not say.

    Raises:
        BrokerResponseError: FENCED_MEMBER_EPOCH (110): its state is unknown, so it has to join anew.
    """
    if current.is_reconciled_to(target_epoch):
        return current
    if current.state is MemberState.UNKNOWN and (owned is None or owned):
        raise error_for(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "the member is in an unknown state; it has to give up its partitions and join again",
        )
    if current.state is MemberState.UNREVOKED_PARTITIONS and _owns_any(owned, current.pending_revocation):
        return current
    return _step(current, target, target_epoch, is_held, owned)


def _step(
    current: CurrentAssignment,
    target: Share,
    target_epoch: int,
    is_held: Callable[[TopicIdPartition], bool],
    owned: Share | None,
) -> CurrentAssignment:
    kept = {each: epoch for each, epoch in current.assigned.items() if each in target}
    surplus = {each: epoch for each, epoch in current.assigned.items() if each not in target}
    if surplus and _owns_any(owned, surplus):
        found, epoch, assigned, pending = Found.MUST_REVOKE, current.member_epoch, kept, surplus
    else:
        missing = [each for each in target if each not in kept]
        free = [each for each in missing if not is_held(each)]
        found = Found.HAS_ALL if len(free) == len(missing) else Found.LACKS_PARTITIONS
        epoch, pending = target_epoch, {}
        assigned = {**kept, **dict.fromkeys(free, target_epoch)}
    after = attrs.evolve(
        current,
        state=next_state(_TABLE, current.state, found, "a member's assignment"),
        member_epoch=epoch,
        previous_member_epoch=current.member_epoch,
        assigned=assigned,
        pending_revocation=pending,
    )
    is_same = attrs.evolve(after, previous_member_epoch=current.previous_member_epoch) == current
    return current if is_same else after


def _owns_any(owned: Share | None, partitions: Held) -> bool:
    """Whether a member may still be reading some of them: it says so, or says nothing."""
    return owned is None or not owned.isdisjoint(partitions)
