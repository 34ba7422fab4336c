"""What a user of connections has to know of authentication; ``net/sasl`` does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from splashdam.model.errors import AuthenticationError
from splashdam.net.connection.connection import Connection


class Authenticator(Protocol):
    """Proves to brokers who we are."""

    async def authenticate(self, connection: Connection, host: str) -> float:
        """Does so on a connection that is negotiated, for the first time or again (KIP-368).

        Returns:
            how long that holds, in milliseconds; 0: for as long as the connection.

        Raises:
            AuthenticationError: the broker refuses us, or we do not trust it.
            KafkaError: the connection failed.
        """
        ...


def renewal_delay_ms(lifetime_ms: float, random: Callable[[], float]) -> float:
    """When to authenticate again: after 85 to 95 % of the time, as Java's clients do."""
    return lifetime_ms * (0.85 + 0.1 * random())


def distrust(error: BaseException | None) -> AuthenticationError | None:
    """The failure of authentication that is behind an error, if one is."""
    seen: set[int] = set()  # an error raised from itself is its own cause
    while error is not None and id(error) not in seen:
        if isinstance(error, AuthenticationError):
            return error
        seen.add(id(error))
        error = error.__cause__
    return None
