"""The ``uniform`` assignor where members want different topics: as equal as their subscriptions allow."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heapreplace

from splashdam.embedded_broker.groups.consumer.member import Share, TopicIdPartition

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
