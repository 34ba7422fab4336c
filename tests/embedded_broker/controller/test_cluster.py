"""A whole cluster in virtual time, on a disk in memory: brokers end and come back, leaders move."""

from __future__ import annotations

import pytest
import trio
from support.broker.broker_talk import batch, produce
from support.broker.memory_cluster_kit import Kit, talk_to
from support.broker.steps import at_once

from splashdam.embedded_broker.cluster import Cluster
from splashdam.embedded_broker.configs.security import AUTHORIZER
from splashdam.embedded_broker.controller.state import NOBODY
from splashdam.embedded_broker.security.acls import Acl
from splashdam.model.acls import Operation, PatternType, Permission, ResourceType
from splashdam.model.broker_errors import BrokerResponseError, ErrorCode, KafkaStorageError
from splashdam.model.errors import IllegalStateError, KafkaConfigurationError
from splashdam.model.values import TopicPartition
from splashdam.storage.manager.topic_registry import NewTopic
from splashdam.wire.messages.describe_cluster import DescribeClusterRequest
from splashdam.wire.messages.metadata import MetadataRequest

T0 = TopicPartition("t", 0)


def create(cluster: Cluster, *replicas: int, **configs: str) -> None:
    """Topic t with one partition, led by the first of the replicas."""
    options = {name.replace("_", "."): value for name, value in configs.items()}
    cluster.controller.create_topics([NewTopic("t", 1, options, assignments=(replicas,))], dict)


async def send(cluster: Cluster, node: int, value: bytes, acks: int = -1) -> int:
    """Produces at one broker; the error code."""
    talk = talk_to(cluster, node)
    code = (await produce(talk, "t", batch(value), acks=acks)).error_code
    await talk.stream.aclose()
    return code


async def in_sync(cluster: Cluster, *nodes: int) -> None:
    """Waits until these are."""
    for _ in range(100):
        if set(cluster.isr_of("t")) == set(nodes):
            return
        await trio.sleep(0.1)
    raise AssertionError(cluster.isr_of("t"))


async def test_a_broker_that_is_killed_is_led_for_by_another(kit: Kit) -> None:
    """Records with acks=all are there; the killed broker catches up when it is back, at its old port."""
    async with kit.opened() as cluster:
        create(cluster, 1, 2, 3)
        assert await send(cluster, 1, b"a") == 0
        port = cluster.broker(1).addresses[0].port
        await cluster.kill(1)
        assert (cluster.leader_of("t"), cluster.isr_of("t")) == (2, (2, 3))
        assert await send(cluster, 3, b"b") == 6
        assert await send(cluster, 2, b"b") == 0
        await cluster.start(1)
        assert cluster.broker(1).addresses[0].port == port
        await in_sync(cluster, 1, 2, 3)
        assert cluster.broker(1).logs.logs[T0].log_end_offset == 2
        cluster.elect_preferred_leaders()
        assert cluster.leader_of("t") == 1


async def test_a_broker_that_stops_hands_over_first(kit: Kit) -> None:
    """It leaves the ISR at once, and nobody waits for it."""
    async with kit.opened() as cluster:
        create(cluster, 2, 1)
        await cluster.stop(2)
        assert (cluster.leader_of("t"), cluster.isr_of("t")) == (1, (1,))
        assert not cluster.is_up(2)
        with pytest.raises(IllegalStateError, match="broker 2 is down"):
            cluster.broker(2)
        await cluster.restart(1)  # the last one in sync leads again
        assert (cluster.leader_of("t"), cluster.isr_of("t")) == (1, (1,))


async def test_there_is_no_leader_while_no_replica_in_sync_is_up(kit: Kit) -> None:
    """The last of the ISR stays in it and is waited for; with unclean elections anybody leads."""
    async with kit.opened() as cluster:
        create(cluster, 1, 2)
        await cluster.stop(2)
        await cluster.kill(1)
        assert (cluster.leader_of("t"), cluster.isr_of("t")) == (NOBODY, (1,))
        await cluster.start(2)
        assert cluster.leader_of("t") == NOBODY
        (topic,) = (await talk_to(cluster, 3).ask(MetadataRequest(topics=None), 9)).topics
        assert [each.error_code for each in topic.partitions] == [5]
        await cluster.start(1)
        assert cluster.leader_of("t") == 1


async def test_an_unclean_election_loses_records_of_the_others(kit: Kit) -> None:
    """Only where the topic's options say that this is better than waiting."""
    async with kit.opened() as cluster:
        create(cluster, 1, 2, unclean_leader_election_enable="true")
        await cluster.stop(2)
        assert await send(cluster, 1, b"a") == 0
        await cluster.kill(1)
        await cluster.start(2)
        assert (cluster.leader_of("t"), cluster.isr_of("t")) == (2, (2,))
        assert cluster.broker(2).logs.logs[T0].log_end_offset == 0


