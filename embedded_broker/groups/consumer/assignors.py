"""Who gets what: the server-side assignors ``uniform`` and ``range``, by Kafka's rules.

Both see the group as it was last assigned. ``range`` gives neighbouring partitions, the same numbers of all
topics with equally many to the same member; ``uniform`` gives everybody equally many and moves few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice

import attrs

from splashdam.embedded_broker.groups.consumer.member import NOTHING, Share, TopicIdPartition
from splashdam.embedded_broker.groups.consumer.uneven import assign_uneven


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
