"""The table of SASL mechanisms, and what each of them has to offer.

A mechanism is a module of this package with two functions::

    async def open_client(name: str, credentials: Credentials) -> ClientSide
    def open_server(name: str, authority: Authority) -> ServerSide

``open_client`` may wait, for a token or a ticket; the two sides never do: bytes in, bytes out. A mechanism
that cannot serve has no ``open_server``, and ``serves`` is False in its row. Modules are imported when used.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

import attrs

from splashdam.model.errors import KafkaConfigurationError
from splashdam.model.secrets import Secret


class ClientSide(Protocol):
    """The client's half of one exchange.

    Attributes:
        complaint: what the server's last challenge said is wrong, for the error that will follow; or empty.
    """

    complaint: str

    def start(self) -> bytes:
        """The first message."""
        ...

    def step(self, challenge: bytes) -> bytes | None:
        """The answer to what the server said; None: all is said, and the server has shown what it had to.

        Raises:
            SaslError: the server is not to be trusted, or does not keep to the mechanism.
        """
        ...


@attrs.frozen
class Authenticated:
    """Who the client is.

    Attributes:
        name: of the user, as Kafka's principal ``User:name`` has it.
        expires_at_ms: when that ends, since the epoch; None: it does not end by itself.
    """

    name: str
    expires_at_ms: float | None = None


class ServerSide(Protocol):
    """The server's half of one exchange.

    Attributes:
        outcome: who the client is, once that is proven.
    """

    outcome: Authenticated | None

    def step(self, message: bytes) -> bytes:
        """The answer to what the client said.

        Raises:
            Refusal: it is not who it says, or does not keep to the mechanism.
        """
        ...


class Refusal(Exception):
    """The client is not let in. The text is for the client and tells nothing that helps a guesser."""


@attrs.frozen
class Credentials:
    """What a client has to show; only what its mechanism asks for is there.

    Attributes:
        host: the broker's host, as the client names it.
        username: for PLAIN and SCRAM.
        password: likewise.
        token_provider: for OAUTHBEARER, see ``oauthbearer.py``.
        service: for GSSAPI, the brokers' service, or their whole principal as ``gssapi.Name`` or text.
        service_host: likewise, the host in their principals where that is not ``host``.
    """

    host: str
    username: str | None = None
    password: Secret | None = attrs.field(default=None, repr=False)
    token_provider: Any = attrs.field(default=None, repr=False)
    service: Any = "kafka"
    service_host: str | None = None


@attrs.frozen
class ScramCredential:
    """What a server keeps of a password: it proves the password, and does not tell it (RFC 5802)."""

    salt: bytes = attrs.field(repr=False)
    iterations: int
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)


class Authority(Protocol):
    """What a server knows of its users."""

    def scram_credential(self, mechanism: str, username: str) -> ScramCredential | None:
        """The user's credential for a SCRAM mechanism; None: no such user."""
        ...

    def usual_iterations(self, mechanism: str) -> int:
        """The iterations of most users: those who do not exist are answered with the same."""
        ...

    def check_password(self, username: str, password: str) -> bool:
        """Whether the password is the user's. It takes as long for one who does not exist."""
        ...

    def check_token(self, token: str, extensions: Mapping[str, str]) -> Authenticated:
        """Whose token it is.

        Raises:
            Refusal: it is nobody's, or no longer.
        """
        ...

    @property
    def keytab(self) -> str:
        """Where the keys of the broker's own principal are; empty: where Kerberos looks for them."""
        ...


@attrs.frozen
class Mechanism:
    """A row of the table.

    Attributes:
        name: as Kafka and IANA have it.
        module: of this package.
        needs: the client's options without which it cannot work.
        hashes: a password is hashed to check a client's message, which takes milliseconds by design.
        serves: whether the embedded broker can offer it.
        extra: of splashdam, and the package of that name that it needs; or empty.
    """

    name: str
    module: str
    needs: tuple[str, ...]
    serves: bool = True
    hashes: bool = False
    extra: str = ""

    def check_installed(self) -> None:
        """Finds out early whether the mechanism can work here.

        Raises:
            KafkaConfigurationError: the package that it needs is not installed, or does not load.
        """
        if not self.extra:
            return
        try:
            import_module(self.extra)
        except Exception as error:  # it loads libraries of the system, which fail in their own ways
            raise KafkaConfigurationError(
                f"SASL mechanism {self.name} needs the package {self.extra}, which cannot be imported"
                f" ({error}); install splashdam[{self.extra}]"
            ) from error

    async def open_client(self, credentials: Credentials) -> ClientSide:
        """A client's half; waits where the credentials have to be fetched.

        Raises:
            SaslError: the credentials cannot be had or used.
        """
        side: ClientSide = await self._module().open_client(self.name, credentials)
        return side

    def open_server(self, authority: Authority) -> ServerSide:
        """A server's half."""
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
"""By name."""
