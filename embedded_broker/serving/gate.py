"""The gate of one listener: TLS, and a SASL session before every request of its connections."""

from __future__ import annotations

import logging
from ssl import SSLContext

import trio

from splashdam.embedded_broker.answering.answers import Address, CloseConnectionError, Parked
from splashdam.embedded_broker.configs.security import Listener, SecuritySettings
from splashdam.embedded_broker.security.authentication import BrokerAuthority, SaslSession
from splashdam.embedded_broker.serving.connections import Stranger
from splashdam.embedded_broker.serving.receiving import FrameReceiver
from splashdam.embedded_broker.serving.registry import Client
from splashdam.embedded_broker.serving.server import ClientConnection, ServedBroker
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import KafkaError
from splashdam.model.log_text import quoted
from splashdam.model.secrets import Secret
from splashdam.net.sasl.mechanisms import MECHANISMS
from splashdam.net.tls.context import TlsFiles, server_context
from splashdam.net.tls.tls import TlsStream, accept_tls
from splashdam.wire.fields import Part
from splashdam.wire.framing import framed
from splashdam.wire.header import api_key_of, decode_request_header, encode_response
from splashdam.wire.message import Response
from splashdam.wire.registry import api_for

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
        self, stream: trio.abc.Stream, broker: ServedBroker, address: Address, peer: str, *, client: Client
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
        broker: ServedBroker,
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


class SessionConnection(ClientConnection):
    """As ``ClientConnection``, with a SASL session before every request."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        broker: ServedBroker,
        address: Address,
        peer: str,
        *,
        session: SaslSession,
        client: Client,
        stranger: Stranger,
    ) -> None:
        super().__init__(stream, broker, address, peer, client=client)
        self._stranger = stranger
        self._session: SaslSession = session
        self._receiver: FrameReceiver | None = None

    def _make_receiver(self) -> FrameReceiver:
        self._receiver = super()._make_receiver()
        self._receiver.max_frame_bytes = self._broker.settings.security.sasl_server_max_receive_size
        return self._receiver

    async def _answer(self, frame: memoryview) -> None:
        session = self._session
        was_known = session.is_known
        if session.wants_tokens:
            answer = await session.prove_bare(bytes(frame))
            if answer is not None:
                self._outbox.add([framed(answer)])
        else:
            self._admit(frame)
            await super()._answer(frame)
        if session.failure:
            await self._refuse(session.failure)
        if session.is_known and not was_known:
            _log.debug("%s is user %s", self._peer, quoted(session.user))
            self._stranger.known()
            self._client.requester = self._client.requester._replace(principal=f"User:{session.user}")
            assert self._receiver is not None  # the frame came through it
            self._receiver.max_frame_bytes = self._broker.settings.limits.socket_request_max_bytes

    def _admit(self, frame: memoryview) -> None:
        """As the session's; in the middle of an exchange Kafka answers before it closes the connection."""
        try:
            self._session.admit(api_key_of(frame))
        except CloseConnectionError:
            if self._session.is_proving:
                self._outbox.add(_refusal(frame))
            raise

    async def _unparked(self, parked: Parked) -> Response | None:
        answer = await super()._unparked(parked)
        if self._session.failure:
            await self._delay()
        return answer

    async def _refuse(self, failure: str) -> None:
        """Answers late, so that guessing takes time; and then leaves the client time to read the answer,
        which kafka-python in TLS loses if the end of the stream comes with it."""
        if not self._outbox.is_empty:
            await self._delay()
            await self._settle()
        await self._delay()
        raise CloseConnectionError(failure)

    async def _delay(self) -> None:
        await trio.sleep(self._broker.settings.security.connection_failed_authentication_delay_ms / 1000)


def _refusal(frame: memoryview) -> list[Part]:
    """34 in the answer's own form; nothing where that has no place for it."""
    header, _ = decode_request_header(frame)
    kind, version = api_for(header.api_key).response, header.api_version
    if not any(field.name == "error_code" and version in field.versions for field in kind.FIELDS):
        return []
    answer = kind(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return encode_response(answer, version=version, correlation_id=header.correlation_id)
