"""The core's edges: a sender that crashes, serializers that do, socket options, and the table of its life."""

from __future__ import annotations

import itertools
import logging
import socket
from typing import Any

import pytest
import trio

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.producer import KafkaProducer
from splashdam.client.running import lifecycle
from splashdam.client.running.connecting import TrackedConnect
from splashdam.client.running.lifecycle import TRANSITIONS, Event, State
from splashdam.client.serializers import JsonSerializer
from splashdam.model.errors import IllegalStateError, KafkaConnectionError
from splashdam.net.connect import TcpConnect


def test_the_table_is_the_documented_one() -> None:
    """Every cell of the docstring, illegal ones included."""
    rows = [line.split() for line in (lifecycle.__doc__ or "").splitlines()]
    header = next(row for row in rows if row[:2] == ["state", "start"])
    table = {row[0]: row[1:] for row in rows if row and row[0] in State.__members__ and len(row) == 5}
    for state, (column, event) in itertools.product(State, enumerate(header[1:])):
        expected = table[state.name][column]
        found = TRANSITIONS.get((state, Event[event.upper()]))
        assert (found.name if found else "illegal") == expected, (state, event)


async def test_a_sender_that_crashes_fails_everything(
    cluster: Any, autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for ever, and later calls name the crash; the program itself goes on."""
    async with cluster.producer(linger_ms=60_000) as producer:
        future = await producer.send("one", b"v")

        def crash(*_arguments: Any, **_options: Any) -> None:
            raise ZeroDivisionError("planted")

        producer._core.metadata.due_in_ms = crash
        with caplog.at_level(logging.ERROR, "splashdam.client"):
            report = await producer.flush()
        assert report.failed == 1
        assert future.failed()
        with pytest.raises(IllegalStateError, match=r"the producer has stopped: .*planted"):
            await producer.send("one", b"w")
    assert "the sender stopped because of a bug" in caplog.text


async def test_a_serializer_that_raises_in_close_is_logged(
    cluster: Any, autojump_clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not keep the producer from closing."""

    class Broken(JsonSerializer):
        def close(self) -> None:
            raise ZeroDivisionError("planted")

    async with cluster.producer(value_serializer=Broken()) as producer:
        await producer.send("one", 1)
    assert "a serializer raised in close()" in caplog.text
    assert cluster.values("one") == [b"1"]


def test_socket_options_are_set(tcp_cluster: Any) -> None:
    """The application's own, beside ours."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    with KafkaProducer(
        bootstrap_servers=tcp_cluster.address, socket_options=options, send_buffer_bytes=100_000
    ) as producer:
        producer.send("one", b"v").get(timeout=300)
        (stream,) = producer._core.connect._streams
        assert isinstance(stream, trio.SocketStream)
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 200_000  # Linux doubles it


async def test_a_socket_option_that_is_refused_is_named(tcp_cluster: Any) -> None:
    """As the reason why there is no connection."""
    host, port = tcp_cluster.address.split(":")
    connect = TrackedConnect(TcpConnect(), [(socket.SOL_SOCKET, 9_999, 1)])
    with pytest.raises(KafkaConnectionError, match=f"cannot set socket_options on {tcp_cluster.address}"):
        await connect(host, int(port))


async def test_names_are_resolved_in_the_loop_during_exit(
    tcp_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """trio would start a thread for it."""
    monkeypatch.setattr("splashdam.client.running.connecting.exiting", lambda: True)
    connect = TrackedConnect(TcpConnect())
    stream = await connect("localhost", int(tcp_cluster.address.split(":")[1]))
    await stream.aclose()
    with pytest.raises(KafkaConnectionError, match=r"cannot connect to no\.such\.host\.invalid:1"):
        await connect("no.such.host.invalid", 1)


def test_a_thread_that_cannot_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Neither a broker nor a producer that waits."""

    def refuse(_thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    with KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}") as other:
        broker = other.embedded_broker
        with monkeypatch.context() as patched:
            patched.setattr("threading.Thread.start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}")
        assert other.send("t", b"v").get(timeout=300).offset == 0
        assert other.embedded_broker is broker


def test_reprs_name_the_client_and_its_state() -> None:
    """For logs and debuggers."""
    producer = AsyncKafkaProducer(client_id="billing")
    assert repr(producer) == "<AsyncKafkaProducer billing new>"
