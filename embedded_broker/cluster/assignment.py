"""Which brokers keep a new partition: Kafka's striped placement, without racks.

The brokers stand in a circle, in an order drawn for each request; partition after partition begins one place
further and takes as many in a row as there are to be replicas. Brokers that are down serve as followers where
there are not enough others.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from splashdam.embedded_broker.cluster.election import IsEligible
from splashdam.embedded_broker.cluster.reassignment import check_replicas
from splashdam.embedded_broker.cluster.state import ClusterState, PartitionState
from splashdam.model.broker_errors import error_for
from splashdam.model.error_codes import ErrorCode


def placed(partitions: int, replication_factor: int, state: ClusterState, random: Random) -> list[list[int]]:
    """The replicas of each of ``partitions`` partitions, the preferred leader first.

    Raises:
        BrokerResponseError: INVALID_REPLICATION_FACTOR (38): there are fewer brokers, or all are down.
    """
    alive = [node for node in sorted(state.brokers) if not state.brokers[node].is_fenced]
    down = [node for node in sorted(state.brokers) if state.brokers[node].is_fenced]
    if not 0 < replication_factor <= len(state.brokers):
        raise error_for(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {replication_factor}; there are {len(state.brokers)} brokers",
        )
    if not alive:
        raise error_for(ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers are down")
    random.shuffle(alive)
    random.shuffle(down)
    return [
        [*_around(alive, number), *_around(down, number)][:replication_factor] for number in range(partitions)
    ]


def _around(nodes: Sequence[int], first: int) -> list[int]:
    start = first % len(nodes) if nodes else 0
    return [*nodes[start:], *nodes[:start]]


def new_partition(replicas: Sequence[int], state: ClusterState) -> PartitionState:
    """The first state of a partition: everybody that may be is in sync, the first one leads.

    Raises:
        BrokerResponseError: INVALID_REPLICA_ASSIGNMENT (39): as ``check_replicas``, or all are down.
    """
    check_replicas(replicas, state.brokers.__contains__)
    isr = _eligible(replicas, state.is_eligible)
    if not isr:
        raise error_for(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the brokers of the assignment {list(replicas)} are all down or about to end",
        )
    return PartitionState(tuple(replicas), isr, isr[0])


def _eligible(replicas: Sequence[int], is_eligible: IsEligible) -> tuple[int, ...]:
    return tuple(node for node in replicas if is_eligible(node))
