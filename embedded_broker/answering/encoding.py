"""Answers as they are sent, also those whose texts quote what nobody should have asked."""

from __future__ import annotations

from typing import Any, NamedTuple

from splashdam.embedded_broker.answering.answers import Answer
from splashdam.embedded_broker.answering.turns import Account
from splashdam.model.errors import ProtocolError
from splashdam.wire.fields import Part
from splashdam.wire.header import encode_response
from splashdam.wire.message import Request, Response, Struct

_LONGEST_TEXT = 1000


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
