"""The connection to a broker that sender, follower, pipeline and ``tail`` share.

Requests are pipelined: each is written as soon as fewer than ``max_in_flight_requests`` wait, and responses
come in the same order, which is checked by their correlation ids. Whatever leaves the byte stream in an
unknown state closes the connection: a wrong id, an invalid response, a late one, a write that failed or was
cancelled half way.

Requests are sent in two ways. ``submit`` and ``request`` wait for room, for the write and for the response.
``submit_now`` never waits and needs no task: it writes what the stream takes at once, and the reader's task
passes the response to a callback. Only a rest that the stream does not take at once goes to a task of its
own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from enum import auto
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import trio

from splashdam.model.broker_errors import NetworkExceptionError, RequestTimedOutError
from splashdam.model.errors import AuthenticationError, IllegalStateError, KafkaError, ProtocolError
from splashdam.model.lifecycle import Stage, next_state
from splashdam.model.values import Buffer
from splashdam.net.clock import Clock
from splashdam.net.connection.in_flight import (
    AnyPending,
    Ask,
    InFlightRequests,
    OnDone,
    PendingResponse,
    Traffic,
)
from splashdam.net.connection.negotiation import (
    ask_versions,
    finalized_levels,
    highest_common,
    offered_versions,
)
from splashdam.net.connection.streams import (
    EagerReader,
    received_now,
    receiver,
    rest_of,
    send_now,
    send_parts,
)
from splashdam.wire.fields import Versions
from splashdam.wire.framing import FrameDecoder
from splashdam.wire.header import encode_request
from splashdam.wire.message import Request, Response

if TYPE_CHECKING:
    from splashdam.wire.messages.produce import ProduceResponse
    from splashdam.wire.produce_form import ProduceForm

R = TypeVar("R", bound=Response)


class ConnectionState(Stage):
    NEW = auto()
    OPEN = auto()
    CLOSED = auto()


class ConnectionEvent(Stage):
    RUN = auto()
    SUBMIT = auto()
    CLOSE = auto()


TRANSITIONS: dict[tuple[ConnectionState, ConnectionEvent], ConnectionState] = {
    (ConnectionState.NEW, ConnectionEvent.RUN): ConnectionState.OPEN,
    (ConnectionState.NEW, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.OPEN, ConnectionEvent.SUBMIT): ConnectionState.OPEN,
    (ConnectionState.OPEN, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
    (ConnectionState.CLOSED, ConnectionEvent.CLOSE): ConnectionState.CLOSED,
}


class Connection:
    """Sends requests over one stream and matches the responses.

    Start `run` in a nursery, then call `negotiate`, then `submit` and `request`. All methods must be called
    in the connection's trio loop.

    Args:
        stream: a connected stream; the connection closes it.
        clock: for deadlines and throttling.
        client_id: sent in each request's header.
        request_timeout_ms: time limit for a response unless a call sets its own.
        max_in_flight_requests: how many requests may wait for their responses.
        max_response_bytes: the largest response accepted (Kafka: ``receive.message.max.bytes``).
        peer: name of the broker in messages, for example ``node 1 at localhost:9092``.
        on_progress: called after responses were handled and after a task has ended its write: there may be
            room for a request again. Not called when the connection closes; then `run` returns.
        traffic: counters of requests, responses and bytes.

    Attributes:
        api_versions: the broker's versions by API key, set by `negotiate`.
        finalized_features: finalized feature levels of the cluster, for example ``transaction.version``.
        is_writing: whether a task is still writing the rest of a request of `submit_now`.
        closed_by: why the connection closed; None while it is open, and after `aclose`.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        clock: Clock,
        client_id: str | None,
        request_timeout_ms: float,
        max_in_flight_requests: int,
        max_response_bytes: int = 100_000_000,
        peer: str,
        on_progress: Callable[[], None] | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.api_versions: dict[int, Versions] = {}
        self.finalized_features: dict[str, int] = {}
        self.closed_by: KafkaError | None = None
        self._is_negotiated = False
        self._versions: dict[tuple[type[Request[Any]], int | None], int] = {}
        self._peer = peer
        self._name = f"the connection to {peer}"
        self._stream = stream
        self._clock = clock
        self._client_id = client_id
        self._frames = FrameDecoder(max_response_bytes)
        self._receive = receiver(stream)
        self._eager_reader = EagerReader(stream)
        self._on_progress = on_progress
        self._traffic = traffic or Traffic(1)
        self._responses_before = self._traffic.responses
        self._in_flight = InFlightRequests(
            max_in_flight_requests,
            clock=clock,
            timeout_ms=request_timeout_ms,
            traffic=self._traffic,
            peer=peer,
        )
        self._state = ConnectionState.NEW
        self._turn = trio.Lock()  # held while waiting for room and writing: submissions keep their order
        self._changed = trio.lowlevel.ParkingLot()
        self._reading = trio.CancelScope()
        self._watched_until_ms = float("inf")
        self._tasks: trio.Nursery | None = None
        self.is_writing = False

    @property
    def in_flight(self) -> int:
        """Number of requests without a response so far."""
        return len(self._in_flight.queue)

    @property
    def requests_sent(self) -> int:
        """Number of requests sent: the correlation id of the last."""
        return self._in_flight.last_correlation_id

    @property
    def responses_received(self) -> int:
        """Number of responses received."""
        return self._traffic.responses - self._responses_before

    @property
    def is_closed(self) -> bool:
        """Whether the connection has closed."""
        return self._state is ConnectionState.CLOSED

    @property
    def throttled_ms(self) -> float:
        """Remaining throttle time that the broker asked for (KIP-219), 0 for none."""
        return self._in_flight.throttled_ms

    @property
    def can_send(self) -> bool:
        """Whether a request would be written at once: open, no write in progress, room, not throttled."""
        # Locked: a caller of `submit` writes, or waits for room before us.
        if self._state is not ConnectionState.OPEN or self._turn.locked() or self.is_writing:
            return False
        return self._in_flight.can_send_more()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read responses until the connection is closed; ``closed_by`` then says why."""
        self._advance(ConnectionEvent.RUN)
        try:
            async with trio.open_nursery() as self._tasks:
                task_status.started()
                await self._read_until_closed()
                # Ends the writes that are still under way.
                self._tasks.cancel_scope.cancel()
        finally:
            self._close(None)
            await trio.aclose_forcefully(self._stream)

    async def _read_until_closed(self) -> None:
        try:
            while self._state is ConnectionState.OPEN:
                with trio.CancelScope(deadline=self._next_deadline()) as self._reading:
                    await self._read()
                if self._reading.cancelled_caught:
                    self._expire()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._broke(error)
        except ProtocolError as error:
            self._close(error, self._in_flight.first())

    async def _read(self) -> None:
        """Read in a loop: a cancel scope for each read would cost as much as handling a response."""
        data: bytes | bytearray | None = None
        while self._state is ConnectionState.OPEN:
            if data is None:
                data = await self._receive(self._frames.wanted_bytes)
            if not data:
                raise trio.BrokenResourceError("the broker closed it")
            self._take(data)
            data = None if self._in_flight.queue else await self._after_last_answer()

    async def _after_last_answer(self) -> bytes | None:
        """Let a task that has got its answer send its next request before the connection listens again.

        To listen takes a system call and ten of trio's functions. If the request is written first, the broker
        works meanwhile.

        Returns:
            what has come meanwhile, empty at the end of the stream; None if nothing is there.
        """
        # The task runs in the next pass of the loop, before or after this one.
        for _ in range(2):
            await trio.lowlevel.checkpoint()
            if self._in_flight.queue:
                # In a busy loop the answer is here already, and to listen would take one pass more.
                return received_now(self._stream, self._frames.wanted_bytes)
        return None

    def _take(self, data: Buffer) -> None:
        self._traffic.response_bytes += len(data)
        for frame in self._frames.feed(data):
            self._in_flight.complete_next(frame)
        # Once for all responses of a read: each call may begin a turn of the sender.
        self._progress()

    def read_eagerly(self) -> bool:
        """Handle the next response if it arrives within 0.1 ms; the loop is blocked meanwhile.

        Returns:
            whether bytes have come and leave no request in flight.
        """
        if self._state is not ConnectionState.OPEN or not (data := self._eager_reader.read()):
            return False
        try:
            self._take(data)
        except ProtocolError as error:
            self._close(error, self._in_flight.first())
        return not self._in_flight.queue

    def _progress(self) -> None:
        if self._changed:  # tasks wait for room
            self._changed.unpark_all()
        if self._on_progress is not None:
            self._on_progress()

    def _next_deadline(self) -> float:
        """Return the earliest deadline of a response in trio's time: the loop may use another clock."""
        self._watched_until_ms = self._in_flight.next_deadline_ms()
        return self._loop_time(self._watched_until_ms)

    def _watch(self, pending: AnyPending) -> None:
        """Make the reader wake at the request's deadline; if it wakes earlier, it computes the next one."""
        self._watched_until_ms = pending.deadline_ms
        self._reading.deadline = self._loop_time(pending.deadline_ms)

    def _loop_time(self, time_ms: float) -> float:
        return trio.current_time() + (time_ms - self._clock.now_ms()) / 1000

    def _expire(self) -> None:
        late = self._in_flight.late()
        if late:
            waited = f"{self._clock.now_ms() - late[0].sent_at_ms:.0f} ms"
            self._close(RequestTimedOutError(f"{self._peer} did not answer {late[0]} within {waited}"), late)

    def _advance(self, event: ConnectionEvent) -> None:
        self._state = next_state(TRANSITIONS, self._state, event, self._name)

    def _close(self, reason: KafkaError | None, blamed: list[AnyPending] | None = None) -> None:
        """Close once. ``blamed`` requests fail with the reason, all others with ``NetworkExceptionError``."""
        if self._state is ConnectionState.CLOSED:
            return
        # First: whatever the callbacks of the requests below do, they find the connection closed.
        self._advance(ConnectionEvent.CLOSE)
        self.closed_by = reason
        while self._in_flight.queue:
            pending = self._in_flight.queue.popleft()
            pending.fail(reason if reason and pending in (blamed or ()) else self._lost(str(pending)))
        self._reading.cancel()
        self._changed.unpark_all()

    def _broke(self, error: BaseException) -> None:
        reason = NetworkExceptionError(f"{self._name} broke: {error}")
        reason.__cause__ = error  # perhaps a TLS error, which means that the broker does not trust us
        self._close(reason)

    def _lost(self, what: str) -> NetworkExceptionError:
        why = f" ({self.closed_by})" if self.closed_by else ""
        error = NetworkExceptionError(f"{what} to {self._peer}: the connection is closed{why}")
        error.__cause__ = self.closed_by  # where `authentication_cause` finds a refused certificate
        return error

    async def _wait_for_room(self) -> None:
        requests = self._in_flight
        while self._state is not ConnectionState.CLOSED and (self.is_writing or not requests.can_send_more()):
            throttled = requests.throttled_ms
            deadline = self._loop_time(requests.throttled_until_ms) if throttled else float("inf")
            with trio.move_on_at(deadline):
                await self._changed.park()

    async def negotiate(self, software_name: str, software_version: str) -> None:
        """Request the broker's versions; fill ``api_versions`` and ``finalized_features``.

        Args:
            software_name: letters, digits, ``-`` and ``.``, as KIP-511 demands.
            software_version: likewise.

        Raises:
            BrokerResponseError: the broker rejects the request, for example with 42 for an invalid name.
            RequestTimedOutError, NetworkExceptionError, ProtocolError: as `request`.
        """
        answer = await ask_versions(self.request, software_name, software_version, self._peer)
        self._is_negotiated = True
        self.api_versions = offered_versions(answer)
        self.finalized_features = finalized_levels(answer)
        self._versions.clear()

    def version_for(self, request_cls: type[Request[Any]], newest: int | None = None) -> int:
        """Return the newest version of a request that both sides support, ``newest`` at most.

        Raises:
            UnsupportedVersionError: the two have no version in common.
            IllegalStateError: `negotiate` was not called.
        """
        version = self._versions.get((request_cls, newest))
        if version is None:
            if not self._is_negotiated:
                raise IllegalStateError(f"{self._name}: call negotiate() before {request_cls.NAME}")
            version = highest_common(request_cls, self.api_versions, self._peer, newest)
            self._versions[request_cls, newest] = version
        return version

    async def submit(
        self,
        request: Request[R],
        version: int | None = None,
        *,
        timeout_ms: float | None = None,
        expect_response: bool = True,
    ) -> PendingResponse[R]:
        """Write a request, after earlier ones and once there is room; return when it is written.

        Args:
            request: what to send.
            version: of the request; None: the newest that both sides support.
            timeout_ms: time limit for write and response; None: ``request_timeout_ms``.
            expect_response: False for a Produce request with ``acks=0``, which brokers do not answer.

        Raises:
            IllegalStateError: `run` was not started, or ``version`` is None before `negotiate`.
            ProtocolError, UnsupportedVersionError: the request cannot be encoded; the connection stays open.
            RequestTimedOutError: the write took too long; the connection is closed.
            NetworkExceptionError: the connection is closed, or closes meanwhile.
        """
        if version is None:
            version = self.version_for(type(request))
        async with self._turn:
            pending = await self._submit_in_turn(request, version, timeout_ms, expect_response)
        self._changed.unpark_all()
        if not expect_response:
            pending.written()
        return pending

    async def _submit_in_turn(
        self, request: Request[R], version: int, timeout_ms: float | None, expect_response: bool
    ) -> PendingResponse[R]:
        await self._wait_for_room()
        if self._state is ConnectionState.CLOSED:
            raise self._lost(request.NAME)
        pending = self._in_flight.pend(type(request), version, timeout_ms, None)
        rest = self._begin(request, pending, expect_response)
        if rest:
            await self._write(rest, pending)
        return pending

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[Ask]:
        """Delay all other requests while the block sends its own; in-flight requests are not affected.

        For authentication: no other request may be sent between those of a SASL exchange. A block that raises
        or is cancelled closes the connection, since the broker waits for the rest of the exchange.
        """

        async def ask(request: Request[R], version: int) -> R:
            return await (await self._submit_in_turn(request, version, None, True)).wait()

        async with self._turn:
            try:
                yield ask
            except BaseException:
                self._close(None)
                raise
        self._progress()

    def submit_now(
        self,
        request: Request[R],
        version: int,
        on_done: OnDone[R],
        *,
        expect_response: bool = True,
        patience_ms: float = 0.0,
    ) -> None:
        """Write a request without waiting; the caller has checked `can_send`.

        Args:
            request: what to send.
            version: of the request.
            on_done: called once with the result: by the reader's task, when the connection closes, or, if no
                response is expected, when the request is written, which may be before this method returns.
            expect_response: as in `submit`.
            patience_ms: how long the loop may block so that less is left for a task; see `send_now`.

        Raises:
            IllegalStateError: the connection is not open.
            ProtocolError: the request cannot be encoded; the connection stays open, ``on_done`` is not
                called.
        """
        pending = self._in_flight.pend(type(request), version, None, on_done)
        rest = self._begin(request, pending, expect_response, patience_ms)
        if rest:
            self._write_later(rest, pending, expect_response)
        elif not expect_response:
            pending.written()

    def submit_filled(
        self,
        form: ProduceForm,
        records: Buffer,
        on_done: OnDone[ProduceResponse],
        *,
        now_ms: float,
        patience_ms: float = 0.0,
    ) -> None:
        """As `submit_now`, for a Produce request with one batch and a response.

        Args:
            form: of the request; made with this connection's client id.
            records: the sealed batch, smaller than 2 GiB.
            on_done: as for `submit_now`; a response that fits the form is in ``acknowledged``.
            now_ms: the connection's clock.
            patience_ms: as for `submit_now`.

        Raises:
            IllegalStateError: the connection is not open.
        """
        pending = self._in_flight.pend(form.REQUEST, form.version, None, on_done, form, now_ms)
        parts = form.fill(self._in_flight.last_correlation_id, records)
        rest = self._write_now(parts, pending, patience_ms=patience_ms)
        if rest:
            self._write_later(rest, pending, expect_response=True)

    def _begin(
        self, request: Request[Any], pending: AnyPending, expect_response: bool, patience_ms: float = 0.0
    ) -> list[memoryview]:
        parts = encode_request(
            request,
            version=pending.version,
            correlation_id=self._in_flight.last_correlation_id,
            client_id=self._client_id,
        )
        return self._write_now(parts, pending, expect_response=expect_response, patience_ms=patience_ms)

    def _write_now(
        self,
        parts: list[Buffer],
        pending: AnyPending,
        *,
        expect_response: bool = True,
        patience_ms: float = 0.0,
    ) -> list[memoryview]:
        """Write what the stream takes now and await the response from now on; return the rest."""
        if self._state is not ConnectionState.OPEN:
            self._advance(ConnectionEvent.SUBMIT)  # raises and names the state
        if expect_response:
            # Before the write: if that breaks the connection, this request fails with the others.
            self._in_flight.queue.append(pending)
            if pending.deadline_ms < self._watched_until_ms:
                self._watch(pending)
        taken = send_now(self._stream, parts, patience_ms)
        # After the write: the peer works meanwhile.
        size_bytes = sum(map(len, parts))
        self._traffic.sent(size_bytes)
        return [] if taken == size_bytes else rest_of(parts, taken)

    def _write_later(self, rest: list[memoryview], pending: AnyPending, expect_response: bool) -> None:
        assert self._tasks is not None  # an open connection runs
        self.is_writing = True
        self._tasks.start_soon(self._write_rest, rest, pending, expect_response)

    @trio.lowlevel.enable_ki_protection  # see ``ProducerCore.main``
    async def _write_rest(self, rest: list[memoryview], pending: AnyPending, expect_response: bool) -> None:
        try:
            await self._write(rest, pending)
            if not expect_response:
                pending.written()
        except KafkaError as error:
            pending.fail(error)
        finally:  # after a cancel: closing has failed only the requests that await a response
            self.is_writing = False
            if self._state is ConnectionState.CLOSED:
                pending.fail(self._lost(str(pending)))
        self._progress()

    async def _write(self, parts: Sequence[memoryview], pending: AnyPending) -> None:
        """Write a frame. An interruption closes the connection."""
        try:
            with trio.CancelScope(deadline=self._loop_time(pending.deadline_ms)) as scope:
                await send_parts(self._stream, parts)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._broke(error)
        except BaseException:  # half a frame cannot be taken back
            self._close(NetworkExceptionError(f"the write of {pending} to {self._peer} was interrupted"))
            raise
        if scope.cancelled_caught:
            late = RequestTimedOutError(f"{self._peer} did not take {pending} in time")
            self._close(late, [pending])
            raise late
        if self._state is ConnectionState.CLOSED:
            # The reader may have closed it meanwhile, because of an invalid response to another request.
            raise self._lost(str(pending))

    async def request(
        self, request: Request[R], version: int | None = None, *, timeout_ms: float | None = None
    ) -> R:
        """Submit a request and wait for its response; raise as `submit` and ``PendingResponse.wait``."""
        pending = await self.submit(request, version, timeout_ms=timeout_ms)
        return await pending.wait()

    async def aclose(self) -> None:
        """Close at once; requests without a response fail with ``NetworkExceptionError``."""
        self._close(None)
        await trio.aclose_forcefully(self._stream)


class Authenticator(Protocol):
    """Authenticates connections of a client."""

    async def authenticate(self, connection: Connection, host: str) -> float:
        """Authenticate on a negotiated connection, for the first time or again (KIP-368).

        Returns:
            Lifetime of the session in milliseconds; 0: as long as the connection.

        Raises:
            AuthenticationError: the broker rejects the credentials, or did not prove its identity.
            KafkaError: the connection failed.
        """
        ...


def renewal_delay_ms(lifetime_ms: float, random: Callable[[], float]) -> float:
    """Return when to authenticate again: after 85 to 95 % of the lifetime, as Java's clients do."""
    return lifetime_ms * (0.85 + 0.1 * random())


def authentication_cause(error: BaseException | None) -> AuthenticationError | None:
    """Return the AuthenticationError among the causes of an error, or None.

    With TLS 1.3 a client learns only from its first read that the broker refused its certificate
    (docs/decisions/security.md).
    """
    seen: set[int] = set()  # an error raised from itself is its own cause
    while error is not None and id(error) not in seen:
        if isinstance(error, AuthenticationError):
            return error
        seen.add(id(error))
        error = error.__cause__
    return None
