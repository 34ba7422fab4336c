"""Embedded brokers as programs get them, in ``splashdam``: with faults, a request log and a clock."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from splashdam.embedded_broker import embedded
from splashdam.testing.steered_clock import SteeredClock

if TYPE_CHECKING:
    from splashdam.testing.faults.faults import Faults
    from splashdam.testing.faults.request_log import RequestLog


class EmbeddedBroker(embedded.EmbeddedBroker):
    __doc__ = embedded.EmbeddedBroker.__doc__

    _CLOCK = SteeredClock

    @cached_property
    def faults(self) -> Faults:
        """What is to go wrong; it outlives restarts. From any thread."""
        from splashdam.testing.faults.faults import Faults

        return Faults(self._interception)

    @property
    def requests(self) -> RequestLog:
        """What the broker was asked: ``broker.requests.start()`` begins to log. From any thread."""
        return self.faults.requests

    @property
    def clock(self) -> SteeredClock:
        """The broker's clock, which can be set, stepped, frozen and advanced. From any thread."""
        return cast("SteeredClock", self._clock)
