"""DescribeQuorum of a cluster: its controller is a quorum of one, which the other brokers observe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kafka

from splashdam import EmbeddedCluster


def quorum_of(servers: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The partition of the metadata and the voters' addresses, as kafka-python's admin has them."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=servers)
    try:
        answer = admin.describe_metadata_quorum()
    finally:
        admin.close()
    (topic,) = answer["topics"]
    (partition,) = topic["partitions"]
    return partition, answer["nodes"]


def ids(replicas: list[dict[str, Any]]) -> list[int]:
    return [each["replica_id"] for each in replicas]


def test_an_admin_client_sees_the_controller(tmp_path: Path) -> None:
    """If that broker is down, another one votes; every running broker has every change."""
    with EmbeddedCluster(tmp_path, fsync=False) as cluster:
        addresses = cluster.bootstrap_servers.split(",")
        for voter, observers in ((1, [2, 3]), (2, [3])):
            partition, nodes = quorum_of(addresses[2])
            assert partition["leader_id"] == voter
            assert (ids(partition["current_voters"]), ids(partition["observers"])) == ([voter], observers)
            ends = {each["log_end_offset"] for each in partition["current_voters"] + partition["observers"]}
            assert ends == {partition["high_watermark"]}
            (node,) = nodes
            (listener,) = node["listeners"]
            assert (node["node_id"], f"{listener['host']}:{listener['port']}") == (
                voter,
                addresses[voter - 1],
            )
            cluster.stop(voter)
