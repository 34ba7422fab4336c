"""One client's connection: frames in, answers out in the order of the requests.

All whole frames of a wake are answered with one write. Before it waits for a parked answer (a fetch without
data), a connection sends the earlier answers; later requests of this connection wait, those of others do not.
Behind a Produce that waits for a sync, the Produce requests of the same wake are appended at
once, and share that sync. An error in a request closes its connection, with one log line, and nothing else.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import trio

from splashdam.embedded_broker.execution.answers import (
    Account,
    Address,
    CloseConnectionError,
    Dispatched,
    Encoding,
    Parked,
    encode_answer,
)
from splashdam.embedded_broker.producing.fast_produce import FastProduce, ProduceTemplates
from splashdam.embedded_broker.serving.dispatch import (
    Interception,
    Interceptor,
    LargeRequestError,
    SilencedError,
    dispatch,
)
from splashdam.embedded_broker.serving.limited_log import LimitedLog
from splashdam.embedded_broker.serving.receiving import BusyPolling, FrameReceiver
from splashdam.embedded_broker.serving.registry import AskedBroker, Client
from splashdam.embedded_broker.serving.request_memory import RequestMemory, network_of
from splashdam.embedded_broker.serving.selector import Arrival, SelectionKey, Selector
from splashdam.embedded_broker.serving.sending import Outbox
from splashdam.model.broker_errors import ErrorCode
from splashdam.model.errors import ProtocolError, message_of
from splashdam.model.log_text import quoted
from splashdam.wire.fields import Part
from splashdam.wire.framing import framed
from splashdam.wire.header import api_key_of, decode_request_header, encode_response
from splashdam.wire.message import Response
from splashdam.wire.messages.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from splashdam.embedded_broker.quotas.client_quotas import ClientQuotas
    from splashdam.embedded_broker.security.authentication import SaslSession

T = TypeVar("T")

_log = logging.getLogger(__name__)

_RENEW_SECONDS = 1.0
_TURN_BYTES = 1024
"""A request costs one unit of its turn, and one more for each KiB: large ones may name many things."""
_TURNS_TO_ENCODE = 4
"""An answer that took more turns is encoded beside the loop: the others are encoded in some milliseconds."""


class ServedBroker(AskedBroker, Protocol):
    """The parts of a broker that its connections need; the attributes are those of `Broker`."""

    busy_polling: BusyPolling
    interception: Interception
    produce_templates: ProduceTemplates
    request_memory: RequestMemory
    selector: Selector


class ClientConnection:
    """Serves one stream until it ends, misbehaves, or is idle for ``connections.max.idle.ms``.

    Args:
        stream: the connection, after its TLS handshake.
        broker: answers the requests.
        address: what answers name as the broker's address.
        client: the client at the other end.
        closings: takes the lines that say why clients were closed.
        session: the SASL session in which it has to authenticate; None: the listener does not use SASL.
        authenticated: called when the client has authenticated for the first time.

    Attributes:
        client: the client at the other end.
        has_ended: whether it is no longer served.
    """

    _interceptor: Interceptor | None = None

    def __init__(
        self,
        stream: trio.abc.Stream,
        broker: ServedBroker,
        address: Address,
        client: Client,
        closings: LimitedLog,
        *,
        session: SaslSession | None = None,
        authenticated: Callable[[], None] = lambda: None,
    ) -> None:
        self.client = client
        self.has_ended = False
        self._stream = stream
        self._broker = broker
        self._closings = closings
        self._parking = broker.parking
        self._address = address
        self._session = session
        self._authenticated = authenticated
        self._mute_ms = 0
        self._idle_seconds = broker.settings.limits.connections_max_idle_ms / 1000
        self._scope = trio.CancelScope()
        self._renew_at = float("-inf")
        max_bytes = broker.settings.limits.socket_request_max_bytes
        if session is not None:
            max_bytes = broker.settings.security.sasl_server_max_receive_size
        self._receiver = FrameReceiver(
            stream, max_bytes, broker.busy_polling, broker.request_memory, self._party
        )
        self._outbox = Outbox(stream, self._progressed)
        self._key: SelectionKey | None = None
        if Selector.is_available and session is None and type(stream) is trio.SocketStream:
            self._key = SelectionKey(broker.selector, stream.socket.fileno(), self)
        self._is_usual = False  # none of the last requests was left to its handler
        self._fast_produce = FastProduce(broker, broker.produce_templates, self._refused)
        self._begun: deque[Dispatched | list[Part]] = deque()
        """A parked answer, and those behind it."""

    async def run(self) -> None:
        """Serve until the connection ends, then close the stream; only cancellation is raised."""
        _log.debug("%s is connected", self.client.name)
        try:
            with self._scope:
                await self._serve()
            if self._scope.cancelled_caught:
                _log.info("closed %s: idle for %.0f s", self.client.name, self._idle_seconds)
            else:
                _log.debug("%s is gone", self.client.name)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            _log.debug("%s is gone", self.client.name)
        except ProtocolError as error:
            # Without the error's remedy, which is meant for clients.
            self._closings.write(logging.WARNING, "closed %s: %s", self.client.name, message_of(error))
        except CloseConnectionError as error:
            level = logging.WARNING if error.parts is None else logging.INFO
            self._closings.write(level, "closed %s: %s", self.client.name, error)
        except Exception:
            _log.exception("closed %s: the broker failed", self.client.name)
        finally:
            self.has_ended = True  # this object may live on until it is collected
            self._outbox.discard()
            await trio.aclose_forcefully(self._stream)

    async def _serve(self) -> None:
        receiver, outbox, key = self._receiver, self._outbox, self._key
        self._progressed()
        try:
            while True:
                has_read = False
                # After usual requests only: to change between both ways of waiting costs a pass of the loop.
                # A client that is alone is answered sooner by its own task, which polls for its next request.
                is_one_of_many = self._is_usual and not receiver.is_alone
                if key is not None and is_one_of_many and receiver.may_read_now and key.register():
                    arrival = await key.wait()
                    await self._settle()  # what was answered in place, and is not sent yet
                    if arrival is Arrival.END:
                        return
                    if arrival is Arrival.NOTHING:
                        continue
                    has_read = True
                elif key is not None and receiver.is_alone:
                    key.unregister()  # each request would wake the selector, too
                frames = await receiver.receive(has_read=has_read)
                if frames is None:
                    return
                self._progressed_at(receiver.read_at)
                try:
                    await self._answer_all(frames)
                except (ProtocolError, CloseConnectionError) as error:
                    if isinstance(error, CloseConnectionError) and error.parts:
                        outbox.add(error.parts)
                    await self._settle()  # earlier requests are still answered
                    raise
                except SilencedError:
                    # Read on: unread bytes would fill the socket, and the client would see more than a
                    # missing answer.
                    while await receiver.receive() is not None:
                        self._progressed()
                    return
                await self._settle()
        finally:
            if key is not None:
                key.unregister()
            receiver.close()

    def answer_in_place(self) -> Arrival | None:
        """See ``Channel``."""
        receiver, turns = self._receiver, self._broker.turns
        if not receiver.read_now():
            return Arrival.END
        self._progressed_at(receiver.read_at)
        if self._broker.interception.interceptor is None:
            while turns.left > 0 and (frame := receiver.next_good_frame()) is not None:
                if self._outbox.is_full or not self._answer_fast(frame):
                    receiver.put_back(frame)
                    break
                self.client.requests += 1
                turns.left -= 1 + len(frame) // _TURN_BYTES
        if not receiver.is_empty:
            return Arrival.BYTES
        return Arrival.NOTHING if receiver.has_filled_buffer or receiver.is_alone else None

    def send_in_place(self) -> bool:
        """See ``Channel``."""
        return self._outbox.write_now()

    def _party(self) -> Hashable:
        """Return the unit of fairness for request memory: the principal in its network."""
        requester = self.client.requester
        return requester._replace(host=network_of(requester.host))

    def hold_to(self, quotas: ClientQuotas) -> None:
        """Hold the client to quotas from its next request on, if any are set."""
        if not quotas.is_any_set:
            self.client.meter = None
            self._fast_produce.resume()
            return
        from splashdam.embedded_broker.quotas.throttling import Meter

        self.client.meter = Meter(quotas, self.client, self._broker.fetch_sessions)
        self._fast_produce.stop()  # it does not count for quotas

    async def _answer_all(self, frames: list[memoryview]) -> None:
        turns = self._broker.turns
        turns.begin()  # other tasks ran while these arrived
        # Every request costs units, so that one connection cannot hold the loop (docs/decisions/turns.md).
        self._interceptor = self._broker.interception.interceptor  # once for all requests of this wake
        self.client.requests += len(frames)
        self._is_usual = self._session is None
        frames.reverse()  # up to 150,000 of them: ``pop(0)`` would move all the others
        while frames:
            if turns.left <= 0:
                await self._settle()
                await trio.lowlevel.checkpoint()
                turns.begin()
            frame = frames.pop()
            if self._session is not None:
                await self._answer_in(self._session, frame)
            elif self._begun or self._interceptor is not None:
                await self._answer(frame)
            elif not self._answer_fast(frame):  # most are answered so, without a coroutine for each
                await self._answer_by_handler(frame)
            turns.left -= 1 + len(frame) // _TURN_BYTES
            if frames and self._outbox.is_full:  # all are sent once the last is answered
                await self._outbox.flush()

    async def _answer(self, frame: memoryview) -> None:
        # Produce requests behind one that waits for the disk are appended at once, and share its sync. Other
        # requests wait: they might see records that are not durable yet (docs/decisions/embedded-broker.md).
        if self._begun and api_key_of(frame) != ProduceRequest.API_KEY:
            await self._settle()
        if self._interceptor is not None:
            await self._answer_intercepted(frame, self._interceptor)
        elif not self._answer_fast(frame):
            await self._answer_by_handler(frame)

    def _answer_fast(self, frame: memoryview) -> bool:
        """Answer a usual Produce request; return false if it is left to its handler."""
        parts = self._fast_produce.answer(frame)
        if parts is None:
            return False
        self._add(parts)
        return True

    async def _answer_by_handler(self, frame: memoryview) -> None:
        """Answer a request that ``_answer_fast`` has left."""
        self._is_usual = False
        try:
            dispatched = dispatch(
                frame,
                self._broker,
                self._address,
                self._session,
                self.client,
                is_heavy=self._fast_produce.is_heavy,
            )
        except LargeRequestError as large:
            await self._answer_large(frame, large)
            return
        self._fast_produce.learn(frame, dispatched.request, dispatched.version)
        if isinstance(dispatched.answer, Parked):
            self._begun.append(dispatched)
            # Kafka mutes the connection in this case, so no client relies on later requests being started.
            if not dispatched.answer.lets_others_begin:
                await self._settle()
            return
        parts = self._made(dispatched.answer, dispatched)
        if self._mute_ms:
            self._begun.append(parts)
            await self._settle()
            return
        self._add(parts)

    def _add(self, parts: list[Part]) -> None:
        """Send an answer once those before it are sent."""
        if self._begun:
            self._begun.append(parts)
        else:
            self._outbox.add(parts)

    async def _answer_in(self, session: SaslSession, frame: memoryview) -> None:
        """As ``_answer``, as far as the SASL session allows the request."""
        was_authenticated = session.is_authenticated
        if session.wants_tokens:
            answer = await session.authenticate_bare(bytes(frame))
            if answer is not None:
                self._outbox.add([framed(answer)])
        else:
            try:
                session.admit(api_key_of(frame))
            except CloseConnectionError:
                if session.is_authenticating:  # in the middle of an exchange Kafka answers before it closes
                    self._outbox.add(_illegal_sasl_state(frame))
                raise
            await self._answer(frame)
        if session.failure:
            # The late answer slows guessing. The pause behind it leaves the client time to read the answer,
            # which kafka-python in TLS loses if the end of the stream comes with it.
            if not self._outbox.is_empty:
                await self._delay_refusal()
                await self._settle()
            await self._delay_refusal()
            raise CloseConnectionError(session.failure)
        if session.is_authenticated and not was_authenticated:
            _log.debug("%s is user %s", self.client.name, quoted(session.user))
            self._authenticated()
            self.client.requester = self.client.requester._replace(principal=f"User:{session.user}")
            self._receiver.max_frame_bytes = self._broker.settings.limits.socket_request_max_bytes

    async def _delay_refusal(self) -> None:
        await trio.sleep(self._broker.settings.security.connection_failed_authentication_delay_ms / 1000)

    async def _answer_large(self, frame: memoryview, large: LargeRequestError) -> None:
        """Decode the request and encode its answer beside the loop."""
        await self._settle()
        turns, account = self._broker.turns, Account(self.client.requester)
        request = await turns.do_beside(large, account)
        turns.begin()
        to = dispatch(
            frame, self._broker, self._address, self._session, self.client, decoded=(request, account)
        )
        answer = await self._unless_gone(to.answer.wait) if isinstance(to.answer, Parked) else to.answer
        parts = await self._made_beside(answer, to, account)
        self._begun.append(parts)
        self._progressed()
        await self._settle()

    async def _answer_intercepted(self, frame: memoryview, interceptor: Interceptor) -> None:
        self._is_usual = False
        await self._settle()
        # A copy: the receive buffer is reused while a fault delays the request.
        kept = bytes(frame)
        self._begun.append(
            dispatch(kept, self._broker, self._address, self._session, self.client, interceptor=interceptor)
        )
        await self._settle()

    async def _settle(self) -> None:
        """Send all answers, in order, and wait for those that are not ready yet."""
        while self._begun:
            due = self._begun.popleft()
            if isinstance(due, Dispatched):
                await self._outbox.flush()
                self._parking.answer_due(self._broker.turns)
                await self._unless_gone(partial(self._answer_parked, due))
            else:
                self._outbox.add(due)
            if self._mute_ms:
                await self._mute()
        if not self._outbox.write_now():
            await self._outbox.flush()
        if self._parking.due:  # most requests wake nobody
            self._parking.answer_due(self._broker.turns)

    async def _answer_parked(self, due: Dispatched) -> None:
        """Wait for a parked answer, and send it."""
        parked = cast("Parked", due.answer)
        if parked.may_send:
            answer = await parked.wait(partial(self._send_soon, due))
            if answer is None:
                await self._outbox.flush()  # the rest, if there is any
                return
        else:
            answer = await parked.wait()
        self._progressed()
        if self._session is not None and self._session.failure:
            await self._delay_refusal()
        account = due.account
        if account is not None and account.turns > _TURNS_TO_ENCODE:
            parts = await self._made_beside(answer, due, account)
        else:
            parts = self._made(answer, due)
        self._outbox.add(parts)
        if account is None or not account.turns:  # after several turns the others come first
            # Before the watch for the client's end is over: to end it takes two passes of the scheduler.
            await self._outbox.flush()

    def _send_soon(self, to: Dispatched, answer: Response) -> None:
        self._progressed()
        self._outbox.add(self._made(answer, to))
        self._outbox.write_now()

    def _made(self, answer: Response | None, to: Dispatched) -> list[Part]:
        """Encode an answer, and charge it to the client's quotas."""
        if self._broker.interception.watch is not None:
            self._watched(answer, to)
        parts = [] if answer is None else _encoded(answer, to)
        throttled = self._charge(to, answer, parts)
        return parts if throttled is None else _encoded(throttled, to)

    async def _made_beside(self, answer: Response | None, to: Dispatched, account: Account) -> list[Part]:
        """As ``_made``, for an answer that may be large: it is encoded beside the loop."""
        turns, parts = self._broker.turns, []
        self._watched(answer, to)
        if answer is not None:
            parts = await turns.do_beside(_encoding(answer, to), account)
            turns.begin()
        throttled = self._charge(to, answer, parts)
        if throttled is not None:
            parts = await turns.do_beside(_encoding(throttled, to), account)
            turns.begin()
        return parts

    def _watched(self, answer: Response | None, to: Dispatched) -> None:
        watch = self._broker.interception.watch
        if watch is not None and answer is not None and to.request is not None:
            watch.answered(self.client, type(to.request), answer)

    def _refused(self, answer: ProduceResponse) -> None:
        watch = self._broker.interception.watch
        if watch is not None:
            watch.answered(self.client, ProduceRequest, answer)

    def _charge(self, to: Dispatched, answer: Response | None, parts: list[Part]) -> Response | None:
        """Charge a request to the client's quotas; return the answer to send instead, if it is throttled."""
        if self.client.meter is None:
            return None
        throttled, mute_ms = self.client.meter.charge(to, answer, parts)
        self._mute_ms = max(self._mute_ms, mute_ms)
        return throttled

    async def _mute(self) -> None:
        """Send all answers, then read nothing from the client for as long as its quota requires."""
        await self._outbox.flush()
        mute_seconds, self._mute_ms = self._mute_ms / 1000, 0
        # A muted connection is not idle: its client may not be read, so the idle time begins afterwards.
        self._scope.deadline = trio.current_time() + mute_seconds + self._idle_seconds
        await self._unless_gone(partial(trio.sleep, mute_seconds))

    async def _unless_gone(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do what may take long, and return its result; cancel it when the client disconnects.

        Raises:
            trio.BrokenResourceError: the client is gone.
        """
        done: list[T] = []
        failure: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_gone, nursery.cancel_scope)
            try:
                done.append(await work())
            except Exception as error:  # leaves as itself below, not wrapped in the nursery's group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if not done:
            raise trio.BrokenResourceError("the client left while its answer was parked")
        return done[0]

    async def _cancel_when_gone(self, scope: trio.CancelScope) -> None:
        """Cancel at the end of the stream; bytes are not consumed, since they belong to the next request.

        Once there are such bytes, the end behind them cannot be seen: then the parked answer is waited for.
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
        self._progressed_at(trio.current_time())

    def _progressed_at(self, now: float) -> None:
        """Move the idle deadline, but not each time: that costs more than this check."""
        if now >= self._renew_at:
            self._renew_at = now + min(_RENEW_SECONDS, self._idle_seconds / 10)
            self._scope.deadline = now + self._idle_seconds


def _encoded(answer: Response, to: Dispatched) -> list[Part]:
    return encode_answer(answer, version=to.version, correlation_id=to.correlation_id)


def _encoding(answer: Response, to: Dispatched) -> Encoding:
    return Encoding(answer, to.version, to.correlation_id, to.size_bytes)


def _illegal_sasl_state(frame: memoryview) -> list[Part]:
    """Return error 34 as the response to this request; nothing if the response has no error code."""
    from splashdam.wire.registry import api_for

    header, _ = decode_request_header(frame)
    kind, version = api_for(header.api_key).response, header.api_version
    if not any(field.name == "error_code" and version in field.versions for field in kind.FIELDS):
        return []
    answer = kind(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return encode_response(answer, version=version, correlation_id=header.correlation_id)
