"""Metrics as objects, for ``metrics(raw=True)`` and for metric reporters: kafka-python's, by shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs


@attrs.frozen
class MetricName:
    """What a metric is called; equal where name, group and tags are.

    Attributes:
        name: for example ``record-send-rate``.
        group: for example ``producer-metrics``.
        description: meaning and unit.
    """

    name: str
    group: str
    description: str = attrs.field(eq=False)
    _tags: tuple[tuple[str, str], ...]

    @property
    def tags(self) -> dict[str, str]:
        """``client-id``, and ``node-id`` or ``topic`` where the group is of one. A copy."""
        return dict(self._tags)


class KafkaMetric:
    """A metric that can be read at any time.

    Attributes:
        metric_name: what it is called.
    """

    __slots__ = ("_read", "metric_name")

    def __init__(self, metric_name: MetricName, read: Callable[[], float]) -> None:
        self.metric_name = metric_name
        self._read = read

    def value(self, time_ms: float | None = None) -> float:
        """The value now. ``time_ms`` is kafka-python's, and has no effect: time is the producer's clock."""
        return self._read()

    def __repr__(self) -> str:
        return f"<KafkaMetric {self.metric_name.group} {self.metric_name.name}>"


class MetricsReporter(Protocol):
    """What ``metric_reporters`` takes: kafka-python's ``AbstractMetricsReporter``, by shape."""

    def init(self, metrics: list[KafkaMetric], /) -> None:
        """The producer begins, with these metrics."""

    def metric_change(self, metric: KafkaMetric, /) -> None:
        """There is a new metric, because a topic or broker was used for the first time."""

    def metric_removal(self, metric: KafkaMetric, /) -> None:
        """A metric is gone, because its broker has left."""

    def close(self) -> None:
        """The producer has ended."""
