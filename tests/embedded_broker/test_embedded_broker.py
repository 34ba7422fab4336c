"""EmbeddedBroker: a broker for programs without trio, in a thread of its own."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from support.broker.broker_talk import Talk, batch, fetch_request, fetched, produce
from support.running.alone import alone, descriptor_count

from splashdam.embedded_broker.embedded import EmbeddedBroker, LoopThread
from splashdam.embedded_broker.embedded_cluster import EmbeddedCluster
from splashdam.model.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaConnectionError,
)
from splashdam.net.connect import Connect
from splashdam.testing.contract.raw_connection import RawConnection
from splashdam.wire.header import encode_request
from splashdam.wire.messages.api_versions import ApiVersionsRequest
from splashdam.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

START = """
import sys
from splashdam.embedded_broker.embedded import EmbeddedBroker
broker = EmbeddedBroker(sys.argv[1])
broker.start()
"""


def served_client(broker: EmbeddedBroker) -> socket.socket:
    """A connection that the broker has accepted: it answered."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    client = socket.create_connection((host, int(port)), timeout=300)
    request = encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id=None)
    client.sendall(b"".join(request))
    assert len(client.recv(1 << 16)) > 4
    return client


def test_start_and_stop(tmp_path: Path) -> None:
    """The directory is made, the port is open while it runs, and nothing stays open afterwards."""
    directory = tmp_path / "new" / "data"
    assert alone(left_of_a_broker, directory) == 0
    assert (directory / ".kafka_cleanshutdown").exists()


def left_of_a_broker(directory: Path) -> int:
    """Descriptors that a broker leaves open. It has one thread, which it takes with it."""
    before = descriptor_count()
    with EmbeddedBroker(directory) as broker:
        served_client(broker).close()
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
        assert threads_of_brokers() == [f"splashdam broker {directory}"]
    assert threads_of_brokers() == []
    return descriptor_count() - before


def threads_of_brokers() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("splashdam")]


def test_restart_of_one_object(tmp_path: Path) -> None:
    """start and stop can be repeated; stop of a stopped one is nothing."""
    broker = EmbeddedBroker(tmp_path)
    broker.stop()
    for _ in range(3):
        broker.start()
        with pytest.raises(IllegalStateError, match="already"):
            broker.start()
        broker.stop()
    with pytest.raises(IllegalStateError, match=r"start\(\)"):
        _ = broker.bootstrap_servers


def test_directory_in_use(tmp_path: Path) -> None:
    """A second broker on the directory is refused with the first one's process, here and elsewhere."""
    with EmbeddedBroker(tmp_path):
        with pytest.raises(IllegalStateError, match=str(os.getpid())):
            EmbeddedBroker(tmp_path).start()
        script = [sys.executable, "-c", START, str(tmp_path)]
        result = subprocess.run(script, capture_output=True, check=False, timeout=500)
        assert result.returncode == 1
        assert f"process {os.getpid()}" in result.stderr.decode()
    with EmbeddedBroker(tmp_path):
        pass


