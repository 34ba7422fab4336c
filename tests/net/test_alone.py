"""Requests that no other may come between, as those of authentication."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from splashdam.net.connection.connection import Connection
from splashdam.net.memory import memory_stream_pair
from splashdam.testing.clock import VirtualClock
from splashdam.wire.framing import FrameDecoder
from splashdam.wire.header import decode_request, encode_response
from splashdam.wire.messages.metadata import MetadataRequest, MetadataResponse
from splashdam.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def test_others_wait_and_those_in_flight_are_answered(autojump_clock: MockClock) -> None:
    """One before, two alone, one after: in this order, and meanwhile there is no room."""
    ours, theirs = memory_stream_pair()
    order: list[str] = []

    async def serve() -> None:
        frames = FrameDecoder(1_000_000)
        while data := await theirs.receive_some():
            for frame in frames.feed(data):
                header, request = decode_request(frame)
                order.append(type(request).NAME)
                await trio.sleep(1)
                answer = SaslHandshakeResponse() if header.api_key == 17 else MetadataResponse()
                parts = encode_response(
                    answer, version=header.api_version, correlation_id=header.correlation_id
                )
                await theirs.send_all(b"".join(parts))  # type: ignore[arg-type]  # no slices of files

    connection = Connection(
        ours,
        clock=VirtualClock(autojump_clock),
        client_id="c",
        request_timeout_ms=30_000,
        max_in_flight_requests=5,
        peer="a broker",
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await nursery.start(connection.run)
        before = await connection.submit(MetadataRequest(), 9)
        async with connection.alone() as ask:
            nursery.start_soon(connection.request, MetadataRequest(), 9)
            await trio.testing.wait_all_tasks_blocked()
            assert not connection.can_send
            for _ in range(2):
                assert (await ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)).error_code == 0
        assert before.done()
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert order == ["MetadataRequest", "SaslHandshakeRequest", "SaslHandshakeRequest", "MetadataRequest"]
