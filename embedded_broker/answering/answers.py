"""What a handler may answer, who asked, and how an answer is encoded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from typing import Any, NamedTuple, TypeAlias

import attrs

from splashdam.model.errors import ProtocolError
from splashdam.wire.fields import Part
from splashdam.wire.header import encode_response
from splashdam.wire.message import Request, Response, Struct

_LONGEST_TEXT = 1000


class Address(NamedTuple):
    """Where a client reaches the broker; answers name it as the broker's address (facts B8)."""

    host: str
    port: int


@attrs.frozen
class Parked:
    """An answer that is not ready yet: the connection first sends what it owes, then awaits ``wait()``.

    The frame's memory stays until the answer is sent, and is reused then: whoever goes on with the request
    for longer keeps no ``memoryview`` of it.
    """

    wait: Callable[[], Awaitable[Response | None]]
    lets_others_begin: bool = False
    """Whether later requests of the connection may be handled meanwhile; their answers still come later."""


Answer: TypeAlias = Response | Parked | None
"""None where Kafka sends no answer (``acks=0``)."""


class CloseConnectionError(Exception):
    """A wish to close this connection without an answer: a handler's, or an interceptor's.

    Args:
        reason: goes to the log.
        parts: an interceptor's last bytes, whatever they are, perhaps none; None where it is no interceptor
            that wants it so, and the log warns.

    Attributes:
        parts: as given.
    """

    def __init__(self, reason: str, parts: list[Part] | None = None) -> None:
        super().__init__(reason)
        self.parts = parts


ANONYMOUS = "User:ANONYMOUS"
"""Who has not said who they are."""


class Requester(NamedTuple):
    """Who asks, and from where."""

    principal: str
    host: str


ANYBODY = Requester(ANONYMOUS, "127.0.0.1")
"""A client of the same process."""


@attrs.define
class Account:
    """Who asks for one request, and what it takes.

    Attributes:
        party: among whom the places beside the loop are shared.
        spent_ms: what it took so far in the loop and beside it. Whoever calls the handler counts the first
            turn; the others are counted here.
        is_heavy: a turn has tried the request's work, in vain.
    """

    party: Hashable = None
    spent_ms: float = 0.0
    is_heavy: bool = False


class Dispatched(NamedTuple):
    """A handler's answer, and what it takes to encode it."""

    answer: Answer
    version: int
    correlation_id: int
    request: Request[Any] | None
    """As decoded; None where its version is unknown."""
    client_id: str | None = None
    size_bytes: int = 0
    account: Account | None = None
    """What the request took of the broker's time; measured where quotas are set."""

    @property
    def spent_ms(self) -> float:
        """What the request has taken by now."""
        return 0.0 if self.account is None else self.account.spent_ms


class Encoding(NamedTuple):
    """A large answer to be encoded beside the loop (a ``Work``); its size is taken for the request's."""

    answer: Response
    version: int
    correlation_id: int
    size_bytes: int

    def do(self, _max_bytes: int) -> list[Part]:
        """A whole frame; ProtocolError as ``encode_answer``."""
        return encode_answer(self.answer, version=self.version, correlation_id=self.correlation_id)


def encode_answer(answer: Response, *, version: int, correlation_id: int) -> list[Part]:
    """A whole frame.

    An error's text names what was asked for. Where that makes it longer than the protocol's strings may be,
    it is cut: the client shall hear that its request is wrong, and not that the connection is gone.

    Raises:
        ProtocolError: the answer does not fit its version for another reason.
    """
    try:
        return encode_response(answer, version=version, correlation_id=correlation_id)
    except ProtocolError:
        if not _shorten(answer):
            raise
    return encode_response(answer, version=version, correlation_id=correlation_id)


def _shorten(value: Any) -> bool:
    """Cuts every error's text in an answer; whether there was something to cut."""
    if isinstance(value, list):
        return sum(map(_shorten, value)) > 0  # all of them are cut
    if not isinstance(value, Struct):
        return False
    found = False
    for field in value.FIELDS:
        held = getattr(value, field.name)
        if field.name == "error_message" and held and len(held) > _LONGEST_TEXT:
            setattr(value, field.name, f"{held[:_LONGEST_TEXT]} …")
            found = True
        elif isinstance(held, list | Struct):
            found = _shorten(held) or found
    return found
