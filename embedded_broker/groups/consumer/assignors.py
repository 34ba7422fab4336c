"""The server-side assignors ``uniform`` and ``range`` by Kafka's rules, and the target assignment.

Both start from the previous target assignment. ``range`` gives each member neighbouring partitions, the same
numbers in topics with equally many partitions. ``uniform`` gives all members equally many and moves few; if
they subscribe to different topics, the loads are as equal as the subscriptions allow.

``refresh`` increments the group epoch, ``update_target`` computes the target assignment for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heapreplace
from itertools import chain, islice

import attrs

from splashdam.embedded_broker.groups.consumer.context import DecisionContext
from splashdam.embedded_broker.groups.consumer.group import (
    ConsumerGroup,
    Draft,
    GroupEpochChange,
    RegexChange,
    ResolvedRegex,
    TargetChange,
    TargetEpochChange,
    TopicsChange,
)
from splashdam.embedded_broker.groups.consumer.member import NOTHING, Share, TopicIdPartition
from splashdam.embedded_broker.groups.patterns import InvalidPatternError


@attrs.frozen
class Candidate:
    """A member as an assignor sees it.

    Attributes:
        topic_ids: existing topics that it subscribes to.
        share: its previous target assignment.
        instance_id: of a static member.
    """

    topic_ids: frozenset[bytes]
    share: Share = NOTHING
    instance_id: str | None = None


Members = Mapping[str, Candidate]
Partitions = Mapping[bytes, int]
"""Number of partitions by topic id."""


def assign_range(members: Members, partitions: Partitions) -> dict[str, Share]:
    """Assign each topic in ranges to its subscribers: static ones by instance id come first."""
    order = sorted(
        members, key=lambda each: (members[each].instance_id is None, members[each].instance_id or each)
    )
    shares: dict[str, set[TopicIdPartition]] = {each: set() for each in members}
    for topic_id in _topics(members.values()):
        subscribers = [each for each in order if topic_id in members[each].topic_ids]
        quota, extra = divmod(partitions[topic_id], len(subscribers))
        start = 0
        for number, member_id in enumerate(subscribers):
            end = start + quota + (number < extra)
            shares[member_id].update(TopicIdPartition(topic_id, each) for each in range(start, end))
            start = end
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def assign_uniform(members: Members, partitions: Partitions) -> dict[str, Share]:
    """Assign equally many partitions to all members, with few moves."""
    if len({each.topic_ids for each in members.values()}) > 1:
        return assign_uneven(
            {member_id: each.topic_ids for member_id, each in members.items()},
            {member_id: each.share for member_id, each in members.items()},
            partitions,
        )
    return _assign_even(members, partitions)


def _assign_even(members: Members, partitions: Partitions) -> dict[str, Share]:
    """Assign to members with equal subscriptions: each keeps what is within its quota."""
    if not members:
        return {}
    wanted = {
        TopicIdPartition(topic_id, number)
        for topic_id in _topics(members.values())
        for number in range(partitions[topic_id])
    }
    quota, extra = divmod(len(wanted), len(members))
    shares: dict[str, list[TopicIdPartition]] = {}
    room: dict[str, int] = {}
    for member_id, candidate in members.items():
        kept = sorted(candidate.share & wanted, key=lambda each: (each.partition, each.topic_id))
        limit = quota
        # Who has one more than the quota keeps it, as long as such shares are left: fewer partitions move.
        if extra and len(kept) > quota:
            limit, extra = quota + 1, extra - 1
        shares[member_id], room[member_id] = kept[:limit], limit - len(kept[:limit])
    left = iter(sorted(wanted.difference(chain.from_iterable(shares.values()))))
    for member_id in members:
        if extra and len(shares[member_id]) + room[member_id] == quota:
            room[member_id], extra = room[member_id] + 1, extra - 1
        shares[member_id] += islice(left, room[member_id])
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _topics(members: Iterable[Candidate]) -> list[bytes]:
    return sorted(frozenset[bytes]().union(*(each.topic_ids for each in members)))


ASSIGNORS: Mapping[str, Callable[[Members, Partitions], dict[str, Share]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
"""Assignors by the name that clients and ``group.consumer.assignors`` use."""


_MOST_ROUNDS = 16


def assign_uneven(
    wanted: Mapping[str, frozenset[bytes]], shares: Mapping[str, Share], partitions: Mapping[bytes, int]
) -> dict[str, Share]:
    """Assign to members with different subscriptions.

    Each member keeps what it still subscribes to; then unassigned partitions, and moves, even out the loads
    topic by topic.

    Args:
        wanted: topics of each member.
        shares: previous target assignment of each member.
        partitions: number of partitions of each topic.
    """
    loads = _Loads(wanted, shares, partitions)
    for topic_id in loads.topics:
        loads.hand_out(topic_id, partitions[topic_id])
    for _ in range(_MOST_ROUNDS):
        moved = sum(loads.even_out(topic_id) for topic_id in loads.topics)
        if not moved:
            break
    return {member_id: frozenset(held) for member_id, held in loads.held.items()}


class _Loads:
    """The partitions that each member has so far.

    Attributes:
        topics: subscribed topics, those with most partitions per subscriber first: topics with many
            subscribers can then level out the differences that topics with few made.
        held: partitions by member.
    """

    def __init__(
        self,
        wanted: Mapping[str, frozenset[bytes]],
        shares: Mapping[str, Share],
        partitions: Mapping[bytes, int],
    ) -> None:
        self._subscribers: dict[bytes, list[str]] = {}
        for member_id, topic_ids in wanted.items():
            for topic_id in topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member_id)
        self.topics = sorted(
            self._subscribers,
            key=lambda each: (
                -partitions[each] / len(self._subscribers[each]),
                len(self._subscribers[each]),
                each,
            ),
        )
        self.held = {
            member_id: {
                each
                for each in shares[member_id]
                if each.topic_id in topic_ids and each.partition < partitions[each.topic_id]
            }
            for member_id, topic_ids in wanted.items()
        }

    def _size(self, member_id: str) -> int:
        return len(self.held[member_id])

    def hand_out(self, topic_id: bytes, count: int) -> None:
        """Give the unassigned partitions of a topic, one by one, to the subscriber with the lowest load."""
        subscribers = self._subscribers[topic_id]
        taken = {
            each.partition for one in subscribers for each in self.held[one] if each.topic_id == topic_id
        }
        loads = [(self._size(one), place) for place, one in enumerate(subscribers)]
        heapify(loads)
        for number in range(count):
            if number not in taken:
                size, place = loads[0]
                self.held[subscribers[place]].add(TopicIdPartition(topic_id, number))
                heapreplace(loads, (size + 1, place))

    def even_out(self, topic_id: bytes) -> bool:
        """Move partitions of a topic from the highest to the lowest load; return whether any moved."""
        subscribers, has_moved = self._subscribers[topic_id], False
        own = {
            one: sorted(each for each in self.held[one] if each.topic_id == topic_id) for one in subscribers
        }
        while givers := [one for one in subscribers if own[one]]:
            rich, poor = max(givers, key=self._size), min(subscribers, key=self._size)
            if self._size(rich) - self._size(poor) <= 1:
                break
            partition = own[rich].pop()
            self.held[rich].discard(partition)
            self.held[poor].add(partition)
            own[poor].append(partition)
            has_moved = True
        return has_moved


def refresh(draft: Draft, context: DecisionContext, *, has_changed: bool = False) -> None:
    """Increment the group epoch if subscriptions or the subscribed topics have changed.

    Args:
        draft: of the group.
        context: topics and settings.
        has_changed: a member has joined, left, or changed its subscription.
    """
    _resolve_patterns(draft, context)
    topics = context.topics.shapes(draft.group.subscribed_names())
    if topics != draft.group.topics:
        draft.change(TopicsChange(topics))
        has_changed = True
    if has_changed:
        draft.change(GroupEpochChange(draft.group.epoch + 1))


def _resolve_patterns(draft: Draft, context: DecisionContext) -> None:
    """Match the patterns in use; one that has become too expensive keeps its topics."""
    regexes = draft.group.regexes_in_use()
    for regex in draft.group.regexes.keys() - regexes:
        draft.change(RegexChange(regex, None))
    if not regexes:
        return
    names = frozenset(context.topics.names())
    for regex in sorted(regexes):
        known = draft.group.regexes.get(regex)
        try:
            found = context.matches.matching(regex, names)
        except InvalidPatternError:
            continue
        if known is None or known.topics != found:
            draft.change(RegexChange(regex, ResolvedRegex(found, context.wall_ms)))
    context.matches.keep_only(regexes)


def update_target(draft: Draft, context: DecisionContext) -> None:
    """Compute the target assignment if the group epoch is newer than the last one."""
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
    shares = ASSIGNORS[assignor_of(group, context)](candidates, partitions)
    draft.change(
        *(
            TargetChange(member_id, share)
            for member_id, share in shares.items()
            if group.target.get(member_id) != share
        ),
        TargetEpochChange(group.epoch),
    )


def assignor_of(group: ConsumerGroup, context: DecisionContext) -> str:
    """Return the assignor that most members prefer, the broker's default if none does."""
    wanted = Counter(
        member.metadata.server_assignor
        for member in group.members.values()
        if member.metadata.server_assignor in context.assignors
    )
    return next((name for name, _ in wanted.most_common(1) if name), context.assignors[0])
