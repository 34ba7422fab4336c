"""A request on its way: what `Connection.submit` returns."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import trio

from splashdam.model.errors import KafkaError
from splashdam.model.values import Buffer
from splashdam.net.negotiation import decode_answer
from splashdam.wire.message import Request, Response

R = TypeVar("R", bound=Response)


class PendingResponse(Generic[R]):
    """The answer to one request, once it is there.

    Attributes:
        version: the version in which the request was sent.
        sent_at_ms: when writing began, by the connection's clock.
        deadline_ms: when the answer is late.
    """

    __slots__ = (
        "_cls",
        "_correlation_id",
        "_done",
        "_error",
        "_name",
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
    ) -> None:
        self.version = version
        self.sent_at_ms = sent_at_ms
        self.deadline_ms = deadline_ms
        self._name = f"{request.NAME} v{version}"
        self._cls = response_cls
        self._correlation_id = correlation_id
        self._done = trio.Event()
        self._response: R | None = None
        self._error: KafkaError | None = None

    def __str__(self) -> str:
        return f"{self._name} (correlation id {self._correlation_id})"

    @property
    def error(self) -> KafkaError | None:
        """Why no answer will come, None where it came or may come."""
        return self._error

    def done(self) -> bool:
        """Whether `wait` returns at once."""
        return self._done.is_set()

    async def wait(self) -> R:
        """Waits for the answer. Cancelling the wait leaves the connection usable; the answer is then dropped.

        Raises:
            RequestTimedOutError: it did not come in time; the connection is closed.
            NetworkExceptionError: the connection was lost before it came.
            ProtocolError: it is not a legal answer; the connection is closed.
        """
        await self._done.wait()
        if self._error is not None:
            raise self._error
        assert self._response is not None
        return self._response

    def answers(self, correlation_id: int) -> bool:
        """Whether a response with this correlation id is this request's."""
        return correlation_id == self._correlation_id

    def decode(self, frame: Buffer) -> R:
        """Decodes this request's response frame."""
        return decode_answer(frame, self._cls, self.version)

    def resolve(self, response: R) -> None:
        """The answer is there."""
        self._response = response
        self._done.set()

    def fail(self, error: KafkaError) -> None:
        """No answer will come."""
        self._error = error
        self._done.set()


AnyPending = PendingResponse[Any]
