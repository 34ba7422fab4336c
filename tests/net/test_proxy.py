"""Connections through a SOCKS or HTTP proxy, to a proxy of a few lines that says what it was asked."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import trio

pytest.importorskip("python_socks")

from splashdam.client.producer import KafkaProducer
from splashdam.client.running.connecting import make_tcp_connect
from splashdam.client.settings.rules import producer_settings
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import KafkaConfigurationError, KafkaConnectionError, NoBrokersAvailable
from splashdam.net.listen import address_of, tcp_listen


class Proxy:
    """Speaks as much SOCKS5 (RFC 1928, 1929) and HTTP CONNECT as is needed here."""

    def __init__(self, *, refuse: bool = False) -> None:
        self.refuse = refuse
        self.asked: list[tuple[str, int]] = []
        self.logins: list[bytes] = []

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            first = await stream.receive_some(4096)
            target = await (self._socks(stream, first) if first[:1] == b"\5" else self._http(stream, first))
            if target is None:
                return
            self.asked.append(target)
            async with await trio.open_tcp_stream(*target) as other, trio.open_nursery() as nursery:
                nursery.start_soon(pump, other, stream)
                await pump(stream, other)
                nursery.cancel_scope.cancel()

    async def _socks(self, stream: trio.SocketStream, hello: bytes) -> tuple[str, int] | None:
        with_login = 2 in hello[2:]
        await stream.send_all(b"\5\2" if with_login else b"\5\0")
        if with_login:
            self.logins.append(await stream.receive_some(4096))
            await stream.send_all(b"\1\0")
        request = await stream.receive_some(4096)
        if self.refuse:
            await stream.send_all(b"\5\2\0\1" + bytes(6))
            return None
        await stream.send_all(b"\5\0\0\1" + bytes(6))
        by_name = request[3] == 3
        host = request[5:-2].decode() if by_name else socket.inet_ntoa(request[4:8])
        return host, int.from_bytes(request[-2:], "big")

    async def _http(self, stream: trio.SocketStream, request: bytes) -> tuple[str, int]:
        host, _, port = request.split()[1].decode().rpartition(":")
        await stream.send_all(b"HTTP/1.1 200 Connected\r\n\r\n")
        return host, int(port)


async def pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    try:
        async for data in source:
            await sink.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


@pytest.fixture
def broker(tmp_path: Any) -> Iterator[EmbeddedBroker]:
    """On TCP."""
    with EmbeddedBroker(tmp_path, fsync=False) as running:
        yield running


async def through(proxy: Proxy, nursery: trio.Nursery, url: str, **options: Any) -> dict[str, Any]:
    """Options of a producer that goes through ``proxy``, which runs."""
    listeners = await tcp_listen("127.0.0.1", 0)
    host, port = address_of(listeners[0])
    nursery.start_soon(trio.serve_listeners, proxy.serve, listeners)
    return {"proxy_url": url.format(f"{host}:{port}"), **options}


@pytest.mark.parametrize(
    ("url", "is_named"),
    [
        ("socks5://{}", False),
        ("socks5h://{}", True),
        ("socks5h://anna:s3cret@{}", True),
        ("http://{}", True),
    ],
)
async def test_records_go_through_a_proxy(
    nursery: trio.Nursery, broker: EmbeddedBroker, url: str, is_named: bool
) -> None:
    """Every connection does; where the URL says so, it is the proxy that resolves names."""
    proxy = Proxy()
    port = broker.bootstrap_servers.rpartition(":")[2]
    options = await through(proxy, nursery, url, bootstrap_servers=f"localhost:{port}")

    def send() -> int:
        with KafkaProducer(**options) as producer:
            return producer.send("t", b"v").get(timeout=300).offset

    assert await trio.to_thread.run_sync(send) == 0
    assert proxy.asked[0] == ("localhost" if is_named else "127.0.0.1", int(port))
    assert bool(proxy.logins) == ("anna" in url)


async def test_a_proxy_that_refuses_is_named(nursery: trio.Nursery) -> None:
    """The password is not."""
    options = await through(Proxy(refuse=True), nursery, "socks5://anna:s3cret@{}")
    connect = make_tcp_connect(producer_settings(options))
    with pytest.raises(
        KafkaConnectionError, match=r"cannot connect to 127\.0\.0\.1:9 through the proxy"
    ) as caught:
        await connect("127.0.0.1", 9)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("scheme", "host", "port"),
    [("socks5", "a..b", 9092), ("socks5h", "a" * 64, 9092), ("socks5h", "kafka", 70_000)],
)
async def test_an_impossible_name_behind_a_proxy_is_a_failed_connection(
    nursery: trio.Nursery, scheme: str, host: str, port: int
) -> None:
    """A broker may advertise one. The codec's error ended the producer's loop, as if it were a bug."""
    connect = make_tcp_connect(producer_settings(await through(Proxy(), nursery, scheme + "://{}")))
    with pytest.raises(KafkaConnectionError, match="host name or port are invalid"):
        await connect(host, port)
    nursery.cancel_scope.cancel()


def test_a_proxy_that_is_not_there_is_why_no_broker_is_available() -> None:
    with pytest.raises(NoBrokersAvailable, match=r"through the proxy: .*[Cc]ould not connect"):
        KafkaProducer(proxy_url="socks5://127.0.0.1:1", bootstrap_timeout_ms=100)


@pytest.mark.parametrize("url", ["localhost:1080", "ftp://proxy:1", "socks5://", "socks5://host"])
def test_an_impossible_proxy_is_refused(url: str) -> None:
    with pytest.raises(KafkaConfigurationError, match="proxy_url"):
        KafkaProducer(proxy_url=url)


def test_the_password_of_a_proxy_is_hidden_and_pickled() -> None:
    """As all secrets of the configuration."""
    producer = KafkaProducer(proxy_url="socks5://anna:s3cret@127.0.0.1:1")
    try:
        assert "s3cret" not in repr(producer.config)
        assert b"s3cret" in pickle.dumps(producer.config)
    finally:
        producer.close(0)


def test_the_earlier_name_of_the_option_warns() -> None:
    """kafka-python's ``socks5_proxy``."""
    with pytest.warns(DeprecationWarning, match="socks5_proxy is now proxy_url"):
        settings = producer_settings({"socks5_proxy": "socks5://proxy:1080"})
    assert settings.proxy_url == "socks5://proxy:1080"
