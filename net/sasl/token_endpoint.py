"""One HTTP request to a token endpoint: no redirects, no proxies, and an end to size and time.

A redirect would carry the client's secret to somebody else, so there is none; what a hostile or broken
endpoint answers is cut off.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

import attrs

from splashdam.model.errors import KafkaConfigurationError

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
