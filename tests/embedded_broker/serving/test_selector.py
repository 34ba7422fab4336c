"""Clients that wait in the selector: what is answered in place, in which order, and what is left to tasks."""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from support.broker.broker_talk import (
    Talk,
    batch,
    fetch_request,
    fetched,
    produce,
    produce_request,
    records_of,
)
from support.broker.loop_watch import Passes
from trio.testing import MockClock

from splashdam.embedded_broker.broker import Broker, open_broker
from splashdam.embedded_broker.execution import turns
from splashdam.embedded_broker.execution.turns import Turns
from splashdam.embedded_broker.producing.fast_produce import FastProduce
from splashdam.embedded_broker.serving import receiving
from splashdam.embedded_broker.serving.client_connection import ClientConnection
from splashdam.embedded_broker.serving.selector import GROUP, Arrival, SelectionKey, Selector
from splashdam.embedded_broker.serving.sending import Outbox
from splashdam.embedded_broker.topics.parking import FetchParking
from splashdam.storage.files.memory import MemoryFiles
from splashdam.wire.messages.api_versions import ApiVersionsRequest

pytestmark = pytest.mark.skipif(not Selector.is_available, reason="no epoll: nobody waits in one")

ONE = batch(b"x" * 100)
CROWD = 3 * GROUP


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """A broker on a port, in real time, with a topic."""
    async with open_broker("data", files=MemoryFiles()) as opened:
        opened.topics.create("t")
        yield opened


class InPlace:
    """What each call in place left to the connection's task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrivals: list[Arrival | None] = []
        answer = ClientConnection.answer_in_place

        def noted(connection: ClientConnection) -> Arrival | None:
            arrival = answer(connection)
            self.arrivals.append(arrival)
            return arrival

        monkeypatch.setattr(ClientConnection, "answer_in_place", noted)


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> InPlace:
    return InPlace(monkeypatch)


async def connected(broker: Broker) -> Talk:
    host, port = broker.addresses[0]
    return Talk(await trio.open_tcp_stream(host, port))


async def waiting_in_selector(broker: Broker) -> Talk:
    """A client whose first request was decoded, and whose second one was answered by its template."""
    talk, others = await connected(broker), waiting(broker)
    for _ in range(2):
        assert (await produce(talk, "t", ONE)).error_code == 0
    with trio.fail_after(300):
        while waiting(broker) == others:
            await trio.lowlevel.checkpoint()
    return talk


def send_at_once(talk: Talk, data: bytes) -> socket.socket:
    """Send bytes without a pass of the loop, so that the broker does not see the first part alone."""
    assert isinstance(talk.stream, trio.SocketStream)
    plain: socket.socket = talk.stream.socket._sock
    assert plain.send(data) == len(data)
    return plain


def waiting(broker: Broker) -> int:
    """How many clients wait in the selector."""
    return sum(key._task is not None for key in broker.selector._keys.values())


def end_of(broker: Broker) -> int:
    return next(iter(broker.logs.logs.values())).log_end_offset


async def test_usual_requests_of_a_crowd_wake_one_task(broker: Broker, in_place: InPlace) -> None:
    """To wake a task for each request cost twice as much as its append."""
    async with AsyncExitStack() as stack:
        talks = [await waiting_in_selector(broker) for _ in range(CROWD)]
        for talk in talks:
            await stack.enter_async_context(talk.stream)
        in_place.arrivals.clear()
        for talk in talks:
            await talk.send(produce_request("t", ONE), 9)
        answers = [await talk.answer() for talk in talks]
    assert in_place.arrivals[:CROWD] == [None] * CROWD
    offsets = sorted(each.responses[0].partition_responses[0].base_offset for each in answers)
    assert offsets == list(range(2 * CROWD, 3 * CROWD))


async def test_a_client_alone_is_answered_before_the_next_one_is_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers leave in groups only if there are many: a few clients work while the broker does."""
    steps: list[str] = []
    append, write = FastProduce.answer, Outbox.write_now

    def answered(fast: FastProduce, frame: memoryview) -> Any:
        steps.append("append")
        return append(fast, frame)

    def written(outbox: Outbox) -> bool:
        if not outbox.is_empty:
            steps.append("write")
        return write(outbox)

    first, second = await waiting_in_selector(broker), await waiting_in_selector(broker)
    monkeypatch.setattr(FastProduce, "answer", answered)
    monkeypatch.setattr(Outbox, "write_now", written)
    for talk in (first, second):
        send_at_once(talk, talk._frame_of(produce_request("t", ONE), 9, True))
    for talk in (first, second):
        await talk.answer()
        await talk.stream.aclose()
    assert steps == ["append", "write"] * 2


