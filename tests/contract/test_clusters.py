"""The contract's cluster rows: on the embedded cluster, and on three nodes of a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.kafka.kafka_cluster import kafka_cluster
from support.kafka.kafka_jars import VERSIONS, classpath

from splashdam import EmbeddedCluster
from splashdam.testing.contract.cluster_behaviours import (
    CLUSTER_BEHAVIOURS,
    Brokers,
    ClusterBehaviour,
    hold_on_brokers,
)
from splashdam.testing.contract.running import Verdict

CONFIG = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers in this process."""
    with EmbeddedCluster(tmp_path_factory.mktemp("embedded"), fsync=False, config=CONFIG) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three nodes of the newest Kafka."""
    classpath(VERSIONS[0])
    with kafka_cluster(VERSIONS[0], tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", CLUSTER_BEHAVIOURS, ids=lambda each: each.name)
def test_on_the_embedded_cluster(behaviour: ClusterBehaviour, embedded: Brokers) -> None:
    """Brokers that share a process: none can hang alone."""
    result = hold_on_brokers(behaviour, embedded)
    assert result.verdict is (Verdict.LEFT_OUT if behaviour.freezes else Verdict.HOLDS), result.why


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("behaviour", CLUSTER_BEHAVIOURS, ids=lambda each: each.name)
def test_on_three_real_brokers(behaviour: ClusterBehaviour, real: Brokers) -> None:
    """What passes on the embedded cluster passes here."""
    result = hold_on_brokers(behaviour, real)
    assert result.verdict is Verdict.HOLDS, result.why
