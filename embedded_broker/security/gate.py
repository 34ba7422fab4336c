"""The gate of one listener: TLS, and sessions for its connections."""

from __future__ import annotations

import logging
from ssl import SSLContext
from typing import TYPE_CHECKING

import trio

from splashdam.embedded_broker.answering.answers import Address
from splashdam.embedded_broker.configs.security import Listener, SecuritySettings
from splashdam.embedded_broker.security.authority import BrokerAuthority
from splashdam.embedded_broker.security.connection import SessionConnection
from splashdam.embedded_broker.security.session import SaslSession
from splashdam.embedded_broker.serving.connections import Stranger
from splashdam.embedded_broker.serving.registry import Client
from splashdam.embedded_broker.serving.server import ClientConnection
from splashdam.model.errors import KafkaError
from splashdam.model.quoting import quoted
from splashdam.model.secrets import Secret
from splashdam.net.sasl.mechanisms import MECHANISMS
from splashdam.net.tls.context import TlsFiles, server_context
from splashdam.net.tls.tls import TlsStream, accept_tls

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker

_log = logging.getLogger(__name__)

_NAMES = (
    "ssl.truststore.location",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.truststore.location",
    "ssl.key.password",
    "ssl.cipher.suites",
)


class Gate:
    """Lets clients of a listener in.

    Args:
        listener: which one; it is not PLAINTEXT.
        settings: of the broker.
        authority: knows users.

    Raises:
        KafkaConfigurationError: a file is missing, or is not what it should be; or a package.
    """

    def __init__(self, listener: Listener, settings: SecuritySettings, authority: BrokerAuthority) -> None:
        self._authority = authority
        self._context = tls_context(settings) if listener.uses_tls else None
        self._offered = []
        if listener.uses_sasl:
            self._offered = [name.strip() for name in settings.sasl_enabled_mechanisms.split(",")]
        for name in self._offered:
            MECHANISMS[name].check_installed()

    async def serve(
        self, stream: trio.abc.Stream, broker: Broker, address: Address, peer: str, *, client: Client
    ) -> None:
        """Serves one client until its stream ends; whatever the client does, nothing is raised.

        Args:
            stream: its connection.
            broker: whom it wants to talk to.
            address: what answers name as the broker's address.
            peer: the client, for the log.
            client: the same, for ACLs and quotas.
        """
        stranger = broker.connections.stranger()
        try:
            with stranger.scope:
                stream = stream if self._context is None else await accept_tls(stream, self._context, peer)
                await self._connection(stream, broker, address, peer, client=client, stranger=stranger).run()
            if stranger.scope.cancelled_caught:
                _log.warning("closed %s: it did not say in time who it is", peer)
                await trio.aclose_forcefully(stream)
        except KafkaError as error:
            _log.warning("closed %s: %s", peer, error)
        finally:
            stranger.known()

    def _connection(
        self,
        stream: trio.abc.Stream,
        broker: Broker,
        address: Address,
        peer: str,
        *,
        client: Client,
        stranger: Stranger,
    ) -> ClientConnection:
        if isinstance(stream, TlsStream) and stream.peer_subject:
            _log.debug("%s is %s", peer, quoted(stream.peer_subject))
            client.requester = client.requester._replace(principal=f"User:{stream.peer_subject}")
        if not self._offered:
            stranger.known()
            return ClientConnection(stream, broker, address, peer, client=client)
        settings = broker.settings
        authority, max_reauth_ms = self._authority, settings.security.connections_max_reauth_ms
        session = SaslSession(authority, self._offered, max_reauth_ms, broker.clock, authority.aside)
        return SessionConnection(
            stream, broker, address, peer, session=session, client=client, stranger=stranger
        )


def tls_context(settings: SecuritySettings) -> SSLContext:
    """The broker's.

    Raises:
        KafkaConfigurationError: a file is missing, or is not what it should be.
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
