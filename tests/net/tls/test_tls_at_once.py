"""TLS over sockets: small requests are written, and answers read, without a pass of the loop."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from support.security.security_kit import Pki

from splashdam.model.errors import SslAuthenticationError
from splashdam.net.connect import socket_pair, stream_of
from splashdam.net.connection.connection import authentication_cause
from splashdam.net.connection.streams import EagerReader, received_now, send_now, send_parts
from splashdam.net.tls.context import TlsFiles, client_context, server_context
from splashdam.net.tls.tls import TlsStream

NAMES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile", "ssl_password", "ssl_ciphers")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates for all of these tests."""
    return Pki(tmp_path_factory.mktemp("pki"))


@asynccontextmanager
async def connected(
    pki: Pki, *, room_bytes: int | None = None, client_auth: str = "none"
) -> AsyncIterator[tuple[TlsStream, TlsStream, socket.socket]]:
    """Both ends after the handshake, and the socket below the client's."""
    ours, theirs = socket_pair()
    if room_bytes is not None:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room_bytes)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room_bytes)
    trusted = TlsFiles(names=NAMES, cafile=pki.cafile)
    own = TlsFiles(names=NAMES, certfile=pki.broker, cafile=pki.cafile)
    context = client_context(trusted, check_hostname=True)
    client = TlsStream(stream_of(ours), context, "the broker", host="localhost")
    server = TlsStream(stream_of(theirs), server_context(own, client_auth=client_auth), "a client")
    async with client, server:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.shake_hands)
            if client_auth == "none":
                nursery.start_soon(server.shake_hands)
            else:
                nursery.start_soon(refusing, server)
        yield client, server, ours


async def refusing(server: TlsStream) -> None:
    with pytest.raises(SslAuthenticationError):
        await server.shake_hands()


async def read(stream: TlsStream, size_bytes: int) -> bytes:
    data = b""
    while len(data) < size_bytes:
        data += await stream.receive_some()
    return data


async def test_a_small_request_is_written_at_once(pki: Pki) -> None:
    """No task has run when the peer has it; the order is that of the calls."""
    async with connected(pki) as (client, server, _):
        assert send_now(client, [b"head", b"records"]) == 11
        assert send_now(client, [b"second"]) == 6
        assert received_now(server, 65_536) == b"headrecordssecond"
        assert received_now(server, 65_536) is None


async def test_a_large_request_goes_to_a_task(pki: Pki) -> None:
    """Its encryption takes longer than a pass of the loop."""
    async with connected(pki) as (client, _, _socket):
        assert send_now(client, [bytes(64 * 1024), b"x"]) == 0
        assert send_now(client, [b""]) == 0


@given(sizes=st.lists(st.lists(st.integers(1, 20_000), min_size=1, max_size=3), min_size=1, max_size=20))
def test_what_the_socket_takes_later_arrives_once(pki: Pki, sizes: list[list[int]]) -> None:
    """Requests that are encrypted already wait for `send_parts`, and are not encrypted again."""

    async def main() -> None:
        async with connected(pki, room_bytes=4096) as (client, server, _):
            requests = [[bytes([number]) * size for size in each] for number, each in enumerate(sizes)]
            whole = b"".join(part for request in requests for part in request)
            received: list[bytes] = []

            async def receive() -> None:
                received.append(await read(server, len(whole)))

            async with trio.open_nursery() as nursery:
                for number, request in enumerate(requests):
                    taken = send_now(client, request)
                    assert taken in (0, sum(map(len, request)))
                    if number == 0:
                        nursery.start_soon(receive)
                    if not taken:
                        await send_parts(client, request)
            assert received == [whole]

    trio.run(main)


async def test_a_full_socket_keeps_the_rest_of_a_request(pki: Pki) -> None:
    """The case above for certain: nobody reads, so some request does not fit."""
    async with connected(pki, room_bytes=4096) as (client, server, _):
        request = bytes(range(256)) * 100
        count = 1
        while send_now(client, [request]):
            count += 1
        assert send_now(client, [b"another"]) == 0  # not before the rest
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_parts, client, [request])
            assert await read(server, count * len(request)) == count * request


