"""The small HTTP server: whole requests, small limits, and bytes that nobody should send."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from splashdam.net.http import (
    HttpAnswer,
    HttpConversation,
    HttpLimits,
    HttpRefusalError,
    HttpRequest,
    HttpServer,
    Send,
    text_answer,
)
from splashdam.net.memory import MemoryStream, memory_stream_pair

LIMITS = HttpLimits(header_bytes=2000, body_bytes=100, connections=2)


async def echo(request: HttpRequest) -> HttpAnswer:
    """Answers with what it was asked."""
    if request.path == "/fails":
        raise RuntimeError("the secret reason")
    if request.path == "/stream":
        return HttpAnswer(stream=pieces)
    return text_answer(200, f"{request.method} {request.path}?{request.query} {request.body!r}")


async def pieces(send: Send) -> None:
    for number in range(3):
        await send(b"piece %d\n" % number)
        await trio.sleep(1)


@asynccontextmanager
async def connected(server: HttpServer | None = None) -> AsyncIterator[MemoryStream]:
    """A client's end of a connection to a server."""
    ours, theirs = memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon((server or HttpServer(echo, LIMITS)).serve, theirs)
        yield ours
        await ours.aclose()


async def said(stream: MemoryStream) -> str:
    """All until the server ends the connection."""
    found = b""
    while data := await stream.receive_some():
        found += data
    return found.decode()


async def answer_to(data: bytes) -> str:
    async with connected() as stream:
        await stream.send_all(data)
        return await said(stream)


GET = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def test_a_request_is_answered() -> None:
    """With its length, and nothing behind it."""
    text = await answer_to(GET)
    assert text.startswith("HTTP/1.1 200 OK\r\n")
    assert text.endswith("\r\n\r\nGET /a?b=c b''\n")


async def test_requests_of_a_connection_are_answered_in_order() -> None:
    """Also if they were sent ahead."""
    ahead = b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(3))
    text = await answer_to(ahead + GET)
    places = [text.index(f"GET {path}") for path in ("/0", "/1", "/2", "/a")]
    assert places == sorted(places)


async def test_a_body_arrives_whole() -> None:
    """In pieces of a byte, too."""
    request = b"POST /p HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
    async with connected() as stream:
        for number in range(len(request)):
            await stream.send_all(request[number : number + 1])
        assert "POST /p? b'hello'" in await said(stream)


async def test_head_is_answered_without_a_body() -> None:
    """With the headers that GET would have."""
    text = await answer_to(GET.replace(b"GET", b"HEAD", 1))
    assert "Content-Length: 16" in text
    assert text.endswith("\r\n\r\n")


async def test_a_stream_is_sent_piece_by_piece(autojump_clock: MockClock) -> None:
    """In chunks; the client has the first before there is a second."""
    async with connected() as stream:
        await stream.send_all(GET.replace(b"/a", b"/stream", 1))
        first = b""
        while b"piece 0" not in first:
            first += await stream.receive_some()
        assert b"piece 1" not in first
        assert (await said(stream)).endswith("0\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101, 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n", 417),
        (b"GET /" + b"x" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 400 + b"\r\n", 431),
    ],
)
async def test_what_is_no_request_is_refused(data: bytes, status: int, autojump_clock: MockClock) -> None:
    """With the status alone, and the connection ends."""
    text = await answer_to(data)
    assert text.startswith(f"HTTP/1.1 {status} ")
    assert "onnection: close" in text


async def test_a_failure_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The reason is in the log alone."""
    text = await answer_to(GET.replace(b"/a", b"/fails", 1))
    assert text.startswith("HTTP/1.1 500 ")
    assert "secret" not in text
    assert "the secret reason" in caplog.text


async def test_a_slow_request_is_refused(autojump_clock: MockClock) -> None:
    """However often a byte of it comes."""
    async with connected() as stream:
        for _ in range(16):
            await stream.send_all(b"G")
            await trio.sleep(0.6)
        assert (await said(stream)).startswith("HTTP/1.1 408 ")


async def test_an_idle_connection_is_ended(autojump_clock: MockClock) -> None:
    """Without a word."""
    async with connected() as stream:
        assert await said(stream) == ""
    assert trio.current_time() >= LIMITS.idle_seconds


async def test_connections_are_limited(autojump_clock: MockClock) -> None:
    """One more is told so; when another has ended there is room again."""
    server = HttpServer(echo, LIMITS)
    async with connected(server), connected(server):
        await wait_all_tasks_blocked()
        async with connected(server) as third:
            assert (await said(third)).startswith("HTTP/1.1 503 ")
    async with connected(server) as again:
        await again.send_all(GET)
        assert "200 OK" in await said(again)


async def test_a_client_that_does_not_read_is_dropped(autojump_clock: MockClock) -> None:
    """A stream that is never read would be kept for ever."""

    async def endless(send: Send) -> None:
        while True:
            await send(b"x" * 65536)

    async def answer(_request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(stream=endless)

    async with connected(HttpServer(answer, LIMITS)) as stream:
        await stream.send_all(GET)
        await trio.sleep(LIMITS.write_seconds + 1)
        await said(stream)  # it ends


def test_bytes_in_requests_out() -> None:
    """The protocol has no socket and no loop."""
    conversation = HttpConversation(LIMITS)
    conversation.feed(b"GET /a HTTP/1.1\r\nHost: x\r\nCookie: a=1\r\nCookie: b=2\r\nX: 1\r\nX: 2\r\n")
    assert conversation.next_request() is None
    conversation.feed(b"\r\n")
    request = conversation.next_request()
    assert request is not None
    assert request.headers == {"host": "x", "cookie": "a=1; b=2", "x": "1, 2"}
    conversation.feed(b"")
    with pytest.raises(EOFError):
        conversation.next_request()


def test_the_end_within_a_request_is_a_refusal() -> None:
    """The rest does not come."""
    conversation = HttpConversation(LIMITS)
    conversation.feed(b"GET /a HTTP/1.1\r\nHost")
    assert conversation.next_request() is None
    conversation.feed(b"")
    with pytest.raises(HttpRefusalError, match="400"):
        conversation.next_request()
