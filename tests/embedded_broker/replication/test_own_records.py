"""What brokers write for themselves: offsets, markers; answered when all replicas in sync have it."""

from __future__ import annotations

import pytest
from support.broker import offset_talk
from support.broker.broker_talk import NOW_MS, batch
from support.broker.cluster_kit import Cluster, open_cluster
from trio.testing import MockClock

from splashdam.model.broker_errors import ErrorCode
from splashdam.model.values import TopicPartition
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.storage.topic_names import CONSUMER_OFFSETS
from splashdam.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)


def make_offsets_topic(cluster: Cluster, *replicas: int, min_isr: int = 1) -> None:
    """With one partition; the first replica leads."""
    configs = {"cleanup.policy": "compact", "min.insync.replicas": str(min_isr)}
    cluster.controller.create_topics(
        [NewTopic(CONSUMER_OFFSETS, 1, configs, assignments=(replicas,))], lambda _: None
    )


async def commit(cluster: Cluster, node_id: int, offset: int) -> int:
    """Commits an offset of t-0 for a group without members; the error code."""
    return (await offset_talk.commit(await cluster.talk(node_id), "g", {0: offset}))[0]


@pytest.mark.parametrize("kill", [True, False])
async def test_committed_offsets_survive_their_coordinator(autojump_clock: MockClock, kill: bool) -> None:
    """The next leader of the partition coordinates, and knows them."""
    async with open_cluster(autojump_clock) as cluster:
        make_offsets_topic(cluster, 1, 2, 3)
        cluster.create(1, 2, 3)
        assert await commit(cluster, 2, 41) == ErrorCode.NOT_COORDINATOR
        assert await commit(cluster, 1, 42) == 0
        await cluster.nodes[1].end(kill=kill)
        assert cluster.controller.partition(OFFSETS).leader == 2
        found = await offset_talk.fetch(await cluster.talk(2), "g", [0])
        assert found[0][1] == 42
        assert await commit(cluster, 2, 43) == 0


async def test_a_commit_that_too_few_replicas_have(autojump_clock: MockClock) -> None:
    """The client looks for a coordinator and tries again, whether it is known before the append or after."""
    async with open_cluster(autojump_clock) as cluster:
        make_offsets_topic(cluster, 1, 2, min_isr=2)
        cluster.create(1)
        cluster.cut(1, 2)
        again = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
        assert await commit(cluster, 1, 1) in again
        await cluster.nodes[2].end()
        assert await commit(cluster, 1, 2) in again


async def test_markers_are_answered_when_replicas_have_them(autojump_clock: MockClock) -> None:
    """Otherwise the next leader might take a transaction for open that its coordinator takes for done."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2)
        cluster.nodes[1].log.append_as_leader(
            batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True), now_ms=NOW_MS
        )
        marker = WritableTxnMarker(
            producer_id=7,
            producer_epoch=0,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=0,
        )
        talk = await cluster.talk(1)
        answer = await talk.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == 0
        assert cluster.nodes[1].log.high_watermark == 2
        cluster.cut(1, 2)
        answer = await talk.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT
