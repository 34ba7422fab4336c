"""Embedded brokers as programs get them, in ``splashdam``: with faults, a request log and a clock."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, cast

from splashdam.embedded_broker import embedded
from splashdam.net.clock import LoopClock
from splashdam.testing.steered_clock import SteeredClock

if TYPE_CHECKING:
    from splashdam.embedded_broker.serving.interception import Interception
    from splashdam.testing.faults.faults import Faults
    from splashdam.testing.faults.request_log import RequestLog


class UnderTest:
    """What tests do with a broker or a cluster, from any thread, whether it runs or not."""

    _CLOCK: type[LoopClock] = SteeredClock
    _clock: LoopClock
    _interception: Interception

    @cached_property
    def faults(self) -> Faults:
        """What is to go wrong; it outlives restarts."""
        from splashdam.testing.faults.faults import Faults

        return Faults(self._interception)

    @property
    def requests(self) -> RequestLog:
        """What the brokers were asked: ``requests.start()`` begins to log."""
        return self.faults.requests

    @property
    def clock(self) -> SteeredClock:
        """The brokers' clock, which can be set, stepped, frozen and advanced."""
        return cast("SteeredClock", self._clock)


class EmbeddedBroker(UnderTest, embedded.EmbeddedBroker):
    __doc__ = embedded.EmbeddedBroker.__doc__
