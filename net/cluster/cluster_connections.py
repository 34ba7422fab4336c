"""Connections to the brokers of one cluster, opened when first needed, with retries; for readers and admins.

The sender has connections of its own, which never wait; callers of these simply await.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import trio

from splashdam.model.broker_errors import error_for
from splashdam.model.cluster import ClusterMetadata, Node
from splashdam.model.errors import (
    CannotConnectError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    RetriableError,
    message_of,
)
from splashdam.model.version import VERSION
from splashdam.net.clock import Clock
from splashdam.net.cluster.metadata_reading import read_cluster
from splashdam.net.connect import Connect, address_text
from splashdam.net.connection.connection import Authenticator, Connection, renewal_delay_ms
from splashdam.net.connection.wrong_listener import may_be_wrong, wrong_listener
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

T = TypeVar("T")

_FIRST_PATIENCE_MS = 1_000.0
"""Initial time limit for an address that does not respond, while there are others to try."""


class ConnectionSettings(Protocol):
    """The settings of a client that its connections use."""

    @property
    def client_id(self) -> str: ...
    @property
    def request_timeout_ms(self) -> float: ...


@asynccontextmanager
async def open_connections(
    bootstrap: Sequence[tuple[str, int]],
    *,
    connect: Connect,
    clock: Clock,
    settings: ConnectionSettings,
    authenticator: Authenticator | None,
    awaits_first_broker: bool = False,
) -> AsyncIterator[ClusterConnections]:
    """Provide `ClusterConnections` for the block. They connect when first needed."""
    async with open_plain_nursery() as nursery:
        yield ClusterConnections(
            nursery,
            bootstrap,
            connect=connect,
            clock=clock,
            settings=settings,
            authenticator=authenticator,
            awaits_first_broker=awaits_first_broker,
        )
        nursery.cancel_scope.cancel()


class ClusterConnections:
    """Connections by node. Only one task at a time may use a node's connection.

    Args:
        nursery: where connections run; cancel it to close them.
        bootstrap: bootstrap addresses.
        connect: opens streams.
        clock: for request deadlines.
        settings: client id, and the time limit for one response.
        authenticator: authenticates connections, if the brokers require that.
        awaits_first_broker: retry, too, while all addresses refuse connections before the first contact.

    Attributes:
        has_reached: whether any broker has answered ApiVersions.
        waits_for: what the present call waits for, for the message of a timeout.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        bootstrap: Sequence[tuple[str, int]],
        *,
        connect: Connect,
        clock: Clock,
        settings: ConnectionSettings,
        authenticator: Authenticator | None = None,
        awaits_first_broker: bool = False,
    ) -> None:
        self._nursery = nursery
        self._seeds = [Node(-1 - number, host, port) for number, (host, port) in enumerate(bootstrap)]
        self._connect = connect
        self._clock = clock
        self._settings = settings
        self._authenticator = authenticator
        self._awaits_first_broker = awaits_first_broker
        self._open: dict[int, Connection] = {}
        self._renew_at_ms: dict[int, float] = {}
        # So that a listener that accepts and never answers leaves time for the other addresses.
        self._patience_ms = min(_FIRST_PATIENCE_MS, settings.request_timeout_ms / (len(self._seeds) + 1))
        self.has_reached = False
        self.waits_for = ""

    @property
    def _is_patient(self) -> bool:
        """Whether to retry after a refused connection: a broker that was there may be restarting."""
        return self.has_reached or self._awaits_first_broker

    async def retry(
        self,
        what: str,
        ask: Callable[[], Awaitable[T]],
        *,
        timeout_ms: float,
        backoff_ms: float,
        is_final: Callable[[RetriableError], bool],
    ) -> T:
        """Call ``ask``, again and again after retriable errors, and return its result.

        Args:
            what: names the call in messages.
            ask: one attempt.
            timeout_ms: time limit for all attempts.
            backoff_ms: pause between two attempts.
            is_final: whether to raise an error at once that is retriable elsewhere.

        Raises:
            KafkaTimeoutError: the time is up.
            CannotConnectError: all addresses refuse connections, and no broker was reached so far.
        """
        last: RetriableError | None = None
        with trio.move_on_after(timeout_ms / 1000):
            while True:
                try:
                    return await ask()
                except RetriableError as error:
                    if is_final(error) or (isinstance(error, CannotConnectError) and not self._is_patient):
                        raise
                    last = error
                await trio.sleep(backoff_ms / 1000)
        why = f"waited for {self.waits_for}" if last is None else f"last: {last}"
        raise KafkaTimeoutError(f"{what}: no success in {timeout_ms:g} ms; {why}") from last

    async def any(self, ask: Callable[[Connection], Awaitable[T]], known: Iterable[Node] = ()) -> T:
        """Ask the first broker that can be reached; connected ones are tried first.

        With several addresses each has a second to connect and to answer ApiVersions before the next is
        tried; if none does, the next call gives them twice as long.

        Args:
            ask: sends the request on a connection.
            known: brokers to try before the bootstrap addresses.

        Raises:
            KafkaError: no broker could be reached, see ``_unreachable``.
        """
        nodes = sorted([*known, *self._seeds], key=lambda node: not self._is_connected(node))
        patience_ms = self._patience_ms if len(nodes) > 1 else math.inf
        failures: list[KafkaError] = []
        for node in nodes:
            try:
                return await ask(await self.to(node, patience_ms=patience_ms))
            except KafkaError as error:
                failures.append(error)
        self._patience_ms *= 2
        raise self._unreachable(failures)

    def _is_connected(self, node: Node) -> bool:
        connection = self._open.get(node.node_id)
        return connection is not None and not connection.is_closed

    async def to(self, node: Node, *, patience_ms: float = math.inf) -> Connection:
        """Return a negotiated and authenticated connection to a node.

        Args:
            node: the node.
            patience_ms: time limit to connect and negotiate.

        Raises:
            WrongListenerError: the listener uses another security protocol than the settings say.
            KafkaError: the connection failed.
        """
        where = address_text(node.host, node.port)
        connection = self._open.get(node.node_id)
        if connection is not None and not connection.is_closed:
            self.waits_for = f"an answer from {where}"
            # Before a request, since no task here watches the end of the session (KIP-368).
            if self._clock.now_ms() >= self._renew_at_ms[node.node_id]:
                await self._authenticate(connection, node)
            return connection
        if connection is not None:
            del self._open[node.node_id]
            await self._check_listener(connection, node)
        connection = None
        self.waits_for = f"a connection to {where}"
        patience = trio.move_on_after(patience_ms / 1000)
        try:
            with patience:
                stream = await self._connect(node.host, node.port)
                connection = Connection(
                    stream,
                    clock=self._clock,
                    client_id=self._settings.client_id,
                    request_timeout_ms=self._settings.request_timeout_ms,
                    max_in_flight_requests=1,
                    peer=str(node) if node.node_id >= 0 else where,
                )
                self.waits_for = f"the ApiVersions response of {where}, which accepted the connection"
                await self._nursery.start(connection.run)
                await connection.negotiate("splashdam", VERSION)
            connection = _speaking(
                connection, patience, f"{where} did not answer ApiVersions within {patience_ms:g} ms"
            )
            self.waits_for = f"authentication at {where}"
            await self._authenticate(connection, node)
        except BaseException as error:  # also cancellation: nothing else would close the connection
            if connection is None:
                raise
            # A cancelled caller has to close it as well.
            with trio.CancelScope(shield=True):
                await connection.aclose()
            if isinstance(error, KafkaError) and not patience.cancelled_caught:
                await self._check_listener(connection, node)
            raise
        self.has_reached = True
        self.waits_for = f"an answer from {where}"
        self._open[node.node_id] = connection
        return connection

    async def _check_listener(self, ended: Connection, node: Node) -> None:
        """Raise if the connection ended because of a wrong listener; see ``wrong_listener.py``."""
        if not may_be_wrong(ended.requests_sent, ended.responses_received):
            return
        wrong = await wrong_listener(
            ended.closed_by,
            self._connect,
            node.host,
            node.port,
            requests_sent=ended.requests_sent,
            authenticates=self._authenticator is not None,
        )
        if wrong is not None:
            raise wrong from ended.closed_by

    async def _authenticate(self, connection: Connection, node: Node) -> None:
        lifetime_ms = 0.0
        if self._authenticator is not None:
            lifetime_ms = await self._authenticator.authenticate(connection, node.host)
        delay_ms = renewal_delay_ms(lifetime_ms, random.random) if lifetime_ms else math.inf
        self._renew_at_ms[node.node_id] = self._clock.now_ms() + delay_ms

    def _unreachable(self, failures: Sequence[KafkaError]) -> KafkaError:
        """Make the error for a cluster none of whose brokers could be reached.

        Args:
            failures: the error of each address that was tried.

        Returns:
            CannotConnectError: all addresses refuse connections.
            KafkaConnectionError: some of the errors may be temporary; the text contains all.
            KafkaError: the first error, if none is temporary.
        """
        where = ", ".join(address_text(seed.host, seed.port) for seed in self._seeds)
        text = f"no broker can be reached at {where}: " + "; ".join(dict.fromkeys(map(message_of, failures)))
        is_away = [isinstance(failure, CannotConnectError) for failure in failures]
        if all(is_away):
            return CannotConnectError(text)
        lasting = [failure for failure in failures if not failure.retriable]
        if len(lasting) + (0 if self._is_patient else sum(is_away)) < len(failures):
            return KafkaConnectionError(text)
        return lasting[0]

    async def metadata(self, topic: str, known: Iterable[Node] = ()) -> ClusterMetadata:
        """Fetch a topic's metadata from the first broker that answers; create no topic.

        Args:
            topic: name of the topic.
            known: brokers to try before the bootstrap addresses.

        Raises:
            KafkaError: no broker could be reached, see ``_unreachable``.
            BrokerResponseError: the topic has an error, for example it does not exist.
            ProtocolError: the response does not contain the topic.
        """
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)

        async def ask(connection: Connection) -> ClusterMetadata:
            return read_cluster(await connection.request(request))

        cluster = await self.any(ask, known)
        _check_topic(cluster, topic)
        return cluster


def _check_topic(cluster: ClusterMetadata, topic: str) -> None:
    info = cluster.topics.get(topic)
    if info is None:
        raise ProtocolError(f"MetadataResponse: topic {topic!r} was requested but is missing")
    if info.error_code:
        raise error_for(info.error_code, f"topic {topic!r}")


def _speaking(connection: Connection | None, patience: trio.CancelScope, silence: str) -> Connection:
    """Return the connection if it was opened and negotiated before ``patience`` ended, else raise."""
    if connection is None or patience.cancelled_caught:
        raise KafkaConnectionError(silence)
    return connection


@asynccontextmanager
async def open_plain_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery that raises a single failure as itself, not as an exception group.

    For context managers and methods with a nursery inside: their callers write ``except KafkaError``. Several
    failures at once are still raised as a group.
    """
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__
