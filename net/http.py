"""A small HTTP/1.1 server: the protocol without a socket, on h11, and a trio loop around it.

For pages and figures that a process shows about itself, not for the open internet: whole requests in memory,
small limits, no TLS. h11 is imported with the first connection.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import attrs
import trio

from splashdam.model.values import Buffer

if TYPE_CHECKING:
    import h11

_log = logging.getLogger(__name__)

Headers: TypeAlias = Iterable[tuple[str, str]]

_READ_BYTES = 64 * 1024
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 4 * 1024 * 1024


@attrs.frozen(kw_only=True)
class HttpLimits:
    """What one server takes from clients.

    Attributes:
        header_bytes: of the request line and all headers; more is answered with 431.
        body_bytes: of a body; more is answered with 413.
        request_seconds: for a whole request to arrive, from its first byte on; then 408.
        idle_seconds: for the next request of a connection to begin.
        write_seconds: for a client to take a piece of an answer.
        connections: open at the same time; another one is answered with 503.
    """

    header_bytes: int = 16 * 1024
    body_bytes: int = 1024 * 1024
    request_seconds: float = 10.0
    idle_seconds: float = 60.0
    write_seconds: float = 30.0
    connections: int = 64


@attrs.frozen(kw_only=True)
class HttpRequest:
    """A whole request.

    Attributes:
        method: in capital letters.
        path: as it was sent: percent signs are not decoded.
        query: what follows the question mark, likewise.
        headers: by names in small letters; several of one name are joined by commas, cookies by semicolons.
        body: all of it.
    """

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = attrs.field(factory=dict)
    body: bytes = b""


Send: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends a piece of a body; raises trio's ``BrokenResourceError`` once the client is gone."""


@attrs.frozen(kw_only=True)
class HttpAnswer:
    """An answer.

    Attributes:
        status: its code.
        headers: without ``Content-Length``, ``Transfer-Encoding`` and ``Connection``, which follow.
        body: all of it.
        stream: sends the body piece by piece instead, and returns at its end.
    """

    status: int = 200
    headers: Headers = ()
    body: bytes = b""
    stream: Callable[[Send], Awaitable[None]] | None = None


def text_answer(status: int, text: str = "", headers: Headers = ()) -> HttpAnswer:
    """Return an answer of plain text; without one it is the name of the status."""
    body = (text or f"{status} {HTTPStatus(status).phrase}") + "\n"
    return HttpAnswer(
        status=status, headers=[("Content-Type", "text/plain; charset=utf-8"), *headers], body=body.encode()
    )


