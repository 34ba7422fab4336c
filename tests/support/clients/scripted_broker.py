"""A broker that does what a test tells it, at the other end of a stream in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import MockClock

from splashdam.net.connection.connection import Connection
from splashdam.net.memory import memory_stream_pair
from splashdam.testing.clock import VirtualClock
from splashdam.wire.framing import FrameDecoder
from splashdam.wire.header import RequestHeader, decode_request, encode_response
from splashdam.wire.message import Request, Response


class ScriptedBroker:
    """Receives requests one by one and answers as told."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._frames = FrameDecoder(100_000_000)
        self._waiting: list[memoryview] = []

    async def receive(self) -> tuple[RequestHeader, Request[Any]]:
        """The next request, whole."""
        return decode_request(await self.receive_frame())

    async def receive_frame(self) -> memoryview:
        """The next request's frame."""
        while not self._waiting:
            data = await self.stream.receive_some()
            if not data:
                raise EOFError("the client has closed the connection")
            self._waiting += self._frames.feed(data)
        return self._waiting.pop(0)

    async def answer(self, header: RequestHeader, response: Response, **changes: int) -> None:
        """Answers a request; ``changes`` may name another version or correlation id."""
        version = changes.get("version", header.api_version)
        correlation_id = changes.get("correlation_id", header.correlation_id)
        await self.send(*encode_response(response, version=version, correlation_id=correlation_id))

    async def send(self, *parts: Any) -> None:
        """Sends raw bytes."""
        await self.stream.send_all(b"".join(parts))


@asynccontextmanager
async def connected(
    mock_clock: MockClock, *, capacity_bytes: int = 1024 * 1024, **options: Any
) -> AsyncIterator[tuple[Connection, ScriptedBroker]]:
    """A running connection and the broker it talks to."""
    ours, theirs = memory_stream_pair(capacity_bytes)
    settings: dict[str, Any] = {
        "client_id": "test",
        "request_timeout_ms": 30_000,
        "max_in_flight_requests": 5,
        "peer": "the broker",
    }
    connection = Connection(ours, clock=VirtualClock(mock_clock), **(settings | options))
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run)
        yield connection, ScriptedBroker(theirs)
        await connection.aclose()
