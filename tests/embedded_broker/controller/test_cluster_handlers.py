"""What admin clients ask of a cluster: elections, reassignments, coordinators; by the messages themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio
from support.broker.broker_talk import batch, produce
from support.broker.memory_cluster_kit import Kit, talk_to

from splashdam.embedded_broker.cluster import Cluster
from splashdam.embedded_broker.controller.journal import Journal
from splashdam.embedded_broker.controller.state import NOBODY, ClusterChange, ClusterState
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.values import TopicPartition
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from splashdam.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest
from splashdam.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

T0 = TopicPartition("t", 0)


@pytest.fixture
async def cluster(kit: Kit) -> AsyncIterator[Cluster]:
    """Three brokers; t-0 is kept by 1 and 2."""
    async with kit.opened(offsets_topic_num_partitions=6) as running:
        running.controller.create_topics([NewTopic("t", 1, assignments=((1, 2),))], dict)
        yield running


async def elect(cluster: Cluster, kind: int, topic: str | None = "t", version: int = 2) -> list[int]:
    """The codes of the partitions answered."""
    wanted = None if topic is None else [TopicPartitions(topic=topic, partitions=[0])]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=wanted)
    answer = await talk_to(cluster, 3).ask(request, version)
    assert answer.error_code == (0 if kind < 2 or version == 0 else 42)
    return [each.error_code for result in answer.replica_election_results for each in result.partition_result]


async def reassign(cluster: Cluster, replicas: list[int] | None, **options: bool) -> int:
    """The code of t-0."""
    wanted = ReassignableTopic(
        name="t", partitions=[ReassignablePartition(partition_index=0, replicas=replicas)]
    )
    request = AlterPartitionReassignmentsRequest(topics=[wanted], **options)
    answer = await talk_to(cluster, 3).ask(request, 1)
    return answer.responses[0].partitions[0].error_code


async def under_way(cluster: Cluster, topics: list[str] | None = None) -> list[tuple[list[int], ...]]:
    """Replicas, those that come, those that go."""
    asked = None
    if topics is not None:
        asked = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0]) for name in topics]
    answer = await talk_to(cluster, 3).ask(ListPartitionReassignmentsRequest(topics=asked), 0)
    return [
        (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    ]


@pytest.mark.parametrize("version", range(3))
async def test_the_preferred_leader_is_elected(cluster: Cluster, version: int) -> None:
    """84 if it leads already (left out if all partitions are asked for), 3 for an unknown partition."""
    assert await elect(cluster, 0, version=version) == [84]
    assert await elect(cluster, 0, None, version) == []
    assert await elect(cluster, 0, "u", version) == [3]
    cluster.move_leader("t", 0, 2)
    assert await elect(cluster, 0, None, version) == [0]
    assert cluster.leader_of("t") == 1
    await cluster.stop(1)
    assert await elect(cluster, 0, version=version) == [80]


async def test_an_unclean_election_on_demand(cluster: Cluster) -> None:
    """Only where nobody leads, and somebody is there who can."""
    assert await elect(cluster, 1) == [84]
    await cluster.stop(2)
    await cluster.kill(1)
    assert await elect(cluster, 1) == [83]
    await cluster.start(2)
    assert cluster.leader_of("t") == NOBODY
    assert await elect(cluster, 1) == [0]
    assert (cluster.leader_of("t"), cluster.isr_of("t")) == (2, (2,))
    assert await elect(cluster, 2) == [42]


async def test_replicas_move_to_other_brokers(cluster: Cluster) -> None:
    """The new one fetches everything, then the old one goes with its directory, though it led."""
    client = talk_to(cluster, 1)
    assert (await produce(client, "t", batch(b"a", b"b"), acks=-1)).error_code == 0
    assert await reassign(cluster, [3, 2]) == 0
    assert await under_way(cluster) == [([3, 2, 1], [3], [1])]
    assert await under_way(cluster, ["t", "u"]) == [([3, 2, 1], [3], [1])]
    for _ in range(100):
        if not await under_way(cluster):
            break
        await trio.sleep(0.1)
    assert cluster.replicas_of("t") == (3, 2)
    assert set(cluster.isr_of("t")) == {2, 3}
    assert T0 not in cluster.broker(1).logs.logs
    assert cluster.broker(3).logs.logs[T0].log_end_offset == 2
    assert cluster.leader_of("t") in (2, 3)
    assert (await produce(client, "t", batch(b"c"))).error_code == 6


async def test_a_reassignment_is_called_off(cluster: Cluster) -> None:
    """While the new broker is down nothing comes of it; then it is as it was."""
    await cluster.stop(3)
    wanted = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=[3])])
    client = talk_to(cluster, 1)
    for topics, code in (([wanted], 0), ([_cancelled()], 0), ([_cancelled()], 85)):
        answer = await client.ask(AlterPartitionReassignmentsRequest(topics=topics), 0)
        assert answer.responses[0].partitions[0].error_code == code
    assert cluster.replicas_of("t") == (1, 2)
    assert set(cluster.isr_of("t")) == {1, 2}


def _cancelled() -> ReassignableTopic:
    return ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=None)])


@pytest.mark.parametrize(("replicas", "code"), [([], 39), ([1, 1], 39), ([9], 39), ([1, 2, 3], 38)])
async def test_reassignments_that_make_no_sense(cluster: Cluster, replicas: list[int], code: int) -> None:
    """None, one twice, a stranger; and other numbers where the request keeps the replication factor."""
    assert await reassign(cluster, replicas, allow_replication_factor_change=False) == code
    assert cluster.replicas_of("t") == (1, 2)


@pytest.mark.parametrize(("key_type", "topic"), [(0, "__consumer_offsets"), (1, "__transaction_state")])
async def test_coordinators_are_the_leaders_of_their_partitions(
    cluster: Cluster, key_type: int, topic: str
) -> None:
    """Every broker gives the same answer; a partition is on several brokers, and on none that is down."""
    keys = [f"key-{number}" for number in range(20)]
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)

    async def found_by(node: int) -> list[int]:
        answer = await talk_to(cluster, node).ask(request, 6)
        assert {each.error_code for each in answer.coordinators} == {0}
        return [each.node_id for each in answer.coordinators]

    first = await found_by(1)
    assert first == await found_by(2)
    assert set(first) == {1, 2, 3}
    assert len(cluster.replicas_of(topic)) == 3
    await cluster.kill(3)
    again = await found_by(1)
    assert set(again) == {1, 2}
    assert all(new == old for new, old in zip(again, first, strict=True) if old != 3)


@pytest.mark.parametrize("is_broken", [False, True])
async def test_many_elections_and_reassignments_cost_one_turn_of_the_disk_each(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Where it refuses nothing has changed, and each of those that would have is told so."""
    cluster.controller.create_topics([NewTopic("many", 4, assignments=((1, 2),) * 4)], dict)
    for number in range(4):
        cluster.move_leader("many", number, 2)
    kept: list[ClusterChange] = []

    def keep(journal: Journal, change: ClusterChange, before: ClusterState) -> None:
        kept.append(change)
        if is_broken:
            raise KafkaStorageError("broken")

    monkeypatch.setattr(Journal, "keep", keep)
    code = 56 if is_broken else 0
    assert await elect(cluster, 0, topic=None) == [code] * 4
    replicas = [ReassignablePartition(partition_index=number, replicas=[2, 1]) for number in (0, 1)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="many", partitions=replicas)])
    answer = await talk_to(cluster, 3).ask(request, 0)
    assert [each.error_code for each in answer.responses[0].partitions] == [code] * 2
    assert [len(change.partitions) for change in kept] == [4, 2]
    assert cluster.leader_of("many", 3) == (2 if is_broken else 1)
