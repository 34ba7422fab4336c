"""Tokens by OIDC's client credentials grant (KIP-768): fetched from an endpoint, kept, renewed in time.

One HTTP request to a token endpoint: no redirects, no proxies, and an end to size and time. A redirect would
carry the client's secret to somebody else, so there is none; what a hostile or broken endpoint answers is cut
off.
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
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

import attrs
import trio

from splashdam.model.errors import KafkaConfigurationError, SaslError, message_of
from splashdam.model.secrets import Secret
from splashdam.net.sasl.unsecured_jws import strict_base64url
from splashdam.net.tls.context import TlsFiles, client_context

_log = logging.getLogger(__name__)

_REFRESH_AFTER = 0.8
"""Of a token's life, as in Java. Connections authenticate again after 85 % or later: with a new one."""
_LAST_RESORT_S = 5.0
"""Where the endpoint cannot be reached, a token serves that is valid for longer than that."""
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_SHOWN = re.compile(r"[^\x20-\x7e]+")
_TLS_NAMES = ("cafile", "", "", "", "", "")


class _PassingError(Exception):
    """May be better the next time."""


@attrs.frozen
class _Held:
    token: Secret
    refresh_at_s: float
    ends_at_s: float


@attrs.define(eq=False, slots=False)
class OidcTokenProvider:
    """A token provider for ``sasl_oauth_token_provider``: fetches tokens with a client's id and secret.

    The producer's options ``sasl_oauthbearer_…`` make one. One provider may serve any number of producers, in
    any threads. A token is kept until 80 % of its life are over; if a new one cannot be had then, the old one
    serves as long as it is valid. A token that a broker refuses is dropped.

    Args:
        token_endpoint_url: where tokens are had: https, or http on this machine. Neither redirects nor
            proxies are followed.
        client_id: who we are there.
        client_secret: what proves it.
        scope: what the token should be for; None: what the endpoint thinks.
        extensions: told to the brokers beside the token (KIP-255).
        cafile: CAs that the endpoint's certificate is checked with, a path or PEM; None: this machine's.
        header_urlencode: whether id and secret are form-encoded before they are put together, as RFC 6749
            says and few servers want.
        allow_http: whether the secret may go to other machines in plain text.
        timeout_ms: how long a token may take, all attempts together. Below the time that a connection may
            take (``socket_connection_setup_timeout_ms``), so that the reason is told.
        retry_backoff_ms: wait after the first failed attempt; doubles each time, with jitter.
        retry_backoff_max_ms: longest wait between two attempts.
        now_s: tells the time, in seconds since the epoch.

    Raises:
        KafkaConfigurationError: the address is none, or unsafe; an argument is empty; ``cafile`` is no PEM.
    """

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
                raise KafkaConfigurationError(f"{name} of the token endpoint is missing")
        if ":" in self.client_id and not self.header_urlencode:
            raise KafkaConfigurationError("client_id holds a colon: that needs header_urlencode=True")
        self._endpoint = TokenEndpoint.parse(
            self.token_endpoint_url, "token_endpoint_url", allow_http=self.allow_http
        )
        files = TlsFiles(names=_TLS_NAMES, cafile=self.cafile)
        self._context = client_context(files, check_hostname=True) if self._endpoint.uses_tls else None
        self._held: _Held | None = None
        self._turn: trio.lowlevel.RunVar[trio.Lock] = trio.lowlevel.RunVar("one fetches, the others wait")

    def __getstate__(self) -> dict[str, Any]:
        """What it was made of; tokens and contexts stay here."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__attrs_post_init__()

    async def token(self) -> str:
        """The present token, or a new one.

        Raises:
            SaslError: there is none; the text names the endpoint and says why.
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
                _log.warning("%s; the present token is used while it is valid", message_of(error))
            return held.token

    def extensions(self) -> Mapping[str, str]:
        """Told to the brokers beside the token."""
        return self._extensions

    def forget(self) -> None:
        """Drops the present token: a broker does not take it."""
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
        raise self._error(f"gave no token within {self.timeout_ms:g} ms: {last}")

    async def _attempt(self) -> _Held:
        """One request; it gets half of the time, so that a lost one is not all there is."""
        allowed_s = self.timeout_ms / 2000
        request = TokenRequest(self._endpoint, self._context, allowed_s)
        asked_at_s = self.now_s()
        try:
            with trio.fail_after(allowed_s):
                status, content = await trio.to_thread.run_sync(
                    partial(request.post, *self._question()), abandon_on_cancel=True
                )
        except trio.TooSlowError:
            raise _PassingError(f"no answer within {allowed_s * 1000:g} ms") from None
        except AnswerTooLargeError:
            raise self._error("answers with more than a token can be") from None
        except http.client.HTTPException as error:
            raise _PassingError(f"its answer is not HTTP ({type(error).__name__})") from None
        except ssl.SSLCertVerificationError as error:
            raise self._error(f"is not to be trusted: {error.verify_message}; cafile names its CAs") from None
        except OSError as error:
            raise _PassingError(f"{type(error).__name__}: {error.strerror or error}") from None
        finally:
            request.abort()
        return self._read(status, content, asked_at_s)

    def _question(self) -> tuple[bytes, dict[str, str]]:
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
            raise _PassingError(f"it answers {status}{self._said(answer)}")
        if 300 <= status < 400:
            raise self._error(f"answers {status}, a redirect, which would carry the secret elsewhere")
        if status != 200:
            raise self._error(f"refuses the client {self.client_id!r}: {status}{self._said(answer)}")
        if answer is None:
            raise self._error("answers 200 with something that is no JSON object")
        token, kind = answer.get("access_token"), answer.get("token_type", "bearer")
        if not isinstance(token, str) or not token:
            raise self._error("answers 200 without an access_token")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise self._error("answers with a token that is not of the type Bearer")
        life_s = min(_seconds(answer.get("expires_in")), _life_of_jwt(token))
        if math.isinf(life_s):
            life_s = 0.0  # nobody says how long it is valid: the next one is asked for again
        return _Held(Secret(token), asked_at_s + life_s * _REFRESH_AFTER, asked_at_s + life_s)

    def _said(self, answer: dict[str, Any] | None) -> str:
        """The endpoint's own words (RFC 6749, 5.2), unless they repeat what is secret."""
        told = [(answer or {}).get(name) for name in ("error", "error_description")]
        text = ": ".join(_SHOWN.sub(" ", each)[:200] for each in told if isinstance(each, str))
        secret = self.client_secret.encode()
        hidden = (secret, base64.b64encode(secret), quote_plus(secret).encode(), self._basic())
        return f" {text}" if text and not any(each in text.encode() for each in hidden) else ""

    def _basic(self) -> bytes:
        return self._question()[1]["Authorization"].partition(" ")[2].encode()

    def _error(self, text: str) -> SaslError:
        error = SaslError(f"OAUTHBEARER: the token endpoint {self._endpoint} {text}")
        error.remedy = "check the token endpoint's address, and what it knows of this client"
        return error


