"""Tokens that nobody has signed (RFC 7515, ``alg`` none), as Kafka's own for tests: they prove nothing.

``UnsecuredToken`` makes them, as Java's ``OAuthBearerLoginModule`` does of ``unsecuredLoginStringClaim_sub``;
``check_unsecured`` reads them, as Kafka's ``OAuthBearerUnsecuredValidatorCallbackHandler`` does.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from typing import Any

from splashdam.net.sasl.mechanisms import Authenticated, Refusal

_SKEW_S = 30.0
"""By so much the clock of who made a token may be ahead of ours."""
_END_OF_TIME_S = 1e15
"""Later is no time: milliseconds are kept in 64 bits."""


class UnsecuredToken:
    """A token provider for a broker that asks for no signature.

    Args:
        subject: who we are.
        lifetime_s: how long a token is valid, in seconds.
        scope: what else stands in the token's ``scope``.
    """

    def __init__(self, subject: str, *, lifetime_s: float = 3600, scope: Sequence[str] = ()) -> None:
        self._subject = subject
        self._lifetime_s = lifetime_s
        self._scope = list(scope)

    async def token(self) -> str:
        """A new one."""
        return unsecured_token(self._subject, time.time(), lifetime_s=self._lifetime_s, scope=self._scope)


def unsecured_token(
    subject: str, now_s: float, *, lifetime_s: float = 3600, scope: Sequence[str] = ()
) -> str:
    """A token from ``now_s`` on, in seconds since the epoch."""
    claims: dict[str, Any] = {"sub": subject, "iat": now_s, "exp": now_s + lifetime_s}
    if scope:
        claims["scope"] = list(scope)
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def check_unsecured(token: str, now_s: float) -> Authenticated:
    """Whom an unsecured token names, if it is one and valid now.

    Raises:
        Refusal: it is not.
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
    return value if abs(value) < _END_OF_TIME_S else None  # which NaN is not, either


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
