"""How many clients a broker has at a time, how fast new ones come, and how long strangers may take.

A stranger is a connection in its TLS handshake, or in front of a listener with SASL before the client has
proven who it is. There is room for a number of them; another one takes the place of the oldest, so that a
flood that proves nothing does not lock out those who come and prove it.
"""

from __future__ import annotations

import logging
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from splashdam.embedded_broker.answering.answers import ANYBODY, Address
from splashdam.embedded_broker.configs.limits import parse_overrides
from splashdam.embedded_broker.producing.straight_produce import ProduceTemplates
from splashdam.embedded_broker.serving.registry import Client
from splashdam.embedded_broker.serving.server import ClientConnection, ServedBroker
from splashdam.model.options import MAX_INT
from splashdam.net.connect import address_text

if TYPE_CHECKING:
    from splashdam.embedded_broker.quotas.client_quotas import ClientQuotas
    from splashdam.embedded_broker.quotas.entities import Quotas
    from splashdam.embedded_broker.serving.gate import Gate

_log = logging.getLogger(__name__)

STRANGER_SECONDS = 30.0
"""How long TLS handshake and authentication may take together."""
MOST_STRANGERS = 256


class Stranger:
    """A connection whose client is not known yet."""

    def __init__(self, all_of_them: dict[Stranger, None]) -> None:
        self.scope = trio.CancelScope(deadline=trio.current_time() + STRANGER_SECONDS)
        self._all = all_of_them

    def known(self) -> None:
        """The client has proven who it is, and may stay."""
        self._all.pop(self, None)
        self.scope.deadline = float("inf")


class Connections:
    """The connections of one broker.

    Attributes:
        produce_templates: by which the usual requests of all clients are known.
    """

    def __init__(self, broker: ServedBroker) -> None:
        self.produce_templates = ProduceTemplates()
        self._broker = broker
        self._served: set[ClientConnection] = set()
        self._count = 0
        self._by_host: Counter[str] = Counter()
        self._strangers: dict[Stranger, None] = {}  # the oldest first
        self._created_until = float("-inf")
        self._quotas: ClientQuotas | None = None
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = MAX_INT if files == resource.RLIM_INFINITY else max(files // 2, 1)

    async def serve(
        self,
        stream: trio.abc.Stream,
        address: Address,
        gate: Gate | None,
        theirs: Address | None = None,
        *,
        is_trusted: bool = False,
    ) -> None:
        """Serves one client until its stream ends, if there is a place for it.

        Args:
            stream: its connection.
            address: what answers name as the broker's.
            gate: lets the client in; None: everybody, in plaintext.
            theirs: the client's address; None: it is in this process, and always has a place.
            is_trusted: a broker of the same cluster is at the other end.
        """
        if theirs is None:
            await self._serve(
                stream, address, gate, Client(is_trusted=is_trusted), "a client in this process"
            )
            return
        peer = address_text(*theirs)
        with self._place(theirs.host) as refusal:
            if refusal:
                _log.warning("closed %s: %s", peer, refusal)
            elif await self._wait_turn(theirs.host):
                client = Client(ANYBODY._replace(host=theirs.host), is_trusted=is_trusted)
                await self._serve(stream, address, gate, client, peer)
                return
            else:
                _log.info("closed %s: connections come faster than connection_creation_rate", peer)
        await trio.aclose_forcefully(stream)

    async def _serve(
        self, stream: trio.abc.Stream, address: Address, gate: Gate | None, client: Client, peer: str
    ) -> None:
        if gate is None:
            await ClientConnection(stream, self._broker, address, peer, client=client).run()
        else:
            await gate.serve(stream, self._broker, address, peer, client=client)

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def _place(self, host: str) -> Iterator[str]:
        """Counts a connection; gives why it cannot be served, empty where it can."""
        refusal = self._refusal(host)
        if refusal:
            yield refusal
            return
        self._count += 1
        self._by_host[host] += 1
        try:
            yield ""
        finally:
            self._count -= 1
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]

    def _refusal(self, host: str) -> str:
        settings = self._broker.settings
        most = min(settings.limits.max_connections, self._most)
        if self._count >= most:
            return f"there are {most} connections (max.connections, or half of the open files allowed)"
        overrides = settings.limits.max_connections_per_ip_overrides
        of_host = settings.limits.max_connections_per_ip
        if overrides:
            of_host = parse_overrides(overrides).get(host, of_host)
        if self._by_host[host] >= of_host:
            return f"{host} has {of_host} connections (max.connections.per.ip)"
        return ""

    async def _wait_turn(self, host: str) -> bool:
        """Waits where connections come too fast; whether this one may be served then.

        Those beyond ``max.connection.creation.rate`` wait and are served; those beyond the quota of their
        address wait and are not, as in Kafka.
        """
        rate = self._broker.settings.limits.max_connection_creation_rate
        if rate < MAX_INT:
            now = trio.current_time()
            self._created_until = max(self._created_until, now - 1) + 1 / max(rate, 1)
            await trio.sleep(max(0.0, self._created_until - now))
        throttle_ms = 0 if self._quotas is None else self._quotas.connected(host)
        if throttle_ms:
            await trio.sleep(throttle_ms / 1000)
        return not throttle_ms

    def stranger(self) -> Stranger:
        """A place for a connection whose client is not known yet; if need be the oldest gives way."""
        if len(self._strangers) >= MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.scope.cancel()
        stranger = Stranger(self._strangers)
        self._strangers[stranger] = None
        return stranger

    @contextmanager
    def served(self, connection: ClientConnection) -> Iterator[None]:
        """Holds a connection to the quotas, those of now and later ones."""
        self._served.add(connection)
        if self._quotas is not None and self._quotas.is_any_set:
            connection.hold_to(self._quotas)
        try:
            yield
        finally:
            self._served.discard(connection)

    def take_quotas(self, quotas: Quotas) -> None:
        """Holds all connections to these quotas from now on."""
        from splashdam.embedded_broker.quotas.client_quotas import ClientQuotas
        from splashdam.embedded_broker.quotas.rates import Windows

        if self._quotas is None:
            settings = self._broker.settings
            windows = Windows(
                settings.limits.quota_window_num, 1000 * settings.limits.quota_window_size_seconds
            )
            self._quotas = ClientQuotas(windows, self._broker.clock.now_ms)
        self._quotas.take(quotas)
        for connection in self._served:
            connection.hold_to(self._quotas)
