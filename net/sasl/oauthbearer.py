"""OAUTHBEARER (RFC 7628) with Kafka's extensions (KIP-255): a token instead of a password.

A token provider is an object with ``token()``, as kafka-python's ``AbstractTokenProvider``, and maybe
``extensions()``; or just a callable. Either may be ``async`` and is then awaited in the producer's own loop;
else it is called in a thread, since it may ask somebody over the network. It is asked once for each
connection and each re-authentication, so it keeps a token for as long as that is valid. If it has a method
``forget()``, that is called when a broker does not take the token. ``oidc.py`` is one.
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
"""What a client says to a server that has refused its token, so that the server may end the exchange."""

_TOKEN = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_NAME = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_FIRST = re.compile(r"n,(?:a=(?P<name>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01")
_AUTH = re.compile(r"(?i:bearer) +(?P<token>\S+)")


async def open_client(_name: str, credentials: Credentials) -> OAuthBearerClient:
    """See ``mechanisms.py``: asks the provider for a token.

    Raises:
        SaslError: it has none, or what it has is none.
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
        raise  # of a provider that knows what may be told
    except Exception as error:
        # Only its kind: the text of an error of somebody else's may hold what it was about.
        raise SaslError(
            f"OAUTHBEARER: the token provider's {what}() raised {type(error).__name__}"
        ) from error


def _checked_token(token: object) -> Secret:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        kind = "a text that is no token" if isinstance(token, str) else type(token).__name__
        raise SaslError(f"OAUTHBEARER: the token provider returned {kind}")
    return Secret(token)


def _checked_extensions(extensions: object) -> dict[str, str]:
    if not isinstance(extensions, Mapping):
        raise SaslError("OAUTHBEARER: the token provider's extensions() returned no mapping")
    for name, value in extensions.items():
        is_legal = isinstance(name, str) and _NAME.fullmatch(name) and name.lower() != "auth"
        if not (is_legal and isinstance(value, str) and _VALUE.fullmatch(value)):
            raise SaslError(f"OAUTHBEARER: the extension {name!r} is not legal")
    return dict(extensions)


class OAuthBearerClient:
    """Shows the token; ``forget`` is called if the server does not take it."""

    def __init__(
        self, token: Secret, extensions: Mapping[str, str], forget: Callable[[], object] | None = None
    ) -> None:
        self.complaint = ""
        self._forget = forget
        self._token = token
        self._extensions = extensions

    def start(self) -> bytes:
        """The token and the extensions."""
        pairs = [b"auth=Bearer " + self._token.encode()]
        pairs += [f"{name}={value}".encode() for name, value in self._extensions.items()]
        return b"n,," + b"".join(_SEPARATOR.encode() + pair for pair in pairs) + b"\x01\x01"

    def step(self, challenge: bytes) -> bytes | None:
        """A challenge is a complaint; it is acknowledged, and the server's refusal follows."""
        if not challenge:
            return None
        if self.complaint:
            raise SaslError(f"OAUTHBEARER: the broker does not take the token: {self.complaint}")
        self.complaint = _complaint(challenge)
        if self._forget is not None:
            self._forget()
        return _FAILED


def _complaint(challenge: bytes) -> str:
    """What the server's JSON says (RFC 7628, 3.2.2), as far as it is that."""
    try:
        found = json.loads(challenge)
    except ValueError:
        found = None
    names = ("status", "scope", "openid-configuration")
    told = {name: found[name] for name in names if name in found} if isinstance(found, dict) else {}
    return ", ".join(f"{name} {str(value)[:200]}" for name, value in told.items()) or "no reason given"


class OAuthBearerServer:
    """Has the token looked at by the authority."""

    def __init__(self, authority: Authority) -> None:
        self.outcome: Authenticated | None = None
        self._authority = authority
        self._refusal: Refusal | None = None

    def step(self, message: bytes) -> bytes:
        """See ``ServerSide``: a refusal is told as JSON first, and raised once the client has heard it."""
        if self._refusal is not None:
            raise self._refusal
        match = _FIRST.fullmatch(_text(message))
        listed = [pair.split("=", 1) for pair in match["pairs"].split(_SEPARATOR)[:-1]] if match else []
        pairs = {pair[0]: pair[1] for pair in listed}
        is_plain = len(pairs) == len(listed)  # what says something twice could be read in two ways
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
