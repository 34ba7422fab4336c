"""The connection: pipelining, limits, timeouts, throttling, and everything that closes it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from unittest.mock import patch

import pytest
import trio
from support.broker.loop_watch import Passes
from support.clients.scripted_broker import ScriptedBroker, connected
from trio.testing import MockClock, wait_all_tasks_blocked

from splashdam.model.broker_errors import NetworkExceptionError, RequestTimedOutError
from splashdam.model.errors import IllegalStateError, ProtocolError
from splashdam.net.connection.connection import Connection
from splashdam.net.connection.in_flight import PendingResponse
from splashdam.net.connection.streams import received_now
from splashdam.net.memory import memory_stream_pair
from splashdam.testing.clock import VirtualClock
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from splashdam.wire.messages.metadata import MetadataRequest, MetadataResponse
from splashdam.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


def now_ms() -> float:
    """Virtual milliseconds since the test began."""
    return trio.current_time() * 1000


def ask(key: str = "key") -> FindCoordinatorRequest:
    """A small request that can be told from others."""
    return FindCoordinatorRequest(key=key)


def batch(size: int) -> ProduceRequest:
    """A request of about ``size`` bytes."""
    data = PartitionProduceData(records=bytes(size))
    return ProduceRequest(topic_data=[TopicProduceData(partition_data=[data])])


async def echo(broker: ScriptedBroker) -> str:
    """Answers one request with its key as host, and returns that."""
    header, request = await broker.receive()
    assert isinstance(request, FindCoordinatorRequest)
    await broker.answer(header, FindCoordinatorResponse(host=request.key))
    return request.key


async def test_a_request_is_answered(autojump_clock: MockClock) -> None:
    """The header carries key, version and client id; the answer is decoded in that version."""
    async with connected(autojump_clock) as (connection, broker):
        pending = await connection.submit(ask("k"), 3)
        header, request = await broker.receive()
        assert (header.api_key, header.api_version, header.client_id) == (10, 3, "test")
        assert request == ask("k")
        assert not pending.done()
        await broker.answer(header, FindCoordinatorResponse(host="there"))
        assert (await pending.wait()).host == "there"
        assert pending.done()
        assert pending.version == 3


async def test_requests_are_pipelined(autojump_clock: MockClock) -> None:
    """Several are on their way at once, and answers find their requests."""
    async with connected(autojump_clock) as (connection, broker):
        waiting = [await connection.submit(ask(str(number)), 2) for number in range(5)]
        assert connection.in_flight == 5
        assert not connection.can_send
        for _ in waiting:
            await echo(broker)
        assert [(await each.wait()).host for each in waiting] == list("01234")
        assert connection.in_flight == 0
        assert connection.can_send


async def test_the_connection_listened_before_the_next_request_was_sent(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker had nothing to do meanwhile. Now a request is in flight then, unless it was the last one."""
    in_flight: list[int] = []
    async with connected(autojump_clock) as (connection, broker), trio.open_nursery() as nursery:
        receive = connection._receive

        def noted(most_bytes: int) -> Awaitable[bytes | bytearray]:
            in_flight.append(connection.in_flight)
            return receive(most_bytes)

        monkeypatch.setattr(connection, "_receive", noted)

        async def ask_one_by_one() -> None:
            for number in range(20):
                answered = trio.Event()
                connection.submit_now(ask(str(number)), 2, lambda _, answered=answered: answered.set())
                await answered.wait()

        nursery.start_soon(ask_one_by_one)
        for number in range(20):
            assert await echo(broker) == str(number)
        await wait_all_tasks_blocked()
    assert in_flight == [1] * 19 + [0]


async def test_a_connection_without_further_requests_listens_after_two_passes(
    autojump_clock: MockClock,
) -> None:
    """And with other requests in flight at once."""
    async with connected(autojump_clock) as (connection, broker):
        passes = Passes()
        trio.lowlevel.add_instrument(passes)
        assert await connection._after_last_answer() is None
        trio.lowlevel.remove_instrument(passes)
        assert passes.count == 2
        waiting = [await connection.submit(ask(str(number)), 2) for number in range(2)]
        await wait_all_tasks_blocked()
        with patch.object(connection, "_after_last_answer", wraps=connection._after_last_answer) as called:
            for number, pending in enumerate(waiting):
                await echo(broker)
                await pending.wait()
                assert called.call_count == number


