"""Requests from one broker to the others of its cluster, over connections that are opened on first use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import trio

from splashdam.model.errors import KafkaConnectionError
from splashdam.model.version import VERSION
from splashdam.wire.message import Request, Response

if TYPE_CHECKING:
    from splashdam.net.clock import Clock
    from splashdam.net.connection.connection import Connection

ConnectToBroker = Callable[[int], Awaitable[trio.abc.Stream]]
"""Opens a stream to another broker of the cluster, by node id; raises KafkaConnectionError."""

R = TypeVar("R", bound=Response)

_IN_FLIGHT = 100
_TIMEOUT_MS = 30_000.0


class _StartedEvent(trio.TaskStatus[None]):
    """Sets an event when a task has started, without a nursery that waits for it."""

    def __init__(self, event: trio.Event) -> None:
        self._event = event

    def started(self, value: None = None) -> None:
        self._event.set()


class InterBrokerClient:
    """Sends requests to the other brokers of a cluster.

    Args:
        node_id: of the broker that asks.
        clock: its clock.
        connect: opens a stream to another broker; None for a single broker.
        start_soon: starts a task in the broker's nursery.
    """

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        connect: ConnectToBroker | None,
        start_soon: Callable[[Callable[[], Awaitable[object]]], object],
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._connect = connect
        self._start_soon = start_soon
        self._open: dict[int, Connection] = {}
        self._turns: defaultdict[int, trio.Lock] = defaultdict(trio.Lock)

    async def ask(self, node_id: int, request: Request[R]) -> R:
        """Send a request to another broker and return its answer.

        Raises:
            KafkaConnectionError: the broker cannot be reached.
            NetworkExceptionError, RequestTimedOutError: the connection broke, or the answer took too long.
        """
        # One lock per node, so that a broker that is starting delays no request to another one.
        async with self._turns[node_id]:
            connection = await self._to(node_id)
        return await connection.request(request)

    async def _to(self, node_id: int) -> Connection:
        found = self._open.get(node_id)
        if found is not None and not found.is_closed:
            return found
        if self._connect is None:
            raise KafkaConnectionError(f"this broker is alone; there is no node {node_id}")
        # Imported on first use: a single broker never needs it, and it would slow down its start.
        from splashdam.net.connection.connection import Connection

        connection = Connection(
            await self._connect(node_id),
            clock=self._clock,
            client_id=f"broker-{self._node_id}",
            request_timeout_ms=_TIMEOUT_MS,
            max_in_flight_requests=_IN_FLIGHT,
            peer=f"node {node_id}",
        )
        started = trio.Event()

        async def run() -> None:
            if not connection.is_closed:  # the caller may have been cancelled before this task runs
                await connection.run(task_status=_StartedEvent(started))

        self._start_soon(run)
        try:
            await started.wait()
            await connection.negotiate("splashdam-broker", VERSION)
        except BaseException:  # cancellation included
            with trio.CancelScope(shield=True):
                await connection.aclose()
            raise
        self._open[node_id] = connection
        return connection
