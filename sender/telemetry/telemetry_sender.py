"""Starts and ends the push of client metrics in the sender's turns (KIP-714).

The protocol itself is in ``telemetry.py``, which is imported once a broker supports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from splashdam.sender.broker_links import BrokerLink, BrokerLinks, LinkState
from splashdam.sender.context import SenderContext

if TYPE_CHECKING:
    from splashdam.sender.telemetry.telemetry import Telemetry

TELEMETRY_KEY = 71

MakeTelemetry = Callable[[SenderContext, BrokerLinks], "Telemetry"]


class TelemetrySender:
    """The part of a sender's turns that pushes metrics.

    Args:
        context: shared by all parts of the sender.
        links: the connections to brokers.

    Attributes:
        make: makes a ``Telemetry``; None with metrics push disabled.
        pushing: the telemetry, None until a broker supports it.
        wants_link: a caller waits for a connection to any broker, even if no record is to be sent.
    """

    def __init__(self, context: SenderContext, links: BrokerLinks) -> None:
        self._context = context
        self._links = links
        self.make: MakeTelemetry | None = None
        self.pushing: Telemetry | None = None
        self.wants_link = False

    def act(self, nursery: trio.Nursery, now_ms: float, *, closing: bool) -> float:
        """Send telemetry requests that are due. The guard is held.

        Has no effect without ``pushing`` and ``wants_link``.

        Returns:
            milliseconds until the next call.
        """
        context, pushing = self._context, self.pushing
        delay_ms = math.inf
        if self.wants_link:
            delay_ms = self._links.want_any(context.metadata.cluster, nursery, now_ms)
        if pushing is not None:
            if closing and not context.accumulator.has_incomplete:
                pushing.close(now_ms)
            elif now_ms >= pushing.due_ms:
                pushing.act(now_ms)
            if pushing.due_ms > now_ms:
                delay_ms = min(delay_ms, pushing.due_ms - now_ms)
        return delay_ms

    def due_in_ms(self, now_ms: float) -> float:
        """Milliseconds until `act` has to be called; 0 or less: now."""
        if self.wants_link:
            return 0.0
        return math.inf if self.pushing is None else self.pushing.due_ms - now_ms

    def connect_soon(self) -> None:
        """Connect to some broker even if no record is to be sent. From any thread."""
        self.wants_link = not any(link.state is LinkState.READY for link in list(self._links))
        self._context.wakeup.wake()

    def link_opened(self, link: BrokerLink) -> None:
        """Start telemetry if the broker supports it."""
        self.wants_link = False
        if self.make is not None and self.pushing is None and link.offers(TELEMETRY_KEY):
            self.pushing = self.make(self._context, self._links)
            self._context.wakeup.wake()

    def finished(self) -> bool:
        """Whether closing need not wait for the last push."""
        return self.pushing is None or self.pushing.ended