async def test_an_answer_is_read_in_place(pki: Pki) -> None:
    """By the eager reader and without waiting, also if half of its TLS record comes first."""
    async with connected(pki) as (client, server, ours):
        await server.send_all(b"answer")
        assert bytes(EagerReader(client).read()) == b"answer"
        await server.send_all(b"more")
        record = ours.recv(65_536)
        assert client.decrypted(record[:7]) == b""
        assert client.decrypted(record[7:]) == b"more"
        with trio.fail_after(60):
            await server.send_all(b"and the reader's task goes on")
            assert await client.receive_some() == b"and the reader's task goes on"


async def test_a_broker_that_only_reads_sends_no_session_tickets(pki: Pki) -> None:
    """A client with acks=0 that closed without reading had them unread in its socket: its system reset the
    connection, and requests on their way were lost. They go with the first answer now.
    """
    async with connected(pki) as (client, server, ours):
        received: list[bytes] = []

        async def receive() -> None:
            received.append(await server.receive_some())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await trio.testing.wait_all_tasks_blocked()
            ours.setblocking(False)
            with pytest.raises(BlockingIOError):
                ours.recv(1)
            await client.send_all(b"request")
        assert received == [b"request"]
        await server.send_all(b"answer")
        assert await client.receive_some() == b"answer"


async def test_half_a_record_is_not_the_end(pki: Pki) -> None:
    """Empty would mean the end of the stream to `received_now`'s callers."""
    async with connected(pki) as (client, server, ours):
        await server.send_all(b"answer")
        record = ours.recv(65_536)
        ours.setblocking(False)
        assert client.decrypted(record[:20]) == b""
        assert received_now(client, 65_536) is None
        assert client.decrypted(record[20:]) == b"answer"
        await server.aclose()
        assert received_now(client, 65_536) == b""
        assert await client.receive_some() == b""


@pytest.mark.parametrize("way", ["eager", "now", "waiting"])
async def test_a_refused_certificate_is_named_whoever_reads_it(pki: Pki, way: str) -> None:
    """With TLS 1.3 the alert comes after the handshake; a read in place must not lose its reason."""
    async with connected(pki, client_auth="required") as (client, _, _socket):
        if way == "eager":
            assert bytes(EagerReader(client).read()) == b""
        elif way == "now":
            assert received_now(client, 65_536) is None
        for attempt in (client.receive_some, lambda: send_parts(client, [b"x"]), client.receive_some):
            with pytest.raises(trio.BrokenResourceError, match="requires a client certificate") as caught:
                await attempt()
            assert isinstance(authentication_cause(caught.value), SslAuthenticationError)
        assert send_now(client, [b"x"]) == 0


async def test_a_cancelled_write_breaks_the_stream(pki: Pki) -> None:
    """Half a TLS record cannot be taken back, and the send that waits behind it must not write the next."""
    async with connected(pki, room_bytes=4096) as (client, _, _socket):
        outcomes: list[str] = []

        async def second() -> None:
            with pytest.raises(trio.BrokenResourceError, match="has failed before"):
                await client.send_all(b"behind it")
            outcomes.append("refused")

        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                nursery.start_soon(second)
                nursery.start_soon(cancel_when_blocked, scope)
                await client.send_all(bytes(1_000_000))
        assert scope.cancelled_caught
        assert outcomes == ["refused"]
        assert send_now(client, [b"x"]) == 0


