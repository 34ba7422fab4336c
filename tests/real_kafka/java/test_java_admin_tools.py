"""Kafka's own kafka-topics and kafka-configs work on the embedded broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.kafka.kafka_jars import config_command, need_tools, run_tool

from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.embedded_broker.embedded_cluster import EmbeddedCluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TOPICS = "org.apache.kafka.tools.TopicCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"


class Tools:
    """The tools of one version, at one broker."""

    def __init__(self, version: str, servers: str) -> None:
        self._version = version
        self._servers = servers

    def topics(self, *arguments: str) -> str:
        """What kafka-topics says."""
        return run_tool(self._version, TOPICS, "--bootstrap-server", self._servers, *arguments)

    def configs(self, kind: str, name: str | None, *arguments: str) -> str:
        """What kafka-configs says; None: of all brokers."""
        named = ("--entity-default",) if name is None else ("--entity-name", name)
        told = ("--bootstrap-server", self._servers, "--entity-type", kind, *named, *arguments)
        return run_tool(self._version, config_command(self._version), *told)


def test_topics_and_configurations(version: str, tmp_path: Path) -> None:
    """Made, listed, described, changed and deleted."""
    need_tools(version)
    with EmbeddedBroker(tmp_path) as broker:
        tools = Tools(version, broker.bootstrap_servers)
        tools.topics("--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=1000")
        tools.topics("--alter", "--topic", "orders", "--partitions", "5")
        assert tools.topics("--list").split() == ["orders"]
        described = tools.topics("--describe", "--topic", "orders")
        assert "PartitionCount: 5\tReplicationFactor: 1\tConfigs: retention.ms=1000" in described
        assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 5
        tools.configs("topics", "orders", "--alter", "--add-config", "cleanup.policy=[compact,delete]")
        tools.configs("topics", "orders", "--alter", "--delete-config", "retention.ms")
        assert "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete" in tools.configs(
            "topics", "orders", "--describe"
        )
        tools.configs("brokers", "1", "--alter", "--add-config", "log.retention.ms=5000")
        tools.configs("brokers", None, "--alter", "--add-config", "log.cleaner.backoff.ms=300")
        assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=5000" in tools.configs("brokers", "1", "--describe")
        assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.backoff.ms=300" in tools.configs(
            "brokers", None, "--describe"
        )
        if not version.startswith("3."):
            of_groups_and_clients(tools)
        tools.topics("--delete", "--topic", "orders")
        assert tools.topics("--list").split() == []


def of_groups_and_clients(tools: Tools) -> None:
    """Since Kafka 4.0, 3.7."""
    tools.configs("groups", "g", "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000" in tools.configs(
        "groups", "g", "--describe"
    )
    tools.configs("client-metrics", "m", "--alter", "--add-config", "interval.ms=5000,metrics=[a.,b.]")
    assert "DYNAMIC_CLIENT_METRICS_CONFIG:metrics=a.,b." in tools.configs("client-metrics", "m", "--describe")


def test_the_quorum_of_the_metadata(version: str, tmp_path: Path) -> None:
    """kafka-metadata-quorum: one voter, which the other brokers observe, and nobody is behind."""
    need_tools(version)
    with EmbeddedCluster(tmp_path, fsync=False) as cluster:
        address = ("--bootstrap-server", cluster.bootstrap_servers)
        status = run_tool(version, QUORUM, *address, "describe", "--status")
        said = {name: text.strip() for name, _, text in (line.partition(":") for line in status.splitlines())}
        assert (said["LeaderId"], said["MaxFollowerLag"], said["MaxFollowerLagTimeMs"]) == ("1", "0", "0")
        (voter,) = json.loads(said["CurrentVoters"])
        assert voter["id"] == 1
        assert voter["endpoints"] == [f"CONTROLLER://{cluster.bootstrap_servers.split(',')[0]}"]
        assert [each["id"] for each in json.loads(said["CurrentObservers"])] == [2, 3]
        replication = run_tool(version, QUORUM, *address, "describe", "--replication")
        rows = [line.split() for line in replication.splitlines()[1:] if line.strip()]
        assert [(row[0], row[-1]) for row in rows] == [("1", "Leader"), ("2", "Observer"), ("3", "Observer")]
