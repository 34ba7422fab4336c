"""The security protocol of one listener: the TLS handshake and the SASL session of its connections.

Loaded only for listeners that are not PLAINTEXT: OpenSSL and SASL cost time to import.
"""

from __future__ import annotations

import logging
from ssl import SSLContext

import trio

from splashdam.embedded_broker.configs.security import Listener, SecuritySettings
from splashdam.embedded_broker.execution.answers import Requester
from splashdam.embedded_broker.security.authentication import BrokerAuthority, SaslSession
from splashdam.model.log_text import quoted
from splashdam.model.secrets import Secret
from splashdam.net.clock import Clock
from splashdam.net.sasl.mechanisms import MECHANISMS
from splashdam.net.tls.context import TlsFiles, server_context
from splashdam.net.tls.tls import accept_tls

_log = logging.getLogger(__name__)

_NAMES = (
    "ssl.truststore.location",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.truststore.location",  # the revocation list: Kafka keeps it in the trust store
    "ssl.key.password",
    "ssl.cipher.suites",
)


class ListenerSecurity:
    """TLS and SASL of one listener.

    Args:
        listener: not a PLAINTEXT one.
        settings: of the broker.
        authority: verifies what clients prove.

    Raises:
        KafkaConfigurationError: a file or a package is missing, or a file does not hold what it should.
    """

    def __init__(self, listener: Listener, settings: SecuritySettings, authority: BrokerAuthority) -> None:
        self._authority = authority
        self._context = _tls_context(settings) if listener.uses_tls else None
        self._mechanisms = []
        if listener.uses_sasl:
            self._mechanisms = [name.strip() for name in settings.sasl_enabled_mechanisms.split(",")]
        for name in self._mechanisms:
            MECHANISMS[name].check_installed()

    async def handshake(
        self, stream: trio.abc.Stream, peer: str, requester: Requester
    ) -> tuple[trio.abc.Stream, Requester]:
        """Do the TLS handshake, where the listener uses TLS.

        Args:
            stream: the connection.
            peer: names the client in log lines.
            requester: the client, as far as it is known.

        Returns:
            The stream to speak Kafka on, and the client with the subject of its certificate as principal.

        Raises:
            KafkaError: the handshake failed.
        """
        if self._context is None:
            return stream, requester
        tls = await accept_tls(stream, self._context, peer)
        if tls.peer_subject:
            _log.debug("%s is %s", peer, quoted(tls.peer_subject))
            requester = requester._replace(principal=f"User:{tls.peer_subject}")
        return tls, requester

    def new_session(self, max_reauth_ms: float, clock: Clock) -> SaslSession | None:
        """Return a SASL session that has not begun; None where the listener does not use SASL."""
        if not self._mechanisms:
            return None
        return SaslSession(self._authority, self._mechanisms, max_reauth_ms, clock, self._authority.beside)


def _tls_context(settings: SecuritySettings) -> SSLContext:
    """Return the broker's side of TLS.

    Raises:
        KafkaConfigurationError: a file is missing, or does not hold what it should.
    """
    files = TlsFiles(
        names=_NAMES,
        cafile=settings.ssl_truststore_certificates or settings.ssl_truststore_location or None,
        certfile=settings.ssl_keystore_certificate_chain or settings.ssl_keystore_location or None,
        keyfile=settings.ssl_keystore_key or None,
        password=Secret(settings.ssl_key_password) if settings.ssl_key_password else None,
        ciphers=settings.ssl_cipher_suites.replace(",", ":") or None,
    )
    return server_context(files, client_auth=settings.ssl_client_auth)
