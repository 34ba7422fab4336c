"""A data directory of one broker of a cluster fails: others lead what was in it."""

from __future__ import annotations

import errno

import pytest
from support.broker.cluster_kit import T0, open_cluster
from support.storage.failing_directory import FailingDirectory
from trio.testing import MockClock

from splashdam.model.broker_errors import ErrorCode
from splashdam.storage.files.memory import Fault
from splashdam.storage.log import LogState

NONE = ErrorCode.NONE


@pytest.mark.parametrize("failing", [1, 2])
async def test_other_brokers_lead_partitions_of_a_lost_disk(autojump_clock: MockClock, failing: int) -> None:
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
            ErrorCode.REQUEST_TIMED_OUT,  # a replica that was in sync just now is waited for, as in Kafka
        }
        await node.end()
        disk.broken = ""
        await cluster.start(failing)
        await cluster.settle()
        assert failing in cluster.state.isr
        assert cluster.values(failing) == cluster.values(leader)


@pytest.mark.parametrize("failing", [1, 2])
async def test_other_brokers_lead_partitions_whose_sync_failed(
    autojump_clock: MockClock, failing: int
) -> None:
    """A log that failed takes nothing more until a restart; it does not go on to lead, nor is it in sync."""
    async with open_cluster(autojump_clock, replica_lag_time_max_ms=2000) as cluster:
        cluster.create(1, 2, 3, flush_messages="1")
        assert await cluster.produce(b"a") == NONE
        await cluster.settle()
        node = cluster.nodes[failing]
        node.files.inject(Fault(errno.EIO, after=1))
        assert await cluster.produce(b"b") in (
            NONE,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.REQUEST_TIMED_OUT,  # as above
        )
        await cluster.settle()
        assert node.log.state is LogState.FAILED
        leader = 2 if failing == 1 else 1
        assert (cluster.state.leader, len(cluster.state.isr), failing in cluster.state.isr) == (
            leader,
            2,
            False,
        )
        assert await cluster.produce(b"c") == NONE
        await node.end()
        await cluster.start(failing)
        await cluster.settle()
        assert len(cluster.state.isr) == 3
        assert cluster.values(failing) == cluster.values(leader)
        assert cluster.values(failing)[-1] == b"c"


@pytest.mark.parametrize("operations", range(8))
async def test_a_disk_error_while_a_new_replica_is_made_hangs_no_reassignment(
    autojump_clock: MockClock, operations: int
) -> None:
    """Whatever it hit: the log is made with a later look, and the replica takes the other's place."""
    async with open_cluster(autojump_clock, replica_lag_time_max_ms=2000) as cluster:
        cluster.create(1, 2)
        assert await cluster.produce(b"a") == NONE
        cluster.nodes[3].files.inject(Fault(errno.EIO, after=operations))
        before = cluster.state
        after = before._replace(
            replicas=(1, 3, 2),
            adding_replicas=(3,),
            removing_replicas=(2,),
            partition_epoch=before.partition_epoch + 1,
        )
        cluster.controller.change_partitions({T0: after})
        if operations < 3:
            assert T0 not in cluster.nodes[3].broker.logs.logs
        await cluster.settle(10)
        assert cluster.state.replicas == cluster.state.isr == (1, 3)
        assert cluster.values(3) == [b"a"]
        assert T0 not in cluster.nodes[2].broker.logs.logs


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("operations", range(8))
async def test_a_disk_error_while_a_topic_is_made_keeps_no_replica_away(
    autojump_clock: MockClock, failing: int, operations: int
) -> None:
    """The leader's or a follower's: it has its replica with a later look, without a restart."""
    async with open_cluster(autojump_clock, replica_lag_time_max_ms=2000) as cluster:
        cluster.nodes[failing].files.inject(Fault(errno.EIO, after=operations))
        cluster.create(1, 2, 3)
        await cluster.settle(10)
        assert await cluster.produce(b"a") == NONE
        await cluster.settle()
        assert sorted(cluster.state.isr) == [1, 2, 3]
        assert cluster.values(1) == cluster.values(2) == cluster.values(3) == [b"a"]
