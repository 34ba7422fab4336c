"""The request log: requests that a broker received and the errors it answered, for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import attrs

from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import KafkaTimeoutError
from splashdam.testing.faults.fault import Changes, RequestFilter
from splashdam.testing.faults.messages import Place
from splashdam.wire.message import Request

_KEPT = 10_000


@attrs.frozen(kw_only=True)
class LoggedRequest:
    """One request and its outcome.

    Attributes:
        api: the API's name in snake case, such as ``"produce"``.
        version: API version of request and answer.
        client_id: the client id in the request header.
        broker: node id of the broker that received it.
        topics: the topics it names, each once, in its order.
        places: the topics and partitions it names.
        request: the decoded request.
        at_ms: time of arrival by the broker's wall clock, in milliseconds since the epoch.
        took_ms: milliseconds from arrival to answer.
        errors: Kafka's names of the errors in the answer, each once, in its order.
        outcome: ``answered``; ``unanswered`` if the client wanted no answer (``acks=0``), ``dropped`` if the
            connection was closed, ``silenced`` by a black hole, ``abandoned`` if the client disconnected.
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
    """Return Kafka's name of an error code."""
    return ErrorCode(code).name if code in list(ErrorCode) else str(code)


class RequestLog:
    """The last 10,000 requests of a broker or cluster, in the order they finished; off until started.

    A request is logged before its answer is sent, so a client that has the answer finds the request here. All
    methods may be called from any thread; those that wait must not be called in a trio loop.

    Attributes:
        is_on: whether requests are logged.
        has_brokers: whether requests of followers are logged.
    """

    def __init__(self, on_switch: Callable[[], None]) -> None:
        self.is_on = False
        self.has_brokers = False
        self._on_switch = on_switch
        self._requests: deque[LoggedRequest] = deque(maxlen=_KEPT)  # each use is atomic under the GIL
        self._changes = Changes()

    def start(self, *, from_brokers: bool = False) -> Self:
        """Begin to log; ``with broker.requests.start():`` stops at the end of the block.

        Args:
            from_brokers: log the requests of followers, too.
        """
        self.is_on = True
        self.has_brokers = from_brokers
        self._on_switch()
        return self

    def stop(self) -> None:
        """Stop logging; the requests logged so far stay."""
        self.is_on = False
        self._on_switch()

    def clear(self) -> None:
        """Forget the requests logged so far."""
        self._requests.clear()

    def add(self, request: LoggedRequest) -> None:
        self._requests.append(request)
        self._changes.announce()

    def of(
        self,
        api: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
    ) -> list[LoggedRequest]:
        """Return the requests that match, oldest first; None matches any, as in faults."""
        which = RequestFilter(api, topic, partition, client_id, broker)
        return self._matching(which)

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
        """Block until `of` finds ``count`` requests, and return them.

        Raises:
            KafkaTimeoutError: there are fewer after ``timeout_s`` seconds; the message says what was logged.
        """
        which = RequestFilter(api, topic, partition, client_id, broker)
        found: list[LoggedRequest] = []

        def are_enough() -> bool:
            found[:] = self._matching(which)
            return len(found) >= count

        if not self._changes.wait_until(are_enough, timeout_s):
            raise KafkaTimeoutError(
                f"{len(found)} of {count} requests {which} within {timeout_s} s; "
                f"logged: {self._summary() or 'none; was the log started?'}"
            )
        return found

    def _matching(self, which: RequestFilter) -> list[LoggedRequest]:
        return [each for each in self._requests.copy() if _matches(which, each)]

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


def _matches(which: RequestFilter, logged: LoggedRequest) -> bool:
    if not which.admits(logged.api, logged.client_id, logged.broker):
        return False
    return not which.names_places or any(map(which.includes, logged.places))
