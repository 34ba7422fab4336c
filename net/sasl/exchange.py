"""The client's part of authentication over a ``Connection``: SaslHandshake v1, then SaslAuthenticate.

It is the same the first time and later (KIP-368): no other request goes between its own, and those that are
in flight keep their places.
"""

from __future__ import annotations

import attrs

from splashdam.model.broker_errors import ErrorCode, UnsupportedVersionError, error_for
from splashdam.model.errors import SaslError, WrongListenerError
from splashdam.net.connection.connection import Connection
from splashdam.net.connection.in_flight import Ask
from splashdam.net.sasl.mechanisms import MECHANISMS, ClientSide, Credentials
from splashdam.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest

_HANDSHAKE_VERSION = 1
_MOST_STEPS = 20
"""No mechanism needs as many; a broker that goes on for ever is refused."""


@attrs.frozen(eq=False)
class SaslAuthenticator:
    """Shows a client's credentials to brokers.

    Attributes:
        mechanism: its name, one of ``MECHANISMS``.
        credentials: what it needs; the host in it is set for each broker.
    """

    mechanism: str
    credentials: Credentials

    async def authenticate(self, connection: Connection, host: str) -> float:
        """Proves to the broker who we are, on a connection that is negotiated.

        Args:
            connection: other requests wait meanwhile.
            host: the broker's, as we know it.

        Returns:
            how long that holds, in milliseconds; 0: for as long as the connection.

        Raises:
            AuthenticationError: the broker refuses us, or we do not trust it.
            UnsupportedVersionError: it is older than Kafka 1.0.
            KafkaError: as ``Connection.request``.
        """
        side = await MECHANISMS[self.mechanism].open_client(attrs.evolve(self.credentials, host=host))
        version = connection.version_for(SaslHandshakeRequest)
        if version != _HANDSHAKE_VERSION:
            raise UnsupportedVersionError(
                f"{host} speaks SaslHandshake v{version} only; SASL needs Kafka 1.0 or newer"
            )
        async with connection.alone() as ask:
            shaken = await ask(SaslHandshakeRequest(mechanism=self.mechanism), version)
            if shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
                raise WrongListenerError(
                    f"the listener at {host} takes no SASL; set security_protocol to PLAINTEXT or SSL"
                )
            if shaken.error_code:
                offered = ", ".join(shaken.mechanisms) or "none"
                raise error_for(
                    shaken.error_code,
                    f"{host} does not take the SASL mechanism {self.mechanism}; it offers {offered}",
                )
            return await self._exchange(ask, side, host, connection.version_for(SaslAuthenticateRequest))

    async def _exchange(self, ask: Ask, side: ClientSide, host: str, version: int) -> float:
        message: bytes | None = side.start()
        for _ in range(_MOST_STEPS):
            answer = await ask(SaslAuthenticateRequest(auth_bytes=message or b""), version)
            if answer.error_code:
                raise error_for(answer.error_code, self._refusal(answer, side, host))
            message = side.step(bytes(answer.auth_bytes))
            if message is None:
                return float(max(0, answer.session_lifetime_ms))
        raise SaslError(f"{self.mechanism}: {host} does not come to an end")

    def _refusal(self, answer: SaslAuthenticateResponse, side: ClientSide, host: str) -> str:
        said = [answer.error_message or "no reason given", side.complaint]
        user = f" of user {self.credentials.username!r}" if self.credentials.username else ""
        return f"{host} refused the {self.mechanism} credentials{user}: {'; '.join(filter(None, said))}"
