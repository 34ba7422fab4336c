"""The defaults of `EmbeddedBroker`: where they hold, what replaces them, and what they never change."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.running.cli_processes import run

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.cli.connecting import named_cluster
from splashdam.embedded_broker.configs.developer import DEVELOPER_DEFAULTS, developer_settings
from splashdam.model.errors import KafkaConfigurationError
from splashdam.net.admin.configs import Resource, describe_configs
from splashdam.net.admin.topics import describe_topic
from splashdam.net.clock import SystemClock
from splashdam.net.cluster.cluster_client import ClusterClient
from splashdam.storage.topic_names import CONSUMER_OFFSETS


def partitions_of(broker: EmbeddedBroker, topic: str) -> int:
    async def ask(client: ClusterClient) -> int:
        return len((await describe_topic(client, topic)).partitions)

    with named_cluster(broker.bootstrap_servers, {}, 10) as cluster:
        return cluster.ask(ask)


def commit(broker: EmbeddedBroker) -> None:
    """Makes the topic of committed offsets, if it is missing."""
    where = ("-b", broker.bootstrap_servers)
    assert run("groups", "reset", "g", "--topic", "t", "--to-latest", *where).returncode == 0


def test_given_values_replace_the_defaults() -> None:
    """By either name; giving both is still refused."""
    settings = developer_settings(
        {"offsets_topic_num_partitions": 7}, {"group.initial.rebalance.delay.ms": "5"}
    )
    assert settings.groups.offsets_topic_num_partitions == 7
    assert settings.groups.group_initial_rebalance_delay_ms == 5
    assert settings.transactions.transaction_state_log_num_partitions == 4
    with pytest.raises(KafkaConfigurationError, match="given twice"):
        developer_settings({"offsets_topic_num_partitions": 7}, {"offsets.topic.num.partitions": "5"})


def test_a_topic_that_exists_keeps_its_partitions(tmp_path: Path) -> None:
    """A directory of Kafka's has 50; a later start with other settings changes none."""
    with EmbeddedBroker(tmp_path, offsets_topic_num_partitions=6, topics={"t": 1}) as broker:
        commit(broker)
    with EmbeddedBroker(tmp_path, topics={"t": 3}) as broker:
        commit(broker)
        assert partitions_of(broker, CONSUMER_OFFSETS) == 6
        assert partitions_of(broker, "t") == 1


def test_describe_configs_names_the_source() -> None:
    """They are set at the start, not Kafka's defaults."""

    async def ask(client: ClusterClient) -> dict[str, tuple[str | None, bool]]:
        found = await describe_configs(client, Resource.BROKER, "1")
        return {name: (found[name].value, found[name].is_default) for name in DEVELOPER_DEFAULTS}

    with EmbeddedBroker() as broker, named_cluster(broker.bootstrap_servers, {}, 10) as cluster:
        assert cluster.ask(ask) == {name: (str(value), False) for name, value in DEVELOPER_DEFAULTS.items()}


def test_a_broker_in_memory_keeps_its_records_until_it_is_dropped() -> None:
    """Stopping and starting it loses none; nothing is on the disk."""
    broker = EmbeddedBroker(topics={"t": 1}, clock=SystemClock())
    with broker, KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"x").get(timeout=300)
        commit(broker)
        assert partitions_of(broker, CONSUMER_OFFSETS) == DEVELOPER_DEFAULTS["offsets.topic.num.partitions"]
        broker.users.add("anna", "secret")
    assert not Path("/memory").exists()
    with broker:
        read = run("tail", "t", "-b", broker.bootstrap_servers, "--from-beginning", "-e")
        assert (read.stdout, broker.users.names()) == (b"x\n", ["anna"])
