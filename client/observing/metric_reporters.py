"""Tells the application's metric reporters which metrics there are (kafka-python's ``metric_reporters``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from splashdam.client.observing.metric_objects import KafkaMetric, MetricName
from splashdam.client.observing.metrics import ProducerMetrics

logger = logging.getLogger("splashdam.client")


class Reporters:
    """The reporters of one producer. What they raise later than in ``init`` is logged.

    Args:
        given: objects, or classes to be called without arguments.
        metrics: what they hear of.
    """

    def __init__(self, given: Sequence[Any], metrics: ProducerMetrics) -> None:
        self._metrics = metrics
        self._reporters = [each() if isinstance(each, type) else each for each in given]
        self._known: dict[MetricName, KafkaMetric] = metrics.objects()
        for reporter in self._reporters:
            reporter.init(list(self._known.values()))

    def refresh(self) -> None:
        """Tells them what is new and what is gone."""
        found = self._metrics.objects()
        new = [metric for name, metric in found.items() if name not in self._known]
        gone = [metric for name, metric in self._known.items() if name not in found]
        self._known = {name: self._known.get(name, metric) for name, metric in found.items()}
        for metric in new:
            self._tell("metric_change", metric)
        for metric in gone:
            self._tell("metric_removal", metric)

    def close(self) -> None:
        """The producer has ended."""
        self._tell("close")

    def _tell(self, what: str, *arguments: KafkaMetric) -> None:
        for reporter in self._reporters:
            try:
                getattr(reporter, what)(*arguments)
            except Exception:
                logger.exception("a metric reporter raised in %s", what)
