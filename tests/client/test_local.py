"""``embedded:DIR``: one broker per directory and process, shared, counted, and gone with its last user."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.asyncio_producer import AsyncioKafkaProducer
from splashdam.client.local import LocalAddress, local_address
from splashdam.client.producer import KafkaProducer
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import IllegalStateError, KafkaConfigurationError


@pytest.mark.parametrize(
    ("text", "directory", "port"),
    [
        ("embedded:./data", "data", None),
        ("embedded:data?port=9092", "data", 9092),
        (" embedded:data/../data/?port=0", "data", 0),
    ],
)
def test_address(
    text: str, directory: str, port: int | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Directory and port; one directory has one name."""
    monkeypatch.chdir(tmp_path)
    assert local_address(text) == LocalAddress(Path(os.path.realpath(tmp_path)) / directory, port)
    assert local_address([text]) == local_address(text)


def test_other_addresses_are_a_clusters() -> None:
    """They are parsed elsewhere."""
    assert local_address("localhost:9092") is None
    assert local_address(["a", "b:1"]) is None


@pytest.mark.parametrize("servers", [None, 9092, ["a", 3], [("a", 9092)], b"a:9092", {}])
@pytest.mark.parametrize("kind", [KafkaProducer, AsyncKafkaProducer])
def test_what_names_no_servers_is_refused_by_the_options_name(servers: Any, kind: Any) -> None:
    """It was once a bare TypeError that NoneType is not iterable."""
    with pytest.raises(KafkaConfigurationError, match=r"bootstrap_servers=.*try 'localhost:9092'"):
        kind(bootstrap_servers=servers)


def test_servers_are_taken_from_an_iterator() -> None:
    """The search for an embedded address once used the iterator up, so that no address was left."""
    with KafkaProducer(bootstrap_servers=iter(["a:1"])):
        pass


@pytest.mark.parametrize(
    ("servers", "words"),
    [
        ("embedded:", "names no directory"),
        ("embedded:?port=1", "names no directory"),
        ("embedded:d?prot=1", "unknown setting 'prot'. Did you mean 'port'"),
        ("embedded:d?port=x", "port='x' is not a number"),
        ("embedded:d?port=" + "9" * 5000, "is not a number from 0"),  # more digits than int takes
        ("embedded:d?port=70000", "port='70000' is not a number"),
        ("embedded:d?", "nothing follows the question mark"),
        (["embedded:d", "h:1"], "an embedded broker cannot be combined"),
    ],
)
def test_wrong_addresses(servers: str | list[str], words: str) -> None:
    """The message names what was written and what is wrong."""
    with pytest.raises(KafkaConfigurationError, match=words):
        local_address(servers)


def test_producers_of_one_directory_share_a_broker(tmp_path: Path) -> None:
    """By whatever name they call it; the last one stops it, and the next one finds the records."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "data")
    first = KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}/data")
    second = KafkaProducer(bootstrap_servers=f"embedded:{link}")
    assert first.embedded_broker is second.embedded_broker is not None
    assert first.send("t", b"1").get(timeout=500).offset == 0
    first.close()
    assert second.send("t", b"2").get(timeout=500).offset == 1
    assert f"splashdam broker {tmp_path}/data" in [each.name for each in threading.enumerate()]
    second.close()
    threads = [each.name for each in threading.enumerate()]
    assert f"splashdam broker {tmp_path}/data" not in threads
    with KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}/data") as third:
        assert third.embedded_broker is not second.embedded_broker
        assert third.send("t", b"3").get(timeout=500).offset == 2


def test_a_port_is_for_other_clients(tmp_path: Path) -> None:
    """The broker tells its address; another port for the same directory is refused."""
    with KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}?port=0") as producer:
        assert producer.embedded_broker is not None
        address = producer.embedded_broker.bootstrap_servers
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=30):
            pass
        with KafkaProducer(bootstrap_servers=address) as by_tcp:
            assert by_tcp.embedded_broker is None
            producer.send("t", b"1").get(timeout=500)
            assert by_tcp.send("t", b"2").get(timeout=500).offset == 1
        with pytest.raises(KafkaConfigurationError, match="runs already in this process, with port 0, not 1"):
            KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}?port=1")
        with KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}") as sharing:
            assert sharing.embedded_broker is producer.embedded_broker


def test_without_a_port_there_is_no_address(tmp_path: Path) -> None:
    """The broker says so."""
    with KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}") as producer:
        broker = producer.embedded_broker
        with pytest.raises(IllegalStateError, match="port"):
            _ = broker.bootstrap_servers  # type: ignore[union-attr]


def test_a_wrong_option_starts_no_broker(tmp_path: Path) -> None:
    """Options are checked first."""
    with pytest.raises(KafkaConfigurationError):
        KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}/data", acks=7)  # type: ignore[arg-type]
    assert not (tmp_path / "data").exists()


class Unready:
    """A metric reporter whose backend is not there."""

    def init(self, metrics: Any) -> None:
        raise LookupError

    def metric_change(self, metric: Any) -> None: ...
    def metric_removal(self, metric: Any) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize("kind", [KafkaProducer, AsyncKafkaProducer, AsyncioKafkaProducer])
def test_a_reporter_that_raised_in_init_left_the_broker_running(kind: Any, tmp_path: Path) -> None:
    """And a producer that claimed to run, whose ``close`` waited for ever, also after a cancel."""

    async def start() -> None:
        producer = kind(bootstrap_servers=f"embedded:{tmp_path}", metric_reporters=[Unready()])
        with pytest.raises(LookupError):
            await producer.__aenter__()
        assert repr(producer).endswith("closed>")
        await producer.__aexit__(None, None, None)

    if kind is KafkaProducer:
        with pytest.raises(LookupError):
            kind(bootstrap_servers=f"embedded:{tmp_path}", metric_reporters=[Unready()])
    elif kind is AsyncKafkaProducer:
        trio.run(start)
    else:
        asyncio.run(start())
    with EmbeddedBroker(tmp_path, fsync=False):  # the directory is free
        pass


def test_a_script_that_forgets_to_close_loses_nothing(tmp_path: Path) -> None:
    """At exit the producer delivers before its broker stops; the directory is closed cleanly."""
    script = (
        "import sys; from splashdam import KafkaProducer\n"
        "producer = KafkaProducer(bootstrap_servers=f'embedded:{sys.argv[1]}', linger_ms=60_000)\n"
        "producer.send('t', b'last words')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, timeout=500, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}") as producer:
        assert producer.send("t", b"next").get(timeout=500).offset == 1


async def test_the_trio_producer_shares_it_too(tmp_path: Path) -> None:
    """With a blocking one in the same process."""
    with KafkaProducer(bootstrap_servers=f"embedded:{tmp_path}") as blocking:
        async with AsyncKafkaProducer(bootstrap_servers=f"embedded:{tmp_path}") as producer:
            assert producer.embedded_broker is blocking.embedded_broker
            assert (await (await producer.send("t", b"1"))).offset == 0
        assert blocking.send("t", b"2").get(timeout=500).offset == 1
