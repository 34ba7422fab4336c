"""The in-flight requests of one connection (Kafka: ``InFlightRequests``) and traffic counters; no I/O.

Responses come in the order of the requests. Deadlines and throttle times are computed here; the connection
acts on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import trio

from splashdam.model.counters import WindowedCounters
from splashdam.model.errors import IllegalStateError, KafkaError, ProtocolError
from splashdam.model.values import Buffer
from splashdam.net.clock import Clock
from splashdam.net.connection.negotiation import decode_answer
from splashdam.wire.header import decode_correlation_id
from splashdam.wire.message import Request, Response
from splashdam.wire.registry import response_class

if TYPE_CHECKING:
    from splashdam.wire.produce_form import Acknowledged, ProduceForm


class Traffic(WindowedCounters):
    """Counters of the connections to one broker; ``Connection`` and the code that opens it count.

    Attributes:
        requests: requests written.
        request_bytes: bytes of the request frames.
        request_bytes_max: of the largest request.
        responses: responses received.
        response_bytes: bytes read.
        latency_ms: time from write to response, summed over all responses.
        latency_ms_max: of the slowest response.
        throttle_ms: throttle times that the broker asked for, summed.
        throttle_ms_max: the longest throttle time.
        opened: connections opened and negotiated.
        closed: of those, how many have closed.
        network_io: requests and responses together.
    """

    requests: int = 0
    request_bytes: int = 0
    request_bytes_max: int = 0
    responses: int = 0
    response_bytes: int = 0
    latency_ms: float = 0
    latency_ms_max: float = 0
    throttle_ms: float = 0
    throttle_ms_max: float = 0
    opened: int = 0
    closed: int = 0
    network_io: int = 0

    def sent(self, size_bytes: int) -> None:
        """Count a request."""
        self.requests += 1
        self.network_io += 1
        self.request_bytes += size_bytes
        self.request_bytes_max = max(self.request_bytes_max, size_bytes)

    def answered(self, latency_ms: float, throttle_ms: float) -> None:
        """Count a response."""
        self.responses += 1
        self.network_io += 1
        self.latency_ms += latency_ms
        self.latency_ms_max = max(self.latency_ms_max, latency_ms)
        if throttle_ms > 0:
            self.throttle_ms += throttle_ms
            self.throttle_ms_max = max(self.throttle_ms_max, throttle_ms)


R = TypeVar("R", bound=Response)


class Ask(Protocol):
    """Sends a request and waits for its response; raises as ``Connection.request``."""

    async def __call__(self, request: Request[R], version: int, /) -> R: ...


OnDone = Callable[["PendingResponse[R]"], None]
"""Called once with a request that is done, answered or failed."""


class PendingResponse(Generic[R]):
    """The future response to one request: to wait for, or passed to ``on_done``.

    Attributes:
        version: version of the request.
        form: of a request that was filled into one; its response need not be decoded if it fits.
        acknowledged: what such a response says; then there is no other result.
        latency_ms: how long that took; 0 for other responses.
        sent_at_ms: when writing began, by the connection's clock.
        deadline_ms: when the request times out.
    """

    __slots__ = (
        "_cls",
        "_correlation_id",
        "_error",
        "_event",
        "_is_done",
        "_name",
        "_on_done",
        "_response",
        "acknowledged",
        "deadline_ms",
        "form",
        "latency_ms",
        "sent_at_ms",
        "version",
    )

    def __init__(
        self,
        request_cls: type[Request[R]],
        response_cls: type[R],
        *,
        version: int,
        correlation_id: int,
        sent_at_ms: float,
        deadline_ms: float,
        on_done: OnDone[R] | None = None,
        form: ProduceForm | None = None,
    ) -> None:
        self.version = version
        self.form = form
        self.acknowledged: Acknowledged | None = None
        self.latency_ms = 0.0
        self.sent_at_ms = sent_at_ms
        self.deadline_ms = deadline_ms
        self._name = request_cls.NAME
        self._cls = response_cls
        self._correlation_id = correlation_id
        self._on_done = on_done
        self._is_done = False
        self._event: trio.Event | None = None  # made by wait(): most requests have a callback
        self._response: R | None = None
        self._error: KafkaError | None = None

    def __str__(self) -> str:
        return f"{self._name} v{self.version} (correlation id {self._correlation_id})"

    @property
    def error(self) -> KafkaError | None:
        """Why the request failed; None if it was answered or may be."""
        return self._error

    def done(self) -> bool:
        """Return whether the request is answered or has failed."""
        return self._is_done

    async def wait(self) -> R:
        """Wait for the response. After a cancel the connection stays usable, and the response is dropped.

        Raises:
            RequestTimedOutError: there was no response in time; the connection is closed.
            NetworkExceptionError: the connection was lost first.
            ProtocolError: the response is invalid; the connection is closed.
        """
        if self._is_done:
            await trio.lowlevel.checkpoint()
        else:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        return self.result()

    def result(self) -> R:
        """Return the response of a request that is `done`; raise what `wait` raises.

        Raises:
            IllegalStateError: no response is expected, or it has not arrived yet.
        """
        if self._error is not None:
            raise self._error
        if self._response is None:
            raise IllegalStateError(f"{self} has no response")
        return self._response

    def answers(self, correlation_id: int) -> bool:
        """Return whether the correlation id is this request's."""
        return correlation_id == self._correlation_id

    def decode(self, frame: Buffer) -> R:
        return decode_answer(frame, self._cls, self.version)

    def throttle_ms(self, response: R) -> int:
        """Return the time for the client to wait (KIP-219); 0 in versions where the broker itself waits."""
        if self.version not in response.THROTTLES:
            return 0
        throttle_time_ms: int = response.throttle_time_ms  # type: ignore[attr-defined]  # such versions have it
        return throttle_time_ms

    def resolve(self, response: R) -> None:
        self._response = response
        self._finish()

    def acknowledge(self, acknowledged: Acknowledged, latency_ms: float) -> None:
        """Complete the request without a response, by what its form has read."""
        self.acknowledged = acknowledged
        self.latency_ms = latency_ms
        self._finish()

    def fail(self, error: KafkaError) -> None:
        """Fail the request; ignored if it is done already."""
        if not self._is_done:
            self._error = error
            self._finish()

    def written(self) -> None:
        """Complete a written request that has no response."""
        self._finish()

    def _finish(self) -> None:
        self._is_done = True
        if self._event is not None:
            self._event.set()
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(self)