def test_address_in_use(tmp_path: Path) -> None:
    """The error says which; the directory is free again afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(KafkaConnectionError, match=str(port)):
            EmbeddedBroker(tmp_path, port).start()
    with EmbeddedBroker(tmp_path, port) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"


@pytest.mark.parametrize("has_token", [True, False], ids=["opening", "thread just begun"])
def test_interrupted_start_leaves_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_token: bool
) -> None:
    """Ctrl-C while start() waits: the broker ends, the directory is free, and it can be started again."""
    broker = EmbeddedBroker(tmp_path)
    threads: list[LoopThread[Any]] = []

    def interrupted(self: LoopThread[Any]) -> None:
        threads.append(self)
        if has_token:
            start(self)
        raise KeyboardInterrupt

    start = LoopThread.start
    with monkeypatch.context() as patched:
        patched.setattr(LoopThread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            broker.start()
    (thread,) = threads
    if not has_token:
        thread._thread.start()
    thread._thread.join(300)
    assert not thread._thread.is_alive()
    with broker:
        assert broker.bootstrap_servers


def test_settings_are_checked_at_once(tmp_path: Path) -> None:
    """A mistake shows where it is made, before anything starts."""
    with pytest.raises(KafkaConfigurationError, match="num_partitions"):
        EmbeddedBroker(tmp_path, num_partition=3)


@pytest.mark.parametrize(
    "options",
    [{"log_cleanup_policy": "foo"}, {"log_index_size_max_bytes": 8}, {"num_partitions": 1.5}],
    ids=str,
)
def test_settings_no_topic_could_have_are_refused_at_once(tmp_path: Path, options: dict[str, Any]) -> None:
    """They would only fail when the first topic is made, or with one that exists; the setting is named."""
    with pytest.raises(KafkaConfigurationError, match=next(iter(options))):
        EmbeddedBroker(tmp_path, **options)


@pytest.mark.parametrize("port", ["9092", 9092.0, True, -1, 65_536])
@pytest.mark.parametrize("kind", [EmbeddedBroker, EmbeddedCluster])
def test_a_port_that_is_none_was_a_type_error(tmp_path: Path, kind: Any, port: Any) -> None:
    """The text names the argument."""
    with pytest.raises(
        KafkaConfigurationError, match=f"port={port!r}: must be a whole number from 0 to 65535"
    ):
        kind(tmp_path, port=port).start()
    assert not list(tmp_path.iterdir())


def test_stop_with_clients_connected(tmp_path: Path) -> None:
    """B31: clients see the end of their streams."""
    with EmbeddedBroker(tmp_path) as broker:
        clients = [served_client(broker) for _ in range(3)]
    for client in clients:
        assert client.recv(1) == b""
        client.close()


async def ask_in_process(connect: Connect) -> None:
    async with await connect("anything", 1) as stream:
        talk = Talk(stream)
        answer = await talk.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
        assert [(node.host, node.port) for node in answer.brokers] == [("embedded", 9092)]
        big = batch(os.urandom(900_000))
        assert (await produce(talk, "t", big)).error_code == 0
        request = fetch_request("t", 0, max_bytes=1 << 21, partition_max_bytes=1 << 21)
        assert len(fetched(await talk.ask(request, 12))[0].records) >= len(big)


def test_in_process_connections(tmp_path: Path) -> None:
    """Any number of other trio loops reach it without TCP; after the end they are refused."""
    with EmbeddedBroker(tmp_path, port=None) as broker:
        connect = broker.connect_in_process()
        with pytest.raises(IllegalStateError, match="port=None"):
            _ = broker.bootstrap_servers
        for _ in range(2):
            trio.run(ask_in_process, connect)
    with pytest.raises(KafkaConnectionError, match="stopped"):
        trio.run(ask_in_process, connect)


async def wait_for_the_end(connect: Connect, stop: Callable[[], None]) -> None:
    async with await connect("anything", 1) as stream:
        assert (await Talk(stream).ask(ApiVersionsRequest(), 0)).api_keys
        await trio.to_thread.run_sync(stop)
        assert await stream.receive_some() == b""


def test_stop_with_in_process_clients(tmp_path: Path) -> None:
    """They too see the end of their streams."""
    with EmbeddedBroker(tmp_path, port=None) as broker:
        trio.run(wait_for_the_end, broker.connect_in_process(), broker.stop)


def test_forgotten_broker_stops(tmp_path: Path) -> None:
    """One that is collected closes its directory cleanly."""
    broker = EmbeddedBroker(tmp_path)
    broker.start()
    del broker
    gc.collect()
    with EmbeddedBroker(tmp_path):
        pass


def test_forgotten_broker_collected_on_its_own_thread(tmp_path: Path) -> None:
    """The collector runs on any thread; on the broker's own nobody waits for its end, and it ends."""
    broker = EmbeddedBroker(tmp_path)
    broker.start()
    running = broker._thread()
    finalizer = broker._finalizer
    assert finalizer is not None
    assert running._token is not None
    trio.from_thread.run_sync(finalizer, trio_token=running._token)
    running._thread.join(300)
    assert not running._thread.is_alive()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_exit_of_the_interpreter(tmp_path: Path) -> None:
    """A program that ends without stopping its broker ends at once, quietly, and leaves a clean directory."""
    script = [sys.executable, "-W", "error", "-c", START, str(tmp_path)]
    result = subprocess.run(script, capture_output=True, check=True, timeout=500)
    assert (result.stdout, result.stderr) == (b"", b"")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


FORK = """
import os, signal, socket, struct, sys
from splashdam.embedded_broker.embedded import EmbeddedBroker
from splashdam.model.errors import IllegalStateError

with EmbeddedBroker(sys.argv[1]) as broker:
    host, port = broker.bootstrap_servers.split(":")
    client = socket.create_connection((host, int(port)))
    # An answer shows that the broker has taken the connection in; a fork in the middle of that is not meant.
    client.sendall(struct.pack(">ihhih", 10, 18, 0, 0, -1))
    size, = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
    client.recv(size, socket.MSG_WAITALL)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        client.close()
        for call in (broker.start, broker.stop, broker.connect_in_process, lambda: broker.bootstrap_servers):
            try:
                call()
                os.write(write, b"no error\\n")
            except IllegalStateError as error:
                os.write(write, str(error).encode() + b"\\n")
        os.write(write, b"end\\n")
        os.close(write)
        signal.pause()
    os.close(write)
    with os.fdopen(read) as lines:
        told = lines.read().splitlines()
    assert len(told) == 5 and all("create the broker in the worker" in line for line in told[:4]), told
# The child lives on, but holds nothing: the client sees the end, port and directory are free.
assert client.recv(1) == b""
try:
    socket.create_connection((host, int(port)))
    raise SystemExit("the port is still open")
except ConnectionRefusedError:
    pass
with EmbeddedBroker(sys.argv[1], int(port)):
    pass
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_child(tmp_path: Path) -> None:
    """A child is told to make its own; it keeps neither port nor clients nor directory from the parent."""
    subprocess.run([sys.executable, "-c", FORK, str(tmp_path)], check=True, timeout=500)


def test_the_host_that_was_given_is_advertised(tmp_path: Path) -> None:
    """By its name, to programs and to clients: it may be the only one that a certificate or a proxy knows."""
    with EmbeddedBroker(tmp_path, host="localhost", fsync=False) as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        with RawConnection(host, int(port)) as talk:
            (node,) = talk.ask(MetadataRequest(topics=[]), 9).brokers
    assert (host, node.host, node.port) == ("localhost", "localhost", int(port))


def test_a_full_disk_at_the_close_was_told_with_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Cause and remedy are in the text; commands on ``embedded:`` printed twenty lines of stack besides."""
    with EmbeddedBroker(tmp_path / "data", port=None):
        (
            tmp_path / "data" / "replication-offset-checkpoint.tmp"
        ).mkdir()  # cannot be written, as on a full disk
    told = next(record for record in caplog.records if "has failed" in record.message)
    assert "was not closed in order, so the next start recovers it" in told.message
    assert told.exc_info is None
