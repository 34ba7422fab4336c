"""OAUTHBEARER (RFC 7628) with Kafka's extensions (KIP-255): a token instead of a password.

A token provider is an object with a method ``token()``, like kafka-python's ``AbstractTokenProvider``, and
optionally ``extensions()``; or a callable. Coroutine functions are awaited in the producer's loop; others run
in a thread, since they may use the network. The provider is called once for each connection and
re-authentication, so it should cache its token. An optional method ``forget()`` is called when a broker
rejects the token. ``oidc.py`` has a provider.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import trio

from splashdam.model.errors import SaslError
from splashdam.model.secrets import Secret
from splashdam.net.sasl.mechanisms import Authenticated, Authority, Credentials, Refusal

_SEPARATOR = "\x01"
_FAILED = b"\x01"
"""The client's message after the server has rejected its token (RFC 7628, 3.2.3)."""

_TOKEN = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_NAME = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_FIRST = re.compile(r"n,(?:a=(?P<name>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01")
_AUTH = re.compile(r"(?i:bearer) +(?P<token>\S+)")


async def open_client(_name: str, credentials: Credentials) -> OAuthBearerClient:
    """See ``mechanisms.py``; gets a token from the provider.

    Raises:
        SaslError: the provider failed, or its token or extensions are invalid.
    """
    provider = credentials.token_provider
    token = await _asked(getattr(provider, "token", provider), "token")
    extensions = getattr(provider, "extensions", None)
    found = {} if extensions is None else await _asked(extensions, "extensions")
    forget = getattr(provider, "forget", None)
    return OAuthBearerClient(_checked_token(token), _checked_extensions(found), forget)


def open_server(_name: str, authority: Authority) -> OAuthBearerServer:
    """See ``mechanisms.py``."""
    return OAuthBearerServer(authority)


async def _asked(ask: Callable[[], Any], what: str) -> Any:
    try:
        if inspect.iscoroutinefunction(ask) or inspect.iscoroutinefunction(getattr(ask, "__call__", None)):  # noqa: B004 (an object whose __call__ is async)
            return await ask()
        return await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
    except SaslError:
        raise  # from a provider of ours, whose text holds no secret
    except Exception as error:
        # Only the type: the text of a foreign error may contain the token.
        raise SaslError(
            f"OAUTHBEARER: the token provider's {what}() raised {type(error).__name__}"
        ) from error


def _checked_token(token: object) -> Secret:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        kind = "a str that is no valid token" if isinstance(token, str) else type(token).__name__
        raise SaslError(f"OAUTHBEARER: the token provider returned {kind}")
    return Secret(token)


def _checked_extensions(extensions: object) -> dict[str, str]:
    if not isinstance(extensions, Mapping):
        raise SaslError("OAUTHBEARER: the token provider's extensions() must return a mapping")
    for name, value in extensions.items():
        is_legal = isinstance(name, str) and _NAME.fullmatch(name) and name.lower() != "auth"
        if not (is_legal and isinstance(value, str) and _VALUE.fullmatch(value)):
            raise SaslError(f"OAUTHBEARER: the extension {name!r} is not valid")
    return dict(extensions)


class OAuthBearerClient:
    """Sends the token; calls ``forget`` if the server rejects it."""

    def __init__(
        self, token: Secret, extensions: Mapping[str, str], forget: Callable[[], object] | None = None
    ) -> None:
        self.complaint = ""
        self._forget = forget
        self._token = token
        self._extensions = extensions

    def start(self) -> bytes:
        """Return the message with token and extensions."""
        pairs = [b"auth=Bearer " + self._token.encode()]
        pairs += [f"{name}={value}".encode() for name, value in self._extensions.items()]
        return b"n,," + b"".join(_SEPARATOR.encode() + pair for pair in pairs) + b"\x01\x01"

    def step(self, challenge: bytes) -> bytes | None:
        """Acknowledge the server's challenge, which says why it rejects the token; its error follows."""
        if not challenge:
            return None
        if self.complaint:
            raise SaslError(f"OAUTHBEARER: the broker rejected the token: {self.complaint}")
        self.complaint = _complaint(challenge)
        if self._forget is not None:
            self._forget()
        return _FAILED


def _complaint(challenge: bytes) -> str:
    """Return the reason in the server's JSON (RFC 7628, 3.2.2)."""
    try:
        found = json.loads(challenge)
    except ValueError:
        found = None
    names = ("status", "scope", "openid-configuration")
    told = {name: found[name] for name in names if name in found} if isinstance(found, dict) else {}
    return ", ".join(f"{name} {str(value)[:200]}" for name, value in told.items()) or "no reason given"


class OAuthBearerServer:
    """Lets the authority check the token."""

    def __init__(self, authority: Authority) -> None:
        self.outcome: Authenticated | None = None
        self._authority = authority
        self._refusal: Refusal | None = None

    def step(self, message: bytes) -> bytes:
        """See ``ServerSide``. Sends a rejection as JSON; raises it after the client's acknowledgement."""
        if self._refusal is not None:
            raise self._refusal
        match = _FIRST.fullmatch(_text(message))
        listed = [pair.split("=", 1) for pair in match["pairs"].split(_SEPARATOR)[:-1]] if match else []
        pairs = {pair[0]: pair[1] for pair in listed}
        is_plain = len(pairs) == len(listed)  # a repeated name would be ambiguous
        bearer = _AUTH.fullmatch(pairs.pop("auth", ""))
        if match is None or bearer is None or not is_plain:
            raise Refusal("Invalid OAUTHBEARER client first message")
        try:
            outcome = self._authority.check_token(bearer["token"], pairs)
        except Refusal as refusal:
            self._refusal = refusal
            return b'{"status":"invalid_token"}'
        if match["name"] not in (None, "", outcome.name):
            raise Refusal(
                "Authentication failed: Client requested an authorization id that is different from the"
                " token's principal name"
            )
        self.outcome = outcome
        return b""


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Refusal("Invalid OAUTHBEARER client first message") from None
