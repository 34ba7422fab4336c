"""Which API keys the broker answers, in which versions, and who answers them.

A handler is a plain function, decorated with ``handles``; ApiVersions is computed from what is registered, so
that an API is added by adding a file to ``handlers/``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import attrs

from splashdam.embedded_broker.answering.answers import Address, Answer
from splashdam.embedded_broker.security.permissions import (
    ANYBODY,
    CLUSTER_NAME,
    Operation,
    Requester,
    ResourceType,
    all_operation_bits,
    operation_bits,
)
from splashdam.wire.message import Request, Response

if TYPE_CHECKING:
    from splashdam.embedded_broker.answering.turns import Account, Steps
    from splashdam.embedded_broker.broker import Broker
    from splashdam.embedded_broker.quotas.meter import Meter
    from splashdam.embedded_broker.security.session import SaslSession

RequestT = TypeVar("RequestT", bound=Request[Any])


@attrs.define
class Client:
    """Who is at the other end of a connection.

    Attributes:
        requester: who it is, and from where.
        meter: holds it to its quotas; None where no quota is set.
        is_trusted: it is a broker of the same cluster, in this process, which needs no ACLs.
    """

    requester: Requester = ANYBODY
    meter: Meter | None = None
    is_trusted: bool = False


class RequestContext(NamedTuple):
    """What a handler knows besides the request."""

    broker: Broker
    version: int
    """Version of the request, and so of the answer."""
    client_id: str | None
    address: Address
    account: Account
    """What the request takes."""
    session: SaslSession | None = None
    """Who the client is, where the listener asks for that."""
    client: Client = Client()

    @property
    def client_host(self) -> str:
        """The client's address, as Kafka writes it where it tells of members of groups."""
        return f"/{self.client.requester.host}"

    def authorize(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do this with the resource of this name; yes where nobody asks."""
        authorizer, client = self.broker.authorizer, self.client
        return (
            authorizer is None
            or client.is_trusted
            or authorizer.allows(client.requester, operation, kind, name)
        )

    def authorize_some(self, operation: Operation, kind: ResourceType) -> bool:
        """The same for at least one resource of a type."""
        authorizer, client = self.broker.authorizer, self.client
        return (
            authorizer is None
            or client.is_trusted
            or authorizer.allows_some(client.requester, operation, kind)
        )

    def authorized_operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """What the client may do with a resource, one bit for each operation."""
        if self.broker.authorizer is None:
            return all_operation_bits(kind)
        return operation_bits(kind, lambda operation: self.authorize(operation, kind, name))

    def record_mutations(self, partitions: int, *, strict_from: int) -> None:
        """Counts partitions that the request makes or removes, for controller_mutation_rate.

        Args:
            partitions: how many.
            strict_from: version of the request from which too many are refused, and not only slowed down.

        Raises:
            BrokerResponseError: THROTTLING_QUOTA_EXCEEDED (89).
        """
        if self.client.meter is not None:
            is_strict = self.version >= strict_from
            self.client.meter.record_mutations(partitions, self.client_id, is_strict=is_strict)


Handler: TypeAlias = "Callable[[RequestT, RequestContext], Answer | Steps[Any]]"
"""Answers a request; one that may need several turns of the loop is a generator (``turns.py``)."""


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
) -> Callable[[Handler[RequestT]], Handler[RequestT]]:
    """Registers a function as the handler of a request.

    Args:
        request: message class from ``wire.messages``.
        versions: versions that are answered.
        advertised_from: lowest version that ApiVersions names, where that is not the lowest answered.
        unknown_version: makes the answer, in version 0, to any other version; without it the connection
            closes.
    """

    def register(handler: Handler[RequestT]) -> Handler[RequestT]:
        lowest = versions.start if advertised_from is None else advertised_from
        plain: Any = _in_turns(handler) if inspect.isgeneratorfunction(handler) else handler
        _APIS[request.API_KEY] = RegisteredApi(request, plain, versions, lowest, unknown_version)
        return handler

    return register


def _in_turns(
    handler: Callable[[Any, RequestContext], Steps[Any]],
) -> Callable[[Any, RequestContext], Answer]:
    return lambda request, context: context.broker.turns.answer(handler(request, context), context.account)


@cache
def registered_apis() -> dict[int, RegisteredApi]:
    """Every API key the broker answers; the first call imports the handlers."""
    handlers = importlib.import_module("splashdam.embedded_broker.handlers")
    for module in pkgutil.iter_modules(handlers.__path__, handlers.__name__ + "."):
        importlib.import_module(module.name)
    return _APIS
