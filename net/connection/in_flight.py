"""The requests of one connection that wait for their answers (Kafka: ``InFlightRequests``); no I/O.

They are answered in the order in which they were written. When an answer is late, and for how long the broker
wants to be left alone, is known here too; to act on it is the connection's.
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from splashdam.model.errors import ProtocolError
from splashdam.net.clock import Clock
from splashdam.net.connection.pending import AnyPending, OnDone, PendingResponse
from splashdam.net.connection.traffic import Traffic
from splashdam.wire.header import decode_correlation_id
from splashdam.wire.message import Request, Response
from splashdam.wire.registry import response_class

R = TypeVar("R", bound=Response)

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
