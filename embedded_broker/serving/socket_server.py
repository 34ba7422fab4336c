"""The sockets of a broker: where it listens, how many connections it serves, and how fast new ones come.

A stranger is a connection in its TLS handshake, or one whose client has to authenticate and has not done so
yet. There is room for a number of them; another one takes the place of the oldest, so that a flood of
connections that never authenticate does not lock out those that do.

In a forked child all sockets are closed: while the child held them the port would stay taken, and clients
would see no end of their streams after the parent is gone. A connection that is being accepted at the very
moment of the fork is not known here yet; its client sees the end only when the child ends, too.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import weakref
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from splashdam.embedded_broker.configs.broker_settings import BrokerSettings, parse_overrides
from splashdam.embedded_broker.configs.security import Listener
from splashdam.embedded_broker.execution.answers import ANYBODY, Address, Requester
from splashdam.embedded_broker.security.access import AccessControl
from splashdam.embedded_broker.serving.client_connection import ClientConnection, ServedBroker
from splashdam.embedded_broker.serving.limited_log import LimitedLog
from splashdam.embedded_broker.serving.registry import Client
from splashdam.model.errors import KafkaConnectionError, KafkaError
from splashdam.model.options import MAX_INT
from splashdam.net.clock import Clock
from splashdam.net.connect import address_text
from splashdam.net.listen import Listen, address_of
from splashdam.storage.files.disk import Files

if TYPE_CHECKING:
    from splashdam.embedded_broker.quotas.client_quotas import ClientQuotas
    from splashdam.embedded_broker.quotas.entities import Quotas
    from splashdam.embedded_broker.security.authentication import TokenValidator
    from splashdam.embedded_broker.serving.listener_security import ListenerSecurity

_log = logging.getLogger(__name__)

PLAINTEXT = "PLAINTEXT"

IN_PROCESS_ADDRESS = Address("embedded", 9092)
"""The address advertised to clients in this process; their ``Connect`` reaches the broker by any address."""

STRANGER_SECONDS = 30.0
"""How long TLS handshake and authentication may take together."""
MOST_STRANGERS = 256

OpenListener: TypeAlias = "tuple[Listener, trio.abc.Listener[Any]]"
"""An open listener with its setting: an entry of ``listeners``, or the host and port that were given."""


class SocketServer:
    """Accepts and serves the connections of one broker.

    Args:
        broker: answers the requests.
        nursery: of the tasks that listen, and serve adopted connections.

    Attributes:
        listeners: the advertised addresses, by the listener's name.
    """

    def __init__(self, broker: ServedBroker, nursery: trio.Nursery) -> None:
        self.listeners: dict[str, list[Address]] = {}
        self._broker = broker
        self._nursery = nursery
        self._sockets: set[trio.socket.SocketType] = set()
        self._connections: weakref.WeakSet[ClientConnection] = weakref.WeakSet()
        self._count = 0
        self._served = 0
        self._by_host: Counter[str] = Counter()
        self._strangers: dict[_Stranger, None] = {}  # the oldest first
        self._created_until = float("-inf")
        self._quotas: ClientQuotas | None = None
        self._closings = LimitedLog(_log)
        # Half of the open files are for logs: clients alone must not use all up (docs/decisions/security.md).
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = MAX_INT if files == resource.RLIM_INFINITY else max(files // 2, 1)
        _servers.add(self)

    def __len__(self) -> int:
        """The number of connections that are served, without those of this process."""
        return self._count

    def clients(self) -> list[Client]:
        """Return the clients of all connections that are served, those of this process included."""
        return [each.client for each in self._connections if not each.has_ended]

    def serve_listener(
        self,
        listener: trio.abc.Listener[Any],
        settings: Listener,
        security: ListenerSecurity | None = None,
    ) -> None:
        """Accept connections from a listener from now on.

        Args:
            listener: an open one.
            settings: its name and advertised address.
            security: its TLS and SASL; None: PLAINTEXT.
        """
        address = Address(*address_of(listener))
        named = settings.advertised_on(address.port)
        advertised = None if named is None else Address(*named)
        self.listeners.setdefault(settings.name, []).append(advertised or address)
        if isinstance(listener, trio.SocketListener):
            self._sockets.add(listener.socket)
        serve = partial(self.serve, address=address, security=security, advertised=advertised)
        self._nursery.start_soon(trio.serve_listeners, serve, [listener])

    def adopt(
        self,
        stream: trio.abc.Stream,
        *,
        is_trusted: bool = False,
        requester: Requester = ANYBODY,
        address: Address = IN_PROCESS_ADDRESS,
    ) -> None:
        """Serve a stream, as ``serve`` does, in a task of the server's own.

        Args:
            stream: the connection.
            is_trusted: see ``serve``.
            requester: the client at the other end, in this process.
            address: see ``serve``.

        Raises:
            KafkaConnectionError: the server has ended. The caller closes the stream.
        """
        try:
            self._nursery.start_soon(
                partial(self.serve, stream, address, is_trusted=is_trusted, requester=requester)
            )
        except RuntimeError as error:  # trio's, for a nursery whose last task has ended
            raise KafkaConnectionError("the broker has stopped serving") from error

    async def serve(
        self,
        stream: trio.abc.Stream,
        address: Address = IN_PROCESS_ADDRESS,
        *,
        client_address: Address | None = None,
        security: ListenerSecurity | None = None,
        advertised: Address | None = None,
        is_trusted: bool = False,
        requester: Requester = ANYBODY,
    ) -> None:
        """Serve one client until its stream ends; whatever the client does, nothing is raised.

        Args:
            stream: the connection.
            address: the address that answers name as this broker's; for TCP it is the one that the client
                reached.
            client_address: the client's address, if the stream does not know it. None: the client is in this
                process, and limits on the number of connections do not apply.
            security: TLS and SASL of the listener; None: PLAINTEXT.
            advertised: the address that answers name instead of ``address``.
            is_trusted: a broker of the same cluster is at the other end, which needs no ACLs.
            requester: the principal that the client acts as until it logs in; by default the anonymous one.
        """
        interceptor = self._broker.interception.interceptor
        if interceptor is not None and not interceptor.admits(self._broker.node_id):
            await trio.aclose_forcefully(stream)
            return
        if isinstance(stream, trio.SocketStream):
            ours, client_address = _tcp_addresses(stream)
            address = ours or address
        with self._open_sockets(stream):
            if client_address is None:
                client = Client(requester, is_trusted=is_trusted)
                await self._serving(stream, advertised or address, security, client)
                return
            host, name = client_address.host, address_text(*client_address)
            with self._place(host) as refusal:
                if refusal is not None:
                    text, *args = refusal
                    self._closings.write(logging.WARNING, text, name, *args)
                elif await self._wait_turn(host):
                    client = Client(ANYBODY._replace(host=host), is_trusted=is_trusted, name=name)
                    await self._serving(stream, advertised or address, security, client)
                    return
                else:
                    text = "closed %s: connections come faster than connection_creation_rate"
                    self._closings.write(logging.INFO, text, name)
            await trio.aclose_forcefully(stream)

    def take_quotas(self, quotas: Quotas) -> None:
        """Hold all connections to these quotas from now on."""
        from splashdam.embedded_broker.quotas.client_quotas import ClientQuotas
        from splashdam.embedded_broker.quotas.rates import Windows

        if self._quotas is None:
            limits = self._broker.settings.limits
            windows = Windows(limits.quota_window_num, 1000 * limits.quota_window_size_seconds)
            self._quotas = ClientQuotas(windows, self._broker.clock.now_ms)
        self._quotas.take(quotas)
        for connection in self._connections:
            connection.hold_to(self._quotas)

    def close_in_child(self) -> None:
        """Close the sockets without telling the trio loop that they belong to: it runs in the parent only."""
        for sock in self._sockets:
            # Closed by descriptor: trio's close would tell a loop that does not run in the child.
            os.close(sock.detach())
        self._sockets.clear()
        self._broker.selector.close_in_child()

    @contextmanager
    def _open_sockets(self, stream: trio.abc.Stream) -> Iterator[None]:
        if not isinstance(stream, trio.SocketStream):
            yield
            return
        self._sockets.add(stream.socket)
        try:
            yield
        finally:
            self._sockets.discard(stream.socket)

    @contextmanager
    def _place(self, host: str) -> Iterator[tuple[str, *tuple[object, ...]] | None]:
        """Count a connection; yields None, or the log line's text and arguments if it cannot be served."""
        refusal = self._refusal(host)
        if refusal is not None:
            yield refusal
            return
        self._count += 1
        self._by_host[host] += 1
        try:
            yield None
        finally:
            self._count -= 1
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]

    def _refusal(self, host: str) -> tuple[str, *tuple[object, ...]] | None:
        limits = self._broker.settings.limits
        most = min(limits.max_connections, self._most)
        if self._count >= most:
            text = "closed %s: there are %d connections (max.connections, or half of the open files allowed)"
            return text, most
        of_host = limits.max_connections_per_ip
        if limits.max_connections_per_ip_overrides:
            of_host = parse_overrides(limits.max_connections_per_ip_overrides).get(host, of_host)
        if self._by_host[host] >= of_host:
            return "closed %s: %s has %d connections (max.connections.per.ip)", host, of_host
        return None

    async def _wait_turn(self, host: str) -> bool:
        """Wait where connections come too fast; return whether this one may be served then.

        Those beyond ``max.connection.creation.rate`` wait and are served; those beyond the quota of their
        address wait and are not, as in Kafka.
        """
        rate = self._broker.settings.limits.max_connection_creation_rate
        if rate < MAX_INT:
            now = trio.current_time()
            # A token bucket of one second: a burst after a pause is served at once.
            self._created_until = max(self._created_until, now - 1) + 1 / max(rate, 1)
            await trio.sleep(max(0.0, self._created_until - now))
        throttle_ms = 0 if self._quotas is None else self._quotas.connected(host)
        if throttle_ms:
            await trio.sleep(throttle_ms / 1000)
        return not throttle_ms

    # No coroutine function: each coroutine between a task and what it waits for is resumed at each request.
    def _serving(
        self, stream: trio.abc.Stream, address: Address, security: ListenerSecurity | None, client: Client
    ) -> Coroutine[Any, Any, None]:
        if security is not None:
            return self._serve_secured(stream, address, security, client)
        connection = ClientConnection(stream, self._broker, address, client, self._closings)
        self._admit(connection)
        return connection.run()

    async def _serve_secured(
        self, stream: trio.abc.Stream, address: Address, security: ListenerSecurity, client: Client
    ) -> None:
        """Serve a client that has ``STRANGER_SECONDS`` to authenticate."""
        broker, stranger = self._broker, self._new_stranger()
        try:
            with stranger.scope:
                stream, client.requester = await security.handshake(stream, client.name, client.requester)
                max_reauth_ms = broker.settings.security.connections_max_reauth_ms
                session = security.new_session(max_reauth_ms, broker.clock)
                if session is None:
                    stranger.known()
                connection = ClientConnection(
                    stream,
                    broker,
                    address,
                    client,
                    self._closings,
                    session=session,
                    authenticated=stranger.known,
                )
                self._admit(connection)
                await connection.run()
            if stranger.scope.cancelled_caught:
                text = "closed %s: it did not authenticate in time"
                self._closings.write(logging.WARNING, text, client.name)
                await trio.aclose_forcefully(stream)
        except KafkaError as error:
            self._closings.write(logging.WARNING, "closed %s: %s", client.name, error)
        finally:
            stranger.known()

    def _admit(self, connection: ClientConnection) -> None:
        """Number a new connection; apply the present quotas to it, and later ones when they change."""
        self._served += 1
        connection.client.number = self._served
        self._connections.add(connection)
        if self._quotas is not None and self._quotas.is_any_set:
            connection.hold_to(self._quotas)

    def _new_stranger(self) -> _Stranger:
        """Return a place for a stranger; if all are taken, close the oldest one."""
        if len(self._strangers) >= MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.scope.cancel()
        stranger = _Stranger(self._strangers)
        self._strangers[stranger] = None
        return stranger