async def test_an_answer_that_has_come_meanwhile_is_read_at_once(autojump_clock: MockClock) -> None:
    """In a loop with other tasks to listen for it first took another pass."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, await trio.open_tcp_stream(*listener.socket.getsockname()[:2]) as ours:
        async with await listener.accept() as theirs:
            assert received_now(ours, 10) is None
            await theirs.send_all(b"here")
            await trio.lowlevel.wait_readable(ours.socket)
            assert received_now(ours, 3) == b"her"
            assert received_now(ours, 10) == b"e"
            await theirs.aclose()
            await trio.lowlevel.wait_readable(ours.socket)
            assert received_now(ours, 10) == b""
        await ours.aclose()
        assert received_now(ours, 10) is None
    assert received_now(memory_stream_pair()[0], 10) is None


async def test_the_limit_in_flight_holds_back(autojump_clock: MockClock) -> None:
    """One request more has to wait for a response; waiting requests are sent in order."""
    async with (
        connected(autojump_clock, max_in_flight_requests=2) as (connection, broker),
        trio.open_nursery() as nursery,
    ):
        for key in "abcd":
            nursery.start_soon(connection.request, ask(key), 2)
            await wait_all_tasks_blocked()
        assert connection.in_flight == 2
        assert [await echo(broker) for _ in "abcd"] == list("abcd")


async def closes_with(connection: Connection, waiting: list[PendingResponse[Any]]) -> list[type[Exception]]:
    """What each pending request fails with."""
    kinds: list[type[Exception]] = []
    for each in waiting:
        with pytest.raises((NetworkExceptionError, ProtocolError, RequestTimedOutError)) as caught:
            await each.wait()
        kinds.append(caught.type)
    assert connection.is_closed
    assert connection.in_flight == 0
    assert not connection.can_send
    return kinds


async def test_a_wrong_correlation_id_closes(autojump_clock: MockClock) -> None:
    """The request whose turn it was learns of the violation; the others lost their connection."""
    async with connected(autojump_clock) as (connection, broker):
        waiting = [await connection.submit(ask(), 2) for _ in range(3)]
        await broker.receive()
        header, _ = await broker.receive()
        await broker.answer(header, FindCoordinatorResponse())
        kinds = await closes_with(connection, waiting)
        assert kinds == [ProtocolError, NetworkExceptionError, NetworkExceptionError]
        assert isinstance(connection.closed_by, ProtocolError)
        assert "sent correlation id 2 instead of FindCoordinatorRequest v2" in str(connection.closed_by)


async def test_an_answer_nobody_asked_for_closes(autojump_clock: MockClock) -> None:
    """It proves that both sides no longer agree."""
    async with connected(autojump_clock) as (connection, broker):
        await broker.send(b"\0\0\0\4\0\0\0\7")
        await wait_all_tasks_blocked()
        assert isinstance(connection.closed_by, ProtocolError)
        assert "the broker sent correlation id 7, but no request is in flight" in str(connection.closed_by)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"\0\0\0\6\0\0\0\1\0\0", "FindCoordinatorResponse v2: .* at byte "),
        (b"\x7f\0\0\0", "above the limit of 1000 bytes"),
        (b"\xff\xff\xff\xff", "frame size -1 is negative"),
        (b"\0\0\0\2\0\0", "frame size 2 is too small"),
    ],
)
async def test_an_illegal_answer_closes(autojump_clock: MockClock, raw: bytes, reason: str) -> None:
    """A damaged body, and sizes that are negative or too large."""
    async with connected(autojump_clock, max_response_bytes=1000) as (connection, broker):
        pending = await connection.submit(ask(), 2)
        await broker.send(raw)
        with pytest.raises(ProtocolError, match=reason):
            await pending.wait()
        assert connection.is_closed


async def test_bytes_behind_an_answer(autojump_clock: MockClock) -> None:
    """They are ignored: the frame says where the answer ends."""
    async with connected(autojump_clock) as (connection, broker):
        pending = await connection.submit(FindCoordinatorRequest(coordinator_keys=["k"]), 4)
        await broker.send(b"\0\0\0\x0c\0\0\0\1\0" + b"\0\0\0\0\1\0" + b"\0")
        assert await pending.wait() == FindCoordinatorResponse()


async def test_a_late_answer_closes(autojump_clock: MockClock) -> None:
    """The late request times out when its time is over; the others lose their connection with it."""
    async with connected(autojump_clock, request_timeout_ms=1000) as (connection, _):
        patient = await connection.submit(ask(), 2, timeout_ms=5000)
        late = await connection.submit(ask(), 2)
        start_ms = now_ms()
        kinds = await closes_with(connection, [late, patient])
        assert kinds == [RequestTimedOutError, NetworkExceptionError]
        assert now_ms() - start_ms == pytest.approx(1000, abs=1)
        assert isinstance(connection.closed_by, RequestTimedOutError)
        assert "the broker did not answer FindCoordinatorRequest v2 (correlation id 2) within 1000 ms" in str(
            connection.closed_by
        )


async def test_timeouts_count_from_each_request(autojump_clock: MockClock) -> None:
    """An answer in time moves the deadline to the next request's."""
    async with connected(autojump_clock, request_timeout_ms=1000) as (connection, broker):
        for _ in range(4):
            pending = await connection.submit(ask(), 2)
            await trio.sleep(0.9)
            await echo(broker)
            await pending.wait()
        await trio.sleep(10)
        assert not connection.is_closed


