"""Tokens by OIDC's client credentials grant (KIP-768): fetched from an endpoint, cached, renewed in time.

Hand-written on ``http.client``: a plain install must not need an HTTP or JWT package, and those allow more
than is wanted here. The one POST follows no redirects, which would send the client's secret elsewhere, uses
no proxies, and limits size and total time of the response, also of one that arrives byte by byte. Of a JWT
only ``iat`` and ``exp`` are read, to know its lifetime: the broker checks the signature, a client need not.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
import logging
import math
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar
from urllib.parse import quote_plus, urlencode, urlsplit

import attrs
import trio

from splashdam.model.errors import KafkaConfigurationError, SaslError, message_of
from splashdam.model.secrets import Secret
from splashdam.net.sasl.unsecured_jws import strict_base64url
from splashdam.net.tls.context import TlsFiles, client_context

_log = logging.getLogger(__name__)

_REFRESH_AFTER = 0.8
"""Share of a token's lifetime, as in Java. Connections re-authenticate later, after 85 % or more."""
_LAST_RESORT_S = 5.0
"""If the endpoint cannot be reached, the cached token is used while it is valid for longer than this."""
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_SHOWN = re.compile(r"[^\x20-\x7e]+")
_TLS_NAMES = ("cafile", "", "", "", "", "")


class _PassingError(Exception):
    """A failed attempt that is retried."""


@attrs.frozen
class _Held:
    token: Secret
    refresh_at_s: float
    ends_at_s: float