class _Stranger:
    """A connection whose client is not known yet."""

    def __init__(self, all_of_them: dict[_Stranger, None]) -> None:
        self.scope = trio.CancelScope(deadline=trio.current_time() + STRANGER_SECONDS)
        self._all = all_of_them

    def known(self) -> None:
        """The client has authenticated, and may stay."""
        self._all.pop(self, None)
        self.scope.deadline = float("inf")


def _tcp_addresses(stream: trio.SocketStream) -> tuple[Address | None, Address | None]:
    """Return the address at which a client reached this broker by TCP, and the client's own."""
    if stream.socket.family not in (socket.AF_INET, socket.AF_INET6):
        return None, None
    try:
        ours, theirs = stream.socket.getsockname(), stream.socket.getpeername()
    except OSError:
        return None, None  # it is gone
    return Address(*ours[:2]), Address(*theirs[:2])


async def open_listeners(
    settings: BrokerSettings, host: str, port: int, listen: Listen
) -> list[OpenListener]:
    """Open the setting ``listeners``, or ``host`` and ``port`` if that is empty.

    Raises:
        KafkaConfigurationError: a listener has no protocol.
        KafkaConnectionError: an address is taken or not ours; then none is open.
    """
    endpoints = settings.security.endpoints_on(host, port) or [Listener(PLAINTEXT, host, port)]
    opened: list[OpenListener] = []
    try:
        for endpoint in endpoints:
            opened += [(endpoint, each) for each in await listen(endpoint.host, endpoint.port)]
    except BaseException:
        for _, each in opened:
            await trio.aclose_forcefully(each)
        raise
    return opened


def make_listener_security(
    settings: BrokerSettings,
    files: Files,
    access: AccessControl,
    clock: Clock,
    token_validator: TokenValidator | None,
) -> dict[str, ListenerSecurity]:
    """Make the security of each listener that is not PLAINTEXT, by the listener's name.

    Raises:
        KafkaConfigurationError: a certificate or key is missing, or the file does not hold one.
    """
    secured = [each for each in settings.security.endpoints if each.protocol != PLAINTEXT]
    if not secured:
        return {}
    from splashdam.embedded_broker.security.authentication import BrokerAuthority
    from splashdam.embedded_broker.serving.listener_security import ListenerSecurity

    keytab = settings.security.sasl_kerberos_keytab
    authority = BrokerAuthority(files, access.users, clock, token_validator, keytab)
    return {each.name: ListenerSecurity(each, settings.security, authority) for each in secured}


_servers: weakref.WeakSet[SocketServer] = weakref.WeakSet()


def _close_all_in_child() -> None:
    for server in list(_servers):
        with suppress(Exception):
            server.close_in_child()


os.register_at_fork(after_in_child=_close_all_in_child)
