"""Brokers that are killed, stopped, cut off, started again while producers send: what acks=all is worth."""

from __future__ import annotations

from random import Random

import pytest
import trio
from support.broker.broker_talk import batch, produce
from support.broker.cluster_kit import NODES, T0, Cluster, open_cluster
from trio.testing import MockClock

from splashdam.embedded_broker.controller.election import moved
from splashdam.model.broker_errors import BrokerResponseError

STEPS = 15


async def send_for_ever(cluster: Cluster, name: int, acknowledged: list[bytes]) -> None:
    """Sends one record after the other to the present leader; unacknowledged records are not sent again."""
    number = 0
    while True:
        number += 1
        value = b"%d.%d" % (name, number)
        try:
            with trio.move_on_after(3):
                talk = await cluster.talk(cluster.state.leader)
                if (await produce(talk, "t", batch(value))).error_code == 0:
                    acknowledged.append(value)
                await talk.stream.aclose()
        except (AssertionError, KeyError, EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # nobody leads, or not any more
        await trio.sleep(0.3)


async def make_trouble(cluster: Cluster, random: Random, *, may_cut_power: bool) -> None:
    """One thing that happens."""
    up = [node_id for node_id in NODES if cluster.nodes[node_id].is_up]
    down = [node_id for node_id in NODES if node_id not in up]
    kind = random.choice(["end", "start", "cut", "join", "move", "wait", "line"])
    if kind == "end" and len(up) > 1:
        power_cut = random if may_cut_power and random.random() < 0.5 else None
        await cluster.nodes[random.choice(up)].end(kill=random.random() < 0.7, power_cut=power_cut)
    elif kind == "start" and down:
        await cluster.start(random.choice(down))
    elif kind == "cut":
        cluster.cut(*random.sample(NODES, 2))
    elif kind == "join":
        cluster.join()
    elif kind == "line":
        line = cluster.lines[random.choice(NODES)]
        line.is_cut, line.is_deaf = random.random() < 0.3, random.random() < 0.3
    elif kind == "move":
        try:
            after = moved(cluster.state, random.choice(NODES), cluster.controller.state.is_eligible)
            cluster.controller.change_partitions({T0: after})
        except BrokerResponseError:
            pass  # it is not in sync
    await trio.sleep(random.choice([0.0, 0.1, 1, 5]))


async def storm(mock_clock: MockClock, seed: int) -> None:
    """Nothing that was acknowledged by all is missing, and all replicas are the same in the end."""
    random = Random(seed)
    acknowledged: list[bytes] = []
    settings = {"replica_lag_time_max_ms": random.choice([1_000, 10_000])}
    configs = {"min_insync_replicas": str(random.choice([1, 2])), "segment_bytes": "1000"}
    is_synced = random.random() < 0.5
    if is_synced:
        configs["flush_messages"] = "1"  # what a power cut leaves of other logs proves nothing
    async with open_cluster(mock_clock, **settings) as cluster:
        cluster.create(*NODES, **configs)
        async with trio.open_nursery() as nursery:
            for name in range(2):
                nursery.start_soon(send_for_ever, cluster, name, acknowledged)
            for _ in range(STEPS):
                await make_trouble(cluster, random, may_cut_power=is_synced)
            nursery.cancel_scope.cancel()
        cluster.join()
        for line in cluster.lines.values():
            line.is_cut = line.is_deaf = False
        for node_id in NODES:
            if not cluster.nodes[node_id].is_up:
                await cluster.start(node_id)
        await cluster.settle(40)
        assert set(cluster.state.isr) == set(NODES)
        first = cluster.values(1, up_to_high_watermark=True)
        assert set(acknowledged) <= set(first)
        for node_id in NODES:
            assert cluster.values(node_id) == cluster.values(node_id, up_to_high_watermark=True) == first


@pytest.mark.parametrize("seed", range(2))
async def test_records_with_acks_all_survive_a_storm(autojump_clock: MockClock, seed: int) -> None:
    """Kills, power cuts, cut lines, questions and answers of the controller that get lost, other leaders."""
    await storm(autojump_clock, seed)
