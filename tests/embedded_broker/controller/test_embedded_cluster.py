"""EmbeddedCluster: the same from programs without trio, over real sockets, as other clients see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kafka
import pytest

from splashdam import EmbeddedBroker, EmbeddedCluster, KafkaProducer
from splashdam.model.broker_errors import KafkaStorageError
from splashdam.model.errors import IllegalStateError, KafkaConfigurationError, KafkaTimeoutError
from splashdam.testing.topics import create_topic


def test_a_leader_is_killed_between_two_sends(tmp_path: Path) -> None:
    """Both are delivered; kafka-python reads them, and sees three brokers and who leads."""
    with EmbeddedCluster(tmp_path, fsync=False) as cluster:
        assert cluster.nodes == [1, 2, 3]
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            producer.send("t", b"before").get(timeout=300)
            leader = cluster.leader_of("t")
            assert set(cluster.replicas_of("t")) == {1, 2, 3}
            cluster.kill(leader)
            assert not cluster.is_up(leader)
            producer.send("t", b"after").get(timeout=300)
            with pytest.raises(KafkaTimeoutError, match="not all replicas"):
                cluster.wait_in_sync(timeout_s=0)
            cluster.start(leader)
            cluster.wait_in_sync()
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        consumer.assign([kafka.TopicPartition("t", 0)])
        assert [next(consumer).value for _ in range(2)] == [b"before", b"after"]
        consumer.close()
        cluster.elect_preferred_leaders()
        assert cluster.leader_of("t") == cluster.replicas_of("t")[0]
    with pytest.raises(IllegalStateError, match="this cluster does not run"):
        cluster.leader_of("t")


def test_two_clusters_cannot_share_a_directory(tmp_path: Path) -> None:
    """The error names the process that holds it; the first cluster goes on."""
    with EmbeddedCluster(tmp_path, 1, fsync=False) as cluster:
        with pytest.raises(IllegalStateError, match="use"):
            EmbeddedCluster(tmp_path, 1, fsync=False).start()
        cluster.restart(1)
        cluster.stop(1)
        cluster.stop(1)
        cluster.start(1)


@pytest.mark.parametrize(
    "options", [{"brokers": "3"}, {"brokers": None}, {"brokers": 2.5}, {"brokers": True}]
)
def test_a_number_of_brokers_that_is_none_was_a_type_error(tmp_path: Path, options: dict[str, Any]) -> None:
    """The text names the argument."""
    with pytest.raises(KafkaConfigurationError, match=r"brokers=.*whole number"):
        EmbeddedCluster(tmp_path, **options).start()


def test_ports_beyond_the_last_one(tmp_path: Path) -> None:
    """The third broker would have port 65536, which the system took for 0."""
    with pytest.raises(KafkaConfigurationError, match="port=65534: 3 brokers"):
        EmbeddedCluster(tmp_path, 3, port=65_534).start()


@pytest.mark.parametrize("name", ["broker.id", "node.id"])
def test_a_node_id_of_a_cluster_was_ignored(tmp_path: Path, name: str) -> None:
    """Its brokers are numbered."""
    with pytest.raises(KafkaConfigurationError, match=f"{name} cannot be set.* are 1 to 3"):
        EmbeddedCluster(tmp_path, config={name: 7}).start()


def test_the_directory_of_a_broker_looked_like_an_empty_cluster(tmp_path: Path) -> None:
    """Its topics seemed to be gone; likewise the other way round, and both are refused."""
    with EmbeddedBroker(tmp_path / "broker", fsync=False):
        pass
    with pytest.raises(KafkaStorageError, match="of a single broker"):
        EmbeddedCluster(tmp_path / "broker", fsync=False).start()
    with EmbeddedCluster(tmp_path / "cluster", 1, fsync=False):
        pass
    with pytest.raises(KafkaStorageError, match="of a cluster; open it with EmbeddedCluster"):
        EmbeddedBroker(tmp_path / "cluster", fsync=False).start()


def test_fewer_brokers_than_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those that are missing are down: replicas that wanted to follow one failed with a KeyError."""
    with EmbeddedCluster(tmp_path, fsync=False) as cluster:
        create_topic(cluster.bootstrap_servers, "t", 6)
    with EmbeddedCluster(tmp_path, 2, fsync=False) as cluster:
        assert {cluster.leader_of("t", each) for each in range(6)} <= {1, 2}
    assert "KeyError" not in caplog.text
