"""The producers that an exporter reads, held weakly."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from splashdam.client.base import ProducerBase
from splashdam.client.observing.metric_table import Kind
from splashdam.client.observing.metrics import ProducerMetrics, Scope

EXPORTED = frozenset(Kind) - {Kind.RATE}
"""The exported kinds. Rates are left out: monitoring systems compute them from totals."""


class WatchedProducers:
    """A set of producers; closed and collected ones and copies in forked children are skipped."""

    def __init__(self) -> None:
        self._producers: weakref.WeakSet[ProducerBase[Any]] = weakref.WeakSet()

    def add(self, producer: ProducerBase[Any]) -> None:
        self._producers.add(producer)

    def remove(self, producer: ProducerBase[Any]) -> None:
        """Remove a producer; nothing happens if it is not there."""
        self._producers.discard(producer)

    def scopes(self) -> Iterator[tuple[str, Scope]]:
        """Yield client id and metric group, for every group of every producer."""
        for producer in list(self._producers):
            core = producer._core
            if core.is_alive_here():
                metrics = ProducerMetrics(core)
                for scope in metrics.scopes():
                    if scope.parts:
                        yield metrics.client_id, scope
