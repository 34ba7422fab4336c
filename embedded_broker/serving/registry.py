"""The registry of API keys: which versions the broker serves, and the handler and guard of each request.

A handler is a plain function, decorated with ``handles``; ApiVersions is computed from what is registered, so
that an API is added by adding a file to ``handlers/``. A guard, of ``authorization/``, is decorated with
``guards``. Nobody imports either of them by name.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import attrs

from splashdam.embedded_broker.execution.answers import (
    ANYBODY,
    Address,
    Answer,
    CloseConnectionError,
    Requester,
)
from splashdam.embedded_broker.security.permissions import all_operation_bits, operation_bits
from splashdam.model.acls import CLUSTER_NAME, Operation, ResourceType
from splashdam.wire.message import Request, Response

if TYPE_CHECKING:
    from splashdam.embedded_broker.configs.broker_settings import BrokerSettings
    from splashdam.embedded_broker.controller.controller import Controller
    from splashdam.embedded_broker.controller.inter_broker_client import InterBrokerClient
    from splashdam.embedded_broker.controller.leadership import Leadership
    from splashdam.embedded_broker.controller.producer_ids import ProducerIdSource
    from splashdam.embedded_broker.dynamic_configs.stored import DynamicConfigs
    from splashdam.embedded_broker.execution.answers import Account
    from splashdam.embedded_broker.execution.turns import Steps, Turns
    from splashdam.embedded_broker.fetching.replica_fetches import TakesReplicaFetches
    from splashdam.embedded_broker.fetching.sessions import FetchSessions
    from splashdam.embedded_broker.groups.coordinator import GroupCoordinator
    from splashdam.embedded_broker.groups.group_offsets import GroupOffsets
    from splashdam.embedded_broker.quotas.throttling import Meter
    from splashdam.embedded_broker.security.access import AccessControl
    from splashdam.embedded_broker.security.authentication import SaslSession
    from splashdam.embedded_broker.security.authorizer import StandardAuthorizer
    from splashdam.embedded_broker.telemetry.client_metrics import ClientTelemetry
    from splashdam.embedded_broker.topics.disk_failures import DiskFailures
    from splashdam.embedded_broker.topics.parking import FetchParking
    from splashdam.embedded_broker.topics.topics import Topics
    from splashdam.embedded_broker.transactions.coordinator import TransactionCoordinator
    from splashdam.embedded_broker.transactions.verification import Enrolments
    from splashdam.model.values import TopicPartition
    from splashdam.model.views.cluster import AnsweredError
    from splashdam.net.clock import Clock
    from splashdam.storage.manager.log_manager import LogManager

RequestT = TypeVar("RequestT", bound=Request[Any])
G = TypeVar("G", bound=Callable[..., Any])


class AskedBroker(Protocol):
    """The parts of a broker that handlers and guards ask; the attributes are those of `Broker`."""

    settings: BrokerSettings
    clock: Clock
    turns: Turns
    access: AccessControl
    authorizer: StandardAuthorizer | None
    configs: DynamicConfigs
    controller: Controller
    disk_failures: DiskFailures
    enrolments: Enrolments
    fetch_sessions: FetchSessions
    groups: GroupCoordinator
    leadership: Leadership
    logs: LogManager
    offsets: GroupOffsets
    parking: FetchParking
    peers: InterBrokerClient
    producer_ids: ProducerIdSource
    refused_topics: set[str]
    replicas: TakesReplicaFetches
    telemetry: ClientTelemetry
    topics: Topics
    transactions: TransactionCoordinator

    @property
    def node_id(self) -> int:
        """The id of this broker."""
        ...

    @property
    def cluster_id(self) -> str:
        """The id of its cluster."""
        ...

    def log_start_moved(self, topic_partition: TopicPartition) -> None:
        """Tell waiting fetches and the other replicas that a log starts at a later offset now."""
        ...


@attrs.define
class Client:
    """The client at the other end of a connection.

    Attributes:
        requester: its principal and host.
        meter: applies its quotas; None if no quota is set.
        is_trusted: it is a broker of the same cluster, in this process, which needs no ACLs.
        name: for log lines.
        number: of the connection; 0 until it is served.
        client_id: of its last ApiVersions request; empty until there is one.
        software: name and version of its library, likewise.
        requests: how many have arrived; counted once for all of a wake.
        errors: how many answers held an error, while a `Watch` looked.
        last_error: the last of these.
    """

    requester: Requester = ANYBODY
    meter: Meter | None = None
    is_trusted: bool = False
    name: str = "a client in this process"
    number: int = 0
    client_id: str = ""
    software: str = ""
    requests: int = 0
    errors: int = 0
    last_error: AnsweredError | None = None


class RequestContext(NamedTuple):
    """What a handler knows besides the request."""

    broker: AskedBroker
    version: int
    """Version of the request, and so of the answer."""
    client_id: str | None
    address: Address
    account: Account
    """The cost of the request so far."""
    session: SaslSession | None = None
    """The SASL session of the connection; None if the listener does not use SASL."""
    client: Client = Client()

    @property
    def client_host(self) -> str:
        """The client's address in the form in which Kafka describes members of groups: ``/127.0.0.1``."""
        return f"/{self.client.requester.host}"

    def authorize(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may perform an operation on a resource; always without an authorizer."""
        authorizer, client = self.broker.authorizer, self.client
        return (
            authorizer is None
            or client.is_trusted
            or authorizer.allows(client.requester, operation, kind, name)
        )

    def authorize_some(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the client may perform an operation on at least one resource of a type."""
        authorizer, client = self.broker.authorizer, self.client
        return (
            authorizer is None
            or client.is_trusted
            or authorizer.allows_some(client.requester, operation, kind)
        )

    def authorized_operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the client may perform on a resource, one bit for each."""
        if self.broker.authorizer is None:
            return all_operation_bits(kind)
        return operation_bits(kind, lambda operation: self.authorize(operation, kind, name))

    def record_mutations(self, partitions: int, *, strict_from: int) -> None:
        """Count partitions that the request creates or deletes, for ``controller_mutation_rate``.

        Args:
            partitions: their number.
            strict_from: version of the request from which a client above its quota is refused, not only
                throttled.

        Raises:
            BrokerResponseError: THROTTLING_QUOTA_EXCEEDED (89).
        """
        if self.client.meter is not None:
            is_strict = self.version >= strict_from
            self.client.meter.record_mutations(partitions, self.client_id, is_strict=is_strict)


Handler: TypeAlias = "Callable[[RequestT, RequestContext], Answer | Steps[Any]]"
"""Answers a request; one that may need several turns of the loop is a generator (``turns.py``)."""

PlainHandler: TypeAlias = Callable[[Any, RequestContext], Answer]
"""A handler as it is called: generators are wrapped, so that all return an answer."""

Guard: TypeAlias = Callable[[Any, RequestContext, PlainHandler], Answer]
"""Authorizes a request and calls its handler with what is allowed; used only with an authorizer."""


@attrs.frozen
class RegisteredApi:
    """An API key: its handler, the versions served, and the versions that ApiVersions advertises."""

    request: type[Request[Any]]
    handler: PlainHandler
    versions: range
    advertised_from: int
    unknown_version: Callable[[], Response] | None


_APIS: dict[int, RegisteredApi] = {}
_GUARDS: dict[int, Guard] = {}


def handles(
    request: type[RequestT],
    *,
    versions: range,
    advertised_from: int | None = None,
    unknown_version: Callable[[], Response] | None = None,
) -> Callable[[Handler[RequestT]], Handler[RequestT]]:
    """Register a function as the handler of a request.

    Args:
        request: message class from ``wire.messages``.
        versions: the versions served.
        advertised_from: lowest version that ApiVersions names, by default the lowest served.
        unknown_version: returns the answer, in version 0, to any other version; without it such a request
            closes the connection.
    """

    def register(handler: Handler[RequestT]) -> Handler[RequestT]:
        lowest = versions.start if advertised_from is None else advertised_from
        plain: Any = _in_turns(handler) if inspect.isgeneratorfunction(handler) else handler
        _APIS[request.API_KEY] = RegisteredApi(request, plain, versions, lowest, unknown_version)
        return handler

    return register


def _in_turns(handler: Callable[[Any, RequestContext], Steps[Any]]) -> PlainHandler:
    return lambda request, context: context.broker.turns.answer(handler(request, context), context.account)


def guards(*requests: type[Request[Any]]) -> Callable[[G], G]:
    """Register a function as the guard of requests; like a handler it may be a generator."""

    def register(guard: G) -> G:
        plain: Any = _guarding_in_turns(guard) if inspect.isgeneratorfunction(guard) else guard
        for request in requests:
            _GUARDS[request.API_KEY] = plain
        return guard

    return register


def _guarding_in_turns(guard: Callable[[Any, RequestContext, PlainHandler], Steps[Answer]]) -> Guard:
    def plain(request: Any, context: RequestContext, handler: PlainHandler) -> Answer:
        return context.broker.turns.answer(guard(request, context, handler), context.account)

    return plain


@cache
def registered_apis() -> dict[int, RegisteredApi]:
    """Return every API key that the broker serves; the first call imports the handlers."""
    _import_all("splashdam.embedded_broker.handlers")
    return _APIS


@cache
def registered_guards() -> dict[int, Guard]:
    """Return the guards by API key; the first call imports them."""
    _import_all("splashdam.embedded_broker.authorization")
    return _GUARDS


def _import_all(room: str) -> None:
    package = importlib.import_module(room)
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)


def guarded(request: Request[Any], context: RequestContext, handler: PlainHandler) -> Answer:
    """Let the guard of a request answer it.

    Raises:
        CloseConnectionError: as the handler; or the request has no guard, so its permissions are unknown.
    """
    guard = registered_guards().get(request.API_KEY)
    if guard is None:
        raise CloseConnectionError(f"there is no guard that authorizes {request.NAME}")
    return guard(request, context, handler)
