"""Who gets what: the server-side assignors ``uniform`` and ``range``, by Kafka's rules.

Both see the group as it was last assigned. ``range`` gives neighbouring partitions, the same numbers of all
topics with equally many to the same member; ``uniform`` gives everybody equally many and moves few.

The ``uniform`` assignor where members want different topics: as equal as their subscriptions allow.

From what members want and what there is of it to a target assignment: the two epochs of a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heapreplace
from itertools import chain, islice

import attrs

from splashdam.embedded_broker.groups.consumer.context import World
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
        topic_ids: what it subscribes to and is there.
        share: what it was assigned last.
        instance_id: of a static member.
    """

    topic_ids: frozenset[bytes]
    share: Share = NOTHING
    instance_id: str | None = None


Members = Mapping[str, Candidate]
Partitions = Mapping[bytes, int]
"""How many partitions each topic has, by id."""


def assign_range(members: Members, partitions: Partitions) -> dict[str, Share]:
    """Each topic in ranges for its members in order: static ones by instance id, others by member id."""
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
    """Equally many for everybody, as far as members want the same topics; and few moves."""
    if len({each.topic_ids for each in members.values()}) > 1:
        return assign_uneven(
            {member_id: each.topic_ids for member_id, each in members.items()},
            {member_id: each.share for member_id, each in members.items()},
            partitions,
        )
    return _assign_even(members, partitions)


def _assign_even(members: Members, partitions: Partitions) -> dict[str, Share]:
    """All want the same topics: everybody keeps what is within the quota; who has less gets what is left."""
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
"""By the name that clients and ``group.consumer.assignors`` use."""


_MOST_ROUNDS = 16


def assign_uneven(
    wanted: Mapping[str, frozenset[bytes]], shares: Mapping[str, Share], partitions: Mapping[bytes, int]
) -> dict[str, Share]:
    """Everybody keeps what it still wants; then what is left, and moves, even out the loads topic by topic.

    Args:
        wanted: the topics of each member.
        shares: what it was assigned last.
        partitions: how many each topic has.
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
    """What everybody has so far.

    Attributes:
        topics: those that somebody wants; what has most partitions for each subscriber first, so that topics
            that many share can level out what topics of few made uneven.
        held: by member.
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
        """What nobody has of a topic goes, one by one, to who has least."""
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
        """Moves partitions of a topic from who has most to who has least; whether any moved."""
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
