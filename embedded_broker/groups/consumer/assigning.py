"""From what members want and what there is of it to a target assignment: the two epochs of a group."""

from __future__ import annotations

from collections import Counter

from splashdam.embedded_broker.groups.consumer.assignors import ASSIGNORS, Candidate
from splashdam.embedded_broker.groups.consumer.changes import (
    GroupEpochChange,
    RegexChange,
    ResolvedRegex,
    TargetChange,
    TargetEpochChange,
    TopicsChange,
)
from splashdam.embedded_broker.groups.consumer.group import ConsumerGroup, Draft
from splashdam.embedded_broker.groups.consumer.world import World
from splashdam.embedded_broker.groups.pattern_parsing import InvalidPatternError


def refresh(draft: Draft, world: World, *, has_changed: bool = False) -> None:
    """Moves the group epoch where members want something else, or there is something else to have.

    Args:
        draft: of the group.
        world: what there is.
        has_changed: a member came, left, or wants something else.
    """
    _resolve_patterns(draft, world)
    topics = world.topics.shapes(draft.group.subscribed_names())
    if topics != draft.group.topics:
        draft.change(TopicsChange(topics))
        has_changed = True
    if has_changed:
        draft.change(GroupEpochChange(draft.group.epoch + 1))


def _resolve_patterns(draft: Draft, world: World) -> None:
    """Looks which topics match; a pattern that has become too costly keeps those that it had."""
    regexes = draft.group.regexes_in_use()
    for regex in draft.group.regexes.keys() - regexes:
        draft.change(RegexChange(regex, None))
    if not regexes:
        return
    names = frozenset(world.topics.names())
    for regex in sorted(regexes):
        known = draft.group.regexes.get(regex)
        try:
            found = world.matches.matching(regex, names)
        except InvalidPatternError:
            continue
        if known is None or known.topics != found:
            draft.change(RegexChange(regex, ResolvedRegex(found, world.wall_ms)))
    world.matches.keep_only(regexes)


def update_target(draft: Draft, world: World) -> None:
    """Computes the target assignment where the group epoch has moved since the last one."""
    group = draft.group
    if group.epoch <= group.assignment_epoch:
        return
    candidates = {
        member_id: Candidate(
            frozenset(
                group.topics[name].topic_id
                for name in group.subscription_of(member.metadata)
                if name in group.topics
            ),
            group.share_of(member_id),
            member.metadata.instance_id,
        )
        for member_id, member in group.members.items()
    }
    partitions = {shape.topic_id: shape.partitions for shape in group.topics.values()}
    shares = ASSIGNORS[assignor_of(group, world)](candidates, partitions)
    draft.change(
        *(
            TargetChange(member_id, share)
            for member_id, share in shares.items()
            if group.target.get(member_id) != share
        ),
        TargetEpochChange(group.epoch),
    )


def assignor_of(group: ConsumerGroup, world: World) -> str:
    """The assignor that most members ask for, the broker's default where none does."""
    wanted = Counter(
        member.metadata.server_assignor
        for member in group.members.values()
        if member.metadata.server_assignor in world.assignors
    )
    return next((name for name, _ in wanted.most_common(1) if name), world.assignors[0])
