"""What one ConsumerGroupHeartbeat does. Pure; the rules are those of Kafka's ``GroupMetadataManager``.

A heartbeat has three effects. A member that joins or changes its subscription increments the group epoch; a
new group epoch leads to a new target assignment; and the member is reconciled one step.

Reconciliation follows Kafka's ``CurrentAssignmentBuilder``. A partition is revoked by one member before
another one gets it, so no two members ever hold it. A member that has to revoke partitions keeps its epoch
until it no longer names them among those that it owns. Then it advances to the epoch of the target
assignment, gets those of its partitions that are free, and waits for the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import auto
from typing import NamedTuple

import attrs

from splashdam.embedded_broker.groups.consumer.assignors import refresh, update_target
from splashdam.embedded_broker.groups.consumer.context import DecisionContext
from splashdam.embedded_broker.groups.consumer.group import CurrentChange, Draft, MetadataChange, TargetChange
from splashdam.embedded_broker.groups.consumer.member import (
    JOINING,
    LEAVING_FOR_A_WHILE,
    ConsumerMember,
    CurrentAssignment,
    Held,
    MemberMetadata,
    MemberState,
    Share,
    TopicIdPartition,
)
from splashdam.embedded_broker.groups.patterns import InvalidPatternError
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, error_for
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.log_text import quoted


class Found(Stage):
    """Result of comparing what a member holds with its target assignment."""

    MUST_REVOKE = auto()
    """It holds partitions that are not in its target assignment."""
    LACKS_PARTITIONS = auto()
    """Other members still hold some of its target assignment."""
    HAS_ALL = auto()
    """It can have its whole target assignment."""


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
    """Return the next current assignment of a member; the same object if nothing changes.

    Args:
        current: its current assignment.
        target: its target assignment.
        target_epoch: the epoch of the target assignment.
        is_held: tells whether any member holds a partition.
        owned: the partitions that the member reports to own; None if it reports none.

    Raises:
        BrokerResponseError: FENCED_MEMBER_EPOCH (110): its state is unknown, so it has to join again.
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
    kept = {each: epoch for each, epoch in current.assigned.items() if each in target}
    surplus = {each: epoch for each, epoch in current.assigned.items() if each not in target}
    # A member may go on reading what it has not reported as revoked, so nobody else gets it yet.
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
    """Whether a member may still be reading some partitions: it reports them, or reports nothing."""
    return owned is None or not owned.isdisjoint(partitions)


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat; None or -1 means: as in the last one.

    Attributes:
        member_id: chosen by the client or, before version 1, by the broker.
        member_epoch: 0 to join, -1 and -2 to leave, otherwise the epoch of the last answer.
        instance_id: of a static member.
        rack_id: of the client.
        rebalance_timeout_ms: how long the member may take to revoke partitions.
        topic_names: topics that it subscribes to.
        topic_regex: the pattern that it subscribes to, empty to unsubscribe.
        server_assignor: the assignor that it prefers.
        owned: the partitions that it owns.
        client_id: of its client.
        client_host: address of its client.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Share | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether it names everything, as after joining or an error; its answer then names the assignment."""
        says_topics = self.topic_names is not None or self.topic_regex is not None
        says_all = self.rebalance_timeout_ms != -1 and says_topics and self.owned is not None
        return self.member_epoch == JOINING or says_all


class HeartbeatOutcome(NamedTuple):
    """The answer to a heartbeat.

    Attributes:
        member: its new state.
        assigned: its partitions, if they have changed or the heartbeat was full.
    """

    member: ConsumerMember
    assigned: Held | None


def apply_heartbeat(draft: Draft, asked: Heartbeat, context: DecisionContext) -> HeartbeatOutcome:
    """Handle the heartbeat of a client that joins or is a member.

    Raises:
        BrokerResponseError: UNKNOWN_MEMBER_ID (25), FENCED_MEMBER_EPOCH (110), UNRELEASED_INSTANCE_ID (111),
            FENCED_INSTANCE_ID (82), GROUP_MAX_SIZE_REACHED (81), INVALID_REGULAR_EXPRESSION (128).
    """
    check_size(draft, asked.member_id, context)
    before = _member(draft, asked)
    has_changed = asked.member_id not in draft.group.members
    has_changed |= _update_metadata(draft, before, asked, context)
    refresh(draft, context, has_changed=has_changed)
    update_target(draft, context)
    step(draft, asked.member_id, asked.owned)
    after = draft.group.members[asked.member_id]
    is_news = after.current.assigned.keys() != before.current.assigned.keys()
    return HeartbeatOutcome(after, after.current.assigned if asked.is_full or is_news else None)


def check_size(draft: Draft, member_id: str, context: DecisionContext) -> None:
    """Check that the group has room for a new member.

    Raises:
        BrokerResponseError: GROUP_MAX_SIZE_REACHED (81).
    """
    if len(draft.group.members) >= context.max_size and member_id not in draft.group.members:
        raise error_for(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {context.max_size} members, the maximum"
        )


def step(draft: Draft, member_id: str, owned: Share | None) -> None:
    """Reconcile a member one step towards its target assignment."""
    group = draft.group
    current = group.members[member_id].current
    after = reconcile(
        current,
        group.share_of(member_id),
        group.assignment_epoch,
        is_held=group.is_held,
        owned=owned,
    )
    if after is not current:
        draft.change(CurrentChange(member_id, after))


def leave(draft: Draft, asked: Heartbeat, context: DecisionContext) -> None:
    """Remove a member, or mark a static member as away.

    Raises:
        BrokerResponseError: UNKNOWN_MEMBER_ID (25), FENCED_INSTANCE_ID (82).
    """
    if asked.instance_id is None:
        member = draft.group.member(asked.member_id)
    else:
        member = _static_member(draft, asked.instance_id, asked.member_id)
    if asked.member_epoch == LEAVING_FOR_A_WHILE:
        away = attrs.evolve(member.current, member_epoch=LEAVING_FOR_A_WHILE, pending_revocation={})
        draft.change(CurrentChange(member.member_id, away))
    else:
        fence(draft, member.member_id, context)


def fence(draft: Draft, member_id: str, context: DecisionContext) -> None:
    """Remove a member; its partitions are free at once and assigned with the next heartbeat."""
    _remove(draft, member_id)
    refresh(draft, context, has_changed=True)


def _remove(draft: Draft, member_id: str) -> None:
    draft.change(
        CurrentChange(member_id, None), TargetChange(member_id, None), MetadataChange(member_id, None)
    )


def _member(draft: Draft, asked: Heartbeat) -> ConsumerMember:
    """Return the sender of a heartbeat; a new member is not in the group yet."""
    is_joining = asked.member_epoch == JOINING
    if asked.instance_id is None:
        # A member joins under its id a second time if the first answer was lost; it keeps what it has.
        known = draft.group.members.get(asked.member_id) if is_joining else None
        member = known or (
            ConsumerMember(asked.member_id) if is_joining else draft.group.member(asked.member_id)
        )
    elif not is_joining:
        member = _static_member(draft, asked.instance_id, asked.member_id)
    else:
        previous = draft.group.static_member(asked.instance_id)
        if previous is None:
            return draft.group.members.get(asked.member_id) or ConsumerMember(asked.member_id)
        return replace_static(draft, previous, asked.member_id)
    _check_epoch(member, asked)
    return member


def replace_static(
    draft: Draft, previous: ConsumerMember, member_id: str, *, is_released: bool = False
) -> ConsumerMember:
    """Replace a static member that restarted: the new member id takes over its assignment.

    Args:
        draft: of the group.
        previous: the member with the instance id.
        member_id: the new member id.
        is_released: the previous member need not have left, as one of both speaks the classic protocol.

    Raises:
        BrokerResponseError: UNRELEASED_INSTANCE_ID (111): the previous member has not left.
    """
    instance_id = previous.metadata.instance_id
    has_left = previous.current.member_epoch == LEAVING_FOR_A_WHILE
    # Two running clients with one instance id would fence each other in turn.
    if not (has_left or is_released or previous.is_classic):
        raise error_for(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"instance id {quoted(instance_id)} is in use by member {quoted(previous.member_id)}, "
            "which has not left",
        )
    share = draft.group.share_of(previous.member_id)
    current = attrs.evolve(previous.current, member_epoch=JOINING, previous_member_epoch=JOINING)
    _remove(draft, previous.member_id)
    draft.change(
        MetadataChange(member_id, previous.metadata),
        TargetChange(member_id, share),
        CurrentChange(member_id, current),
    )
    return draft.group.members[member_id]


def _static_member(draft: Draft, instance_id: str, member_id: str) -> ConsumerMember:
    member = draft.group.static_member(instance_id)
    if member is None:
        raise error_for(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {quoted(draft.group.group_id)} has no member with instance id {quoted(instance_id)}",
        )
    if member.member_id != member_id:
        raise error_for(
            ErrorCode.FENCED_INSTANCE_ID,
            f"instance id {quoted(instance_id)} belongs to member {quoted(member.member_id)} now, "
            f"not to {quoted(member_id)}",
        )
    return member


def _check_epoch(member: ConsumerMember, asked: Heartbeat) -> None:
    """Check the member epoch of a heartbeat."""
    current, epoch = member.current, asked.member_epoch
    if epoch in (JOINING, current.member_epoch):
        return
    # The answer with the new epoch may have been lost; then the member owns nothing that it has to revoke.
    is_repeat = epoch == current.previous_member_epoch < current.member_epoch
    if not is_repeat or asked.owned is None or not asked.owned <= current.assigned.keys():
        raise error_for(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"member {quoted(member.member_id)} comes with epoch {epoch} and is at "
            f"{current.member_epoch}; it has to give up its partitions and join again",
        )


def _update_metadata(
    draft: Draft, member: ConsumerMember, asked: Heartbeat, context: DecisionContext
) -> bool:
    """Update the member's metadata; return whether its subscription has changed."""
    before = member.metadata
    after = MemberMetadata(
        instance_id=_or(asked.instance_id, before.instance_id),
        rack_id=_or(asked.rack_id, before.rack_id),
        client_id=asked.client_id,
        client_host=asked.client_host,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if asked.rebalance_timeout_ms == -1 else asked.rebalance_timeout_ms
        ),
        topic_names=(
            before.topic_names if asked.topic_names is None else draft.group.known_names(asked.topic_names)
        ),
        topic_regex=_or(asked.topic_regex, before.topic_regex),
        server_assignor=_or(asked.server_assignor, before.server_assignor),
    )
    if after.topic_regex and after.topic_regex != before.topic_regex:
        check_pattern(after.topic_regex, context)
    if after != before or member.member_id not in draft.group.members:
        draft.change(MetadataChange(member.member_id, after))
    return (after.topic_names, after.topic_regex) != (before.topic_names, before.topic_regex)


def check_pattern(regex: str, context: DecisionContext) -> None:
    """Check a pattern: it must be valid, and not take too many steps to match.

    Raises:
        BrokerResponseError: INVALID_REGULAR_EXPRESSION (128).
    """
    try:
        context.matches.matching(regex, frozenset(context.topics.names()))
    except InvalidPatternError as error:
        raise _invalid_pattern(regex, error) from error


def _invalid_pattern(regex: str, error: InvalidPatternError) -> BrokerResponseError:
    return error_for(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex {quoted(regex)} is not a valid regular expression: {error}",
    )


def _or(value: str | None, known: str | None) -> str | None:
    return known if value is None else value
