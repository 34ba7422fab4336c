"""Several brokers share one place for faults: each can be meant, and followers go on following."""

from __future__ import annotations

from support.broker.cluster_kit import Cluster, open_cluster
from trio.testing import MockClock

from splashdam.embedded_broker.serving.dispatch import Interception
from splashdam.model.broker_errors import ErrorCode
from splashdam.testing.faults.faults import Faults

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


def faults_of(cluster: Cluster) -> Faults:
    shared = Interception()
    for node in cluster.nodes.values():
        node.broker.interception = shared
    return Faults(shared)


async def test_one_broker_of_three(autojump_clock: MockClock) -> None:
    """A fault of one broker harms no other, and stays where it is when the leader moves away."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        faults = faults_of(cluster)
        faults.produce(broker=1, error=STORAGE)
        with faults.requests.start() as requests:
            assert await cluster.produce(b"a") == STORAGE
            await cluster.nodes[1].end()
            assert cluster.leader.node_id != 1
            assert await cluster.produce(b"b") == 0
        assert [(each.broker, each.errors) for each in requests.of("produce")] == [
            (1, ("KAFKA_STORAGE_ERROR",)),
            (cluster.leader.node_id, ()),
        ]
        assert cluster.values(cluster.leader.node_id) == [b"b"]


async def test_followers_follow_through_faults(autojump_clock: MockClock) -> None:
    """Faults for clients, even for any request, do not apply to followers, whose requests are not logged."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        faults = faults_of(cluster)
        faults.fetch(topic="t", error=STORAGE)
        faults.any_request(drop="before", on_call=2)
        with faults.requests.start() as requests:
            assert await cluster.produce(b"a") == 0
            await cluster.settle()
            assert requests.of("fetch") == []
        assert [cluster.values(node_id) for node_id in (1, 2, 3)] == [[b"a"]] * 3
        assert set(cluster.state.isr) == {1, 2, 3}


async def test_followers_that_are_meant(autojump_clock: MockClock) -> None:
    """Then replication stops: not all replicas have what was acknowledged by the leader alone."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        faults = faults_of(cluster)
        requests = faults.requests.start(from_brokers=True)
        with faults.fetch(error=STORAGE, from_brokers=True) as fault:
            assert await cluster.produce(b"a", acks=1) == 0
            await cluster.settle()
            assert cluster.values(2) == cluster.values(3) == []
            assert fault.hits > 1
            assert requests.of("fetch", client_id="broker-*-fetcher-1")
        await cluster.settle()
        assert cluster.values(2) == cluster.values(3) == [b"a"]
