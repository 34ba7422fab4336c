"""PLAIN (RFC 4616): sends the password itself, so use it with TLS."""

from __future__ import annotations

from splashdam.model.errors import SaslError
from splashdam.net.sasl.mechanisms import Authenticated, Authority, Credentials, Refusal


async def open_client(_name: str, credentials: Credentials) -> PlainClient:
    """See ``mechanisms.py``."""
    return PlainClient(credentials)


def open_server(_name: str, authority: Authority) -> PlainServer:
    """See ``mechanisms.py``."""
    return PlainServer(authority)


class PlainClient:
    """Sends name and password in one message."""

    complaint = ""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def start(self) -> bytes:
        """Return the message: empty authorization id, name, password."""
        name, password = self._credentials.username or "", self._credentials.password or ""
        return b"\0".join((b"", name.encode(), password.encode()))

    def step(self, challenge: bytes) -> None:
        """Accept the empty challenge that ends the exchange."""
        if challenge:
            raise SaslError("PLAIN: the broker sent a challenge after the end of the exchange")


class PlainServer:
    """Checks name and password."""

    def __init__(self, authority: Authority) -> None:
        self.outcome: Authenticated | None = None
        self._authority = authority

    def step(self, message: bytes) -> bytes:
        """See ``ServerSide``. The texts are Kafka's (``PlainSaslServer``)."""
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise Refusal(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        try:
            acting_for, name, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise Refusal("Invalid SASL/PLAIN response: it is not UTF-8") from None
        if not name:
            raise Refusal("Authentication failed: username not specified")
        if not password:
            raise Refusal("Authentication failed: password not specified")
        if not self._authority.check_password(name, password):
            raise Refusal("Authentication failed: Invalid username or password")
        if acting_for not in ("", name):
            raise Refusal(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.outcome = Authenticated(name)
        return b""
