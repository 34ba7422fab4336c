"""Which brokers keep a new partition: Kafka's striped placement, rack by rack (its ``StripedReplicaPlacer``).

The racks stand in a circle. Partition after partition begins one rack further, and takes a broker of each
rack in turn until there are as many replicas as asked. Within a rack the brokers stand in a circle, too. So
the replicas of a partition are on as many racks as there can be. Brokers without a rack are a rack together;
where none has one, there is a single circle of all brokers. Brokers that are down never lead, and follow only
where their rack has no other left.
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
    """The replicas of each of ``partitions`` new partitions, the preferred leader first.

    Args:
        partitions: how many.
        replication_factor: replicas of each.
        state: the brokers.
        random: says where the circles begin.
        behind: replicas of the partitions that the topic has already; the circles go on where these ended.

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
    """Brokers of one rack that are taken in turn, each once for a partition."""

    def __init__(self, nodes: list[int], start: int) -> None:
        self.nodes = nodes
        self._start = start
        self._turn = 0
        self._taken = 0

    def take(self, turn: int) -> int | None:
        """The next one for the partition of this turn, None where all are taken."""
        if turn != self._turn:
            self._turn, self._taken, self._start = turn, 0, self._start + 1
        if self._taken >= len(self.nodes):
            return None
        node = self.nodes[(self._start + self._taken) % len(self.nodes)]
        self._taken += 1
        return node


class _Stripes:
    """All racks, each with a circle of the brokers that are up, and one of those that are down."""

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
        """The brokers of one more partition."""
        if self._turn and self._brokers_up > 1 and self._turn % self._brokers_up == 0:
            self._shuffle()  # or the same brokers would be together again and again
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
        """Round after round until no broker is left; the first round passes the leader's rack by."""
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
