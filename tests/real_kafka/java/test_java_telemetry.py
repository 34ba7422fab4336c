"""Java's own producer pushes its metrics to the embedded broker (KIP-714)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.kafka.kafka_jars import VERSIONS, need_tools, run_tool

from splashdam.client.observing.metric_table import MISSING, NODE, OWN, PRODUCER, TOPIC
from splashdam.client.observing.telemetry import telemetry_name
from splashdam.embedded_broker.embedded import EmbeddedBroker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

TABLES = {
    "producer-metrics": (*PRODUCER, *OWN),
    "producer-node-metrics": NODE,
    "producer-topic-metrics": TOPIC,
}


def missing(name: str) -> bool:
    """Whether docs/reference/metrics.md says that we have no such metric."""
    patterns = [each.split(" ")[0] for names in MISSING for each in names.split(", ")]
    dashed = name.removeprefix("org.apache.kafka.producer.").replace(".", "-")
    return any(dashed == each or (each[-1] == "*" and dashed.startswith(each[:-1])) for each in patterns)


@pytest.mark.parametrize("version", VERSIONS)
def test_java_pushes_what_we_have_names_for(version: str, tmp_path: Path) -> None:
    """All its producer metrics have their names here, but for those that the page says are missing."""
    need_tools(version)
    with EmbeddedBroker(tmp_path) as broker:
        broker.telemetry.subscribe(interval_ms=200)
        run_tool(
            version,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "t", "--num-records", "40", "--record-size", "10", "--throughput", "20"),
            *("--producer-props", f"bootstrap.servers={broker.bootstrap_servers}", "client.id=java"),
        )
        pushes = list(broker.telemetry.pushes)
    assert {push.client_id for push in pushes} == {"java"}
    ours = {telemetry_name(group, row.name) for group, rows in TABLES.items() for row in rows}
    theirs = {
        name
        for push in pushes
        for name in push.names()
        if name.startswith("org.apache.kafka.producer.") and "coordinator" not in name
    }
    assert len(theirs & ours) > 50
    assert sorted(name for name in theirs - ours if not missing(name)) == []
