"""Admin clients that we did not write change topics and configurations of the embedded broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import kafka.admin
import kafka.errors
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kafka.admin import KafkaAdminClient
from support.clients.foreign_clients import TIMEOUT_SECONDS

from splashdam.embedded_broker.embedded import EmbeddedBroker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One broker for all tests here; each has topics of its own."""
    with EmbeddedBroker(tmp_path_factory.mktemp("data"), fsync=False) as running:
        yield running


@pytest.fixture
def confluent(broker: EmbeddedBroker) -> AdminClient:
    """confluent-kafka's."""
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


@pytest.fixture
def kafka_python(broker: EmbeddedBroker) -> Iterator[KafkaAdminClient]:
    """kafka-python's."""
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield client
    client.close()


def done(futures: dict[Any, Any]) -> Any:
    """What the only one of confluent-kafka's futures has."""
    ((_, future),) = futures.items()
    return future.result(TIMEOUT_SECONDS)


def test_confluent_kafka(confluent: AdminClient) -> None:
    """Creates, grows, configures, describes and deletes a topic; the broker is configured, too."""
    topic = ConfigResource(ConfigResource.Type.TOPIC, "confluent")
    done(confluent.create_topics([NewTopic("confluent", 2, 1, config={"retention.ms": "5000"})]))
    done(confluent.create_partitions([NewPartitions("confluent", 4)]))
    assert len(confluent.list_topics("confluent", TIMEOUT_SECONDS).topics["confluent"].partitions) == 4
    with pytest.raises(KafkaException, match="already"):
        done(confluent.create_partitions([NewPartitions("confluent", 4)]))
    change = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND)
    done(
        confluent.incremental_alter_configs(
            [ConfigResource(topic.restype, topic.name, incremental_configs=[change])]
        )
    )
    found = done(confluent.describe_configs([topic]))
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("5000", 1)
    assert (found["cleanup.policy"].value, list(found["cleanup.policy"].synonyms)) == (
        "delete,compact", ["cleanup.policy", "log.cleanup.policy"]
    )  # fmt: skip
    change = ConfigEntry("log.retention.ms", "9000", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    done(
        confluent.incremental_alter_configs(
            [ConfigResource(broker.restype, "1", incremental_configs=[change])]
        )
    )
    assert done(confluent.describe_configs([broker]))["log.retention.ms"].value == "9000"
    cluster = confluent.describe_cluster().result(TIMEOUT_SECONDS)
    assert [node.id for node in cluster.nodes] == [cluster.controller.id] == [1]
    done(confluent.delete_topics(["confluent"]))
    assert "confluent" not in confluent.list_topics(timeout=TIMEOUT_SECONDS).topics


def test_kafka_python(kafka_python: KafkaAdminClient) -> None:
    """The same."""
    topic = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, "python")
    kafka_python.create_topics([kafka.admin.NewTopic("python", 2, 1, topic_configs={"retention.ms": "5000"})])
    kafka_python.create_partitions({"python": kafka.admin.NewPartitions(3)})
    (described,) = kafka_python.describe_topics(["python"])
    assert len(described["partitions"]) == 3
    with pytest.raises(kafka.errors.InvalidPartitionsError):
        kafka_python.create_partitions({"python": kafka.admin.NewPartitions(3)})
    assert "5000" in json.dumps(kafka_python.describe_configs([topic]), default=str)
    topic = kafka.admin.ConfigResource(topic.resource_type, "python", configs={"retention.ms": "6000"})
    kafka_python.alter_configs([topic])
    assert "6000" in json.dumps(kafka_python.describe_configs([topic]), default=str)
    kafka_python.delete_topics(["python"])
    assert "python" not in kafka_python.list_topics()
