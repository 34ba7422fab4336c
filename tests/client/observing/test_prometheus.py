"""The Prometheus collector: read as Prometheus reads it."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.running.doc_pages import blocks
from support.running.process_kit import run_script

from splashdam import EmbeddedBroker, KafkaProducer
from splashdam.client.observing.prometheus import register


def samples(registry: CollectorRegistry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Name and labels -> value, through the text that a server would send."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_two_producers_side_by_side(tmp_path: Path) -> None:
    """Labels tell them apart, and their topics and brokers; closed ones are shown no more."""
    registry = CollectorRegistry()
    with EmbeddedBroker(tmp_path, fsync=False) as broker:
        options = {"bootstrap_servers": broker.bootstrap_servers}
        first = KafkaProducer(client_id="first", **options)
        collector = register(first, registry=registry)
        with first, KafkaProducer(client_id="second", **options) as second:
            collector.add(second)
            for producer, count in ((first, 1), (second, 2)):
                for _ in range(count):
                    producer.send("t", b"value").get(300)
            found = samples(registry)
            for client_id, count in (("first", 1), ("second", 2)):
                label = ("client_id", client_id)
                assert found["kafka_producer_record_send_total", frozenset({label})] == count
                topic = frozenset({label, ("topic", "t")})
                assert found["kafka_producer_topic_record_send_total", topic] == count
                node = frozenset({label, ("node_id", "1")})
                assert found["kafka_producer_node_request_latency_avg", node] > 0
            assert "kafka_producer_request_rate" not in {name for name, _ in found}
            collector.remove(second)
            assert {dict(labels)["client_id"] for _, labels in samples(registry)} == {"first"}
        assert samples(registry) == {}
    collected = KafkaProducer()
    collector.add(collected)
    assert samples(registry)
    del collected, producer
    gc.collect()
    assert samples(registry) == {}


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [("prometheus", "prometheus_client", "prometheus"), ("otel", "opentelemetry", "otel")],
)
def test_without_the_library_the_error_says_what_to_install(module: str, library: str, extra: str) -> None:
    script = (
        f"import sys; sys.modules[{library!r}] = None\n"
        f"try: import splashdam.client.observing.{module}\nexcept ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert f"pip install 'splashdam[{extra}]'" in done.stdout


def test_the_example_of_the_metrics_page(tmp_path: Path) -> None:
    """It runs, and what was sent is shown."""
    pytest.importorskip("opentelemetry", reason="needs splashdam[otel]")
    (block,) = blocks("reference/metrics.md", "python")
    code = block.text.replace("start_http_server(9100)", "server, thread = start_http_server(0, '127.0.0.1')")
    done = run_script(
        f"""{code}
from urllib.request import urlopen

producer.send("t", b"v").get(300)
port = server.server_address[1]
print('kafka_producer_record_send_total{{' in urlopen(f"http://127.0.0.1:{{port}}/metrics").read().decode())
producer.close()
server.shutdown()
server.server_close()
thread.join()
""",
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