async def cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_renegotiation_is_refused_in_plain_words(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text was OpenSSL's "the operation did not complete (read)"."""

    class Renegotiating:
        def write(self, data: bytes) -> int:
            error = ssl.SSLWantReadError("the operation did not complete (read)")
            error.reason = ""  # as OpenSSL's errors have it
            raise error

    async with connected(pki) as (client, _, _socket):
        monkeypatch.setattr(client, "_tls", Renegotiating())
        assert send_now(client, [b"x"]) == 0
        with pytest.raises(trio.BrokenResourceError, match="asks for a renegotiation"):
            await send_parts(client, [b"x"])


async def test_a_closed_stream_says_so(pki: Pki) -> None:
    """Closed here is another error than broken."""
    async with connected(pki) as (client, _, _socket):
        await client.aclose()
        assert send_now(client, [b"x"]) == 0
        with pytest.raises(trio.ClosedResourceError):
            await send_parts(client, [b"x"])
        with pytest.raises(trio.ClosedResourceError):
            await client.receive_some()


async def test_a_reader_goes_on_while_a_request_waits_for_room(pki: Pki) -> None:
    """A broker that waits until its answer is taken reads no request: to write one first would never end."""
    async with connected(pki, room_bytes=4096) as (client, server, _), trio.open_nursery() as nursery:
        nursery.start_soon(server.send_all, bytes(1_000_000))
        while send_now(client, [bytes(10_000)]):
            pass
        with trio.fail_after(60):
            assert len(await read(client, 1_000_000)) == 1_000_000
        nursery.cancel_scope.cancel()


async def test_an_error_read_in_place_wakes_the_reader(pki: Pki) -> None:
    """The bytes that the reader's task waits for are gone, and the peer may keep the connection open."""
    async with connected(pki) as (client, server, ours), trio.open_nursery() as nursery:
        nursery.start_soon(receive_broken, client)
        await trio.testing.wait_all_tasks_blocked()
        await server.send_all(b"answer")
        record = bytearray(ours.recv(65_536))
        record[-1] ^= 1
        assert client.decrypted(record) == b""


async def receive_broken(stream: TlsStream) -> None:
    with trio.fail_after(60), pytest.raises(trio.BrokenResourceError, match="bad record mac"):
        await stream.receive_some()


async def test_an_end_read_in_place_wakes_the_reader(pki: Pki) -> None:
    """A closing alert need not be followed by the end of the stream below."""
    ours, theirs = socket_pair()
    trusted = TlsFiles(names=NAMES, cafile=pki.cafile)
    own = server_context(TlsFiles(names=NAMES, certfile=pki.broker), client_auth="none")
    client = TlsStream(stream_of(ours), client_context(trusted, check_hostname=True), "it", host="localhost")
    server = trio.SSLStream(stream_of(theirs), own, server_side=True)
    async with client, server, trio.open_nursery() as nursery:
        nursery.start_soon(server.do_handshake)
        await client.shake_hands()
        await server.send_all(b"answer")
        assert await client.receive_some() == b"answer"
        nursery.start_soon(server.unwrap)  # it waits for the client's alert, too
        await trio.testing.wait_all_tasks_blocked()
        alert = ours.recv(65_536)
        async with trio.open_nursery() as reading:
            reading.start_soon(receive_end, client)
            await trio.testing.wait_all_tasks_blocked()
            assert client.decrypted(alert) == b""
        nursery.cancel_scope.cancel()


async def receive_end(stream: TlsStream) -> None:
    with trio.fail_after(60):
        assert await stream.receive_some() == b""


async def test_bytes_that_are_there_give_others_their_turn(pki: Pki) -> None:
    """The broker begins a new turn after each read, because other tasks have run meanwhile."""
    async with connected(pki) as (client, server, _):
        await server.send_all(bytes(48 * 1024))
        assert await client.receive_some() == bytes(16 * 1024)
        for _ in range(2):
            with trio.testing.assert_checkpoints():
                assert await client.receive_some() == bytes(16 * 1024)


async def test_a_handshake_cancelled_while_it_sends_its_alert_closes_the_stream(pki: Pki) -> None:
    """The socket stayed open until it was collected."""
    ours, theirs = trio.testing.memory_stream_pair()
    trusted = TlsFiles(names=NAMES, cafile=pki.cafile)
    client = TlsStream(ours, client_context(trusted, check_hostname=True), "the broker", host="localhost")

    async def refuse_second() -> None:
        ours.send_stream.send_all_hook = trio.sleep_forever

    ours.send_stream.send_all_hook = refuse_second
    await theirs.send_all(b"\x16\x03\x03\x00\x04\x63\x00\x00\x00")  # a message of an unknown type
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_when_blocked, nursery.cancel_scope)
        await client.shake_hands()
    ours.send_stream.send_all_hook = None
    with pytest.raises(trio.ClosedResourceError):
        await ours.send_all(b"x")
