"""The producers of this process that can be inspected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from splashdam.model.alive import AliveSet

if TYPE_CHECKING:
    from splashdam.model.views.producer import ProducerView


class Inspected(Protocol):
    """A producer that says how it is."""

    def inspect(self) -> ProducerView:
        """Return how it is now; from any thread."""
        ...


PRODUCERS: AliveSet[Inspected] = AliveSet()
"""The producers of this process that run, for a console in it."""
