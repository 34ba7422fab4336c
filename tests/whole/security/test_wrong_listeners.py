"""A listener that speaks something else is named soon; one that is away for a moment is waited for."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from splashdam.cli.commands import splashdam
from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import KafkaTimeoutError, WrongListenerError


@contextmanager
def listening(serve: Callable[[socket.socket], None], port: int = 0) -> Iterator[str]:
    """The address of a socket whose connections a function serves, one after the other."""
    with socket.create_server(("127.0.0.1", port)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextmanager
def behind_a_balancer(folder: Path, says: bytes, left: int) -> Iterator[str]:
    """The address of one that answers so many connections itself, and passes on those that follow."""

    def serve(connection: socket.socket) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            relay(connection, port)
        elif says:
            connection.recv(4096)
            connection.sendall(says)

    with EmbeddedBroker(folder, fsync=False, port=0) as broker:
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with listening(serve) as address:
            yield address
    assert left < 0


def relay(connection: socket.socket, port: int) -> None:
    """Passes bytes on in both directions until one side ends."""
    with socket.create_connection(("127.0.0.1", port)) as behind:
        ends = {connection: behind, behind: connection}
        while ready := select.select(list(ends), [], [])[0]:
            for end in ready:
                data = end.recv(65536)
                if not data:
                    return
                ends[end].sendall(data)


def http(connection: socket.socket) -> None:
    """An answer as nginx sends it to bytes that are no request."""
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


def hang_up(connection: socket.socket) -> None:
    """As a proxy whose broker is away."""


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_an_http_server_is_named_at_once(protocol: str) -> None:
    """Not after ``max_block_ms``, which is 60 s."""
    words = {"PLAINTEXT": "does not speak Kafka's protocol: it sent 'HTTP'", "SSL": "does not speak TLS"}
    with (
        listening(http) as address,
        KafkaProducer(bootstrap_servers=address, security_protocol=protocol) as producer,
        pytest.raises(WrongListenerError, match=words[protocol]) as caught,
    ):
        producer.send("t", b"v").get(300)
    assert address in str(caught.value)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_listener_that_only_hangs_up_is_tried_again(protocol: str) -> None:
    """It proves nothing: a broker may be starting behind it."""
    with (
        listening(hang_up) as address,
        KafkaProducer(bootstrap_servers=address, security_protocol=protocol, max_block_ms=1_500) as producer,
        pytest.raises(KafkaTimeoutError),
    ):
        producer.send("t", b"v")


def test_a_broker_behind_a_proxy_that_hung_up_is_found(tmp_path: Path) -> None:
    """The record is delivered once the broker is there, however often the proxy has hung up before."""
    with (
        behind_a_balancer(tmp_path, b"", left=6) as address,
        KafkaProducer(bootstrap_servers=address) as producer,
    ):
        assert producer.send("t", b"v").get(300).offset == 0


AWAY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n"
NO_REQUEST = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(("says", "left"), [(AWAY, 6), (NO_REQUEST, 1)], ids=["503", "400"])
def test_a_balancer_that_answered_for_its_broker_was_final(tmp_path: Path, says: bytes, left: int) -> None:
    """Text proves nothing where the server is at fault, or at the first time; the record is delivered."""
    with (
        behind_a_balancer(tmp_path, says, left) as address,
        KafkaProducer(bootstrap_servers=address) as producer,
    ):
        assert producer.send("t", b"v").get(300).offset == 0


@pytest.mark.parametrize(("says", "left"), [(AWAY, 6), (NO_REQUEST, 1)], ids=["503", "400"])
def test_a_balancer_that_answered_for_its_broker_ended_commands(
    tmp_path: Path, says: bytes, left: int
) -> None:
    """They have their time, too."""
    with behind_a_balancer(tmp_path, says, left) as address:
        done = CliRunner().invoke(splashdam, ["topics", "list", "--names", "-b", address, "--timeout", "20"])
    assert (done.exit_code, done.output) == (0, "")


def test_a_balancer_without_its_broker_is_named_when_the_time_is_up() -> None:
    """503 for ever is no other listener, and the text says who answered."""

    def away(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(AWAY)

    with (
        listening(away) as address,
        KafkaProducer(bootstrap_servers=address, max_block_ms=1_500) as producer,
        pytest.raises(KafkaTimeoutError, match="does not speak Kafka's protocol: it sent 'HTTP'") as caught,
    ):
        producer.send("t", b"v")
    assert address in str(caught.value)


def test_one_bootstrap_server_that_is_wrong_does_not_end_the_wait_for_another() -> None:
    """The other one may come back: its silence is no answer."""
    with listening(http) as wrong, listening(hang_up) as away:
        settings = {"bootstrap_servers": [wrong, away], "max_block_ms": 1_500}
        with (
            KafkaProducer(**settings) as producer,  # type: ignore[arg-type]
            pytest.raises(KafkaTimeoutError),
        ):
            producer.send("t", b"v")


def test_one_bootstrap_server_that_is_wrong_is_passed_over(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The cluster works."""
    with (
        listening(http) as wrong,
        EmbeddedBroker(tmp_path_factory.mktemp("data"), fsync=False, port=0) as broker,
    ):
        for servers in ([wrong, broker.bootstrap_servers], [broker.bootstrap_servers, wrong]):
            with KafkaProducer(bootstrap_servers=servers) as producer:
                assert producer.send("t", b"v").get(300).offset >= 0
