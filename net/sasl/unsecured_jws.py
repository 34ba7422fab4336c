"""Unsigned tokens (RFC 7515, ``alg`` none), as Kafka's own for tests: they prove nothing.

``UnsecuredToken`` makes them, like Java's ``OAuthBearerLoginModule`` with ``unsecuredLoginStringClaim_sub``;
``check_unsecured`` checks them, like Kafka's ``OAuthBearerUnsecuredValidatorCallbackHandler``. JWT packages
refuse or discourage such tokens, and a plain install must not need one.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from typing import Any

from splashdam.net.sasl.mechanisms import Authenticated, Refusal

_SKEW_S = 30.0
"""Allowed difference between the clocks of the token's issuer and of the broker."""
_END_OF_TIME_S = 1e15
"""Later times are rejected: milliseconds are stored in 64 bits."""


class UnsecuredToken:
    """A token provider for brokers that accept unsigned tokens.

    Args:
        subject: name of the user.
        lifetime_s: lifetime of a token in seconds.
        scope: values of the claim ``scope``.
    """

    def __init__(self, subject: str, *, lifetime_s: float = 3600, scope: Sequence[str] = ()) -> None:
        self._subject = subject
        self._lifetime_s = lifetime_s
        self._scope = list(scope)

    async def token(self) -> str:
        """Return a new token."""
        return unsecured_token(self._subject, time.time(), lifetime_s=self._lifetime_s, scope=self._scope)


def unsecured_token(
    subject: str, now_s: float, *, lifetime_s: float = 3600, scope: Sequence[str] = ()
) -> str:
    """Make a token that is valid from ``now_s`` on, in seconds since the epoch."""
    claims: dict[str, Any] = {"sub": subject, "iat": now_s, "exp": now_s + lifetime_s}
    if scope:
        claims["scope"] = list(scope)
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def check_unsecured(token: str, now_s: float) -> Authenticated:
    """Return the user of an unsecured token.

    Raises:
        Refusal: the token is invalid or expired.
    """
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise Refusal("Authentication failed: the token is not an unsecured JWS")
    header, claims = _decoded(parts[0]), _decoded(parts[1])
    if header.get("alg") != "none":
        raise Refusal("Authentication failed: the token's algorithm is not none")
    subject, ends_s, starts_s = claims.get("sub"), _time(claims, "exp"), _time(claims, "iat")
    if not isinstance(subject, str) or not subject:
        raise Refusal("Authentication failed: the token has no subject")
    if ends_s is None:
        raise Refusal("Authentication failed: the token does not say when it expires")
    if ends_s <= now_s:
        raise Refusal("Authentication failed: the token has expired")
    if (starts_s or 0) > now_s + _SKEW_S:
        raise Refusal("Authentication failed: the token is not valid yet")
    return Authenticated(subject, expires_at_ms=ends_s * 1000)


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if abs(value) < _END_OF_TIME_S else None  # false for NaN, too


def _encoded(content: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def _decoded(part: str) -> dict[str, Any]:
    data = strict_base64url(part)
    try:
        found = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refusal("Authentication failed: the token cannot be read")
    return found


def strict_base64url(text: str) -> bytes | None:
    """Decode unpadded base64url (RFC 7515); None unless encoding the bytes gives exactly `text` again."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return None
    return data if base64.urlsafe_b64encode(data).decode().rstrip("=") == text else None