async def test_it_is_the_same_cluster_the_next_time(kit: Kit) -> None:
    """Topics, ids, options, leaders and in-sync replicas; leader epochs go on."""
    async with kit.opened() as cluster:
        create(cluster, 3, 1, 2, retention_ms="1234")
        cluster.move_leader("t", 0, 2)
        assert await send(cluster, 2, b"a") == 0
        await in_sync(cluster, 1, 2, 3)
        before = cluster.controller.state
        epoch, cluster_id = before.partitions[T0].leader_epoch, cluster.controller.cluster_id
    async with kit.opened() as cluster:
        assert cluster.controller.state.topics == before.topics
        assert cluster.controller.cluster_id == cluster_id == cluster.broker(3).cluster_id
        assert (cluster.leader_of("t"), set(cluster.isr_of("t"))) == (2, {1, 2, 3})
        assert cluster.controller.partition(T0).leader_epoch > epoch
        assert await send(cluster, 2, b"b") == 0
        assert cluster.broker(2).logs.logs[T0].log_end_offset == 2


async def test_topics_change_while_a_broker_is_down(kit: Kit) -> None:
    """It hears of it when it is back: one is gone, one is new, one has more partitions."""
    async with kit.opened(2) as cluster:
        for name in ("gone", "longer"):
            cluster.controller.create_topics([NewTopic(name, 1, replication_factor=2)], dict)
        await cluster.stop(2)
        cluster.controller.delete_topic("gone")
        cluster.controller.create_partitions("longer", 3)
        cluster.controller.create_topics([NewTopic("new", 1, replication_factor=2)], dict)
        await cluster.start(2)
        assert [each.name for each in cluster.broker(2).topics.all()] == ["longer", "new"]
        assert len([each for each in cluster.broker(2).logs.logs if each.topic == "longer"]) == 3


async def test_leadership_moves_only_to_eligible_replicas(kit: Kit) -> None:
    """107 for a broker that is down or not in sync; 3 for a partition that is not there."""
    async with kit.opened() as cluster:
        create(cluster, 1, 2)
        await cluster.stop(2)
        for topic, code in (("t", 107), ("u", 3)):
            with pytest.raises(BrokerResponseError) as raised:
                cluster.move_leader(topic, 0, 2)
            assert raised.value.code == code


@pytest.mark.parametrize(
    ("to", "words"),
    [
        (2, "start broker 2, and wait until it is in sync"),
        (3, r"its replicas are \[1, 2\]"),
    ],
)
async def test_the_error_of_an_ineligible_leader_names_a_remedy(kit: Kit, to: int, words: str) -> None:
    """The remedy for a broker that is down is to start it."""
    async with kit.opened() as cluster:
        create(cluster, 1, 2)
        await cluster.stop(2)
        with pytest.raises(BrokerResponseError, match=words):
            cluster.move_leader("t", 0, to)


async def test_metadata_lists_live_brokers(kit: Kit) -> None:
    """With the listeners' addresses; a broker that is down is not among them."""
    async with kit.opened() as cluster:
        await cluster.kill(3)
        answer = await talk_to(cluster, 1).ask(MetadataRequest(topics=[]), 9)
        assert [each.node_id for each in answer.brokers] == [1, 2]
        assert cluster.bootstrap_servers == "127.0.0.1:9000,127.0.0.1:9001,127.0.0.1:9002"


async def test_fenced_brokers_had_neither_host_nor_port(kit: Kit) -> None:
    """Kafka tells where each has registered, under the client's listener, and whether it is fenced."""
    async with kit.opened() as cluster:
        await cluster.kill(3)
        talk = talk_to(cluster, 1)
        answer = await talk.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
        told = [(each.broker_id, each.port, each.is_fenced) for each in answer.brokers]
        assert told[1:] == [(2, 9001, False), (3, 9002, True)]
        assert told[0][::2] == (1, False)
        assert {each.host for each in answer.brokers[1:]} == {"127.0.0.1"}
        answer = await talk.ask(DescribeClusterRequest(), 2)
        assert [each.broker_id for each in answer.brokers] == [1, 2]


async def test_a_directory_of_another_cluster_is_refused(kit: Kit) -> None:
    """Its topics are not this cluster's, and would be deleted."""
    async with kit.opened(1):
        pass
    for name in ("splashdam-cluster.json", "splashdam-cluster.changes"):
        kit.files.unlink(f"/c/{name}")
    with pytest.raises(KafkaStorageError, match="belongs to node 1 of cluster"):
        async with kit.opened(1):
            pass


async def test_a_cluster_has_brokers(kit: Kit) -> None:
    """Every broker knows the others."""
    with pytest.raises(KafkaConfigurationError, match="brokers=0: it is a whole number"):
        async with kit.opened(0):
            pass
    async with kit.opened(1) as cluster:
        with pytest.raises(IllegalStateError, match="there is no broker 2; there are 1"):
            await cluster.kill(2)
        with pytest.raises(IllegalStateError, match="broker 1 runs already"):
            await cluster.start(1)


async def test_brokers_need_no_acls_and_share_those_of_clients(kit: Kit) -> None:
    """With an authorizer clients are refused, followers are not, and what one broker is told holds at all."""
    async with kit.opened(authorizer_class_name=AUTHORIZER) as cluster:
        create(cluster, 1, 2, 3, min_insync_replicas="3")
        assert await send(cluster, 1, b"a") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        everybody = Acl(
            ResourceType.TOPIC, "t", PatternType.LITERAL, "User:*", "*", Operation.WRITE, Permission.ALLOW
        )
        at_once(cluster.broker(2).access.acls.add([everybody]))
        assert await send(cluster, 1, b"a") == 0
