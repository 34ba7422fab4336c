"""The requests of one connection that wait for their answers (Kafka: ``InFlightRequests``); no I/O.

They are answered in the order in which they were written. When an answer is late, and for how long the broker
wants to be left alone, is known here too; to act on it is the connection's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import trio

from splashdam.model.errors import IllegalStateError, KafkaError, ProtocolError
from splashdam.model.tally import Tally
from splashdam.model.values import Buffer
from splashdam.net.clock import Clock
from splashdam.net.connection.negotiation import decode_answer
from splashdam.wire.header import decode_correlation_id
from splashdam.wire.message import Request, Response
from splashdam.wire.registry import response_class


class Traffic(Tally):
    """Counted by ``Connection``, and by who opens and closes them.

    Attributes:
        requests: requests written.
        request_bytes: their bytes, frames included.
        request_bytes_max: of the largest one.
        responses: answers.
        response_bytes: bytes read.
        latency_ms: from writing a request to its answer, summed over all answers.
        latency_ms_max: of the slowest one.
        throttle_ms: how long the broker wanted to be left alone, summed over all answers.
        throttle_ms_max: the longest of these times.
        opened: connections that were made and agreed on versions.
        closed: those of them that have ended.
        network_io: requests and answers together.
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
        """A request is being written."""
        self.requests += 1
        self.network_io += 1
        self.request_bytes += size_bytes
        self.request_bytes_max = max(self.request_bytes_max, size_bytes)

    def answered(self, latency_ms: float, throttle_ms: float) -> None:
        """An answer is there."""
        self.responses += 1
        self.network_io += 1
        self.latency_ms += latency_ms
        self.latency_ms_max = max(self.latency_ms_max, latency_ms)
        if throttle_ms > 0:
            self.throttle_ms += throttle_ms
            self.throttle_ms_max = max(self.throttle_ms_max, throttle_ms)


R = TypeVar("R", bound=Response)


class Ask(Protocol):
    """Sends a request in a version and waits for its answer; raises as ``Connection.request``."""

    async def __call__(self, request: Request[R], version: int, /) -> R: ...


OnDone = Callable[["PendingResponse[R]"], None]
"""Called once with a request that is done, whatever came of it."""


class PendingResponse(Generic[R]):
    """The answer to one request, once it is there: to be waited for, or told to ``on_done``.

    Attributes:
        version: the version in which the request was sent.
        sent_at_ms: when writing began, by the connection's clock.
        deadline_ms: when the answer is late.
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
        "deadline_ms",
        "sent_at_ms",
        "version",
    )

    def __init__(
        self,
        request: Request[R],
        response_cls: type[R],
        *,
        version: int,
        correlation_id: int,
        sent_at_ms: float,
        deadline_ms: float,
        on_done: OnDone[R] | None = None,
    ) -> None:
        self.version = version
        self.sent_at_ms = sent_at_ms
        self.deadline_ms = deadline_ms
        self._name = request.NAME
        self._cls = response_cls
        self._correlation_id = correlation_id
        self._on_done = on_done
        self._is_done = False
        self._event: trio.Event | None = None  # made for whoever waits, and most requests have a callback
        self._response: R | None = None
        self._error: KafkaError | None = None

    def __str__(self) -> str:
        return f"{self._name} v{self.version} (correlation id {self._correlation_id})"

    @property
    def error(self) -> KafkaError | None:
        """Why no answer will come, None where it came or may come."""
        return self._error

    def done(self) -> bool:
        """Whether `wait` has nothing to wait for."""
        return self._is_done

    async def wait(self) -> R:
        """Waits for the answer. Cancelling the wait leaves the connection usable; the answer is then dropped.

        Raises:
            RequestTimedOutError: it did not come in time; the connection is closed.
            NetworkExceptionError: the connection was lost before it came.
            ProtocolError: it is not a legal answer; the connection is closed.
        """
        if self._is_done:
            await trio.lowlevel.checkpoint()
        else:
            if self._event is None:
                self._event = trio.Event()
            await self._event.wait()
        return self.result()

    def result(self) -> R:
        """The answer, once it is `done`; raises what `wait` does.

        Raises:
            IllegalStateError: no answer was expected, or it is not there.
        """
        if self._error is not None:
            raise self._error
        if self._response is None:
            raise IllegalStateError(f"{self} has no answer")
        return self._response

    def answers(self, correlation_id: int) -> bool:
        """Whether a response with this correlation id is this request's."""
        return correlation_id == self._correlation_id

    def decode(self, frame: Buffer) -> R:
        """Decodes this request's response frame."""
        return decode_answer(frame, self._cls, self.version)

    def throttle_ms(self, response: R) -> int:
        """How long the client itself has to wait now; 0 in versions in which the broker has waited."""
        if self.version not in response.THROTTLES:
            return 0
        throttle_time_ms: int = response.throttle_time_ms  # type: ignore[attr-defined]  # such versions have it
        return throttle_time_ms

    def resolve(self, response: R) -> None:
        """The answer is there."""
        self._response = response
        self._finish()

    def fail(self, error: KafkaError) -> None:
        """No answer will come. Ignored when it is done already."""
        if not self._is_done:
            self._error = error
            self._finish()

    def written(self) -> None:
        """The request is written, and nobody will answer it."""
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
"""Deadlines this close have passed: seconds and milliseconds do not convert exactly."""


