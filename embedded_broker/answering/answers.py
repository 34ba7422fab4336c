"""What a handler may answer, and where clients are told to come."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

import attrs

from splashdam.wire.fields import Part
from splashdam.wire.message import Response


class Address(NamedTuple):
    """Where a client reaches the broker; answers name it as the broker's address (facts B8)."""

    host: str
    port: int


@attrs.frozen
class Parked:
    """An answer that is not ready yet: the connection first sends what it owes, then awaits ``wait()``.

    The frame's memory stays until the answer is sent, and is reused then: whoever goes on with the request
    for longer keeps no ``memoryview`` of it.
    """

    wait: Callable[[], Awaitable[Response | None]]
    lets_others_begin: bool = False
    """Whether later requests of the connection may be handled meanwhile; their answers still come later."""


Answer: TypeAlias = Response | Parked | None
"""None where Kafka sends no answer (``acks=0``)."""


class CloseConnectionError(Exception):
    """A wish to close this connection without an answer: a handler's, or an interceptor's.

    Args:
        reason: goes to the log.
        parts: an interceptor's last bytes, whatever they are, perhaps none; None where it is no interceptor
            that wants it so, and the log warns.

    Attributes:
        parts: as given.
    """

    def __init__(self, reason: str, parts: list[Part] | None = None) -> None:
        super().__init__(reason)
        self.parts = parts


ANONYMOUS = "User:ANONYMOUS"
"""Who has not said who they are."""


class Requester(NamedTuple):
    """Who asks, and from where."""

    principal: str
    host: str


ANYBODY = Requester(ANONYMOUS, "127.0.0.1")
"""A client of the same process."""
