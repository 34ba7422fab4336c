"""Questions of a broker to the others of its cluster, over connections that are made when first needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import trio

from splashdam.model.errors import KafkaConnectionError
from splashdam.wire.message import Request, Response

if TYPE_CHECKING:
    from splashdam.net.clock import Clock
    from splashdam.net.connection.connection import Connection

ConnectToBroker = Callable[[int], Awaitable[trio.abc.Stream]]
"""Opens a stream to another broker of the cluster, by node id; raises KafkaConnectionError."""

R = TypeVar("R", bound=Response)

_IN_FLIGHT = 100
_TIMEOUT_MS = 30_000.0


class _Told(trio.TaskStatus[None]):
    """Sets an event, where no nursery waits for the start of a task."""

    def __init__(self, event: trio.Event) -> None:
        self._event = event

    def started(self, value: None = None) -> None:
        self._event.set()


class InterBrokerClient:
    """The other brokers, as one of them asks them.

    Args:
        node_id: who asks.
        clock: its clock.
        connect: how they are reached; None where there are none.
        start_soon: begins a task of the broker's.
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
        """Another broker's answer.

        Raises:
            KafkaConnectionError: there is no way to it.
            NetworkExceptionError, RequestTimedOutError: it was lost on the way, or takes too long.
        """
        async with self._turns[node_id]:  # one that is being started keeps nobody from the others
            connection = await self._to(node_id)
        return await connection.request(request)

    async def _to(self, node_id: int) -> Connection:
        found = self._open.get(node_id)
        if found is not None and not found.is_closed:
            return found
        if self._connect is None:
            raise KafkaConnectionError(f"this broker is alone; there is no node {node_id}")
        # Few brokers have others beside them, so few load what it takes to ask them.
        from importlib.metadata import version

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
            if not connection.is_closed:  # who asked may have gone before this begins
                await connection.run(task_status=_Told(started))

        self._start_soon(run)
        try:
            await started.wait()
            await connection.negotiate("splashdam-broker", version("splashdam"))
        except BaseException:  # who asks may be gone, too
            with trio.CancelScope(shield=True):
                await connection.aclose()
            raise
        self._open[node_id] = connection
        return connection