@attrs.define(eq=False, slots=False)
class OidcTokenProvider:
    """A token provider for ``sasl_oauth_token_provider``: fetches tokens with a client's id and secret.

    The producer's options ``sasl_oauthbearer_…`` make one. A provider may serve any number of producers, in
    any thread. A token is cached for 80 % of its lifetime; if the endpoint then gives no new one, the old one
    is used while it is valid. A token that a broker rejects is dropped.

    Args:
        token_endpoint_url: URL of the token endpoint: https, or http on this machine. Redirects and proxies
            are not followed.
        client_id: id of the client.
        client_secret: secret of the client.
        scope: requested scope; None: the endpoint's default.
        extensions: SASL extensions sent to the brokers beside the token (KIP-255).
        cafile: CAs for the endpoint's certificate, a path or PEM; None: the system's.
        header_urlencode: whether to form-encode id and secret in the ``Authorization`` header, as RFC 6749
            demands and few servers expect.
        allow_http: whether the secret may be sent to other machines in plain text.
        timeout_ms: time limit for a token, all attempts together. Keep it below
            ``socket_connection_setup_timeout_ms``, so that the reason of a failure is reported.
        retry_backoff_ms: pause after the first failed attempt; doubles each time, with jitter.
        retry_backoff_max_ms: longest pause between two attempts.
        now_s: returns the time in seconds since the epoch.

    Attributes:
        runs_in_trio: ``token`` is a coroutine function for the producer's loop, also beside asyncio.

    Raises:
        KafkaConfigurationError: the URL is invalid or unsafe, an argument is empty, or ``cafile`` is not PEM.
    """

    runs_in_trio: ClassVar[bool] = True

    token_endpoint_url: str = attrs.field(repr=False)
    client_id: str
    client_secret: str = attrs.field(repr=False, converter=Secret)
    scope: str | None = attrs.field(default=None, kw_only=True)
    _extensions: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    cafile: str | None = attrs.field(default=None, kw_only=True)
    header_urlencode: bool = attrs.field(default=False, kw_only=True)
    allow_http: bool = attrs.field(default=False, kw_only=True)
    timeout_ms: float = attrs.field(default=8_000, kw_only=True)
    retry_backoff_ms: float = attrs.field(default=100, kw_only=True)
    retry_backoff_max_ms: float = attrs.field(default=2_000, kw_only=True)
    now_s: Callable[[], float] = attrs.field(default=time.time, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        for name in ("client_id", "client_secret"):
            if not getattr(self, name):
                raise KafkaConfigurationError(f"{name} for the token endpoint is missing")
        if ":" in self.client_id and not self.header_urlencode:
            raise KafkaConfigurationError("client_id contains a colon: set header_urlencode=True")
        self._endpoint = TokenEndpoint.parse(
            self.token_endpoint_url, "token_endpoint_url", allow_http=self.allow_http
        )
        files = TlsFiles(names=_TLS_NAMES, cafile=self.cafile)
        self._context = client_context(files, check_hostname=True) if self._endpoint.uses_tls else None
        self._held: _Held | None = None
        self._turn: trio.lowlevel.RunVar[trio.Lock] = trio.lowlevel.RunVar("fetch lock")  # one lock per loop

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the arguments, without token and TLS context."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__attrs_post_init__()

    async def token(self) -> str:
        """Return the cached token, or fetch one.

        Raises:
            SaslError: there is no token; the text names endpoint and cause.
        """
        async with self._my_turn():
            held, now_s = self._held, self.now_s()
            if held is not None and now_s < held.refresh_at_s:
                return held.token
            try:
                self._held = held = await self._fetched()
            except SaslError as error:
                if held is None or now_s + _LAST_RESORT_S >= held.ends_at_s:
                    raise
                _log.warning("%s; the cached token is used while it is valid", message_of(error))
            return held.token

    def extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions."""
        return self._extensions

    def forget(self) -> None:
        """Drop the cached token, which a broker has rejected."""
        self._held = None

    def _my_turn(self) -> trio.Lock:
        try:
            return self._turn.get()
        except LookupError:
            self._turn.set(trio.Lock())
            return self._turn.get()

    async def _fetched(self) -> _Held:
        last = "it does not answer"
        failures = 0
        with trio.move_on_after(self.timeout_ms / 1000):
            while True:
                try:
                    return await self._attempt()
                except _PassingError as error:
                    last = str(error)
                backoff_ms = min(self.retry_backoff_max_ms, self.retry_backoff_ms * 2.0 ** min(failures, 30))
                await trio.sleep(backoff_ms / 1000 * random.uniform(0.8, 1.2))
                failures += 1
        raise self._error(f"returned no token within {self.timeout_ms:g} ms: {last}")

    async def _attempt(self) -> _Held:
        """Send one request, with half of the time limit: so a lost one leaves time for another."""
        allowed_s = self.timeout_ms / 2000
        request = TokenRequest(self._endpoint, self._context, allowed_s)
        # The token's lifetime counts from here: its answer may be long on its way.
        asked_at_s = self.now_s()
        try:
            with trio.fail_after(allowed_s):
                status, content = await trio.to_thread.run_sync(
                    partial(request.post, *self._question()), abandon_on_cancel=True
                )
        except trio.TooSlowError:
            raise _PassingError(f"no answer within {allowed_s * 1000:g} ms") from None
        except AnswerTooLargeError:
            raise self._error("returned a response larger than any token") from None
        except http.client.HTTPException as error:
            raise _PassingError(f"its response is not HTTP ({type(error).__name__})") from None
        except ssl.SSLCertVerificationError as error:
            raise self._error(f"is not trusted: {error.verify_message}; set cafile to its CAs") from None
        except OSError as error:
            raise _PassingError(f"{type(error).__name__}: {error.strerror or error}") from None
        finally:
            # After a cancel, too: the abandoned thread runs on until its socket ends.
            request.abort()
        return self._read(status, content, asked_at_s)

    def _question(self) -> tuple[bytes, dict[str, str]]:
        # Through bytes: a Secret in a join would write its mask.
        shown: tuple[str, ...] = self.client_id, self.client_secret.encode().decode()
        if self.header_urlencode:
            shown = tuple(map(quote_plus, shown))
        form = {"grant_type": "client_credentials"}
        if self.scope:
            form["scope"] = self.scope
        return urlencode(form).encode(), {
            "Authorization": Secret("Basic " + base64.b64encode(":".join(shown).encode()).decode()),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "Connection": "close",
        }

    def _read(self, status: int, content: bytes, asked_at_s: float) -> _Held:
        answer = _json_object(content)
        if status in _PASSING:
            raise _PassingError(f"it returned {status}{self._said(answer)}")
        if 300 <= status < 400:
            raise self._error(f"returned {status}, a redirect, which would send the secret elsewhere")
        if status != 200:
            raise self._error(f"rejected the client {self.client_id!r}: {status}{self._said(answer)}")
        if answer is None:
            raise self._error("returned 200 without a JSON object")
        token, kind = answer.get("access_token"), answer.get("token_type", "bearer")
        if not isinstance(token, str) or not token:
            raise self._error("returned 200 without an access_token")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise self._error("returned a token that is not of type Bearer")
        life_s = min(_seconds(answer.get("expires_in")), _life_of_jwt(token))
        if math.isinf(life_s):
            life_s = 0.0  # unknown lifetime: fetch a new token each time
        return _Held(Secret(token), asked_at_s + life_s * _REFRESH_AFTER, asked_at_s + life_s)

    def _said(self, answer: dict[str, Any] | None) -> str:
        """Return the endpoint's error text (RFC 6749, 5.2), unless it repeats the secret."""
        told = [(answer or {}).get(name) for name in ("error", "error_description")]
        text = ": ".join(_SHOWN.sub(" ", each)[:200] for each in told if isinstance(each, str))
        secret = self.client_secret.encode()
        hidden = (secret, base64.b64encode(secret), quote_plus(secret).encode(), self._basic())
        return f" {text}" if text and not any(each in text.encode() for each in hidden) else ""

    def _basic(self) -> bytes:
        return self._question()[1]["Authorization"].partition(" ")[2].encode()

    def _error(self, text: str) -> SaslError:
        error = SaslError(f"OAUTHBEARER: the token endpoint {self._endpoint} {text}")
        error.remedy = "check the token endpoint's URL, and that the client is registered there"
        return error


def _json_object(content: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _seconds(value: object) -> float:
    """Convert a lifetime, which some servers send as a string; infinity if it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.inf
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return math.inf
    return max(0.0, seconds) if math.isfinite(seconds) else math.inf


def _life_of_jwt(token: str) -> float:
    """Return a JWT's lifetime, ``exp`` minus ``iat``, both by the endpoint's clock; else infinity."""
    parts = token.split(".")
    if len(parts) != 3:
        return math.inf
    try:
        claims = _json_object(strict_base64url(parts[1]) or b"")
    except ValueError:
        return math.inf
    claims = claims or {}
    if "iat" not in claims:
        return math.inf
    return max(0.0, _seconds(claims.get("exp")) - _seconds(claims["iat"]))


MAX_ANSWER_BYTES = 256 * 1024
"""Limit of a response. A token must fit into a SaslAuthenticate request, which brokers limit to 512 KiB."""

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\]")


class AnswerTooLargeError(Exception):
    """The response exceeds `MAX_ANSWER_BYTES`."""


@attrs.frozen
class TokenEndpoint:
    """A token endpoint.

    Attributes:
        host: host name.
        port: port.
        uses_tls: whether the URL is https.
        target: path and query.
    """

    host: str
    port: int
    uses_tls: bool
    target: str = attrs.field(repr=False)

    def __str__(self) -> str:
        """Return the URL without its query, which may contain a secret."""
        scheme, host = (
            "https" if self.uses_tls else "http",
            f"[{self.host}]" if ":" in self.host else self.host,
        )
        return f"{scheme}://{host}:{self.port}{self.target.partition('?')[0]}"

    @classmethod
    def parse(cls, url: str, name: str, *, allow_http: bool) -> TokenEndpoint:
        """Parse a URL.

        Args:
            url: the URL.
            name: of the option, for messages.
            allow_http: whether to allow http to other machines.

        Raises:
            KafkaConfigurationError: the URL is invalid, contains a password, or would expose the secret.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if _FORBIDDEN.search(url) or not host or parts.scheme not in ("http", "https") or parts.fragment:
            raise KafkaConfigurationError(f"{name} must be a URL like https://idp.example.com/token")
        if parts.username is not None or parts.password is not None:
            raise KafkaConfigurationError(
                f"{name} must not contain a user or password; use client id and secret"
            )
        uses_tls = parts.scheme == "https"
        if not (uses_tls or allow_http or _is_local(host)):
            raise KafkaConfigurationError(
                f"{name} must begin with https://: the client's secret would go to {host} in plain text"
            )
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(host, port or (443 if uses_tls else 80), uses_tls, target)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class TokenRequest:
    """One POST request, to run in a thread.

    Args:
        endpoint: the endpoint.
        context: for https.
        timeout_s: time limit for connecting, for the TLS handshake, and for each read.
    """

    def __init__(self, endpoint: TokenEndpoint, context: ssl.SSLContext | None, timeout_s: float) -> None:
        self._target = endpoint.target
        host, port = endpoint.host, endpoint.port
        self._connection: http.client.HTTPConnection = (
            http.client.HTTPConnection(host, port, timeout=timeout_s)
            if context is None
            else http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
        )
        self._socket: socket.socket | None = None
        self._is_over = False

    def post(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send the request; return status and body of the response.

        Raises:
            OSError: connection or TLS failed.
            http.client.HTTPException: the response is not HTTP.
            AnswerTooLargeError: the response is too large.
        """
        try:
            self._connection.connect()
            self._socket = self._connection.sock  # for abort(): HTTPConnection drops it early
            if self._is_over:
                raise ConnectionAbortedError
            self._connection.request("POST", self._target, body, dict(headers))
            with self._connection.getresponse() as response:
                content = response.read(MAX_ANSWER_BYTES + 1)
                if len(content) > MAX_ANSWER_BYTES:
                    raise AnswerTooLargeError
                if response.length:
                    raise http.client.IncompleteRead(content, response.length)
                return response.status, content
        finally:
            self._connection.close()

    def abort(self) -> None:
        """End the request, from any thread: a response that trickles in would keep it for ever."""
        self._is_over = True
        if self._socket is not None:
            with suppress(OSError, ValueError):
                self._socket.shutdown(socket.SHUT_RDWR)
