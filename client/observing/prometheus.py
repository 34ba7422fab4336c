"""A Prometheus collector for producers' metrics (``pip install 'splashdam[prometheus]'``).

    from prometheus_client import start_http_server
    from splashdam.client.observing.prometheus import register

    register(producer)
    start_http_server(9100)

Names are Kafka's: ``kafka_producer_record_send_total{client_id="…"}``, ``kafka_producer_node_…`` with
``node_id``, ``kafka_producer_topic_…`` with ``topic``. Rates are left out; Prometheus computes them from
totals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from splashdam.client.base import ProducerBase
from splashdam.client.observing.exporting import EXPORTED, WatchedProducers
from splashdam.client.observing.metric_table import Kind

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ImportError(
        "splashdam.client.observing.prometheus needs prometheus-client: pip install 'splashdam[prometheus]'"
    ) from error


class KafkaProducerCollector(Collector):
    """Reads any number of producers at each scrape; holds them weakly and skips closed ones."""

    def __init__(self) -> None:
        self._watched = WatchedProducers()

    def add(self, producer: ProducerBase[Any]) -> None:
        self._watched.add(producer)

    def remove(self, producer: ProducerBase[Any]) -> None:
        self._watched.remove(producer)

    def describe(self) -> list[Metric]:
        """Return nothing: the metrics depend on the producers."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all metrics of all producers."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for client_id, scope in self._watched.scopes():
            labels = ["client_id", *(tag.replace("-", "_") for tag in scope.tags)]
            for row in scope.rows:
                if row.kind not in EXPORTED:
                    continue
                name = prometheus_name(scope.kind, row.name)
                family = families.get(name)
                if family is None:
                    kind = CounterMetricFamily if row.kind is Kind.TOTAL else GaugeMetricFamily
                    family = families[name] = kind(name, f"{row.doc} ({row.unit})", labels=labels)
                family.add_metric([client_id, *scope.tags.values()], scope.value(row))
        yield from families.values()


def prometheus_name(kind: str, name: str) -> str:
    """``kafka_producer_node_request_rate`` of ``producer-node-metrics`` and ``request-rate``."""
    return f"kafka_{kind.removesuffix('-metrics')}_{name}".replace("-", "_")


def register(*producers: ProducerBase[Any], registry: CollectorRegistry = REGISTRY) -> KafkaProducerCollector:
    """Register a collector for these producers, by default in prometheus_client's registry.

    Returns:
        the collector, to which more producers can be added.
    """
    collector = KafkaProducerCollector()
    for producer in producers:
        collector.add(producer)
    registry.register(collector)
    return collector
