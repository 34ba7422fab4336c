"""Answers that are taken as soon as they come, before the reader's task has run."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from splashdam.model.broker_errors import NetworkExceptionError
from splashdam.model.errors import KafkaError, ProtocolError
from splashdam.net.clock import SystemClock
from splashdam.net.connect import socket_pair, stream_of
from splashdam.net.connection.connection import Connection
from splashdam.net.connection.in_flight import PendingResponse
from splashdam.net.connection.streams import EagerReader
from splashdam.net.memory import memory_stream_pair
from splashdam.wire.header import encode_response
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

Results = list[FindCoordinatorResponse | KafkaError]


@asynccontextmanager
async def asking() -> AsyncIterator[tuple[Connection, socket.socket, Results]]:
    """A connection with one request under way, the other end, and what the callback was told."""
    ours, theirs = socket_pair()
    results: Results = []

    def told(pending: PendingResponse[FindCoordinatorResponse]) -> None:
        results.append(pending.error or pending.result())

    connection = Connection(
        stream_of(ours),
        clock=SystemClock(),
        client_id=None,
        request_timeout_ms=30_000,
        max_in_flight_requests=5,
        peer="node 1",
    )
    with theirs:
        async with trio.open_nursery() as nursery:
            await nursery.start(connection.run)
            connection.submit_now(FindCoordinatorRequest(key="key"), 2, told)
            yield connection, theirs, results
            await connection.aclose()


def answer(correlation_id: int) -> bytes:
    """One to the request of `asking`, if the id is right."""
    response = FindCoordinatorResponse(host="here")
    return b"".join(map(bytes, encode_response(response, version=2, correlation_id=correlation_id)))


async def test_an_answer_that_is_there() -> None:
    """It is handled in the call, and the reader goes on with the next."""
    async with asking() as (connection, theirs, results):
        theirs.sendall(answer(1))
        connection.read_eagerly()
        assert [each.host for each in results if isinstance(each, FindCoordinatorResponse)] == ["here"]
        assert connection.in_flight == 0
        pending = await connection.submit(FindCoordinatorRequest(key="key"), 2)
        theirs.sendall(answer(2))
        assert (await pending.wait()).host == "here"


async def test_half_an_answer() -> None:
    """The rest is the reader's."""
    async with asking() as (connection, theirs, results):
        pending = await connection.submit(FindCoordinatorRequest(key="key"), 2)
        theirs.sendall(answer(1)[:9])
        connection.read_eagerly()
        assert not results
        theirs.sendall(answer(1)[9:] + answer(2))
        assert (await pending.wait()).host == "here"
        assert len(results) == 1


async def test_no_answer_yet() -> None:
    """Nothing happens."""
    async with asking() as (connection, _, results):
        connection.read_eagerly()
        assert not results
        assert not connection.is_closed


async def test_an_answer_to_something_else() -> None:
    """It closes the connection, as where the reader meets it."""
    async with asking() as (connection, theirs, results):
        theirs.sendall(answer(7))
        connection.read_eagerly()
        assert isinstance(connection.closed_by, ProtocolError)
        assert [type(each) for each in results] == [ProtocolError]
        connection.read_eagerly()


async def test_the_end_is_seen_by_the_reader() -> None:
    """Looking out tells nobody."""
    async with asking() as (connection, theirs, results):
        pending = await connection.submit(FindCoordinatorRequest(key="key"), 2)
        theirs.close()
        connection.read_eagerly()
        assert not connection.is_closed
        try:
            await pending.wait()
        except NetworkExceptionError:
            assert connection.is_closed
        assert [type(each) for each in results] == [NetworkExceptionError]


async def test_streams_that_cannot() -> None:
    """In memory nothing comes at once, and a closed socket has nothing."""
    ours, theirs = memory_stream_pair()
    await theirs.send_all(b"x")
    assert not EagerReader(ours).read()
    pair = socket_pair()
    with pair[1]:
        stream = stream_of(pair[0])
        await stream.aclose()
        assert not EagerReader(stream).read()