async def test_a_peer_that_does_not_read(autojump_clock: MockClock) -> None:
    """A write that does not end in time is a timeout like any other."""
    async with connected(autojump_clock, capacity_bytes=1000, request_timeout_ms=1000) as (connection, _):
        assert connection.can_send
        with pytest.raises(RequestTimedOutError):
            await connection.submit(batch(200_000), 9)
        assert connection.is_closed
        assert now_ms() == pytest.approx(1000, abs=1)


async def test_a_peer_that_does_not_read_without_answers(autojump_clock: MockClock) -> None:
    """Likewise where no answer is expected."""
    async with connected(autojump_clock, capacity_bytes=1000) as (connection, _):
        with pytest.raises(RequestTimedOutError):
            await connection.submit(batch(5000), 9, timeout_ms=700, expect_response=False)
        assert isinstance(connection.closed_by, RequestTimedOutError)
        assert now_ms() == pytest.approx(700, abs=1)


async def test_a_cancelled_write_closes(autojump_clock: MockClock) -> None:
    """Half a frame cannot be taken back; requests before it fail too."""
    async with connected(autojump_clock, capacity_bytes=1000) as (connection, _):
        before = await connection.submit(ask(), 2)
        with trio.move_on_after(0.1) as scope:
            await connection.submit(batch(5000), 9)
        assert scope.cancelled_caught
        with pytest.raises(NetworkExceptionError, match="was interrupted"):
            await before.wait()
        assert connection.is_closed


async def test_a_cancelled_wait_closes_nothing(autojump_clock: MockClock) -> None:
    """The answer is dropped when it comes, and the next request finds its own."""
    async with connected(autojump_clock) as (connection, broker):
        with trio.move_on_after(0.1):
            await connection.request(ask("dropped"), 2)
        assert connection.in_flight == 1
        await echo(broker)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo, broker)
            assert (await connection.request(ask("mine"), 2)).host == "mine"


async def test_a_cancelled_turn_closes_nothing(autojump_clock: MockClock) -> None:
    """A request that is cancelled before it is written changes nothing."""
    async with connected(autojump_clock, max_in_flight_requests=1) as (connection, broker):
        first = await connection.submit(ask("first"), 2)
        with trio.move_on_after(0.1):
            await connection.submit(ask("gives up"), 2)
        await echo(broker)
        await first.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo, broker)
            assert (await connection.request(ask("next"), 2)).host == "next"


async def test_the_peer_closes(autojump_clock: MockClock) -> None:
    """Requests on their way may have been carried out: a network exception, which says so."""
    async with connected(autojump_clock) as (connection, broker):
        pending = await connection.submit(ask(), 2)
        await broker.stream.aclose()
        with pytest.raises(NetworkExceptionError, match="the broker closed it"):
            await pending.wait()
        assert isinstance(connection.closed_by, NetworkExceptionError)
        with pytest.raises(NetworkExceptionError, match="the connection is closed"):
            await connection.submit(ask(), 2)


async def test_the_peer_closes_during_a_write(autojump_clock: MockClock) -> None:
    """The writer's next call raises the error."""
    async with connected(autojump_clock, capacity_bytes=1000) as (connection, broker):
        async with trio.open_nursery() as nursery:

            async def write() -> None:
                with pytest.raises(NetworkExceptionError):
                    await connection.submit(batch(5000), 9)

            nursery.start_soon(write)
            await wait_all_tasks_blocked()
            await broker.stream.aclose()
        assert connection.is_closed


async def test_aclose_fails_what_waits(autojump_clock: MockClock) -> None:
    """Closing is ours, so there is no reason; what was on its way has no answer all the same."""
    async with connected(autojump_clock, max_in_flight_requests=1) as (connection, _):
        pending = await connection.submit(ask(), 2)
        async with trio.open_nursery() as nursery:

            async def wait_for_room() -> None:
                with pytest.raises(NetworkExceptionError):
                    await connection.submit(ask(), 2)

            nursery.start_soon(wait_for_room)
            await wait_all_tasks_blocked()
            await connection.aclose()
        with pytest.raises(NetworkExceptionError):
            await pending.wait()
        assert connection.closed_by is None
        await connection.aclose()


