"""What a broker was asked and what it answered, for a test to look at."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import attrs

from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import KafkaTimeoutError
from splashdam.testing.faults.fault import Which
from splashdam.testing.faults.gates import Gates
from splashdam.testing.faults.places import Place
from splashdam.wire.message import Request

_KEPT = 10_000


@attrs.frozen(kw_only=True)
class LoggedRequest:
    """One request and what became of it.

    Attributes:
        api: the API's name in snake case, such as ``"produce"``.
        version: of request and answer.
        client_id: the client's name for itself.
        broker: node id of the broker that was asked.
        topics: the topics it is about, each once, in its order.
        places: the same with partitions.
        request: as decoded.
        at_ms: when it came, by the broker's wall clock, in milliseconds since the epoch.
        took_ms: from there to the answer.
        errors: the errors in the answer by Kafka's names, each once, in its order.
        outcome: ``answered``; ``unanswered`` where none was wanted (``acks=0``), ``dropped`` with the
            connection, ``silenced`` by a black hole, or ``abandoned`` by a client that left.
    """

    api: str
    version: int
    client_id: str | None
    broker: int
    topics: tuple[str, ...]
    places: tuple[Place, ...]
    request: Request[Any] = attrs.field(repr=False)
    at_ms: int
    took_ms: float
    errors: tuple[str, ...]
    outcome: str


def error_name(code: int) -> str:
    """Kafka's name of an error."""
    return ErrorCode(code).name if code in list(ErrorCode) else str(code)


class RequestLog:
    """The requests of a broker or cluster, in the order in which they were done with; off until started.

    A request stands here before its answer leaves: who has an answer finds its request. The last 10,000 are
    kept. Everything may be called from any thread; the methods that wait belong in a test's thread, not in
    a trio loop.

    Attributes:
        is_on: whether requests are logged.
        has_brokers: whether those of other brokers are, too.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.is_on = False
        self.has_brokers = False
        self._changed = changed
        self._requests: deque[LoggedRequest] = deque(maxlen=_KEPT)  # each use of it is one atomic step
        self._gates = Gates()

    def start(self, *, from_brokers: bool = False) -> Self:
        """Begins to log; ``with broker.requests.start():`` stops at the end of the block.

        Args:
            from_brokers: other brokers' requests, as followers, too.
        """
        self.is_on = True
        self.has_brokers = from_brokers
        self._changed()
        return self

    def stop(self) -> None:
        """Ends logging; what was logged stays."""
        self.is_on = False
        self._changed()

    def clear(self) -> None:
        """Forgets what was logged so far."""
        self._requests.clear()

    def add(self, request: LoggedRequest) -> None:
        """Logs one."""
        self._requests.append(request)
        self._gates.open()

    def of(
        self,
        api: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
    ) -> list[LoggedRequest]:
        """Those of one kind, oldest first; what is not given may be any, as with faults."""
        which = Which(api, topic, partition, client_id, broker)
        return self._meant(which)

    def wait_for(
        self,
        api: str | None = None,
        *,
        count: int = 1,
        timeout_s: float = 10.0,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
    ) -> list[LoggedRequest]:
        """As ``of``, once there are ``count`` of them.

        Raises:
            KafkaTimeoutError: there are fewer after ``timeout_s``; the text says what came instead.
        """
        which = Which(api, topic, partition, client_id, broker)
        found: list[LoggedRequest] = []

        def are_enough() -> bool:
            found[:] = self._meant(which)
            return len(found) >= count

        if not self._gates.wait_until(are_enough, timeout_s):
            raise KafkaTimeoutError(
                f"{len(found)} of {count} requests {which} within {timeout_s} s; "
                f"there were {self._summary() or 'none at all, is the log on?'}"
            )
        return found

    def _meant(self, which: Which) -> list[LoggedRequest]:
        return [each for each in self._requests.copy() if _is_meant(which, each)]

    def _summary(self) -> str:
        counts: dict[str, int] = {}
        for each in self._requests.copy():
            counts[each.api] = counts.get(each.api, 0) + 1
        return ", ".join(f"{count} of {api}" for api, count in counts.items())

    def __iter__(self) -> Iterator[LoggedRequest]:
        return iter(self._requests.copy())

    def __len__(self) -> int:
        return len(self._requests)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _is_meant(which: Which, logged: LoggedRequest) -> bool:
    if not which.admits(logged.api, logged.client_id, logged.broker):
        return False
    return not which.is_about_places or any(map(which.includes, logged.places))
