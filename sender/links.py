"""The ways to brokers: one link each, connected when needed and reconnected with backoff; and all of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from enum import auto
from typing import Protocol, TypeVar

import trio

from splashdam.accumulator.backoff import Backoff
from splashdam.model.broker_errors import NetworkExceptionError
from splashdam.model.cluster import ClusterMetadata, Node
from splashdam.model.errors import AuthenticationError, KafkaConnectionError, KafkaError, WrongListenerError
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.log_text import fields
from splashdam.net.clock import Clock
from splashdam.net.connect import Connect, address_text
from splashdam.net.connection.connection import Authenticator, Connection, distrust, renewal_delay_ms
from splashdam.net.connection.in_flight import PendingResponse, Traffic
from splashdam.net.connection.wrong_listener import may_be_wrong, wrong_listener
from splashdam.sender.settings import SenderSettings
from splashdam.wire.message import Request, Response

R = TypeVar("R", bound=Response)

logger = logging.getLogger("splashdam.sender")

_PATIENCE_MS = 1_000
"""So long a link that is being made keeps those who can ask any broker from trying another one."""


class LinkState(Stage):
    """Where a link is in its life."""

    IDLE = auto()
    CONNECTING = auto()
    READY = auto()


class LinkEvent(Stage):
    """What can happen to a link."""

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
    """Who hears of links that opened, closed or can send again."""

    def link_changed(self) -> None:
        """Something can be sent that could not before."""
        ...

    def link_opened(self, link: BrokerLink) -> None:
        """A connection was made, and what its broker speaks is known."""
        ...

    def link_lost(self, node: Node, error: BaseException) -> None:
        """A connection could not be made, or broke."""
        ...


class BrokerLink:
    """The way to one broker.

    Args:
        node: which one.
        connect: makes streams.
        clock: for backoff and deadlines.
        settings: timeouts and limits.
        owner: hears of changes.
        random: for jitter.
        traffic: counts what goes over it.
        authenticator: proves to the broker who we are, where it wants to know.

    Attributes:
        node: which one.
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
        self._closing = False  # whether `_scope` was cancelled; to ask the scope takes four calls

    @property
    def failures(self) -> int:
        """Attempts to connect that failed since the last one that did not."""
        return self._backoff.failures

    @property
    def busy(self) -> bool:
        """Whether a request is being written or answered."""
        return self.in_flight > 0 or self._is_writing

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answers."""
        return 0 if self._connection is None else self._connection.in_flight

    @property
    def sendable(self) -> bool:
        """Whether a request would be written at once."""
        if self._connection is None or self._closing:
            return False
        return self._connection.can_send

    def offers(self, api_key: int) -> bool:
        """Whether the broker at the other end names this API; no where there is no connection."""
        return self._connection is not None and api_key in self._connection.api_versions

    @property
    def hopeful(self) -> bool:
        """Whether it will be sendable soon, if nothing goes wrong."""
        return self.state is LinkState.CONNECTING or self._is_writing or self.sendable

    def promising_ms(self, now_ms: float) -> float:
        """How long to wait for it before another broker is tried, too; 0 if it is not ``hopeful``.

        A listener that accepts and says nothing would else use up the time of whoever can ask any broker.
        """
        if self.state is LinkState.CONNECTING:
            return max(0.0, self._wanted_at_ms + _PATIENCE_MS - now_ms)
        return math.inf if self.hopeful else 0.0

    @property
    def _is_writing(self) -> bool:
        return self._connection is not None and self._connection.is_writing

    def delay_ms(self, now_ms: float) -> float:
        """How long until time alone makes it usable; infinity if an event has to come first."""
        if self.state is LinkState.IDLE:
            return max(0.0, self._retry_at_ms - now_ms)
        return self.throttled_ms or math.inf

    @property
    def throttled_ms(self) -> float:
        """How long the broker still wants to be left alone; 0 if it does not."""
        connection = self._connection  # read once: any thread may ask
        return 0.0 if connection is None else connection.throttled_ms

    def want(self, nursery: trio.Nursery, now_ms: float) -> None:
        """Somebody wants to send: connects, unless that is under way or backing off."""
        if self.state is LinkState.IDLE and now_ms >= self._retry_at_ms:
            self._advance(LinkEvent.CONNECT)
            self._wanted_at_ms = now_ms
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
        """Builds and writes a request; the caller has seen `sendable`. Does not wait.

        Args:
            request_cls: the kind of request.
            build: makes it for the newest version that both sides speak.
            on_done: called once with what came of it; see ``Connection.submit_now``.
            expect_response: False where the broker does not answer (``acks=0``).
            patience_ms: as for ``Connection.submit_now``.
            newest: no newer version than this one; None: the newest that both sides speak.

        Raises:
            UnsupportedVersionError: there is no such version.
            KafkaError: ``build`` refused, or there is no connection. Nothing was sent, and ``on_done`` is
                not called.
        """
        connection = self._open_connection()
        version = connection.version_for(request_cls, newest)
        self._used_at_ms = self._clock.now_ms()
        connection.submit_now(
            build(version), version, on_done, expect_response=expect_response, patience_ms=patience_ms
        )

    def version_for(self, request_cls: type[Request[R]]) -> int:
        """The newest version of a request that both sides speak.

        Raises:
            UnsupportedVersionError: there is none.
            KafkaConnectionError: there is no connection.
        """
        return self._open_connection().version_for(request_cls)

    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise KafkaConnectionError(f"the connection to {self.node} is gone: {self.last_error}")
        return self._connection

    def read_eagerly(self) -> None:
        """See ``Connection.read_eagerly``."""
        if self._connection is not None:
            self._connection.read_eagerly()

    def feature_level(self, name: str) -> int:
        """The level of a feature of the cluster, 0 where it has none or nobody has told."""
        return 0 if self._connection is None else self._connection.finalized_features.get(name, 0)

    def idle_in_ms(self, now_ms: float) -> float:
        """How long until the connection counts as idle; infinity if it is in use, or there is none."""
        if self.state is not LinkState.READY or self.busy:
            return math.inf
        return max(0.0, self._used_at_ms + self._settings.connections_max_idle_ms - now_ms)

    def close(self) -> None:
        """Ends the connection: nothing new goes there from now on, and its requests fail.

        The link can be used again once its task has ended.
        """
        self._closing = True
        self._scope.cancel()

    async def _serve(self) -> None:
        failure: BaseException | None = None
        try:
            with self._scope:
                failure = await self._serve_connection(await self._open_stream())
        except (KafkaError, OSError) as error:
            failure = error
        finally:
            self._lost(failure)

    @property
    def _setup_timeout_ms(self) -> float:
        """Doubles with each attempt that failed (KIP-601): a slow network gets its time in the end."""
        settings = self._settings
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
            await nursery.start(self._run, connection)
            try:
                lifetime_ms = await self._introduce(connection)
                self._opened(connection)
                await self._keep_session(connection, lifetime_ms)
            except KafkaError as error:
                await connection.aclose()
                return await self._explained(error, connection)
        return await self._explained(connection.closed_by, connection)

    async def _explained(self, error: KafkaError | None, connection: Connection) -> KafkaError | None:
        """The reason behind an error, where that is trust or the listener; else perhaps a guess."""
        reason = distrust(error) or error
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
            hint = "if its listener asks for TLS or SASL, set security_protocol"
            return NetworkExceptionError(f"{reason.message}; {hint}")
        return reason

    async def _run(
        self, connection: Connection, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await connection.run(task_status=task_status)
        self._session.cancel()  # there is nothing to keep any more

    async def _introduce(self, connection: Connection) -> float:
        """Agrees on versions and shows who we are; answers how long that holds, 0 for ever."""
        timeout_ms = self._setup_timeout_ms
        what = "say what it speaks"
        with trio.move_on_after(timeout_ms / 1000):
            await connection.negotiate(self._settings.software_name, self._settings.software_version)
            if self._authenticator is None:
                return 0.0
            what = "come to an end with authentication"
            return await self._authenticator.authenticate(connection, self.node.host)
        raise KafkaConnectionError(f"{self.node} did not {what} within {timeout_ms:g} ms")

    async def _keep_session(self, connection: Connection, lifetime_ms: float) -> None:
        """Shows who we are anew in time (KIP-368), for as long as the connection is open."""
        with self._session:
            while lifetime_ms and self._authenticator is not None:
                await trio.sleep(renewal_delay_ms(lifetime_ms, self._random) / 1000)
                lifetime_ms = await self._authenticator.authenticate(connection, self.node.host)

    def _opened(self, connection: Connection) -> None:
        self._advance(LinkEvent.OPEN)
        self.traffic.opened += 1
        self._connection = connection
        self._used_at_ms = self._clock.now_ms()
        self._backoff.reset()
        self.last_error = None
        logger.debug("connected to %s", self.node, extra=self._about())
        self._owner.link_opened(self)
        self._owner.link_changed()

    def _lost(self, error: BaseException | None) -> None:
        self.traffic.closed += self.state is LinkState.READY
        self._advance(LinkEvent.LOSE)
        self._connection = None
        if error is not None:
            self.last_error = error
            wait_ms = self._backoff.next_ms()
            if isinstance(error, AuthenticationError):  # it will not be forgiven soon
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


class LinkDirectory:
    """Links by node id; bootstrap addresses have the ids -1, -2, ….

    Args:
        bootstrap: addresses to begin with, and to return to when no broker of the cluster answers.
        make_link: makes the link to a node.
        max_idle_ms: a connection without traffic is closed after this time.
        returns_to_bootstrap: whether those addresses are tried again once brokers are known (KIP-899).
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
        """The link to a node, made on first use; a link to an address the node has left is closed."""
        link = self._links.get(node.node_id)
        if link is not None and (link.node.host, link.node.port) != (node.host, node.port):
            link.close()
            link = None
        if link is None:
            link = self._links[node.node_id] = self._make_link(node)
        return link

    def update(self, cluster: ClusterMetadata) -> None:
        """Follows the cluster: links to brokers that left are closed once nothing is on its way there.

        The connection through which the cluster was found serves on as that of the broker with this address.
        """
        for node_id, link in list(self._links.items()):
            if node_id >= 0 and node_id not in cluster.nodes and not link.busy:
                self._links.pop(node_id).close()
        for node in cluster.nodes.values():
            if node.node_id not in self._links:
                self._adopt(node)

    def _adopt(self, node: Node) -> None:
        for node_id, link in self._links.items():
            if node_id < 0 and (link.node.host, link.node.port) == (node.host, node.port):
                link.node = node
                self._links[node.node_id] = self._links.pop(node_id)
                return

    def forget_brokers(self) -> None:
        """Closes the links to brokers of the cluster; it is looked for at the bootstrap addresses again."""
        for node_id in [node_id for node_id in self._links if node_id >= 0]:
            self._links.pop(node_id).close()

    def any_sendable(self) -> BrokerLink | None:
        """The least loaded link that can send at once."""
        return min((link for link in self if link.sendable), key=lambda link: link.in_flight, default=None)

    def want_any(self, cluster: ClusterMetadata, nursery: trio.Nursery, now_ms: float) -> float:
        """Sees to it that some broker becomes reachable.

        Returns:
            how long until another attempt makes sense, or a throttled link can send again; infinity while a
            link is merely busy, or every one is being made.
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
        best = min(candidates, key=lambda link: (link.delay_ms(now_ms), link.failures))
        best.want(nursery, now_ms)
        return min(best.delay_ms(now_ms), sendable_in_ms)

    def _candidates(self, cluster: ClusterMetadata) -> list[Node]:
        """The brokers of the cluster, and the addresses to begin with that are not theirs."""
        addresses = {(node.host, node.port) for node in cluster.nodes.values()}
        elsewhere = [node for node in self._bootstrap if (node.host, node.port) not in addresses]
        if addresses and not self._returns_to_bootstrap:
            elsewhere = []
        return [*cluster.nodes.values(), *elsewhere]

    def refusal(self, cluster: ClusterMetadata) -> AuthenticationError | None:
        """Why nobody lets us in, once every broker was tried in vain and one of them did not trust us.

        What is wrong with one listener says nothing of another one, which may be away for a moment.
        """
        links = [self._links.get(node.node_id) for node in self._candidates(cluster)]
        if any(link is None or link.hopeful or link.last_error is None for link in links):
            return None
        errors = [link.last_error for link in links if link is not None]
        refusals = [error for error in errors if isinstance(error, AuthenticationError)]
        of_the_cluster = [error for error in refusals if not isinstance(error, WrongListenerError)]
        if of_the_cluster or len(refusals) < len(errors):
            return next(iter(of_the_cluster), None)
        return next(iter(refusals), None)

    def obstacle(self) -> str:
        """Which brokers throttle us and for how long, in words; empty if none does. Any thread may ask."""
        throttled = [(link.node, link.throttled_ms) for link in list(self._links.values())]
        return "; ".join(
            f"the broker at {node.host}:{node.port} asked to be left alone"
            f" for another {left_ms / 1000:,.1f} s (throttled)"
            for node, left_ms in throttled
            if left_ms > 0
        )

    def silent(self) -> str:
        """Which brokers are being connected to, or have not said what they speak. Any thread may ask."""
        links = list(self._links.values())
        return ", ".join(str(link.node) for link in links if link.state is LinkState.CONNECTING)

    def close_idle(self, now_ms: float) -> float:
        """Closes connections that nobody used for long.

        Returns:
            how long until the next one counts as idle.
        """
        if now_ms < self._nothing_idle_before_ms:
            return self._nothing_idle_before_ms - now_ms if self._links else math.inf
        next_ms = self._max_idle_ms  # whoever is in use now, or connects later
        for link in self:
            idle_in_ms = link.idle_in_ms(now_ms)
            if idle_in_ms <= 0:
                link.close()
            else:
                next_ms = min(next_ms, idle_in_ms)
        self._nothing_idle_before_ms = now_ms + next_ms
        return next_ms if self._links else math.inf