AnyPending = PendingResponse[Any]


_LARGEST_CORRELATION_ID = 0x7FFFFFFF

_TOLERANCE_MS = 0.01
"""A deadline this close counts as passed: seconds and milliseconds do not convert exactly."""


class InFlightRequests:
    """Assigns correlation ids and matches responses to requests.

    Args:
        max_requests: limit of requests in flight.
        clock: for deadlines and throttling.
        timeout_ms: time limit for a response unless a request has its own.
        traffic: counts responses.
        peer: name of the broker in messages.

    Attributes:
        queue: requests in flight, oldest first; the connection appends each that expects a response.
        last_correlation_id: of the last request.
        throttled_until_ms: end of the throttle time (KIP-219), by the clock.
    """

    def __init__(
        self, max_requests: int, *, clock: Clock, timeout_ms: float, traffic: Traffic, peer: str
    ) -> None:
        self.queue: deque[AnyPending] = deque()
        self.last_correlation_id = 0
        self.throttled_until_ms = 0.0
        self._max_requests = max_requests
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._traffic = traffic
        self._peer = peer

    @property
    def throttled_ms(self) -> float:
        """Remaining throttle time, 0 for none."""
        return max(0.0, self.throttled_until_ms - self._clock.now_ms())

    def can_send_more(self) -> bool:
        """Return whether there is room for one more request and no throttle time."""
        if len(self.queue) >= self._max_requests:
            return False
        # A client is hardly ever throttled, so most calls need no look at the clock.
        return not self.throttled_until_ms or self.throttled_ms <= _TOLERANCE_MS

    def pend(  # noqa: PLR0917 (once per request; positional arguments are cheaper)
        self,
        request_cls: type[Request[R]],
        version: int,
        timeout_ms: float | None,
        on_done: OnDone[R] | None,
        form: ProduceForm | None = None,
        now_ms: float | None = None,
    ) -> PendingResponse[R]:
        """Assign correlation id and deadline; the caller adds the request to the queue."""
        self.last_correlation_id = (self.last_correlation_id + 1) & _LARGEST_CORRELATION_ID
        if now_ms is None:
            now_ms = self._clock.now_ms()
        return PendingResponse(
            request_cls,
            response_class(request_cls),
            version=version,
            correlation_id=self.last_correlation_id,
            sent_at_ms=now_ms,
            deadline_ms=now_ms + (self._timeout_ms if timeout_ms is None else timeout_ms),
            on_done=on_done,
            form=form,
        )

    def complete_next(self, frame: memoryview) -> None:
        """Complete the oldest request with a response frame.

        Raises:
            ProtocolError: the response is not that request's, or invalid; the request stays in the queue.
        """
        # Brokers answer the requests of a connection in order: a response that skips one is a protocol error.
        correlation_id = decode_correlation_id(frame)
        if not self.queue:
            raise ProtocolError(
                f"{self._peer} sent correlation id {correlation_id}, but no request is in flight"
            )
        pending = self.queue[0]
        if not pending.answers(correlation_id):
            raise ProtocolError(f"{self._peer} sent correlation id {correlation_id} instead of {pending}")
        form = pending.form
        acknowledged = None if form is None else form.read(frame)
        if acknowledged is not None:
            self.queue.popleft()
            latency_ms = self._clock.now_ms() - pending.sent_at_ms
            self._traffic.answered(latency_ms, 0)
            pending.acknowledge(acknowledged, latency_ms)
            return
        # While it is in the queue: a response that cannot be decoded is blamed on its request.
        response = pending.decode(frame)
        self.queue.popleft()
        throttle_ms, now_ms = pending.throttle_ms(response), self._clock.now_ms()
        self._traffic.answered(now_ms - pending.sent_at_ms, throttle_ms)
        if throttle_ms > 0:
            # The client itself has to pause (KIP-219): brokers answer at once and then stop reading.
            until_ms = now_ms + throttle_ms
            self.throttled_until_ms = max(self.throttled_until_ms, until_ms)
        pending.resolve(response)

    def first(self) -> list[AnyPending]:
        """Return the oldest request, if any: an invalid response is blamed on it."""
        return [*self.queue][:1]

    def next_deadline_ms(self) -> float:
        """Return the earliest deadline, infinity without requests."""
        return min((pending.deadline_ms for pending in self.queue), default=float("inf"))

    def late(self) -> list[AnyPending]:
        """Return the requests whose deadline has passed."""
        now_ms = self._clock.now_ms() + _TOLERANCE_MS
        return [pending for pending in self.queue if pending.deadline_ms <= now_ms]
