"""Clusters for the same tests: our broker, librdkafka's mock cluster, and a real Kafka where there is one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import pytest
from support.clients.librdkafka_mock import LibrdkafkaMock, librdkafka_mock
from support.kafka.kafka_jars import VERSIONS, kafka_broker
from support.kafka.kafka_reading import make_topic, served

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.record.reader import Record


@attrs.frozen
class Cluster:
    """Where a test sends to, and how it looks at what came of it."""

    servers: str
    mock: LibrdkafkaMock | None = None

    def topic(self, **configs: str) -> str:
        """A new topic of one partition; configs by Kafka's names with underscores."""
        name = f"peers-{uuid.uuid4().hex[:12]}"
        if self.mock is not None:
            self.mock.create_topic(name, 1)
        else:
            make_topic(self.servers, name, {key.replace("_", "."): value for key, value in configs.items()})
        return name

    def producer(self, **options: Any) -> KafkaProducer:
        """One that talks to it."""
        return KafkaProducer(bootstrap_servers=self.servers, **options)

    def records(self, topic: str) -> list[Record]:
        """What librdkafka's consumer reads."""
        return served(self.servers, topic)

    def values(self, topic: str) -> list[bytes | None]:
        """The values of that."""
        return [record.value for record in self.records(topic)]


def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker"), fsync=False) as broker:
        yield Cluster(broker.bootstrap_servers)


def mock(_tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with librdkafka_mock(1) as running:
        yield Cluster(",".join(f"{host}:{port}" for host, port in running.bootstrap), running)


def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kafka_broker(VERSIONS[0], tmp_path_factory.mktemp("kafka")) as broker:
        yield Cluster(broker.bootstrap_servers)


Opened = Callable[[pytest.TempPathFactory], Iterator[Cluster]]
REAL = pytest.param(kafka, id="kafka", marks=[pytest.mark.kafka, pytest.mark.timeout(300)])


@pytest.fixture(
    scope="module", params=[pytest.param(embedded, id="embedded"), pytest.param(mock, id="mock"), REAL]
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Each of the three."""
    opened: Opened = request.param
    yield from opened(tmp_path_factory)


@pytest.fixture(scope="module", params=[pytest.param(embedded, id="embedded"), REAL])
def judging_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Those that look at records and sequence numbers, and refuse some."""
    opened: Opened = request.param
    yield from opened(tmp_path_factory)


@pytest.fixture
def mock_cluster() -> Iterator[Cluster]:
    """A mock of one's own, for injected errors."""
    yield from mock(None)  # type: ignore[arg-type]  # it needs no folder


@pytest.fixture
def topic_configs() -> Mapping[str, str]:
    """A topic that refuses what is above 2,000 bytes."""
    return {"max_message_bytes": "2000"}
