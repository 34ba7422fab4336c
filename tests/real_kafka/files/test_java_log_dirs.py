"""Kafka's own kafka-log-dirs and kafka-reassign-partitions see and move partitions of the embedded broker."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from support.kafka.kafka_jars import need_tools, run_tool

from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def placed(version: str, servers: str) -> dict[str, list[str]]:
    """The partitions in each directory, as kafka-log-dirs prints them."""
    printed = run_tool(version, LOG_DIRS, "--bootstrap-server", servers, "--describe", "--topic-list", "t")
    (broker,) = json.loads(printed[printed.index("{") :])["brokers"]
    return {
        Path(each["logDir"]).name: [found["partition"] for found in each["partitions"]]
        for each in broker["logDirs"]
    }


def test_partitions_move_between_directories(version: str, tmp_path: Path) -> None:
    """Described, moved by a plan, verified, described again; every record is where it was."""
    need_tools(version)
    one, two = tmp_path / "one", tmp_path / "two"
    with EmbeddedBroker(one, log_dirs=f"{one},{two}", num_partitions=2) as broker:
        servers = broker.bootstrap_servers
        with KafkaProducer(bootstrap_servers=servers) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number, partition=number % 2)
        before = placed(version, servers)
        assert sorted(map(tuple, before.values())) == [("t-0",), ("t-1",)]
        moves = {"t-0": two if "t-0" in before["one"] else one, "t-1": two if "t-1" in before["one"] else one}
        plan = tmp_path / "plan.json"
        partitions = [
            {"topic": "t", "partition": number, "replicas": [1], "log_dirs": [str(moves[f"t-{number}"])]}
            for number in (0, 1)
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        arguments = ("--bootstrap-server", servers, "--reassignment-json-file", str(plan))
        assert "Successfully started moving log directory" in run_tool(
            version, REASSIGN, *arguments, "--execute"
        )
        for _ in range(20):
            verified = run_tool(version, REASSIGN, *arguments, "--verify")
            if verified.count("completed successfully") == 2:
                break
            time.sleep(0.5)
        assert placed(version, servers) == {"one": before["two"], "two": before["one"]}
