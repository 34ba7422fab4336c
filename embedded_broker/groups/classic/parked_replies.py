"""Answers that a membership gives now or later, and the requests that wait for them (Kafka's purgatory)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

from splashdam.embedded_broker.execution.answers import Answer, Parked
from splashdam.embedded_broker.topics.internal_topics import answer_when_safe
from splashdam.model.broker_errors import BrokerResponseError
from splashdam.wire.message import Response

if TYPE_CHECKING:
    from splashdam.storage.log import Log


class Result(Protocol):
    """Result of a request to a membership."""

    @property
    def error_code(self) -> int:
        """Kafka's error code; 0 for success."""
        ...


T = TypeVar("T", bound=Result)


class Reply(Generic[T]):
    """Receives the answer of a membership to one request; called once."""

    def __init__(self) -> None:
        self._result: T | None = None
        self._given = trio.Event()

    def __call__(self, result: T) -> None:
        self._result = result
        self._given.set()

    @property
    def result(self) -> T | None:
        """The answer; None before it is given."""
        return self._result

    async def wait(self) -> T:
        await self._given.wait()
        assert self._result is not None
        return self._result


def answer_to(
    reply: Reply[T],
    respond: Callable[[T], Response],
    log_of: Callable[[], Log],
    refuse: Callable[[BrokerResponseError], Response],
) -> Answer:
    """Return the answer: sent once the membership gives it and the group's record is synced and replicated.

    Args:
        reply: that was passed to the membership.
        respond: makes the response.
        log_of: returns the log with the group's record.
        refuse: makes the response if the disk fails or the log is gone.
    """

    def answer(result: T) -> Answer:
        if result.error_code:
            return respond(result)
        try:
            return answer_when_safe(log_of(), respond(result), refuse)
        except BrokerResponseError as error:
            return refuse(error)

    async def wait() -> Response | None:
        found = answer(await reply.wait())
        return await found.wait() if isinstance(found, Parked) else found

    return Parked(wait) if reply.result is None else answer(reply.result)