class HttpRefusalError(Exception):
    """The bytes of a client are no request that is answered; the connection ends with this status.

    Attributes:
        status: to answer with.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"{status} {HTTPStatus(status).phrase}")
        self.status = status


class HttpConversation:
    """One connection as the server sees it: bytes in, requests out; answers in, bytes out.

    Args:
        limits: of the server.

    Attributes:
        is_head: the present request wants the headers alone.
    """

    def __init__(self, limits: HttpLimits) -> None:
        import h11

        self._h11 = h11
        self._limits = limits
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.header_bytes)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self.is_head = False

    @property
    def has_begun(self) -> bool:
        """Whether a part of a request has arrived that ``next_request`` has not returned."""
        return self._head is not None or bool(self._connection.trailing_data[0])

    def feed(self, data: bytes) -> None:
        """Take bytes of the client; none is the end of its stream.

        Raises:
            HttpRefusalError: the stream ends within a request.
        """
        try:
            self._connection.receive_data(data)
        except self._h11.RemoteProtocolError as error:
            raise HttpRefusalError(400) from error

    def next_request(self) -> HttpRequest | None:
        """Return a request, or None if more bytes are needed.

        Raises:
            HttpRefusalError: the bytes are no request, or it is too large.
            EOFError: the client has ended the connection between two requests.
        """
        h11 = self._h11
        while True:
            try:
                event = self._connection.next_event()
            except h11.RemoteProtocolError as error:
                raise HttpRefusalError(error.error_status_hint) from error
            if event is h11.NEED_DATA:
                return None
            if isinstance(event, h11.EndOfMessage):
                return self._whole()
            if isinstance(event, h11.Request):
                self._begin(event)
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > self._limits.body_bytes:
                    raise HttpRefusalError(413)
            else:  # the end of the connection
                self._ended()

    def _ended(self) -> NoReturn:
        raise EOFError

    def _begin(self, head: h11.Request) -> None:
        self._head = head
        # h11 limits what is not whole yet; a head that came in one piece may be longer.
        size = len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers)
        if size > self._limits.header_bytes:
            raise HttpRefusalError(431)
        for name, value in head.headers:
            if name == b"content-length" and int(value) > self._limits.body_bytes:
                raise HttpRefusalError(413)
            if name == b"expect" and value.lower() == b"100-continue":
                raise HttpRefusalError(417)

    def _whole(self) -> HttpRequest:
        head, self._head = self._head, None
        assert head is not None
        body, self._body = bytes(self._body), bytearray()
        self.is_head = head.method == b"HEAD"
        target = head.target.decode("latin-1")
        if not target.startswith("/"):
            raise HttpRefusalError(400)
        path, _, query = target.partition("?")
        headers: dict[str, str] = {}
        for raw_name, raw_value in head.headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            joint = "; " if name == "cookie" else ", "
            headers[name] = f"{headers[name]}{joint}{value}" if name in headers else value
        return HttpRequest(
            method=head.method.decode("latin-1"), path=path, query=query, headers=headers, body=body
        )

    def answer_head(self, answer: HttpAnswer, *, is_last: bool = False) -> bytes:
        """Return the bytes of an answer's status and headers.

        Args:
            answer: its length is known unless it is a stream.
            is_last: the connection ends behind it.
        """
        headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers]
        if answer.stream is None:
            headers.append((b"Content-Length", b"%d" % len(answer.body)))
        if is_last:
            headers.append((b"Connection", b"close"))
        reason = HTTPStatus(answer.status).phrase.encode()
        return self._sent(self._h11.Response(status_code=answer.status, headers=headers, reason=reason))

    def answer_piece(self, data: Buffer) -> bytes:
        """Return the bytes of a piece of the body; none for HEAD requests."""
        return b"" if self.is_head else self._sent(self._h11.Data(data=bytes(data)))

    def answer_end(self) -> bytes:
        """Return the bytes behind the body."""
        return self._sent(self._h11.EndOfMessage())

    def go_on(self) -> bool:
        """Begin the next request; return whether the connection may have one."""
        h11 = self._h11
        if self._connection.our_state is not h11.DONE or self._connection.their_state is not h11.DONE:
            return False
        self._connection.start_next_cycle()
        return True

    @property
    def can_answer(self) -> bool:
        """Whether an answer may still begin."""
        return self._connection.our_state in (self._h11.IDLE, self._h11.SEND_RESPONSE)

    def _sent(self, event: Any) -> bytes:
        return self._connection.send(event) or b""


Answering: TypeAlias = Callable[[HttpRequest], Awaitable[HttpAnswer]]


class HttpServer:
    """Answers the requests of connections; ``serve`` is for `trio.serve_listeners`.

    Args:
        answer: answers a request. What it raises is logged and answered with 500, without a detail.
        limits: of all connections.
    """

    def __init__(self, answer: Answering, limits: HttpLimits | None = None) -> None:
        self._answer = answer
        self._limits = limits or HttpLimits()
        self._open = 0

    async def serve(self, stream: trio.abc.HalfCloseableStream) -> None:
        """Serve a connection until it ends; whatever the client does, nothing is raised."""
        self._open += 1
        try:
            exchange = _Exchange(stream, HttpConversation(self._limits), self._limits)
            if self._open > self._limits.connections:
                await exchange.refuse(503)
            else:
                await self._converse(exchange)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            _log.debug("an HTTP client is gone")
        except Exception:
            _log.exception("an HTTP connection has failed")
        finally:
            self._open -= 1
            await trio.aclose_forcefully(stream)

    async def _converse(self, exchange: _Exchange) -> None:
        while True:
            try:
                request = await exchange.next_request()
            except HttpRefusalError as refusal:
                await exchange.refuse(refusal.status)
                return
            if request is None:
                return
            try:
                answer = await self._answer(request)
            except Exception:
                _log.exception("%s %r has failed", request.method, request.path[:200])
                answer = text_answer(500)
            if not await exchange.send(answer):
                return


class _Exchange:
    """The requests and answers of one connection, each within its time."""

    def __init__(
        self, stream: trio.abc.HalfCloseableStream, conversation: HttpConversation, limits: HttpLimits
    ) -> None:
        self._stream = stream
        self._conversation = conversation
        self._limits = limits

    async def next_request(self) -> HttpRequest | None:
        """Wait for a request; None: the client has ended the connection, or was idle.

        Raises:
            HttpRefusalError: what arrived is no request, or it took too long.
        """
        with trio.move_on_after(self._limits.idle_seconds):
            while not self._conversation.has_begun:
                if not await self._receive():
                    return None
        if not self._conversation.has_begun:
            return None
        with trio.move_on_after(self._limits.request_seconds):
            while True:
                try:
                    request = self._conversation.next_request()
                except EOFError:
                    return None
                if request is not None:
                    return request
                if not await self._receive():
                    raise HttpRefusalError(400)
        raise HttpRefusalError(408)

    async def _receive(self) -> bool:
        data = await self._stream.receive_some(_READ_BYTES)
        self._conversation.feed(bytes(data))
        return bool(data)

    async def send(self, answer: HttpAnswer) -> bool:
        """Send an answer; return whether the connection goes on."""
        conversation = self._conversation
        head = conversation.answer_head(answer)
        if answer.stream is None or conversation.is_head:
            await self._write(head + conversation.answer_piece(answer.body) + conversation.answer_end())
        else:
            await self._write(head)
            await answer.stream(self._send_piece)
            await self._write(conversation.answer_end())
        return conversation.go_on()

    async def _send_piece(self, data: bytes) -> None:
        await self._write(self._conversation.answer_piece(data))

    async def refuse(self, status: int) -> None:
        """Send the last answer, and give the client time to read it."""
        if not self._conversation.can_answer:
            return
        answer = text_answer(status)
        conversation = self._conversation
        await self._write(
            conversation.answer_head(answer, is_last=True)
            + conversation.answer_piece(answer.body)
            + conversation.answer_end()
        )
        await self._stream.send_eof()
        # A close with unread bytes resets the connection, and the client would lose the answer.
        left = _LINGER_BYTES
        with trio.move_on_after(_LINGER_SECONDS):
            while left > 0 and (data := await self._stream.receive_some(_READ_BYTES)):
                left -= len(data)

    async def _write(self, data: bytes) -> None:
        with trio.move_on_after(self._limits.write_seconds) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            raise trio.BrokenResourceError("the client does not read")
