"""Which producers an exporter reads: weakly, so that it keeps none alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from splashdam.client.base import ProducerBase
from splashdam.client.observing.metric_table import Kind
from splashdam.client.observing.metrics import ProducerMetrics, Scope

EXPORTED = frozenset(Kind) - {Kind.RATE}
"""Rates are left out: who stores totals can tell the rate over any time."""


class WatchedProducers:
    """A set of producers; those that are closed, collected, or a forked child's copy are passed over."""

    def __init__(self) -> None:
        self._producers: weakref.WeakSet[ProducerBase] = weakref.WeakSet()

    def add(self, producer: ProducerBase) -> None:
        """Reads this one, too."""
        self._producers.add(producer)

    def remove(self, producer: ProducerBase) -> None:
        """Reads it no more; one that is not there is no error."""
        self._producers.discard(producer)

    def scopes(self) -> Iterator[tuple[str, Scope]]:
        """Client id and group, of every group of every producer."""
        for producer in list(self._producers):
            core = producer._core
            if core.is_alive_here():
                metrics = ProducerMetrics(core)
                for scope in metrics.scopes():
                    if scope.parts:
                        yield metrics.client_id, scope
