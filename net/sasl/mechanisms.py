"""The table of SASL mechanisms, and the protocols that they implement.

A mechanism is a module of this package with two functions::

    async def open_client(name: str, credentials: Credentials) -> ClientSide
    def open_server(name: str, authority: Authority) -> ServerSide

``open_client`` may wait, for a token or a ticket. The two sides never wait: bytes in, bytes out. A mechanism
that the broker does not offer has no ``open_server`` and ``serves=False`` in its row. Modules are imported on
first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.secrets import Secret


class ClientSide(Protocol):
    """The client's side of one exchange.

    Attributes:
        complaint: the problem that the server's last challenge named, for the error that follows; or empty.
    """

    complaint: str

    def start(self) -> bytes:
        """Return the first message."""
        ...

    def step(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge; None at the end, when the server has proved its identity.

        Raises:
            SaslError: the server is not trusted, or violates the mechanism.
        """
        ...


@attrs.frozen
class Authenticated:
    """An authenticated user.

    Attributes:
        name: name of the user in Kafka's principal ``User:name``.
        expires_at_ms: end of the session in milliseconds since the epoch; None: no limit.
    """

    name: str
    expires_at_ms: float | None = None


class ServerSide(Protocol):
    """The broker's side of one exchange.

    Attributes:
        outcome: the authenticated user; None until then.
    """

    outcome: Authenticated | None

    def step(self, message: bytes) -> bytes:
        """Return the response to a client's message.

        Raises:
            Refusal: authentication failed, or the client violates the mechanism.
        """
        ...


class Refusal(Exception):
    """Authentication failed. The text is sent to the client and must not help to guess credentials."""


@attrs.frozen
class Credentials:
    """A client's credentials; only those of its mechanism are set.

    Attributes:
        host: of the broker, as the client names it.
        username: for PLAIN and SCRAM.
        password: likewise.
        token_provider: for OAUTHBEARER, see ``oauthbearer.py``.
        service: for GSSAPI, the brokers' service name, or their whole principal as ``gssapi.Name`` or
            ``str``.
        service_host: for GSSAPI, the host in the brokers' principals, if it is not ``host``.
    """

    host: str
    username: str | None = None
    password: Secret | None = attrs.field(default=None, repr=False)
    token_provider: Any = attrs.field(default=None, repr=False)
    service: Any = "kafka"
    service_host: str | None = None


@attrs.frozen
class ScramCredential:
    """What a server stores of a password: it verifies the password without revealing it (RFC 5802)."""

    salt: bytes = attrs.field(repr=False)
    iterations: int
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)


class Authority(Protocol):
    """The broker's users and keys."""

    def scram_credential(self, mechanism: str, username: str) -> ScramCredential | None:
        """Return the user's credential for a SCRAM mechanism; None for an unknown user."""
        ...

    def usual_iterations(self, mechanism: str) -> int:
        """Return the iterations of most users, which unknown users are answered with."""
        ...

    def check_password(self, username: str, password: str) -> bool:
        """Return whether the password is the user's; takes as long for an unknown user."""
        ...

    def check_token(self, token: str, extensions: Mapping[str, str]) -> Authenticated:
        """Return the user of a token.

        Raises:
            Refusal: the token is invalid or expired.
        """
        ...

    @property
    def keytab(self) -> str:
        """Path of the keytab of the broker's principal; empty: Kerberos' default."""
        ...


@attrs.frozen
class Mechanism:
    """A row of the table.

    Attributes:
        name: Kafka's and IANA's name.
        module: module of this package.
        needs: options that a client must set.
        hashes: whether the broker hashes a password to check a message, which takes milliseconds by design.
        serves: whether the embedded broker can offer it.
        extra: extra of splashdam, and the package of the same name that it needs; or empty.
    """

    name: str
    module: str
    needs: tuple[str, ...]
    serves: bool = True
    hashes: bool = False
    extra: str = ""

    def check_installed(self) -> None:
        """Check early that the mechanism's package can be imported.

        Raises:
            KafkaConfigurationError: the package is not installed, or does not load.
        """
        if not self.extra:
            return
        try:
            import_module(self.extra)
        except Exception as error:  # the package loads system libraries, whose errors vary
            raise KafkaConfigurationError(
                f"SASL mechanism {self.name} needs the package {self.extra}, which cannot be imported"
                f" ({error}); pip install 'splashdam[{self.extra}]'"
            ) from error

    async def open_client(self, credentials: Credentials) -> ClientSide:
        """Return the client's side; waits if credentials must be fetched.

        Raises:
            SaslError: the credentials cannot be fetched or used.
        """
        side: ClientSide = await self._module().open_client(self.name, credentials)
        return side

    def open_server(self, authority: Authority) -> ServerSide:
        """Return the broker's side."""
        side: ServerSide = self._module().open_server(self.name, authority)
        return side

    def _module(self) -> Any:
        return import_module(f"splashdam.net.sasl.{self.module}")


_PASSWORD = ("sasl_plain_username", "sasl_plain_password")

MECHANISMS: Mapping[str, Mechanism] = {
    each.name: each
    for each in (
        Mechanism("PLAIN", "plain", _PASSWORD, hashes=True),
        Mechanism("SCRAM-SHA-256", "scram", _PASSWORD),
        Mechanism("SCRAM-SHA-512", "scram", _PASSWORD),
        Mechanism("OAUTHBEARER", "oauthbearer", ("sasl_oauth_token_provider",)),
        Mechanism("GSSAPI", "kerberos", (), extra="gssapi"),
    )
}
"""All mechanisms by name."""
