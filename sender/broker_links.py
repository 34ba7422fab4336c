"""Connections to brokers: one ``BrokerLink`` each, opened on demand and reopened with backoff."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from enum import auto
from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from splashdam.accumulator.backoff import Backoff
from splashdam.model.broker_errors import NetworkExceptionError
from splashdam.model.cluster import ClusterMetadata, Node
from splashdam.model.errors import (
    AuthenticationError,
    KafkaConnectionError,
    KafkaError,
    SettingText,
    WrongListenerError,
)
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.log_text import fields
from splashdam.model.values import Buffer
from splashdam.model.views.standing import Standing
from splashdam.net.clock import Clock
from splashdam.net.connect import Connect, address_text
from splashdam.net.connection.connection import (
    Authenticator,
    Connection,
    authentication_cause,
    renewal_delay_ms,
)
from splashdam.net.connection.in_flight import PendingResponse, Traffic
from splashdam.net.connection.wrong_listener import may_be_wrong, wrong_listener
from splashdam.sender.settings import SenderSettings
from splashdam.wire.message import Request, Response

if TYPE_CHECKING:
    from splashdam.wire.messages.produce import ProduceResponse
    from splashdam.wire.produce_form import ProduceForm

R = TypeVar("R", bound=Response)

logger = logging.getLogger("splashdam.sender")

_PATIENCE_MS = 1_000
"""How long to wait for a connection attempt before another broker is tried, for requests to any broker."""


class LinkState(Stage):
    """The state of a link."""

    IDLE = auto()
    CONNECTING = auto()
    READY = auto()


class LinkEvent(Stage):
    """Events of a link."""

    CONNECT = auto()
    OPEN = auto()
    LOSE = auto()


TRANSITIONS: dict[tuple[LinkState, LinkEvent], LinkState] = {
    (LinkState.IDLE, LinkEvent.CONNECT): LinkState.CONNECTING,
    (LinkState.CONNECTING, LinkEvent.OPEN): LinkState.READY,
    (LinkState.CONNECTING, LinkEvent.LOSE): LinkState.IDLE,
    (LinkState.READY, LinkEvent.LOSE): LinkState.IDLE,
}


class LinkOwner(Protocol):
    """What a link tells the sender."""

    def link_changed(self) -> None:
        """Called when a link may be able to send again."""
        ...

    def link_opened(self, link: BrokerLink) -> None:
        """Called when a connection is open and the broker's API versions are known."""
        ...

    def link_lost(self, node: Node, error: BaseException) -> None:
        """Called when a connection attempt failed or a connection broke."""
        ...


