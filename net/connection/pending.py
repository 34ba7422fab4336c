"""A request on its way: what `Connection.submit` returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import trio

from splashdam.model.errors import IllegalStateError, KafkaError
from splashdam.model.values import Buffer
from splashdam.net.connection.negotiation import decode_answer
from splashdam.wire.message import Request, Response

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
