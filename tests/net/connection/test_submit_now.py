"""Requests without a task: written where they are submitted, answered by a callback."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from support.clients.scripted_broker import ScriptedBroker, connected
from trio.testing import MockClock, wait_all_tasks_blocked

from splashdam.model.broker_errors import NetworkExceptionError, RequestTimedOutError
from splashdam.model.errors import IllegalStateError, KafkaError, ProtocolError
from splashdam.net.connection.connection import Connection
from splashdam.net.connection.in_flight import PendingResponse
from splashdam.net.memory import MemoryStream
from splashdam.testing.faulty_connect import Faults, FaultyStream
from splashdam.wire.header import encode_response
from splashdam.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from splashdam.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def ask(key: str = "key") -> FindCoordinatorRequest:
    """A small request that can be told from others."""
    return FindCoordinatorRequest(key=key)


def batch(size: int) -> ProduceRequest:
    """A request of about ``size`` bytes."""
    data = PartitionProduceData(records=bytes(size))
    return ProduceRequest(topic_data=[TopicProduceData(partition_data=[data])])


class Told:
    """What callbacks were told, in order."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def __call__(self, pending: PendingResponse[Any]) -> None:
        assert pending.done()
        try:
            self.results.append(pending.result())
        except KafkaError as error:
            self.results.append(error)

    @property
    def kinds(self) -> list[type]:
        """The classes of the results."""
        return [type(each) for each in self.results]


async def answer(broker: ScriptedBroker) -> None:
    """Answers one request with its key as host."""
    header, request = await broker.receive()
    assert isinstance(request, FindCoordinatorRequest)
    await broker.answer(header, FindCoordinatorResponse(host=request.key))


async def test_it_is_written_at_once_and_answered_by_callback(autojump_clock: MockClock) -> None:
    """The bytes are there before any task has run; each answer finds its callback."""
    told = Told()
    async with connected(autojump_clock) as (connection, broker):
        for key in "ab":
            connection.submit_now(ask(key), 2, told)
        assert not connection.is_writing
        assert connection.in_flight == 2
        assert isinstance(broker.stream, MemoryStream)
        assert len(broker.stream._incoming._data) > 0
        await answer(broker)
        await answer(broker)
        await wait_all_tasks_blocked()
        assert [each.host for each in told.results] == ["a", "b"]


async def test_what_the_stream_does_not_take_is_written_by_a_task(autojump_clock: MockClock) -> None:
    """Until that has ended nothing else can be sent; `submit` waits for it, and frames stay whole."""
    told = Told()
    async with connected(autojump_clock, capacity_bytes=1000) as (connection, broker):
        connection.submit_now(batch(5000), 9, told)
        assert connection.is_writing
        assert not connection.can_send
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.submit, ask(), 2)
            await wait_all_tasks_blocked()
            assert connection.in_flight == 1
            assert (await broker.receive())[1] == batch(5000)
            assert (await broker.receive())[1] == ask()
        assert not connection.is_writing
        assert connection.can_send


async def test_progress_is_told(autojump_clock: MockClock) -> None:
    """Once for all answers that came together, after their callbacks; and when a task has ended its write."""
    told: list[Any] = []
    options: dict[str, Any] = {"on_progress": lambda: told.append("progress")}
    async with connected(autojump_clock, capacity_bytes=1000, **options) as (connection, broker):
        for _ in range(2):
            connection.submit_now(ask(), 2, lambda _pending: told.append("answer"))
        parts: list[Any] = []
        for _ in range(2):
            header, _request = await broker.receive()
            response = FindCoordinatorResponse()
            parts += encode_response(response, version=2, correlation_id=header.correlation_id)
        await broker.send(*parts)
        await wait_all_tasks_blocked()
        assert told == ["answer", "answer", "progress"]
        connection.submit_now(batch(5000), 9, lambda _pending: None, expect_response=False)
        await broker.receive()
        await wait_all_tasks_blocked()
        assert told[3:] == ["progress"]


@pytest.mark.parametrize("size", [10, 5000], ids=["at once", "by a task"])
async def test_no_answer_expected(autojump_clock: MockClock, size: int) -> None:
    """With acks=0 the callback comes when it is written, and nothing is in flight."""
    told = Told()
    async with connected(autojump_clock, capacity_bytes=1000) as (connection, broker):
        connection.submit_now(batch(size), 9, told, expect_response=False)
        assert connection.in_flight == 0
        assert bool(told.results) == (size == 10)
        assert (await broker.receive())[1] == batch(size)
        await wait_all_tasks_blocked()
        (error,) = told.results
        assert isinstance(error, IllegalStateError)
        assert "has no response" in str(error)


@pytest.mark.parametrize("expect_response", [True, False])
async def test_a_peer_that_does_not_read(autojump_clock: MockClock, expect_response: bool) -> None:
    """The write has the request's time, and its end closes the connection; others lose theirs with it."""
    told = Told()
    async with connected(autojump_clock, capacity_bytes=1000, request_timeout_ms=700) as (connection, _):
        connection.submit_now(batch(5000), 9, told, expect_response=expect_response)
        await trio.sleep(1)
        assert told.kinds == [RequestTimedOutError]
        assert connection.is_closed


@pytest.mark.parametrize("expect_response", [True, False])
@pytest.mark.parametrize("ending", ["aclose", "peer", "cancel"])
async def test_the_end_during_a_write(autojump_clock: MockClock, ending: str, expect_response: bool) -> None:
    """Whatever ends the connection: each callback is told once, also of requests nobody would answer."""
    told = Told()
    async with connected(autojump_clock, capacity_bytes=1000) as (connection, broker):
        connection.submit_now(ask(), 2, told)
        connection.submit_now(batch(5000), 9, told, expect_response=expect_response)
        await wait_all_tasks_blocked()
        if ending == "aclose":
            await connection.aclose()
        elif ending == "peer":
            await broker.stream.aclose()
        else:
            assert connection._tasks is not None
            connection._tasks.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        assert told.kinds == [NetworkExceptionError, NetworkExceptionError]
        assert connection.is_closed


async def test_a_request_that_does_not_fit_its_version(autojump_clock: MockClock) -> None:
    """It raises at once, its callback is not called, and the connection stays."""
    told = Told()
    async with connected(autojump_clock) as (connection, broker):
        with pytest.raises(ProtocolError, match="coordinator_keys: version 2 has no such field"):
            connection.submit_now(FindCoordinatorRequest(coordinator_keys=["a", "b"]), 2, told)
        connection.submit_now(ask("next"), 2, told)
        await answer(broker)
        await wait_all_tasks_blocked()
        assert [each.host for each in told.results] == ["next"]


async def test_a_closed_connection(autojump_clock: MockClock) -> None:
    """Nobody could be told of an answer."""
    async with connected(autojump_clock) as (connection, _):
        await connection.aclose()
        with pytest.raises(IllegalStateError, match="that is CLOSED cannot SUBMIT"):
            connection.submit_now(ask(), 2, Told())


async def test_a_stream_that_takes_nothing_at_once(autojump_clock: MockClock) -> None:
    """Any trio stream will do: a task writes it all."""
    told = Told()
    async with connected(autojump_clock) as (connection, broker):
        assert isinstance(connection, Connection)
        connection._stream = FaultyStream(connection._stream, Faults())
        connection.submit_now(ask("k"), 2, told)
        assert connection.is_writing
        await answer(broker)
        await wait_all_tasks_blocked()
        assert [each.host for each in told.results] == ["k"]
