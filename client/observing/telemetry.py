"""The metrics of a producer as OpenTelemetry messages, for brokers that ask for them (KIP-714).

Needs ``opentelemetry-proto`` (``pip install 'splashdam[telemetry]'``), imported when a broker first asks for
metrics.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from splashdam.client.observing.metric_table import Kind, Metric
from splashdam.client.observing.metrics import Measured, ProducerMetrics, Scope
from splashdam.sender.telemetry.telemetry import Wanted

PREFIX = "org.apache.kafka."


@cache
def telemetry_name(kind: str, name: str) -> str:
    """Return a metric's name in KIP-714, for example ``org.apache.kafka.producer.record.send.total``."""
    return PREFIX + f"{kind.replace('-metrics', '')}.{name}".replace("-", ".")


class MetricsEncoder:
    """Encodes a producer's metrics; remembers the totals of the last message, since brokers may want the
    increase.

    Args:
        core: the producer's core.
    """

    def __init__(self, core: Measured) -> None:
        self._metrics = ProducerMetrics(core)
        self._clock = core.clock
        self._started_ns = self._since_ns = core.clock.wall_ns()
        self._last_totals: dict[tuple[str, str], float] = {}

    def __call__(self, wanted: Wanted) -> bytes:
        """Return a ``MetricsData`` message; empty if the producer has none of the wanted metrics.

        Raises:
            ImportError: ``opentelemetry-proto`` is not installed.
        """
        from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp

        now_ns = self._clock.wall_ns()
        found = []
        for scope in self._metrics.scopes():
            for row in scope.rows:
                name = telemetry_name(scope.kind, row.name)
                # The group that counts the metrics has no parts: it is kafka-python's alone.
                if scope.parts and wanted.wants(name):
                    metric = otlp.Metric(name=name, description=row.doc, unit=row.unit)
                    self._fill(metric, scope, row, wanted, now_ns)
                    found.append(metric)
        self._since_ns = now_ns
        if not found:
            return b""
        metrics = otlp.ScopeMetrics(metrics=found)
        data = otlp.MetricsData(resource_metrics=[otlp.ResourceMetrics(scope_metrics=[metrics])])
        return bytes(data.SerializeToString())

    def _fill(self, metric: Any, scope: Scope, row: Metric, wanted: Wanted, now_ns: int) -> None:
        value = scope.value(row)
        if row.kind is not Kind.TOTAL:
            point = metric.gauge.data_points.add(time_unix_nano=now_ns, as_double=value)
        else:
            since_ns = self._started_ns
            if wanted.delta:
                key = (scope.group, row.name)
                value, self._last_totals[key] = value - self._last_totals.get(key, 0.0), value
                since_ns = self._since_ns
            # OpenTelemetry's numbers: 1 is DELTA, 2 is CUMULATIVE.
            metric.sum.aggregation_temporality = 1 if wanted.delta else 2
            metric.sum.is_monotonic = True
            point = metric.sum.data_points.add(
                start_time_unix_nano=since_ns, time_unix_nano=now_ns, as_double=value
            )
        for tag, text in scope.tags.items():
            point.attributes.add(key=tag.replace("-", "_")).value.string_value = text
