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
    """The address by which a client reached the broker; answers name it as the broker's."""

    host: str
    port: int


Send: TypeAlias = Callable[[Response], None]
"""Sends an answer without waiting."""


@attrs.frozen
class Parked:
    """An answer that is not ready yet: the connection first sends earlier answers, then awaits ``wait()``.

    The memory of the request's frame is reused when the answer has been sent: code that works on the request
    for longer must not keep a ``memoryview`` of it.
    """

    wait: Callable[..., Awaitable[Response | None]]
    """Returns the answer, or None if none is sent; takes no argument, or a `Send` if it ``may_send``."""
    lets_others_begin: bool = False
    """Whether later requests of the connection may be handled meanwhile; the answers keep their order.

    Only for requests that have taken effect already and wait for a sync or for replicas: anything else could
    be overtaken by its successor, and batches of one producer would change places.
    """
    may_send: bool = False
    """Whether ``wait`` takes a `Send`, too.

    For answers that may be ready in the turn of another client's request: given a `Send`, ``wait`` sends the
    answer itself, in that turn, and returns None later.
    """


Answer: TypeAlias = Response | Parked | None
"""None: Kafka sends no answer (``acks=0``)."""


class CloseConnectionError(Exception):
    """Closes the connection without an answer; raised by handlers and interceptors.

    Args:
        reason: for the log.
        parts: an interceptor's last bytes, perhaps none; None in handlers: then the log line is a warning.

    Attributes:
        parts: as given.
    """

    def __init__(self, reason: str, parts: list[Part] | None = None) -> None:
        super().__init__(reason)
        self.parts = parts


ANONYMOUS = "User:ANONYMOUS"
"""The principal of clients that have not authenticated."""


class Requester(NamedTuple):
    """The principal that sent a request, and its host."""

    principal: str
    host: str


ANYBODY = Requester(ANONYMOUS, "127.0.0.1")
"""A client of the same process."""


@attrs.define
class Account:
    """The cost of one request, and who pays for it.

    Attributes:
        party: the unit of fairness for work beside the loop.
        spent_ms: time spent so far, in the loop and beside it; counts for ``request_percentage``. The caller
            of the handler adds the first turn, `Turns` adds the others.
        is_heavy: the request's work was tried in a turn, and was too much for it.
        turns: turns that its handler has used up; an answer that took several is not encoded in one.
    """

    party: Hashable = None
    spent_ms: float = 0.0
    is_heavy: bool = False
    turns: int = 0


class Dispatched(NamedTuple):
    """A handler's answer, and what is needed to encode it."""

    answer: Answer
    version: int
    correlation_id: int
    request: Request[Any] | None
    """As decoded; None where its version is unknown."""
    client_id: str | None = None
    size_bytes: int = 0
    account: Account | None = None
    """The cost of the request; its time is measured where quotas are set."""

    @property
    def spent_ms(self) -> float:
        """Time that the request has taken so far."""
        return 0.0 if self.account is None else self.account.spent_ms


class Encoding(NamedTuple):
    """A large answer to be encoded beside the loop (a ``Work``); its size is assumed to be the request's."""

    answer: Response
    version: int
    correlation_id: int
    size_bytes: int

    def do(self, _max_bytes: int) -> list[Part]:
        """A whole frame; ProtocolError as ``encode_answer``."""
        return encode_answer(self.answer, version=self.version, correlation_id=self.correlation_id)


def encode_answer(answer: Response, *, version: int, correlation_id: int) -> list[Part]:
    """Encode a whole frame.

    Error messages quote the request. One that becomes longer than the protocol's strings may be is cut: the
    client should get the error, not a closed connection.

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
    """Cut every long error message in an answer; return whether there was any."""
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
