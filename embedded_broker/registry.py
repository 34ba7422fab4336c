"""Which API keys the broker answers, in which versions, and who answers them.

A handler is a plain function, decorated with ``handles``; ApiVersions is computed from what is registered, so
that an API is added by adding a file to ``handlers/``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import attrs

from splashdam.wire.message import Request, Response

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker
    from splashdam.embedded_broker.security.session import SaslSession

RequestT = TypeVar("RequestT", bound=Request[Any])


class Address(NamedTuple):
    """Where a client reaches the broker; answers name it as the broker's address (facts B8)."""

    host: str
    port: int


class RequestContext(NamedTuple):
    """What a handler knows besides the request."""

    broker: Broker
    version: int
    """Version of the request, and so of the answer."""
    client_id: str | None
    address: Address
    session: SaslSession | None = None
    """Who the client is, where the listener asks for that."""


@attrs.frozen
class Parked:
    """An answer that is not ready yet: the connection first sends what it owes, then awaits ``wait()``.

    The frame's memory stays until the answer is sent, and is reused then: whoever goes on with the request
    for longer keeps no ``memoryview`` of it.
    """

    wait: Callable[[], Awaitable[Response | None]]
    lets_others_begin: bool = False
    """Whether later requests of the connection may be handled meanwhile; their answers still come later."""


class CloseConnectionError(Exception):
    """A handler's wish: close this connection without an answer. The text goes to the log."""


Answer: TypeAlias = Response | Parked | None
"""None where Kafka sends no answer (``acks=0``)."""


@attrs.frozen
class RegisteredApi:
    """One API key as this broker serves it."""

    request: type[Request[Any]]
    handler: Callable[[Any, RequestContext], Answer]
    versions: range
    advertised_from: int
    unknown_version: Callable[[], Response] | None


_APIS: dict[int, RegisteredApi] = {}


def handles(
    request: type[RequestT],
    *,
    versions: range,
    advertised_from: int | None = None,
    unknown_version: Callable[[], Response] | None = None,
) -> Callable[[Callable[[RequestT, RequestContext], Answer]], Callable[[RequestT, RequestContext], Answer]]:
    """Registers a function as the handler of a request.

    Args:
        request: message class from ``wire.messages``.
        versions: versions that are answered.
        advertised_from: lowest version that ApiVersions names, where that is not the lowest answered.
        unknown_version: makes the answer, in version 0, to any other version; without it the connection
            closes.
    """

    def register(
        handler: Callable[[RequestT, RequestContext], Answer],
    ) -> Callable[[RequestT, RequestContext], Answer]:
        lowest = versions.start if advertised_from is None else advertised_from
        _APIS[request.API_KEY] = RegisteredApi(request, handler, versions, lowest, unknown_version)
        return handler

    return register


@cache
def registered_apis() -> dict[int, RegisteredApi]:
    """Every API key the broker answers; the first call imports the handlers."""
    handlers = importlib.import_module("splashdam.embedded_broker.handlers")
    for module in pkgutil.iter_modules(handlers.__path__, handlers.__name__ + "."):
        importlib.import_module(module.name)
    return _APIS
