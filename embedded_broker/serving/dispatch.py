"""From a request's frame to the handler that answers it, or to an interceptor in front of that handler.

Faults and request logs (``splashdam.testing``) are interceptors. A broker without one checks for it once for
each wake of a connection. With one, no request takes the fast path of Produce, each connection handles
one request at a time, and the interceptor decides what is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from splashdam.embedded_broker.execution.answers import (
    Account,
    Address,
    Answer,
    CloseConnectionError,
    Dispatched,
    Parked,
    encode_answer,
)
from splashdam.embedded_broker.serving.registry import (
    AskedBroker,
    Client,
    PlainHandler,
    RequestContext,
    guarded,
    registered_apis,
)
from splashdam.model.values import Buffer
from splashdam.wire.codec import ManyElementsError, decode
from splashdam.wire.fields import Part
from splashdam.wire.header import decode_request_header
from splashdam.wire.message import Request, Response

if TYPE_CHECKING:
    from splashdam.embedded_broker.security.authentication import SaslSession

_SOMEBODY = Client()

TURN_ELEMENTS = 4096
"""Most elements of a request that a turn of the loop decodes: 2 to 3 µs each."""

TURN_BYTES = 4 << 20
"""Larger requests are not decoded in a turn: their strings alone may take milliseconds."""


class LargeRequestError(Exception):
    """A request is too large to be decoded in a turn: ``do`` decodes it beside the loop (a ``Work``).

    Attributes:
        size_bytes: of the frame, whose memory must not be reused meanwhile.
    """

    def __init__(self, unpack: Callable[[], Request[Any]], size_bytes: int) -> None:
        super().__init__("a request is too large for one turn")
        self._unpack = unpack
        self.size_bytes = size_bytes

    def do(self, _max_bytes: int) -> Request[Any]:
        """Decode the request.

        Raises:
            ProtocolError: the bytes are not a legal request.
        """
        return self._unpack()


def dispatch(
    frame: Buffer,
    broker: AskedBroker,
    address: Address,
    session: SaslSession | None = None,
    client: Client | None = None,
    *,
    interceptor: Interceptor | None = None,
    is_heavy: bool = False,
    decoded: tuple[Request[Any], Account] | None = None,
) -> Dispatched:
    """Decode a request and call its handler.

    Args:
        frame: a request without its size.
        broker: handles the request.
        address: the address that the client has reached.
        session: the client's SASL session, if the listener uses SASL.
        client: at the other end of the connection.
        interceptor: is called instead of the handler, and may keep the frame.
        is_heavy: the request's work has been tried in this turn, and is too much for it.
        decoded: the result of a ``LargeRequestError``, and its cost.

    Raises:
        LargeRequestError: it is not decoded yet, and too large for a turn.
        ProtocolError: the bytes are not a legal request.
        CloseConnectionError: this broker does not serve the key or version, or the handler refuses to answer.
    """
    header, position = decode_request_header(frame)
    api = registered_apis().get(header.api_key)
    if api is None:
        raise CloseConnectionError(f"API key {header.api_key} is not served")
    if header.api_version not in api.versions:
        if api.unknown_version is None:
            raise CloseConnectionError(f"{api.request.NAME} v{header.api_version} is not served")
        # ApiVersions, in version 0: every client can read it, and learns which versions it may use (KIP-511).
        return Dispatched(api.unknown_version(), 0, header.correlation_id, None)
    # As Kafka, accept bytes behind the request: librdkafka's list_topics() leaves three there.
    unpack = partial(decode, api.request, frame, header.api_version, position=position, allow_trailing=True)
    client = client or _SOMEBODY
    if decoded is not None:
        request, account = decoded
    else:
        account = Account(client.requester, is_heavy=is_heavy)
        request = unpack() if interceptor is not None else _decoded(unpack, len(frame))
    context = RequestContext(broker, header.api_version, header.client_id, address, account, session, client)
    handler = api.handler
    if broker.authorizer is not None:
        handler = _guarded(handler)
    if interceptor is not None:
        arrived = Arrived(request, context, header.correlation_id, handler)
        answer: Answer = Parked(partial(interceptor.intercept, arrived))
    elif client.meter is None:
        answer = handler(request, context)
    else:
        client.meter.limit(request, header.client_id)
        began_ms = broker.clock.now_ms()
        answer = handler(request, context)
        account.spent_ms += broker.clock.now_ms() - began_ms
    return Dispatched(
        answer,
        header.api_version,
        header.correlation_id,
        request,
        header.client_id,
        len(frame),
        account,
    )


def _decoded(unpack: Callable[..., Request[Any]], size_bytes: int) -> Request[Any]:
    if size_bytes <= TURN_BYTES:
        with suppress(ManyElementsError):
            return unpack(most_elements=TURN_ELEMENTS)
    raise LargeRequestError(unpack, size_bytes)


def _guarded(handler: PlainHandler) -> PlainHandler:
    return lambda request, context: guarded(request, context, handler)


class SilencedError(Exception):
    """Raised by an interceptor: go on reading from this connection, and never answer again."""


@attrs.frozen
class Arrived:
    """A request on its way to its handler.

    Attributes:
        request: decoded; it may be kept.
        context: for the handler.
        correlation_id: of request and answer.
        handler: answers without an interceptor.
    """

    request: Request[Any]
    context: RequestContext
    correlation_id: int
    handler: Callable[[Any, RequestContext], Answer]

    async def handle(self, request: Request[Any] | None = None) -> Response | None:
        """Return the handler's answer, after waiting for it if need be; None without an answer (``acks=0``).

        Args:
            request: handled instead of ``request``.

        Raises:
            CloseConnectionError: the handler refuses to answer.
        """
        answer = self.handler(self.request if request is None else request, self.context)
        return await answer.wait() if isinstance(answer, Parked) else answer

    def encode(self, answer: Response) -> list[Part]:
        """Encode an answer to this request."""
        return encode_answer(answer, version=self.context.version, correlation_id=self.correlation_id)


class Interceptor(Protocol):
    """Decides about connections and answers. Its methods are called in the broker's loop."""

    def admits(self, node_id: int) -> bool:
        """Return whether a new connection is served; otherwise it is closed at once."""
        ...

    async def intercept(self, arrived: Arrived) -> Response | None:
        """Return the answer to a request; None: none is sent.

        Raises:
            CloseConnectionError: the connection is to be closed, perhaps behind some last bytes.
            SilencedError: this request and all that follow on its connection get no answer.
        """
        ...


class Watch(Protocol):
    """Is told what is answered, but for records that were taken. Called in the broker's loop."""

    def answered(self, client: Client, request: type[Request[Any]], answer: Response) -> None:
        """Note an answer, before it is encoded; it must not be kept."""
        ...


class Interception:
    """Holds the interceptor of one or several brokers, and the watchers of their answers.

    Attributes:
        interceptor: of requests, or None. It may be replaced at any time and from any thread, for requests
            that arrive later.
        watch: of answers, or None; may be replaced likewise.
    """

    __slots__ = ("interceptor", "watch")

    def __init__(self) -> None:
        self.interceptor: Interceptor | None = None
        self.watch: Watch | None = None
