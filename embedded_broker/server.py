"""The server of one client: frames in, answers out in the order of the requests.

All whole frames of a wake are answered with one write. A parked answer (a fetch that waits for data) first
sends what is owed, then holds back what comes later on this connection, and on no other (facts B6). Whatever
is wrong with a request closes this connection with one log line; the server lives on.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

import trio

from splashdam.embedded_broker.dispatch import dispatch
from splashdam.embedded_broker.receiving import FrameReceiver
from splashdam.embedded_broker.registry import Address, CloseConnectionError, Parked
from splashdam.embedded_broker.sending import Outbox
from splashdam.model.errors import ProtocolError
from splashdam.model.values import Buffer
from splashdam.wire.header import encode_response
from splashdam.wire.message import Response

if TYPE_CHECKING:
    from splashdam.embedded_broker.broker import Broker

_log = logging.getLogger(__name__)

_RENEW_SECONDS = 1.0


class ClientConnection:
    """Serves one stream until it ends, misbehaves, or is idle for ``connections.max.idle.ms``."""

    def __init__(self, stream: trio.abc.Stream, broker: Broker, address: Address, peer: str) -> None:
        self._stream = stream
        self._broker = broker
        self._address = address
        self._peer = peer
        self._idle_seconds = broker.settings.connections_max_idle_ms / 1000
        self._scope = trio.CancelScope()
        self._progress_at = float("-inf")
        self._outbox = Outbox(stream, self._progressed)

    async def run(self) -> None:
        """Serves until the connection is over; raises nothing but cancellation, and closes the stream."""
        try:
            with self._scope:
                await self._serve()
            if self._scope.cancelled_caught:
                _log.info("closed %s: idle for %.0f s", self._peer, self._idle_seconds)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            _log.debug("%s is gone", self._peer)
        except (ProtocolError, CloseConnectionError) as error:
            _log.warning("closed %s: %s", self._peer, error)
        except Exception:
            _log.exception("closed %s: the broker failed", self._peer)
        finally:
            self._outbox.discard()
            await trio.aclose_forcefully(self._stream)

    async def _serve(self) -> None:
        receiver = FrameReceiver(self._stream, self._broker.settings.socket_request_max_bytes)
        self._progressed()
        while (frames := await receiver.receive()) is not None:
            self._progressed()
            try:
                for frame in frames:
                    await self._answer(frame)
            except (ProtocolError, CloseConnectionError):
                await self._outbox.flush()  # what was asked before is answered still
                raise
            await self._outbox.flush()

    async def _answer(self, frame: Buffer) -> None:
        answer, version, correlation_id = dispatch(frame, self._broker, self._address)
        if isinstance(answer, Parked):
            await self._outbox.flush()
            answer = await self._unparked(answer)
            self._progressed()
        if answer is not None:
            self._outbox.add(encode_response(answer, version=version, correlation_id=correlation_id))
            if self._outbox.is_full:
                await self._outbox.flush()

    async def _unparked(self, parked: Parked) -> Response:
        """Waits for a parked answer, for as long as there is a client to take it."""
        answer: Response | None = None
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_gone, nursery.cancel_scope)
            try:
                answer = await parked.wait()
            except Exception as error:  # leaves as itself below, not wrapped in the nursery's group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if answer is None:
            raise trio.BrokenResourceError("the client left while its answer was parked")
        return answer

    async def _cancel_when_gone(self, scope: trio.CancelScope) -> None:
        """Looks for the end of the stream without taking bytes: those belong to the next request.

        Once there are such bytes the end behind them cannot be seen; then the fetch waits its time.
        """
        if not isinstance(self._stream, trio.SocketStream):
            return
        sock = self._stream.socket
        await trio.lowlevel.wait_readable(sock)
        try:
            is_gone = not await sock.recv(1, socket.MSG_PEEK)
        except OSError:
            is_gone = True
        if is_gone:
            scope.cancel()

    def _progressed(self) -> None:
        """Moves the idle deadline, but not each time: that costs more than this look."""
        now = trio.current_time()
        if now - self._progress_at >= min(_RENEW_SECONDS, self._idle_seconds / 10):
            self._progress_at = now
            self._scope.deadline = now + self._idle_seconds
