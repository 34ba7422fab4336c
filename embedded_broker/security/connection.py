"""The server of one client that has to say who it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from splashdam.embedded_broker.answering.answers import Address, CloseConnectionError, Parked
from splashdam.embedded_broker.security.session import SaslSession
from splashdam.embedded_broker.serving.connections import Stranger
from splashdam.embedded_broker.serving.receiving import FrameReceiver
from splashdam.embedded_broker.serving.registry import Client
from splashdam.embedded_broker.serving.server import ClientConnection
from splashdam.model.error_codes import ErrorCode
from splashdam.model.quoting import quoted
from splashdam.wire.fields import Part
from splashdam.wire.framing import framed
from splashdam.wire.header import api_key_of, decode_request_header, encode_response
from splashdam.wire.message import Response
from splashdam.wire.registry import api_for

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker

_log = logging.getLogger(__name__)


class SessionConnection(ClientConnection):
    """As ``ClientConnection``, with a SASL session before every request."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        broker: Broker,
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