async def test_a_cancelled_run_closes(autojump_clock: MockClock) -> None:
    """The end of the owner's nursery is the end of the connection."""
    ours, theirs = memory_stream_pair()
    connection = Connection(
        ours,
        clock=VirtualClock(autojump_clock),
        client_id=None,
        request_timeout_ms=1000,
        max_in_flight_requests=1,
        peer="x",
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run)
        pending = await connection.submit(ask(), 2)
        nursery.cancel_scope.cancel()
    with pytest.raises(NetworkExceptionError):
        await pending.wait()
    broker = ScriptedBroker(theirs)
    assert (await broker.receive())[0].client_id is None
    with pytest.raises(EOFError):
        await broker.receive()


async def test_submit_before_run(autojump_clock: MockClock) -> None:
    """Nobody would read the answer."""
    ours, _ = memory_stream_pair()
    connection = Connection(
        ours,
        clock=VirtualClock(autojump_clock),
        client_id=None,
        request_timeout_ms=1000,
        max_in_flight_requests=1,
        peer="x",
    )
    with pytest.raises(IllegalStateError, match="connection to x that is NEW cannot SUBMIT"):
        await connection.submit(ask(), 2)
    await connection.aclose()
    with pytest.raises(IllegalStateError, match="connection to x that is CLOSED cannot RUN"):
        await connection.run()


async def test_a_request_that_does_not_fit_its_version(autojump_clock: MockClock) -> None:
    """Nothing was written, so the connection stays."""
    async with connected(autojump_clock) as (connection, broker):
        with pytest.raises(ProtocolError, match="coordinator_keys: version 2 has no such field"):
            await connection.submit(FindCoordinatorRequest(coordinator_keys=["a", "b"]), 2)
        assert connection.in_flight == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(echo, broker)
            assert (await connection.request(ask("next"), 2)).host == "next"


async def test_no_answer_expected(autojump_clock: MockClock) -> None:
    """With acks=0 nothing is in flight once it is written, and waiting for it is a mistake."""
    async with connected(autojump_clock, max_in_flight_requests=1) as (connection, broker):
        for _ in range(3):
            pending = await connection.submit(batch(10), 9, expect_response=False)
        assert connection.in_flight == 0
        with pytest.raises(IllegalStateError, match=r"ProduceRequest v9 .* has no response"):
            await pending.wait()
        for _ in range(3):
            assert (await broker.receive())[1] == batch(10)


async def test_large_records_are_sent_whole(autojump_clock: MockClock) -> None:
    """Parts arrive in order."""
    async with connected(autojump_clock) as (connection, broker):
        message = batch(100_000)
        message.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=b"small"))
        message.topic_data[0].partition_data.append(PartitionProduceData(index=2, records=b"x" * 70_000))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.submit, message, 9)
            assert (await broker.receive())[1] == message


@pytest.mark.parametrize(
    ("version", "throttled_ms"), [(5, 0), (6, 800)], ids=["the broker delayed", "the client delays"]
)
async def test_throttling(autojump_clock: MockClock, version: int, throttled_ms: int) -> None:
    """From the versions of KIP-219 on the client leaves the broker alone for the time it was told."""
    async with connected(autojump_clock) as (connection, broker):
        pending = await connection.submit(batch(10), version)
        header, _ = await broker.receive()
        await broker.answer(header, ProduceResponse(throttle_time_ms=800))
        await pending.wait()
        assert connection.can_send == (throttled_ms == 0)
        assert connection.throttled_ms == pytest.approx(throttled_ms)
        start_ms = now_ms()
        await connection.submit(ask(), 2)
        assert now_ms() - start_ms == pytest.approx(throttled_ms, abs=1)


async def test_throttling_holds_back_submitters(autojump_clock: MockClock) -> None:
    """Requests submitted meanwhile wait; a second, shorter throttle time does not shorten the first."""
    async with connected(autojump_clock) as (connection, broker):
        waiting = [await connection.submit(MetadataRequest(topics=[]), 12) for _ in range(2)]
        for throttle_time_ms in (2000, 10):
            header, _ = await broker.receive()
            await broker.answer(header, MetadataResponse(throttle_time_ms=throttle_time_ms))
        for each in waiting:
            await each.wait()
        await connection.submit(ask(), 2)
        assert now_ms() == pytest.approx(2000, abs=1)