class InFlightRequests:
    """Gives requests their correlation ids and finds the request of each answer.

    Args:
        max_requests: how many may wait at one time.
        clock: for deadlines and throttling.
        timeout_ms: how long an answer may take where a request does not say otherwise.
        traffic: counts answers.
        peer: the broker in messages.

    Attributes:
        queue: who waits, oldest first; whoever writes a request that will be answered appends it.
        last_correlation_id: of the last request; how many there were.
        throttled_until_ms: until when the broker wants to be left alone (KIP-219), by the clock.
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
        """How long the broker wants to be left alone, 0 if not."""
        return max(0.0, self.throttled_until_ms - self._clock.now_ms())

    def can_send_more(self) -> bool:
        """Whether there is room for one more, and the broker lets us."""
        if len(self.queue) >= self._max_requests:
            return False
        return not self.throttled_until_ms or self.throttled_ms <= _TOLERANCE_MS

    def pend(
        self, request: Request[R], version: int, timeout_ms: float | None, on_done: OnDone[R] | None
    ) -> PendingResponse[R]:
        """Gives a request its correlation id and its deadline. It is not in the queue yet."""
        self.last_correlation_id = (self.last_correlation_id + 1) & _LARGEST_CORRELATION_ID
        now_ms = self._clock.now_ms()
        return PendingResponse(
            request,
            response_class(type(request)),
            version=version,
            correlation_id=self.last_correlation_id,
            sent_at_ms=now_ms,
            deadline_ms=now_ms + (self._timeout_ms if timeout_ms is None else timeout_ms),
            on_done=on_done,
        )

    def complete_next(self, frame: memoryview) -> None:
        """Gives an answer to the oldest request.

        Raises:
            ProtocolError: it is not that request's, or not legal; the request stays in the queue.
        """
        correlation_id = decode_correlation_id(frame)
        if not self.queue:
            raise ProtocolError(f"{self._peer} answered correlation id {correlation_id} unasked")
        pending = self.queue[0]
        if not pending.answers(correlation_id):
            raise ProtocolError(f"{self._peer} answered correlation id {correlation_id} instead of {pending}")
        response = pending.decode(frame)
        self.queue.popleft()
        throttle_ms, now_ms = pending.throttle_ms(response), self._clock.now_ms()
        self._traffic.answered(now_ms - pending.sent_at_ms, throttle_ms)
        if throttle_ms > 0:
            until_ms = now_ms + throttle_ms
            self.throttled_until_ms = max(self.throttled_until_ms, until_ms)
        pending.resolve(response)

    def first(self) -> list[AnyPending]:
        """The oldest request, if there is any: the one to blame for an answer that is not legal."""
        return [*self.queue][:1]

    def next_deadline_ms(self) -> float:
        """When the next answer is late, infinity where none is awaited."""
        return min((pending.deadline_ms for pending in self.queue), default=float("inf"))

    def late(self) -> list[AnyPending]:
        """The requests whose answers should have been there by now."""
        now_ms = self._clock.now_ms() + _TOLERANCE_MS
        return [pending for pending in self.queue if pending.deadline_ms <= now_ms]
