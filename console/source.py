"""The cluster that a console shows, as whoever starts the console reaches it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import attrs

if TYPE_CHECKING:
    from splashdam.net.connect import Connect
    from splashdam.net.connection.connection import Authenticator
    from splashdam.net.inspector import Inside
    from splashdam.record.record import Record

T = TypeVar("T")

Fields: TypeAlias = "Mapping[str, Any]"
"""What a record of an internal topic says, by Kafka's names."""

Decode: TypeAlias = "Callable[[str, Record], Fields | None]"
"""Decodes a record of an internal topic; None if the topic is not internal or the version is unknown."""


class RunBeside(Protocol):
    """Runs work beside the loop."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]:
        """Return what the work returns, raise what it raises."""
        ...


@attrs.frozen(kw_only=True)
class Source:
    """The cluster that a console shows.

    Attributes:
        title: its name on the page, for example its address.
        bootstrap: addresses.
        connect: opens connections to it.
        run: runs slices of work, a millisecond each, beside the loop.
        decode: decodes the records of internal topics.
        authenticator: authenticates connections; None without SASL.
        inside: the broker of this process, if it is the cluster.
    """

    title: str
    bootstrap: Sequence[tuple[str, int]]
    connect: Connect
    run: RunBeside
    decode: Decode
    authenticator: Authenticator | None = None
    inside: Inside | None = None
