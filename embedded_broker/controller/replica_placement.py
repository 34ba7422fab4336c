"""Placement of new replicas, rack by rack, as Kafka's ``StripedReplicaPlacer``.

Racks form a circle, and so do the brokers of each rack. Each partition begins one rack further than the one
before, and takes a broker from each rack in turn until it has enough replicas. So its replicas are on as many
racks as possible. Brokers without a rack count as one rack. A fenced broker never becomes leader, and becomes
a follower only if its rack has no other broker left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random

from splashdam.embedded_broker.controller.state import ClusterState
from splashdam.model.broker_errors import ErrorCode, error_for


def placed(
    partitions: int,
    replication_factor: int,
    state: ClusterState,
    random: Random,
    *,
    behind: Sequence[Sequence[int]] = (),
) -> list[list[int]]:
    """Return the replicas of each of ``partitions`` new partitions, the preferred leader first.

    Args:
        partitions: number of new partitions.
        replication_factor: replicas of each.
        state: the cluster, for its brokers.
        random: draws where the circles begin.
        behind: replicas of the topic's existing partitions; the circles continue after the last of them.

    Raises:
        BrokerResponseError: INVALID_REPLICATION_FACTOR (38): there are fewer brokers, or all are down.
    """
    if not 0 < replication_factor <= len(state.brokers):
        raise error_for(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {replication_factor}; there are {len(state.brokers)} brokers",
        )
    if all(broker.is_fenced for broker in state.brokers.values()):
        raise error_for(ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers are down")
    if len(state.brokers) == 1:
        return [list(state.brokers)] * partitions
    stripes = _Stripes(state, random, behind)
    return [stripes.next_replicas(replication_factor) for _ in range(partitions)]


class _Circle:
    """Brokers of one rack, taken in turn, each at most once for a partition."""

    def __init__(self, nodes: list[int], start: int) -> None:
        self.nodes = nodes
        self._start = start
        self._turn = 0
        self._taken = 0

    def take(self, turn: int) -> int | None:
        """Return the next broker for the partition of this turn; None if all are taken."""
        if turn != self._turn:
            self._turn, self._taken, self._start = turn, 0, self._start + 1
        if self._taken >= len(self.nodes):
            return None
        node = self.nodes[(self._start + self._taken) % len(self.nodes)]
        self._taken += 1
        return node


class _Stripes:
    """All racks, each with a circle of its unfenced brokers and one of its fenced brokers."""

    def __init__(self, state: ClusterState, random: Random, behind: Sequence[Sequence[int]]) -> None:
        self._random = random
        self._racks = sorted({each.rack or "" for each in state.brokers.values()})
        self._up, self._down = (
            {rack: _circle(rack, state, random, behind, is_fenced) for rack in self._racks}
            for is_fenced in (False, True)
        )
        self._brokers_up = sum(len(circle.nodes) for circle in self._up.values())
        self._turn = 0
        self._first = random.randrange(len(self._racks))
        last = state.brokers.get(behind[-1][0]) if behind and behind[-1] else None
        if last is not None:
            self._first = self._racks.index(last.rack or "") + 1

    def next_replicas(self, replication_factor: int) -> list[int]:
        """Return the replicas of one more partition."""
        if self._turn and self._brokers_up > 1 and self._turn % self._brokers_up == 0:
            self._shuffle()  # otherwise the same brokers would share partitions again and again
        leader_rack, leader = next(self._leaders())
        followers = islice(self._followers(leader_rack), replication_factor - 1)
        replicas = [leader, *followers]
        self._turn += 1
        self._first += 1
        return replicas

    def _around(self) -> Iterator[str]:
        count = len(self._racks)
        return (self._racks[(self._first + step) % count] for step in range(count))

    def _leaders(self) -> Iterator[tuple[str, int]]:
        for rack in self._around():
            node = self._up[rack].take(self._turn)
            if node is not None:
                yield rack, node

    def _followers(self, leader_rack: str) -> Iterator[int]:
        """Yield brokers round after round until none is left; the first round skips the leader's rack."""
        passed_by: str | None = leader_rack
        is_one_left = True
        while is_one_left:
            is_one_left = passed_by is not None
            for rack in self._around():
                if rack == passed_by:
                    continue
                node = self._up[rack].take(self._turn)
                if node is None:
                    node = self._down[rack].take(self._turn)
                if node is not None:
                    is_one_left = True
                    yield node
            passed_by = None

    def _shuffle(self) -> None:
        self._random.shuffle(self._racks)
        for circle in (*self._up.values(), *self._down.values()):
            self._random.shuffle(circle.nodes)


def _circle(
    rack: str, state: ClusterState, random: Random, behind: Sequence[Sequence[int]], is_fenced: bool
) -> _Circle:
    members = {node for node, each in state.brokers.items() if (each.rack or "") == rack}
    nodes = sorted(node for node in members if state.brokers[node].is_fenced is is_fenced)
    start = random.randrange(len(nodes)) if nodes else 0
    if not is_fenced:
        last = next((node for replicas in reversed(behind) for node in replicas if node in members), None)
        if last in nodes:
            start = nodes.index(last) + 1
    return _Circle(nodes, start)
