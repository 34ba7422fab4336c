"""An authority for tests of SASL, and a way to let the two halves of a mechanism talk."""

from __future__ import annotations

from collections.abc import Mapping

from splashdam.model.secrets import Secret
from splashdam.net.sasl import scram
from splashdam.net.sasl.mechanisms import (
    MECHANISMS,
    Authenticated,
    ClientSide,
    Credentials,
    Refusal,
    ScramCredential,
    ServerSide,
)
from splashdam.net.sasl.unsecured_jws import check_unsecured


class Users:
    """Knows passwords, and takes unsecured tokens."""

    keytab = ""

    def __init__(self, **passwords: str) -> None:
        self._passwords = passwords
        self.now_s = 0.0
        self.extensions: Mapping[str, str] = {}

    def scram_credential(self, mechanism: str, username: str) -> ScramCredential | None:
        password = self._passwords.get(username)
        return None if password is None else scram.credential_with(mechanism, password, b"salt", 4096)

    def usual_iterations(self, mechanism: str) -> int:
        return 4096

    def check_password(self, username: str, password: str) -> bool:
        return self._passwords.get(username) == password

    def check_token(self, token: str, extensions: Mapping[str, str]) -> Authenticated:
        self.extensions = extensions
        return check_unsecured(token, self.now_s)


def credentials(username: str = "anna", password: str = "s3cret") -> Credentials:
    """What a client shows."""
    return Credentials("broker", username=username, password=Secret(password))


def converse(client: ClientSide, server: ServerSide) -> None:
    """Lets both talk until both are content; raises what either raises."""
    message: bytes | None = client.start()
    for _ in range(10):
        assert message is not None
        message = client.step(server.step(message))
        if message is None:
            return
    raise AssertionError("they do not come to an end")


async def authenticated(name: str, users: Users, shown: Credentials) -> Authenticated | None:
    """The outcome of a whole exchange; None where the client did not get in and knows it."""
    client, server = await MECHANISMS[name].open_client(shown), MECHANISMS[name].open_server(users)
    try:
        converse(client, server)
    except Refusal:
        return None
    return server.outcome
