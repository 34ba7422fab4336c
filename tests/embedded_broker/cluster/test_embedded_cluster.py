"""EmbeddedCluster: the same from programs without trio, over real sockets, as other clients see it."""

from __future__ import annotations

from pathlib import Path

import kafka
import pytest

from splashdam import EmbeddedCluster, KafkaProducer
from splashdam.model.errors import IllegalStateError, KafkaTimeoutError


def test_a_leader_is_killed_between_two_sends(tmp_path: Path) -> None:
    """Both are delivered; kafka-python reads them, and sees three brokers and who leads."""
    with EmbeddedCluster(tmp_path, fsync=False) as cluster:
        assert cluster.nodes == [1, 2, 3]
        with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
            producer.send("t", b"before").get(timeout=30)
            leader = cluster.leader_of("t")
            assert set(cluster.replicas_of("t")) == {1, 2, 3}
            cluster.kill(leader)
            assert not cluster.is_up(leader)
            producer.send("t", b"after").get(timeout=30)
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
    """The second one is told who has it; the first goes on."""
    with EmbeddedCluster(tmp_path, 1, fsync=False) as cluster:
        with pytest.raises(IllegalStateError, match="use"):
            EmbeddedCluster(tmp_path, 1, fsync=False).start()
        cluster.restart(1)
        cluster.stop(1)
        cluster.stop(1)
        cluster.start(1)
