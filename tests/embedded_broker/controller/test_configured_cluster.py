"""Topics and configurations of three brokers: asked of one, in force at all of them."""

from __future__ import annotations

from support.broker.admin_talk import BROKER, GROUP, SET, TOPIC, alter, describe, grow
from support.broker.broker_talk import create_request
from support.broker.cluster_kit import T0, open_cluster
from trio.testing import MockClock

from splashdam.model.values import TopicPartition
from splashdam.wire.messages.describe_cluster import DescribeClusterRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


async def test_options_are_in_force_at_every_broker(autojump_clock: MockClock) -> None:
    """Options of topics, groups and all brokers are in force everywhere; those of one broker are its own."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        talk = await cluster.talk(2)
        assert await alter(talk, TOPIC, "t", ("segment.bytes", SET, "5000")) == 0
        assert await alter(talk, BROKER, "", ("log.retention.ms", SET, "7000")) == 0
        assert await alter(talk, BROKER, "2", ("log.retention.ms", SET, "6000")) == 0
        assert await alter(talk, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
        assert await alter(talk, BROKER, "1", ("log.retention.ms", SET, "1")) == 42  # for broker 1 to do
        found = {node_id: node.log.settings for node_id, node in cluster.nodes.items()}
        assert {each.segment_bytes for each in found.values()} == {5000}
        assert {node_id: each.retention_ms for node_id, each in found.items()} == {1: 7000, 2: 6000, 3: 7000}
        for node in cluster.nodes.values():
            assert node.broker.configs.of_group("g") == {"consumer.session.timeout.ms": "50000"}


async def test_configs_set_while_a_broker_was_down(autojump_clock: MockClock) -> None:
    """It hears of it when it comes back: options, partitions, settings of all brokers."""
    async with open_cluster(autojump_clock) as cluster:
        cluster.create(1, 2, 3)
        await cluster.nodes[3].end()
        talk = await cluster.talk(1)
        assert await alter(talk, TOPIC, "t", ("segment.bytes", SET, "5000")) == 0
        assert await alter(talk, BROKER, "", ("log.cleaner.backoff.ms", SET, "7000")) == 0
        assert await grow(talk, "t", 2, [[2, 3, 1]]) == 0
        await cluster.start(3)
        await cluster.settle()
        broker = cluster.nodes[3].broker
        assert broker.logs.logs[T0].settings.segment_bytes == 5000
        assert broker.settings.directories.log_cleaner_backoff_ms == 7000
        assert TopicPartition("t", 1) in broker.logs.logs


async def test_replicas_are_chosen_and_reported(autojump_clock: MockClock) -> None:
    """As many as are asked for, 38 for more than there are brokers; those that are down are named so."""
    async with open_cluster(autojump_clock, default_replication_factor=2) as cluster:
        talk = await cluster.talk(1)
        codes = {}
        for name, factor in (("one", 1), ("default", -1), ("three", 3), ("four", 4)):
            request = create_request(name, partitions=2, replication_factor=factor)
            (result,) = (await talk.ask(request, 7)).topics
            codes[name] = (result.error_code, result.replication_factor)
        assert codes == {"one": (0, 1), "default": (0, 2), "three": (0, 3), "four": (38, -1)}
        await cluster.nodes[2].end(kill=True)
        await cluster.settle(60)
        (topic,) = (await talk.ask(MetadataRequest(topics=[MetadataRequestTopic(name="three")]), 9)).topics
        for partition in topic.partitions:
            assert sorted(partition.replica_nodes) == [1, 2, 3]
            assert (sorted(partition.isr_nodes), partition.offline_replicas) == ([1, 3], [2])
        answer = await talk.ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
        told = {each.broker_id: each.is_fenced for each in answer.brokers}
        assert told == {1: False}  # the others have no address
        code, _ = await describe(talk, BROKER, "3")
        assert code == 42