class BrokerLink:
    """A connection to one broker that is opened when it is wanted, and again after it was lost.

    Args:
        node: the broker.
        connect: opens streams.
        clock: for backoff and deadlines.
        settings: timeouts and limits.
        owner: is told of changes.
        random: returns numbers from 0 to 1, for jitter.
        traffic: counts requests and bytes.
        authenticator: authenticates the connection; None without SASL.

    Attributes:
        node: the broker.
        state: see ``LinkState``.
        last_error: why the last connection failed or was lost, None if it was not.
    """

    def __init__(
        self,
        node: Node,
        *,
        connect: Connect,
        clock: Clock,
        settings: SenderSettings,
        owner: LinkOwner,
        random: Callable[[], float],
        traffic: Traffic,
        authenticator: Authenticator | None = None,
    ) -> None:
        self.node = node
        self.traffic = traffic
        self.state = LinkState.IDLE
        self.last_error: BaseException | None = None
        self._connect = connect
        self._clock = clock
        self._settings = settings
        self._owner = owner
        self._random = random
        self._authenticator = authenticator
        self._session = trio.CancelScope()
        self._backoff = Backoff(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, random)
        self._connection: Connection | None = None
        self._retry_at_ms = -math.inf
        self._wanted_at_ms = -math.inf
        self._used_at_ms = -math.inf
        self._scope = trio.CancelScope()
        self._closing = False  # whether `_scope` was cancelled; asking the scope takes four calls

    @property
    def failures(self) -> int:
        """Failed connection attempts since the last success."""
        return self._backoff.failures

    @property
    def busy(self) -> bool:
        """Whether a request is being written or in flight."""
        connection = self._connection
        # With ``acks=0`` a request is in flight only while it is written.
        return connection is not None and (connection.in_flight > 0 or connection.is_writing)

    @property
    def in_flight(self) -> int:
        """Number of in-flight requests."""
        return 0 if self._connection is None else self._connection.in_flight

    @property
    def sendable(self) -> bool:
        """Whether a request would be written at once."""
        if self._connection is None or self._closing:
            return False
        return self._connection.can_send

    def holds(self, now_ms: float) -> tuple[Standing | None, float]:
        """Return what a request has to wait for, and for how many milliseconds; None if it is `sendable`.

        Infinity: an event has to come first.
        """
        if self.sendable:
            return None, 0.0
        connection, delay_ms = self._connection, self.delay_ms(now_ms)
        if connection is None or self._closing:
            is_failed = self.state is LinkState.IDLE and delay_ms > 0
            return (Standing.RECONNECTS if is_failed else Standing.CONNECTS), delay_ms or math.inf
        if connection.throttled_ms:
            return Standing.THROTTLED, delay_ms
        return (Standing.WRITES if connection.is_writing else Standing.REQUESTS_FULL), math.inf

    def offers(self, api_key: int) -> bool:
        """Whether the broker supports this API; False without a connection."""
        return self._connection is not None and api_key in self._connection.api_versions

    @property
    def soon_sendable(self) -> bool:
        """Whether it is sendable, or will be once a connection attempt or write has finished."""
        return self.state is LinkState.CONNECTING or self._is_writing or self.sendable

    def promising_ms(self, now_ms: float) -> float:
        """Return milliseconds to wait before another broker is tried as well; 0 if not ``soon_sendable``.

        The wait for a connection attempt is limited: a listener that accepts and never answers would use up
        the time that the caller has.
        """
        if self.state is LinkState.CONNECTING:
            return max(0.0, self._wanted_at_ms + _PATIENCE_MS - now_ms)
        return math.inf if self.soon_sendable else 0.0

    @property
    def _is_writing(self) -> bool:
        return self._connection is not None and self._connection.is_writing

    def delay_ms(self, now_ms: float) -> float:
        """Milliseconds until a backoff or throttling ends; infinity if an event has to come first."""
        if self.state is LinkState.IDLE:
            return max(0.0, self._retry_at_ms - now_ms)
        return self.throttled_ms or math.inf

    @property
    def throttled_ms(self) -> float:
        """Milliseconds for which the broker still throttles us; 0 if it does not."""
        connection = self._connection  # read once: any thread may ask
        return 0.0 if connection is None else connection.throttled_ms

    def want(self, nursery: trio.Nursery, now_ms: float) -> None:
        """Connect, unless an attempt is under way or backing off."""
        if self.state is LinkState.IDLE and now_ms >= self._retry_at_ms:
            self._advance(LinkEvent.CONNECT)
            self._wanted_at_ms = now_ms
            # Before the task starts, so that `close` ends an attempt that has not begun.
            self._scope = trio.CancelScope()
            self._closing = False
            nursery.start_soon(self._serve)

    def submit(
        self,
        request_cls: type[Request[R]],
        build: Callable[[int], Request[R]],
        on_done: Callable[[PendingResponse[R]], None],
        *,
        expect_response: bool = True,
        patience_ms: float = 0.0,
        newest: int | None = None,
    ) -> None:
        """Build and write a request; the caller has checked `sendable`. Does not wait.

        Args:
            request_cls: the kind of request.
            build: makes it for the newest version that both sides support.
            on_done: called once with the response or error; see ``Connection.submit_now``.
            expect_response: False if the broker does not answer (``acks=0``).
            patience_ms: as for ``Connection.submit_now``.
            newest: upper limit of the version; None: the newest that both sides support.

        Raises:
            UnsupportedVersionError: there is no common version.
            KafkaError: ``build`` raised it, or there is no connection. Nothing was sent, and ``on_done`` is
                not called.
        """
        connection = self._open_connection()
        version = connection.version_for(request_cls, newest)
        self._used_at_ms = self._clock.now_ms()
        connection.submit_now(
            build(version), version, on_done, expect_response=expect_response, patience_ms=patience_ms
        )

    def submit_filled(
        self,
        form: ProduceForm,
        records: Buffer,
        on_done: Callable[[PendingResponse[ProduceResponse]], None],
        *,
        now_ms: float,
        patience_ms: float,
    ) -> None:
        """As `submit`, for a Produce request with one batch; see ``Connection.submit_filled``.

        Raises:
            KafkaConnectionError: there is no connection. Nothing was sent, ``on_done`` is not called.
        """
        self._used_at_ms = now_ms
        connection = self._connection or self._open_connection()
        connection.submit_filled(form, records, on_done, now_ms=now_ms, patience_ms=patience_ms)

    def version_for(self, request_cls: type[Request[R]], newest: int | None = None) -> int:
        """The newest version of a request that both sides support, ``newest`` at most.

        Raises:
            UnsupportedVersionError: the two have no version in common.
            KafkaConnectionError: there is no connection.
        """
        connection = self._connection or self._open_connection()  # a call less where there is one
        return connection.version_for(request_cls, newest)

    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise KafkaConnectionError(f"the connection to {self.node} is gone: {self.last_error}")
        return self._connection

    def read_eagerly(self) -> bool:
        """See ``Connection.read_eagerly``."""
        return self._connection is not None and self._connection.read_eagerly()

    def feature_level(self, name: str) -> int:
        """The finalized level of a cluster feature; 0 if unknown."""
        return 0 if self._connection is None else self._connection.finalized_features.get(name, 0)

    def idle_in_ms(self, now_ms: float) -> float:
        """Milliseconds until the connection is idle for too long; infinity if it is in use or closed."""
        if self.state is not LinkState.READY or self.busy:
            return math.inf
        return max(0.0, self._used_at_ms + self._settings.connections_max_idle_ms - now_ms)

    def close(self) -> None:
        """Close the connection; its requests fail.

        The link can be used again once its task has ended.
        """
        self._closing = True
        self._scope.cancel()

    @trio.lowlevel.enable_ki_protection  # see ``ProducerCore.main``
    async def _serve(self) -> None:
        failure: BaseException | None = None
        try:
            with self._scope:
                failure = await self._serve_connection(await self._open_stream())
        # Anything else is a bug and ends the sender: it must not look like a broker that is away.
        except (KafkaError, OSError) as error:
            failure = error
        finally:
            self._lost(failure)

    @property
    def _setup_timeout_ms(self) -> float:
        """Double the timeout with each failed attempt (KIP-601), so that slow networks succeed in the end."""
        settings = self._settings
        # 30: far above any maximum; more would overflow a float in the end.
        doubled = settings.connection_setup_timeout_ms * 2.0 ** min(self.failures, 30)
        return min(doubled, settings.connection_setup_timeout_max_ms)

    async def _open_stream(self) -> trio.abc.Stream:
        timeout_ms = self._setup_timeout_ms
        with trio.move_on_after(timeout_ms / 1000):
            return await self._connect(self.node.host, self.node.port)
        raise KafkaConnectionError(f"cannot connect to {self.node}: no answer within {timeout_ms:g} ms")

    async def _serve_connection(self, stream: trio.abc.Stream) -> KafkaError | None:
        settings = self._settings
        connection = Connection(
            stream,
            clock=self._clock,
            client_id=settings.client_id,
            request_timeout_ms=settings.request_timeout_ms,
            max_in_flight_requests=settings.max_in_flight_requests_per_connection,
            max_response_bytes=settings.receive_message_max_bytes,
            peer=str(self.node),
            on_progress=self._owner.link_changed,
            traffic=self.traffic,
        )
        self._session = trio.CancelScope()
        async with trio.open_nursery() as nursery:
            # Before the handshake: its answers are read there.
            await nursery.start(self._run, connection)
            try:
                lifetime_ms = await self._handshake(connection)
                self._opened(connection)
                await self._keep_session(connection, lifetime_ms)
            except KafkaError as error:
                # Ends `_run`, for which the nursery waits.
                await connection.aclose()
                return await self._explained(error, connection)
        return await self._explained(connection.closed_by, connection)

    async def _explained(self, error: KafkaError | None, connection: Connection) -> KafkaError | None:
        """Return the likely cause of an error: TLS trust, a wrong listener, or a missing security setting."""
        reason = authentication_cause(error) or error
        if not may_be_wrong(connection.requests_sent, connection.responses_received):
            return reason
        wrong = await wrong_listener(
            connection.closed_by or reason,
            self._connect,
            self.node.host,
            self.node.port,
            requests_sent=connection.requests_sent,
            authenticates=self._authenticator is not None,
        )
        if wrong is not None:
            return wrong
        if self._authenticator is None and isinstance(reason, NetworkExceptionError):
            return NetworkExceptionError(
                SettingText(
                    "{said}; if its listener asks for TLS or SASL, set {0}",
                    "security_protocol",
                    said=reason.message,
                )
            )
        return reason

    @trio.lowlevel.enable_ki_protection  # see ``ProducerCore.main``
    async def _run(
        self, connection: Connection, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await connection.run(task_status=task_status)
        self._session.cancel()  # the connection has ended: stop renewing the session

    async def _handshake(self, connection: Connection) -> float:
        """Negotiate API versions and authenticate; return the session lifetime in ms, 0 for no limit."""
        timeout_ms = self._setup_timeout_ms
        what = "answer ApiVersions"
        with trio.move_on_after(timeout_ms / 1000):
            await connection.negotiate(self._settings.software_name, self._settings.software_version)
            if self._authenticator is None:
                return 0.0
            what = "complete the authentication"
            return await self._authenticator.authenticate(connection, self.node.host)
        raise KafkaConnectionError(f"{self.node} did not {what} within {timeout_ms:g} ms")

    async def _keep_session(self, connection: Connection, lifetime_ms: float) -> None:
        """Reauthenticate before the session expires (KIP-368), while the connection is open."""
        with self._session:
            while lifetime_ms and self._authenticator is not None:
                await trio.sleep(renewal_delay_ms(lifetime_ms, self._random) / 1000)
                lifetime_ms = await self._authenticator.authenticate(connection, self.node.host)

    def _opened(self, connection: Connection) -> None:
        self._advance(LinkEvent.OPEN)
        self.traffic.opened += 1
        self._connection = connection
        self._used_at_ms = self._clock.now_ms()
        # Only now: a listener that accepts and does not answer has to be backed off from, too.
        self._backoff.reset()
        self.last_error = None
        logger.debug("connected to %s", self.node, extra=self._about())
        self._owner.link_opened(self)
        self._owner.link_changed()

    def _lost(self, error: BaseException | None) -> None:
        self.traffic.closed += self.state is LinkState.READY
        self._advance(LinkEvent.LOSE)
        # Before the owner is told: it asks all links whether one is left (`BrokerLinks.refusal`).
        self._connection = None
        if error is not None:
            self.last_error = error
            wait_ms = self._backoff.next_ms()
            # Refused credentials stay refused, and every attempt costs the broker a handshake and a log line.
            if isinstance(error, AuthenticationError):
                wait_ms = self._settings.reconnect_backoff_max_ms
            self._retry_at_ms = self._clock.now_ms() + wait_ms
            about = self._about(error=type(error).__name__)
            logger.debug("no connection to %s: %s", self.node, error, extra=about)
            self._owner.link_lost(self.node, error)
        self._owner.link_changed()

    def _about(self, **more: str) -> dict[str, dict[str, object]]:
        address = address_text(self.node.host, self.node.port)
        return fields(client_id=self._settings.client_id, node_id=self.node.node_id, address=address, **more)

    def _advance(self, event: LinkEvent) -> None:
        self.state = next_state(TRANSITIONS, self.state, event, f"the link to {self.node}")


class BrokerLinks:
    """Links by node id; bootstrap addresses have the ids -1, -2, ….

    Args:
        bootstrap: the bootstrap addresses, also used again when no broker of the cluster answers.
        make_link: makes the link to a node.
        max_idle_ms: a connection without traffic is closed after this time.
        returns_to_bootstrap: whether bootstrap addresses are tried after brokers are known (KIP-899).
    """

    def __init__(
        self,
        bootstrap: tuple[tuple[str, int], ...],
        make_link: Callable[[Node], BrokerLink],
        max_idle_ms: float,
        *,
        returns_to_bootstrap: bool,
    ) -> None:
        self._returns_to_bootstrap = returns_to_bootstrap
        self._max_idle_ms = max_idle_ms
        self._nothing_idle_before_ms = -math.inf
        self._make_link = make_link
        self._bootstrap = [Node(-number, host, port) for number, (host, port) in enumerate(bootstrap, 1)]
        self._links: dict[int, BrokerLink] = {}

    def __iter__(self) -> Iterator[BrokerLink]:
        return iter(self._links.values())

    def link_to(self, node: Node) -> BrokerLink:
        """Return the link to a node, made on first use; close a link to an earlier address of the node."""
        link = self._links.get(node.node_id)
        if link is not None and (link.node.host, link.node.port) != (node.host, node.port):
            # Requests on the old address fail, and their batches are retried at the new one.
            link.close()
            link = None
        if link is None:
            link = self._links[node.node_id] = self._make_link(node)
        return link

    def update(self, cluster: ClusterMetadata) -> None:
        """Close idle links to brokers that left the cluster.

        A bootstrap connection becomes that of the broker with the same address.
        """
        for node_id, link in list(self._links.items()):
            # A busy link stays: the broker may still answer what it was sent.
            if node_id >= 0 and node_id not in cluster.nodes and not link.busy:
                self._links.pop(node_id).close()
        for node in cluster.nodes.values():
            if node.node_id not in self._links:
                self._adopt(node)

    def _adopt(self, node: Node) -> None:
        for node_id, link in self._links.items():
            if node_id < 0 and (link.node.host, link.node.port) == (node.host, node.port):
                # The loop ends with this change, so it never goes on over a changed dict.
                link.node = node
                self._links[node.node_id] = self._links.pop(node_id)
                return

    def forget_brokers(self) -> None:
        """Close all links to brokers; only bootstrap addresses are left."""
        for node_id in [node_id for node_id in self._links if node_id >= 0]:
            self._links.pop(node_id).close()

    def any_sendable(self) -> BrokerLink | None:
        """Return the sendable link with the fewest in-flight requests."""
        return min((link for link in self if link.sendable), key=lambda link: link.in_flight, default=None)

    def want_any(self, cluster: ClusterMetadata, nursery: trio.Nursery, now_ms: float) -> float:
        """Connect to some broker, unless a connection is usable or under way.

        Returns:
            milliseconds until another attempt, or until throttling ends; infinity while a link is busy or
            every one is connecting.
        """
        promising_ms = max((link.promising_ms(now_ms) for link in self), default=0.0)
        if promising_ms:
            return promising_ms
        links = [self.link_to(node) for node in self._candidates(cluster)]
        candidates = [link for link in links if link.state is LinkState.IDLE]
        ready = (link for link in links if link.state is LinkState.READY)
        sendable_in_ms = min((link.delay_ms(now_ms) for link in ready), default=math.inf)
        if not candidates:
            return sendable_in_ms
        # Of those that may be tried now, the one that has failed least.
        best = min(candidates, key=lambda link: (link.delay_ms(now_ms), link.failures))
        best.want(nursery, now_ms)
        return min(best.delay_ms(now_ms), sendable_in_ms)

    def _candidates(self, cluster: ClusterMetadata) -> list[Node]:
        """Return the brokers of the cluster, and the bootstrap addresses that none of them has."""
        addresses = {(node.host, node.port) for node in cluster.nodes.values()}
        elsewhere = [node for node in self._bootstrap if (node.host, node.port) not in addresses]
        if addresses and not self._returns_to_bootstrap:
            elsewhere = []
        return [*cluster.nodes.values(), *elsewhere]

    def refusal(self, cluster: ClusterMetadata) -> AuthenticationError | None:
        """Return an authentication error once every broker has failed and one of them with it; else None.

        A wrong listener counts only if all of them are wrong: the others may be unreachable for a moment.
        """
        links = [self._links.get(node.node_id) for node in self._candidates(cluster)]
        if any(link is None or link.soon_sendable or link.last_error is None for link in links):
            return None
        errors = [link.last_error for link in links if link is not None]
        refusals = [error for error in errors if isinstance(error, AuthenticationError)]
        of_the_cluster = [error for error in refusals if not isinstance(error, WrongListenerError)]
        if of_the_cluster or len(refusals) < len(errors):
            return next(iter(of_the_cluster), None)
        return next(iter(refusals), None)

    def obstacle(self) -> str:
        """Describe which brokers throttle us and for how long; empty if none does. From any thread."""
        throttled = [(link.node, link.throttled_ms) for link in list(self._links.values())]
        return "; ".join(
            f"the broker at {node.host}:{node.port} throttles this client for another {left_ms / 1000:,.1f} s"
            for node, left_ms in throttled
            if left_ms > 0
        )

    def silent(self) -> str:
        """Name the brokers whose connections are being opened. From any thread."""
        links = list(self._links.values())
        return ", ".join(str(link.node) for link in links if link.state is LinkState.CONNECTING)

    def close_idle(self, now_ms: float) -> float:
        """Close idle connections.

        Returns:
            milliseconds until the next one is idle for too long.
        """
        # Saves a look at every link on every turn.
        if now_ms < self._nothing_idle_before_ms:
            return self._nothing_idle_before_ms - now_ms if self._links else math.inf
        next_ms = self._max_idle_ms  # links that are in use now, or connect later
        for link in self:
            idle_in_ms = link.idle_in_ms(now_ms)
            if idle_in_ms <= 0:
                link.close()
            else:
                next_ms = min(next_ms, idle_in_ms)
        self._nothing_idle_before_ms = now_ms + next_ms
        return next_ms if self._links else math.inf
