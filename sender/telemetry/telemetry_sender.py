"""When a sender begins to push metrics, and when that has to end (KIP-714).

What to ask and to push is known to ``telemetry``, which is loaded once a broker offers to take metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from splashdam.sender.context import SenderContext
from splashdam.sender.links import BrokerLink, LinkDirectory, LinkState

if TYPE_CHECKING:
    from splashdam.sender.telemetry.telemetry import Telemetry

TELEMETRY_KEY = 71

MakeTelemetry = Callable[[SenderContext, LinkDirectory], "Telemetry"]


class TelemetrySender:
    """The part of a sender's turns that pushes metrics.

    Args:
        context: what all parts share.
        links: the ways to brokers.

    Attributes:
        make: makes what pushes metrics to a broker that may ask for them; None to push none.
        pushing: what was made, None until a broker offers to take metrics.
        wants_link: somebody waits for a connection to any broker, though nothing may be there to send.
    """

    def __init__(self, context: SenderContext, links: LinkDirectory) -> None:
        self._context = context
        self._links = links
        self.make: MakeTelemetry | None = None
        self.pushing: Telemetry | None = None
        self.wants_link = False

    def act(self, nursery: trio.Nursery, now_ms: float, *, closing: bool) -> float:
        """Pushes metrics where that is due. The guard is held. Needless, but harmless, while there is neither
        ``pushing`` nor ``wants_link``.

        Returns:
            how long until the next time.
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

    def connect_soon(self) -> None:
        """From any thread: connects to some broker even where nothing is to be sent."""
        self.wants_link = not any(link.state is LinkState.READY for link in list(self._links))
        self._context.wakeup.wake()

    def link_opened(self, link: BrokerLink) -> None:
        """Where the broker may ask for metrics, it will be asked whether it does."""
        self.wants_link = False
        if self.make is not None and self.pushing is None and link.offers(TELEMETRY_KEY):
            self.pushing = self.make(self._context, self._links)
            self._context.wakeup.wake()

    def finished(self) -> bool:
        """Whether nobody has to wait for the last push any more."""
        return self.pushing is None or self.pushing.ended
