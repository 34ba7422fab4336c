"""What a seed means on brokers that replicate: the same applications, other brokers, further faults."""

from __future__ import annotations

from random import Random

import attrs

from splashdam.testing.simulator.scenario import (
    FAULTS,
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
"""Beside those of `FAULTS`."""

_TRANSACTIONAL = 0.3


def replicated_scenario(seed: int) -> Scenario:
    """Draws the run of a seed."""
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
        troubles={} if random.random() < 0.5 else plan.troubles,
        replication=_replication(random, factor, is_durable=is_durable),
    )


def _producer(random: Random, plan: ProducerPlan) -> ProducerPlan:
    """Some in transactions, also where brokers are several; the others as they are."""
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
