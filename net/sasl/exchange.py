"""The client's side of authentication over a ``Connection``: SaslHandshake v1, then SaslAuthenticate.

Re-authentication (KIP-368) is the same: no other request is sent between those of the exchange, and earlier
in-flight requests are not affected.
"""

from __future__ import annotations

import attrs

from splashdam.model.broker_errors import ErrorCode, UnsupportedVersionError, error_for
from splashdam.model.errors import SaslError, SettingText, WrongListenerError
from splashdam.net.connection.connection import Connection
from splashdam.net.connection.in_flight import Ask
from splashdam.net.sasl.mechanisms import MECHANISMS, ClientSide, Credentials
from splashdam.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest

_HANDSHAKE_VERSION = 1
_MOST_STEPS = 20
"""More than any mechanism needs; bounds an exchange that a broker would continue for ever."""


@attrs.frozen(eq=False)
class SaslAuthenticator:
    """Authenticates a client's connections with one mechanism.

    Attributes:
        mechanism: name of the mechanism, one of ``MECHANISMS``.
        credentials: of the client; ``host`` in it is replaced for each broker.
    """

    mechanism: str
    credentials: Credentials

    async def authenticate(self, connection: Connection, host: str) -> float:
        """Authenticate on a negotiated connection.

        Args:
            connection: other requests wait meanwhile.
            host: of the broker, as the client names it.

        Returns:
            Lifetime of the session in milliseconds; 0: as long as the connection.

        Raises:
            AuthenticationError: the broker rejects the credentials, or did not prove its identity.
            UnsupportedVersionError: the broker is older than Kafka 1.0.
            KafkaError: as ``Connection.request``.
        """
        side = await MECHANISMS[self.mechanism].open_client(attrs.evolve(self.credentials, host=host))
        version = connection.version_for(SaslHandshakeRequest)
        if version != _HANDSHAKE_VERSION:
            raise UnsupportedVersionError(
                f"{host} supports SaslHandshake v{version} only; SASL needs Kafka 1.0 or newer"
            )
        async with connection.alone() as ask:
            shaken = await ask(SaslHandshakeRequest(mechanism=self.mechanism), version)
            if shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
                raise WrongListenerError(
                    SettingText(
                        "the listener at {host} does not use SASL; set {0} to PLAINTEXT or SSL",
                        "security_protocol",
                        host=host,
                    )
                )
            if shaken.error_code:
                offered = ", ".join(shaken.mechanisms) or "none"
                raise error_for(
                    shaken.error_code,
                    f"{host} does not support the SASL mechanism {self.mechanism}; it offers {offered}",
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
        raise SaslError(f"{self.mechanism}: {host} did not end the exchange after {_MOST_STEPS} steps")

    def _refusal(self, answer: SaslAuthenticateResponse, side: ClientSide, host: str) -> str:
        said = [answer.error_message or "no reason given", side.complaint]
        user = f" of user {self.credentials.username!r}" if self.credentials.username else ""
        return f"{host} rejected the {self.mechanism} credentials{user}: {'; '.join(filter(None, said))}"