async def test_answers_to_a_crowd_leave_in_groups(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has many of the connections is woken once for a group."""
    keys: list[int] = []
    send = Selector._send

    def sent(selector: Selector, answered: list[SelectionKey]) -> None:
        keys.append(len(answered))
        send(selector, answered)

    talks = [await waiting_in_selector(broker) for _ in range(CROWD)]
    monkeypatch.setattr(Selector, "_send", sent)
    for talk in talks:
        send_at_once(talk, talk._frame_of(produce_request("t", ONE), 9, True))
    for talk in talks:
        await talk.answer()
        await talk.stream.aclose()
    assert [count for count in keys if count] == [GROUP] * (CROWD // GROUP)


async def test_other_requests_go_to_their_task_in_order(broker: Broker, in_place: InPlace) -> None:
    """Usual ones in front of them are answered in place, those behind them are not."""
    talk = await waiting_in_selector(broker)
    usual = produce_request("t", ONE)
    other = ApiVersionsRequest(client_software_name="talk", client_software_version="1")
    in_place.arrivals.clear()
    await talk.send_together(usual, usual, other, usual, version=3)
    assert [(await talk.answer()).responses[0].partition_responses[0].base_offset for _ in range(2)] == [2, 3]
    assert (await talk.answer()).api_keys
    assert (await talk.answer()).responses[0].partition_responses[0].base_offset == 4
    assert in_place.arrivals[0] is Arrival.BYTES
    await talk.stream.aclose()


async def test_requests_in_front_of_bytes_that_are_none_are_answered(broker: Broker) -> None:
    """They were appended: their answers leave before the connection is closed."""
    talk = await waiting_in_selector(broker)
    frame = talk._frame_of(produce_request("t", ONE), 9, True)
    await talk.stream.send_all(frame + b"\xff" * 8)
    assert (await talk.answer()).responses[0].partition_responses[0].base_offset == 2
    assert await talk.is_closed()
    await talk.stream.aclose()


async def test_more_requests_than_the_buffer_holds_are_all_answered(broker: Broker) -> None:
    """What is left in the socket is not reported a second time."""
    talk = await waiting_in_selector(broker)
    count = 2_000  # some 400 KB
    frames = b"".join(talk._frame_of(produce_request("t", ONE), 9, True) for _ in range(count))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk.stream.send_all, frames)
        for number in range(count):
            answer = await talk.answer()
            assert answer.responses[0].partition_responses[0].base_offset == number + 2
    await talk.stream.aclose()


async def test_what_a_socket_does_not_take_is_sent_by_its_task(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reads late: its answers are cut where its socket was full, and other clients do not wait."""
    slow, quick = await waiting_in_selector(broker), await waiting_in_selector(broker)
    taken, write = iter((5, 0)), Outbox._write

    def full(outbox: Outbox, data: bytes) -> int:
        count = next(taken, None)
        return write(outbox, data if count is None else data[:count]) if count != 0 else 0

    monkeypatch.setattr(Outbox, "_write", full)
    for number in range(3):
        await slow.send(produce_request("t", ONE), 9)
        assert (await slow.answer()).responses[0].partition_responses[0].base_offset == number + 4
    assert next(taken, None) is None
    assert (await produce(quick, "t", ONE)).base_offset == 7
    for talk in (slow, quick):
        await talk.stream.aclose()


async def test_a_failure_of_one_request_ends_its_connection_alone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The selector serves all clients: an error of one must not end it."""
    victim, other = await waiting_in_selector(broker), await waiting_in_selector(broker)
    answer = FastProduce.answer
    broken = iter((True,))

    def fails_once(fast: FastProduce, frame: memoryview) -> Any:
        if next(broken, False):
            raise RuntimeError("a fault of the broker")
        return answer(fast, frame)

    monkeypatch.setattr(FastProduce, "answer", fails_once)
    await victim.send(produce_request("t", ONE), 9)
    assert await victim.is_closed()
    assert (await produce(other, "t", ONE)).base_offset == 4
    assert "the broker failed" in caplog.text
    for talk in (victim, other):
        await talk.stream.aclose()


async def test_clients_that_leave_are_forgotten(broker: Broker) -> None:
    """In order or by a reset; the next ones get their descriptors, and are served."""
    for linger in (None, b"\1\0\0\0\0\0\0\0"):
        talks = [await waiting_in_selector(broker) for _ in range(3)]
        for talk in talks:
            if linger is not None:
                stream = talk.stream
                assert isinstance(stream, trio.SocketStream)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            await talk.stream.aclose()
        await until_all_left(broker)


async def until_all_left(broker: Broker) -> None:
    with trio.fail_after(300):
        while broker.selector._keys or not all(each.has_ended for each in broker.server._connections):
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("requests", [0, 1, 3])
async def test_an_end_of_the_stream_that_came_with_a_request_was_never_seen(
    broker: Broker, requests: int
) -> None:
    """Both are reported at once: the connection kept its place until it was idle for ten minutes."""
    talk = await waiting_in_selector(broker)
    frames = [talk._frame_of(produce_request("t", ONE), 9, True) for _ in range(requests)]
    send_at_once(talk, b"".join(frames)).shutdown(socket.SHUT_WR)
    for _ in range(requests):
        await talk.answer()
    await until_all_left(broker)
    await talk.stream.aclose()


async def test_a_request_that_fills_the_buffer_hides_none_behind_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What there was no room for is not reported a second time."""
    monkeypatch.setattr(receiving, "_FIRST_BYTES", 4096)
    talk = await waiting_in_selector(broker)

    def frame(size_bytes: int) -> bytes:
        return talk._frame_of(produce_request("t", batch(b"x" * size_bytes)), 9, False)

    first = [frame(1000), frame(1000)]
    left = 4096 - sum(map(len, first))
    first.append(next(each for each in map(frame, range(900, 2600)) if len(each) == left))
    send_at_once(talk, b"".join(first) + frame(100))
    with trio.fail_after(300):
        for _ in range(4):
            await talk.frame()
    await talk.stream.aclose()


async def test_a_client_is_served_by_its_task_where_no_descriptor_is_left(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The selector needs one more: a client that was being served was closed for want of it."""

    def refused() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(select, "epoll", refused)
    talk = await connected(broker)
    for number in range(4):
        assert (await produce(talk, "t", ONE)).base_offset == number
    await talk.stream.aclose()


async def test_a_client_that_is_alone_is_not_in_the_selector(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its requests woke the selector, too. Once it may not be polled, it is back."""
    talk = await waiting_in_selector(broker)
    (key,) = broker.selector._keys.values()
    for _ in range(3):  # others send, too
        assert (await produce(talk, "t", ONE)).error_code == 0
        assert list(broker.selector._keys.values()) == [key]
    granted = receiving.POLLED_READS
    monkeypatch.setattr(receiving.BusyPolling, "reads_granted", lambda *_: granted)
    for _ in range(3):
        assert (await produce(talk, "t", ONE)).error_code == 0
    assert not broker.selector._keys
    granted = 0
    # Its polled reads are used up first.
    for _ in range(receiving.POLLED_READS + 2):
        assert (await produce(talk, "t", ONE)).error_code == 0
    with trio.fail_after(300):
        while not waiting(broker):
            await trio.lowlevel.checkpoint()
    assert (await produce(talk, "t", ONE)).error_code == 0
    await talk.stream.aclose()


async def test_the_end_of_a_client_that_was_alone_is_seen(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes with the request after which the socket is in the epoll again."""
    talk = await waiting_in_selector(broker)
    granted = receiving.POLLED_READS
    monkeypatch.setattr(receiving.BusyPolling, "reads_granted", lambda *_: granted)
    for _ in range(3):
        await produce(talk, "t", ONE)
    assert not broker.selector._keys
    granted = 0
    for _ in range(receiving.POLLED_READS):
        await produce(talk, "t", ONE)
    await talk.send(produce_request("t", ONE), 9)
    assert isinstance(talk.stream, trio.SocketStream)
    talk.stream.socket.shutdown(socket.SHUT_WR)
    assert (await talk.answer()).responses[0].partition_responses[0].error_code == 0
    assert await talk.is_closed()
    await talk.stream.aclose()


@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_client_that_sends_is_not_idle(
    monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock, is_alone: bool
) -> None:
    """Longer than ``connections.max.idle.ms``, by its own task and in the selector."""
    async with open_broker("data", files=MemoryFiles(), connections_max_idle_ms=10_000) as broker:
        broker.topics.create("t")
        talk = await waiting_in_selector(broker)
        if is_alone:
            monkeypatch.setattr(receiving.BusyPolling, "reads_granted", lambda *_: 1)
        for _ in range(5):
            mock_clock.jump(4)
            assert (await produce(talk, "t", ONE)).error_code == 0
        assert bool(broker.selector._keys) != is_alone
        mock_clock.jump(11)
        assert await talk.is_closed()
        await talk.stream.aclose()


async def test_a_descriptor_that_another_client_has_by_now_stays_watched(broker: Broker) -> None:
    """A connection whose socket is closed before it leaves the selector takes nothing from its successor."""
    talk = await waiting_in_selector(broker)
    (descriptor, key), *_ = broker.selector._keys.items()
    late = SelectionKey(broker.selector, descriptor, key._channel)
    late._is_registered = True
    late.unregister()
    assert (await produce(talk, "t", ONE)).base_offset == 2
    await talk.stream.aclose()


async def test_bytes_that_came_during_another_answer_are_read(broker: Broker) -> None:
    """They are reported once, while the client's task is busy with a fetch that waits."""
    talk, producer = await waiting_in_selector(broker), await connected(broker)
    await talk.send(fetch_request("t", 2, min_bytes=1, max_wait_ms=60_000), 9)
    with trio.fail_after(300):
        while not broker.parking.parked:
            await trio.lowlevel.checkpoint()
    (key,) = broker.selector._keys.values()
    await talk.send(produce_request("t", ONE), 9)
    with trio.fail_after(300):
        while not key._must_look:
            await trio.lowlevel.checkpoint()
    await produce(producer, "t", batch(b"y"))
    assert [record.value for record in records_of(fetched(await talk.answer())[0].records)] == [b"y"]
    assert (await talk.answer()).responses[0].partition_responses[0].base_offset == 3
    for _ in range(3):
        assert (await produce(talk, "t", ONE)).error_code == 0
    for each in (talk, producer):
        await each.stream.aclose()


async def test_the_last_of_many_waited_for_a_pass_behind_each_before_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred clients that sent on and on kept the others waiting for as long as they went on."""
    monkeypatch.setattr(turns, "TURN_UNITS", 1)
    talks = [await waiting_in_selector(broker) for _ in range(CROWD)]
    for talk in talks:
        send_at_once(talk, talk._frame_of(produce_request("t", ONE), 9, True))
    passes, written_at, write = Passes(), list[int](), Outbox._write

    def written(outbox: Outbox, data: bytes) -> int:
        written_at.append(passes.count)
        return write(outbox, data)

    monkeypatch.setattr(Outbox, "_write", written)
    trio.lowlevel.add_instrument(passes)
    for talk in talks:
        await talk.answer()
    trio.lowlevel.remove_instrument(passes)
    assert len(written_at) == CROWD
    assert max(written_at) - min(written_at) <= 4
    for talk in talks:
        await talk.stream.aclose()


async def test_what_came_while_the_task_was_away_is_looked_for(broker: Broker) -> None:
    """Nothing reports it again: the key looks into the socket before it waits."""
    talk = await waiting_in_selector(broker)
    (key,) = broker.selector._keys.values()
    key._wake(Arrival.NOTHING)  # its task is not back yet when the request is reported
    send_at_once(talk, talk._frame_of(produce_request("t", ONE), 9, True))
    assert not key.answer()
    with trio.fail_after(300):
        assert (await talk.answer()).responses[0].partition_responses[0].base_offset == 2
    await talk.stream.aclose()


async def test_a_fetch_that_waits_is_answered_behind_the_answer_in_place(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the turn of the append, as for requests that a client's own task answers."""
    talk, consumer = await waiting_in_selector(broker), await connected(broker)
    await consumer.send(fetch_request("t", 2, min_bytes=1, max_wait_ms=60_000), 12)
    with trio.fail_after(300):
        while not broker.parking.parked:
            await trio.lowlevel.checkpoint()
    answered: list[bool] = []
    answer_due = FetchParking.answer_due

    def noted(parking: FetchParking, of_broker: Turns) -> None:
        answer_due(parking, of_broker)
        answered.append(not parking.due)

    monkeypatch.setattr(FetchParking, "answer_due", noted)
    await talk.send(produce_request("t", ONE), 9)
    await talk.answer()
    assert [record.value for record in records_of(fetched(await consumer.answer())[0].records)] == [
        b"x" * 100
    ]
    assert answered == [True]
    for each in (talk, consumer):
        await each.stream.aclose()


async def test_requests_in_place_cost_their_turn(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends many at once does not keep the others waiting."""
    monkeypatch.setattr(turns, "TURN_UNITS", 4)
    talk, count = await waiting_in_selector(broker), 20
    in_a_turn: list[int] = []
    answer = ClientConnection.answer_in_place

    def noted(connection: ClientConnection) -> Arrival | None:
        requests = connection.client.requests
        arrival = answer(connection)
        in_a_turn.append(connection.client.requests - requests)
        return arrival

    monkeypatch.setattr(ClientConnection, "answer_in_place", noted)
    send_at_once(talk, b"".join(talk._frame_of(produce_request("t", ONE), 9, True) for _ in range(count)))
    for _ in range(count):
        await talk.answer()
    await talk.stream.aclose()
    assert in_a_turn[0] == 4
    assert max(in_a_turn) == 4


async def test_a_broker_with_waiting_clients_ends(tmp_path: Path) -> None:
    """It closes their connections, and its own descriptor."""
    async with open_broker(tmp_path) as broker:
        broker.topics.create("t")
        talk = await waiting_in_selector(broker)
        epoll = broker.selector._epoll
    assert await talk.is_closed()
    assert epoll is not None
    assert epoll.closed
    await talk.stream.aclose()


REQUEST = st.sampled_from(("usual", "usual", "usual", "other"))


@given(
    clients=st.lists(st.lists(REQUEST, min_size=1, max_size=6), min_size=1, max_size=12),
    cuts=st.lists(st.integers(1, 400), max_size=20),
)
def test_every_client_gets_its_answers_in_order(clients: list[list[str]], cuts: list[int]) -> None:
    """Whatever it sends, however that is cut, and whoever sends beside it: ``Talk`` compares the ids."""

    async def main() -> None:
        async with open_broker("data", files=MemoryFiles()) as broker:
            broker.topics.create("t")
            talks = [await waiting_in_selector(broker) for _ in clients]
            before = end_of(broker)
            async with trio.open_nursery() as nursery:
                for talk, requests in zip(talks, clients, strict=True):
                    nursery.start_soon(converse, talk, requests, list(cuts))
            usual = sum(requests.count("usual") for requests in clients)
            assert end_of(broker) == before + usual

    async def converse(talk: Talk, requests: list[str], sizes: list[int]) -> None:
        other = ApiVersionsRequest(client_software_name="talk", client_software_version="1")
        of_kind = {"usual": (produce_request("t", ONE), 9), "other": (other, 3)}
        frames = b"".join(talk._frame_of(*of_kind[kind], True) for kind in requests)
        while frames:
            size = sizes.pop() if sizes else len(frames)
            await talk.stream.send_all(frames[:size])
            frames = frames[size:]
        for _ in requests:
            assert not getattr(await talk.answer(), "error_code", 0)
        await talk.stream.aclose()

    trio.run(main)
