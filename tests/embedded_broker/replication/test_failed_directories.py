"""A data directory of one broker of a cluster fails: others lead what was in it."""

from __future__ import annotations

import pytest
from cluster_kit import T0, open_cluster
from failing_directory import FailingDirectory
from trio.testing import MockClock

from splashdam.model.error_codes import ErrorCode

NONE = ErrorCode.NONE


@pytest.mark.parametrize("failing", [1, 2])
async def test_others_lead_what_a_disk_has_lost(autojump_clock: MockClock, failing: int) -> None:
    """The leader's or a follower's: it leaves the ISR, nothing acknowledged is lost, and it comes back."""
    settings = {"log_dirs": "/second", "min_insync_replicas": 2, "replica_lag_time_max_ms": 2000}
    async with open_cluster(autojump_clock, **settings) as cluster:
        node = cluster.nodes[failing]
        await node.end()
        node.files = disk = FailingDirectory()
        await cluster.start(failing)
        cluster.create(1, 2, 3)
        for number in range(5):
            assert await cluster.produce(b"%d" % number) == NONE
        await cluster.settle()
        disk.broken = "/second"
        codes = {await cluster.produce(b"?") for _ in range(2)}
        await cluster.settle()
        leader = 2 if failing == 1 else 1
        assert (cluster.state.leader, failing in cluster.state.isr) == (leader, False)
        assert await cluster.produce(b"last") == NONE
        assert T0 in node.broker.logs.offline
        kept = cluster.values(leader)
        assert kept[:5] == [b"%d" % number for number in range(5)]
        assert kept[-1] == b"last"
        assert codes <= {
            NONE,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.REQUEST_TIMED_OUT,  # who was in sync just now is waited for, as in Kafka
        }
        await node.end()
        disk.broken = ""
        await cluster.start(failing)
        await cluster.settle()
        assert failing in cluster.state.isr
        assert cluster.values(failing) == cluster.values(leader)
