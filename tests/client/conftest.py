"""Clusters for the client's tests: one in the test's loop, in virtual time, one in a thread, on TCP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import trio
from support.clients.holding import holding
from support.clients.local_cluster import TOPICS, LocalCluster
from support.clients.preparing import prepare
from support.scripted.cluster import ScriptedCluster
from trio.testing import MockClock

from splashdam.client.async_producer import AsyncKafkaProducer
from splashdam.client.producer import KafkaProducer
from splashdam.net.listen import address_of, tcp_listen
from splashdam.wire.messages.produce import ProduceRequest


@pytest.fixture
def away(autojump_clock: MockClock) -> LocalCluster:
    """A cluster that nobody has started."""
    return LocalCluster(autojump_clock)


@pytest.fixture
async def cluster(away: LocalCluster, nursery: trio.Nursery) -> LocalCluster:
    """A cluster that runs."""
    await nursery.start(away.scripted.run)
    return away


@pytest.fixture(params=[1, 2], ids=["tv1", "tv2"])
def level(request: pytest.FixtureRequest) -> int:
    """The level of the feature ``transaction.version``; KIP-890 applies from 2 on."""
    return int(request.param)


@pytest.fixture
def transactional(cluster: LocalCluster, level: int) -> Callable[..., AsyncKafkaProducer]:
    """Makes transactional producers for a cluster of that level."""
    cluster.scripted.features["transaction.version"] = level
    cluster.scripted.spoken[ProduceRequest] = (3, 12)

    def make(**options: Any) -> AsyncKafkaProducer:
        return cluster.producer(**{"transactional_id": "x", **options})

    return make


class TcpCluster:
    """A scripted cluster in a thread of its own."""

    def __init__(self, topics: Mapping[str, int] = TOPICS) -> None:
        self.scripted = ScriptedCluster(self, topics=dict(topics))  # type: ignore[arg-type]  # it listens, that is all
        self._started = threading.Event()
        self._stop = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._thread = threading.Thread(target=trio.run, args=(self._main,), daemon=True)

    @property
    def address(self) -> str:
        """Return the address on which it listens."""
        broker = self.scripted.brokers[1]
        return f"{broker.host}:{broker.port}"

    async def listen(self, _host: str, _port: int) -> Any:
        """A free port instead of the one that the script names."""
        listeners = await tcp_listen("127.0.0.1", 0)
        broker = self.scripted.brokers[1]
        broker.host, broker.port = address_of(listeners[0])
        return listeners

    def start(self) -> None:
        """Returns once it listens."""
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        """Ends it."""
        assert self._token is not None
        self._token.run_sync_soon(self._stop.set)
        self._thread.join()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            await nursery.start(self.scripted.run)
            self._started.set()
            await self._stop.wait()
            nursery.cancel_scope.cancel()

    def values(self, topic: str, partition: int = 0) -> list[Any]:
        """What a partition holds."""
        return [record.value for record in self.scripted.logs[topic, partition].records]  # type: ignore[index]


@pytest.fixture
def tcp_cluster() -> Iterator[TcpCluster]:
    """A cluster that runs in a thread and listens on TCP."""
    cluster = TcpCluster()
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture
def silent_peer() -> Iterator[str]:
    """The address of a socket that accepts and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address where nobody listens, and nobody else can: the port is bound until the test ends."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def undelivered() -> Callable[[KafkaProducer], AbstractContextManager[None]]:
    """Holds the sender back for a block, so that what is sent there is still on its way when the block ends.

    A callback that is added inside runs on the sender's thread, however fast the broker answers.
    """

    @contextmanager
    def hold(producer: KafkaProducer) -> Iterator[None]:
        prepare(producer, "one")
        with holding(producer._core.guard):
            yield

    return hold