def _json_object(content: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _seconds(value: object) -> float:
    """Some servers send the number as a text; what is no number does not limit."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return math.inf
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return math.inf
    return max(0.0, seconds) if math.isfinite(seconds) else math.inf


def _life_of_jwt(token: str) -> float:
    """What the token says of itself, if it is one that we can read; both clocks are the endpoint's."""
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
"""Of a token endpoint's answer. A token must fit into a request of Kafka's, which takes 512 KiB at most."""

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\]")


class AnswerTooLargeError(Exception):
    """The endpoint sends more than a token can be."""


@attrs.frozen
class TokenEndpoint:
    """Where tokens are fetched.

    Attributes:
        host: its name.
        port: likewise.
        uses_tls: whether it is HTTPS.
        target: path and query.
    """

    host: str
    port: int
    uses_tls: bool
    target: str = attrs.field(repr=False)

    def __str__(self) -> str:
        """For messages: without the query, which may hold what nobody should read."""
        scheme, host = (
            "https" if self.uses_tls else "http",
            f"[{self.host}]" if ":" in self.host else self.host,
        )
        return f"{scheme}://{host}:{self.port}{self.target.partition('?')[0]}"

    @classmethod
    def parse(cls, url: str, name: str, *, allow_http: bool) -> TokenEndpoint:
        """Reads an address.

        Args:
            url: the address.
            name: of the option, for messages.
            allow_http: also to other machines.

        Raises:
            KafkaConfigurationError: it is none, holds a password, or would send the secret in plain text.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if _FORBIDDEN.search(url) or not host or parts.scheme not in ("http", "https") or parts.fragment:
            raise KafkaConfigurationError(f"{name} must be an address like https://idp.example.com/token")
        if parts.username is not None or parts.password is not None:
            raise KafkaConfigurationError(
                f"{name} must hold no user and no password; client id and secret do"
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
    """One POST, for a thread to wait for.

    Args:
        endpoint: where to.
        context: for HTTPS.
        timeout_s: how long it may take to connect, to agree on TLS, and between two pieces of the answer.
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
        """Status and body of the answer.

        Raises:
            OSError: the connection failed, TLS included.
            http.client.HTTPException: the answer is not HTTP.
            AnswerTooLargeError: it goes on and on.
        """
        try:
            self._connection.connect()
            self._socket = self._connection.sock  # which the connection forgets before the answer is read
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
        """Ends it, from any thread; nothing happens if it has ended. A slow answer would go on for ever."""
        self._is_over = True
        if self._socket is not None:
            with suppress(OSError, ValueError):
                self._socket.shutdown(socket.SHUT_RDWR)
