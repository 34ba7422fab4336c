"""Page 5: the producers of this process, what their batches wait for, and where the time of records goes."""

from __future__ import annotations

from collections import Counter

import attrs

from splashdam.console.routes import Page, Parts, Route, Visit
from splashdam.model.errors import KafkaError
from splashdam.model.views.producer import ProducerView, QueueView
from splashdam.model.views.standing import Standing
from splashdam.net.http import HttpAnswer

_SHOWN = 20
"""A page holds no more producers than this, and says how many there are."""


@attrs.frozen
class Summary:
    """Partitions that stand alike.

    Attributes:
        standing: how.
        count: how many they are.
    """

    standing: Standing
    count: int


async def producers(visit: Visit) -> HttpAnswer:
    """Show the producers that run in this process."""
    views = []
    found = visit.parts.producers()
    for producer in found[:_SHOWN]:
        try:
            views.append(producer.inspect())
        except KafkaError:  # it belongs to the process that this one was forked from
            continue
    return await visit.show(
        "producer.html",
        producers=[(view, _summary(view)) for view in sorted(views, key=lambda view: view.client_id)],
        count_of_producers=len(found),
        filled=_filled,
    )


def _summary(view: ProducerView) -> list[Summary]:
    counted = Counter(queue.standing for queue in view.queues if queue.standing is not None)
    return [Summary(standing, count) for standing, count in counted.most_common()]


def _filled(queue: QueueView) -> int:
    """Return the part of its limit that the last queued batch has, in percent."""
    return min(100, 100 * queue.queued[-1].size_bytes // queue.limit_bytes) if queue.queued else 0


def _has_some(parts: Parts) -> bool:
    return bool(parts.producers())


PAGE = Page(
    name="Producers",
    order=5,
    key="p",
    routes=(Route("GET", "/producers", producers),),
    is_shown=_has_some,
)
