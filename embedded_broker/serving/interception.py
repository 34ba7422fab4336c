"""Where somebody may stand between clients and handlers: faults and request logs (``splashdam.testing``).

A broker without an interceptor asks once for each wake of a connection whether there is one. With one, every
request takes the long way, one at a time for each connection, and its answer is what the interceptor says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import attrs

from splashdam.embedded_broker.answering.answers import Answer, Parked
from splashdam.embedded_broker.answering.encoding import encode_answer
from splashdam.embedded_broker.serving.registry import RequestContext
from splashdam.wire.fields import Part
from splashdam.wire.message import Request, Response


class SilencedError(Exception):
    """An interceptor's wish: read on from this connection, and never answer again."""


@attrs.frozen
class Arrived:
    """A request on its way to its handler.

    Attributes:
        request: as decoded, from memory of its own: it may be kept.
        context: what the handler is told besides.
        correlation_id: what its answer begins with.
        handler: who answers usually.
    """

    request: Request[Any]
    context: RequestContext
    correlation_id: int
    handler: Callable[[Any, RequestContext], Answer]

    async def handle(self, request: Request[Any] | None = None) -> Response | None:
        """The usual answer, waited for where that is needed; None where there is none (``acks=0``).

        Args:
            request: asked instead of ``request``.

        Raises:
            CloseConnectionError: the handler refuses to answer.
        """
        answer = self.handler(self.request if request is None else request, self.context)
        return await answer.wait() if isinstance(answer, Parked) else answer

    def encode(self, answer: Response) -> list[Part]:
        """An answer as it would be sent."""
        return encode_answer(answer, version=self.context.version, correlation_id=self.correlation_id)


class Interceptor(Protocol):
    """Who stands between. Its methods are called in the broker's loop."""

    def admits(self, node_id: int) -> bool:
        """Whether a connection that was just made to a broker is served, or closed at once."""
        ...

    async def intercept(self, arrived: Arrived) -> Response | None:
        """What a request is answered; None: nothing.

        Raises:
            CloseConnectionError: the connection is to be closed, perhaps behind some last bytes.
            SilencedError: this request and all that follow on its connection get no answer.
        """
        ...


class Interception:
    """The place of an interceptor; several brokers may share one.

    Attributes:
        interceptor: who stands there, None: nobody. It may be changed at any time and from any thread: what
            arrives later goes by it.
    """

    __slots__ = ("interceptor",)

    def __init__(self) -> None:
        self.interceptor: Interceptor | None = None


def parked_with(interceptor: Interceptor, arrived: Arrived) -> Parked:
    """The answer of a request that goes by an interceptor."""
    return Parked(partial(interceptor.intercept, arrived))
