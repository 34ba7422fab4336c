"""The scenario of a seed on brokers that replicate: the same applications, other brokers, further faults.

The further faults are between brokers, and between a broker and the controller.
"""

from __future__ import annotations

from random import Random

import attrs
import trio

from lab.simulator.cluster import BrokerNode
from lab.simulator.faults import FaultMaker
from lab.simulator.network import SimulatedNetwork
from lab.simulator.replicas import ReplicatedCluster, line_name
from lab.simulator.report import RunRecord
from lab.simulator.scenario import (
    FAULTS,
    PlannedFault,
    ProducerPlan,
    ReplicationPlan,
    Scenario,
    in_transactions,
    planned_faults,
    scenario,
)

REPLICA_FAULTS = (
    "isolate",
    "late news",
    "ask in vain",
    "answer lost",
    "kill unnoticed",
    "cut line",
    "slow line",
    "stall line",
    "doom line",
    "preferred",
    "reassign",
)
"""Faults in addition to `FAULTS`.

``isolate``: a broker and the controller do not reach each other. ``late news``: the controller's changes
arrive late. ``ask in vain``: the broker's requests to the controller are lost. ``answer lost``: the answers
are lost, but the controller has acted. ``kill unnoticed``: the controller learns of the kill by the session
timeout alone. ``cut line`` to ``doom line``: faults of connections between brokers. ``preferred``: an
election of preferred leaders. ``reassign``: a reassignment of a partition's replicas.
"""

_TRANSACTIONAL = 0.3


def replicated_scenario(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    plan, random = scenario(seed), Random(f"replicas {seed}")
    nodes = random.choice((1, 2, 3, 3, 3, 3, 4))
    factor, is_durable = min(3, nodes), random.random() < 0.25
    configs = {"min.insync.replicas": str(min(factor, random.choice((1, 2, 2, 2))))}
    if is_durable:
        configs["flush.messages"] = "1"
    kinds = [] if plan.is_calm else random.sample(FAULTS + REPLICA_FAULTS, random.randint(1, 6))
    return attrs.evolve(
        plan,
        nodes=nodes,
        topics=[
            attrs.evolve(topic, replication_factor=factor, configs={**topic.configs, **configs})
            for topic in plan.topics
        ],
        producers=[_producer(random, each) for each in plan.producers],
        faults=planned_faults(random, kinds, nodes, plan.horizon_ms),
        append_errors={} if random.random() < 0.5 else plan.append_errors,
        replication=_replication(random, factor, is_durable=is_durable),
    )


def _producer(random: Random, plan: ProducerPlan) -> ProducerPlan:
    """Return the plan, sometimes with transactions."""
    chance = random.random()
    if plan.is_transactional or chance >= _TRANSACTIONAL:
        return plan
    return in_transactions(plan)


def _replication(random: Random, factor: int, *, is_durable: bool) -> ReplicationPlan:
    settings = {
        "default_replication_factor": factor,
        "replica_lag_time_max_ms": random.choice((400, 2_000, 10_000)),
        "replica_fetch_wait_max_ms": random.choice((20, 200, 500)),
        "replica_fetch_backoff_ms": random.choice((20, 200, 1_000)),
        "replica_fetch_max_bytes": random.choice((400, 1_048_576)),
        "replica_socket_timeout_ms": random.choice((600, 3_000)),
        "transaction_state_log_num_partitions": random.choice((1, 3)),
        "transaction_state_log_replication_factor": factor,
        "transaction_state_log_min_isr": min(2, factor),
    }
    return ReplicationPlan(factor, is_durable, random.choice((100, 600, 2_000)), settings)


class ReplicaFaultMaker(FaultMaker):
    """A `FaultMaker` that makes `REPLICA_FAULTS` as well."""

    def __init__(
        self, scenario: Scenario, cluster: ReplicatedCluster, network: SimulatedNetwork, record: RunRecord
    ) -> None:
        super().__init__(scenario, cluster, network, record)
        self._replicas = cluster
        self._acts |= {
            "isolate": self._isolate,
            "late news": lambda node, _: setattr(cluster.lines[node.node_id], "hears", False),
            "ask in vain": lambda node, _: setattr(cluster.lines[node.node_id], "is_asked", False),
            "answer lost": lambda node, _: setattr(cluster.lines[node.node_id], "answers", False),
            "kill unnoticed": self._kill_unnoticed,
            "cut line": self._cut_line,
            "slow line": self._slow_line,
            "stall line": self._stall_line,
            "doom line": self._doom_line,
            "preferred": lambda _node, _fault: cluster.elect_preferred(),
            "reassign": self._reassign,
        }
        self._ends |= {
            "isolate": cluster.rejoin,
            "late news": cluster.rejoin,
            "ask in vain": cluster.rejoin,
            "answer lost": cluster.rejoin,
            "kill unnoticed": cluster.start,
            "cut line": self._mend_lines,
            "slow line": self._mend_lines,
            "doom line": self._mend_lines,
        }

    # --- the controller -------------------------------------------------------------------------------------

    def _isolate(self, node: BrokerNode, _fault: PlannedFault) -> None:
        """Separate a broker from the controller: it goes on as leader, while another may be elected."""
        line = self._replicas.lines[node.node_id]
        line.hears = line.is_asked = False
        self._replicas.fence_later(node)

    def _kill_unnoticed(self, node: BrokerNode, _fault: PlannedFault) -> None:
        if node.broker is not None:
            self._replicas.lines[node.node_id].is_silent = True
            self._replicas.fence_later(node)
            self._replicas.end(node, "kill")

    def _reassign(self, node: BrokerNode, fault: PlannedFault) -> None:
        nodes = sorted(self._replicas.nodes)
        replicas = [*nodes[node.node_id - 1 :], *nodes[: node.node_id - 1]][: self._replicas.plan.factor]
        partitions = self._replicas.partitions
        self._replicas.reassign(partitions[fault.number % len(partitions)], replicas)

    # --- lines between brokers ------------------------------------------------------------------------------

    def _lines(self, node: BrokerNode, fault: PlannedFault) -> list[str]:
        """Return one of the node's lines to other brokers, or all."""
        names = [line_name(node, other) for other in self._replicas.nodes.values() if other is not node]
        return [names[fault.number % len(names)]] if names and fault.number % 3 else names

    def _cut_line(self, node: BrokerNode, fault: PlannedFault) -> None:
        for name in self._lines(node, fault):
            self._replicas.cut_lines.add(name)
            self._network.cut(name, "both" if fault.number % 2 else "broker")

    def _slow_line(self, node: BrokerNode, fault: PlannedFault) -> None:
        for name in self._lines(node, fault):
            self._network.weather(name).slowest_ms = 20 + fault.number % 700

    def _stall_line(self, node: BrokerNode, fault: PlannedFault) -> None:
        for name in self._lines(node, fault):
            self._network.weather(name).stalled_until = trio.current_time() + fault.for_ms / 1000

    def _doom_line(self, node: BrokerNode, fault: PlannedFault) -> None:
        for name in self._lines(node, fault):
            self._network.weather(name).cut_after_bytes = 200 + fault.number % 3_000
            self._network.cut(name, "both")

    def _mend_lines(self, node: BrokerNode) -> None:
        for other in self._replicas.nodes.values():
            name = line_name(node, other)
            self._replicas.cut_lines.discard(name)
            weather = self._network.weather(name)
            weather.slowest_ms, weather.cut_after_bytes = self._network.distance_ms, 0
